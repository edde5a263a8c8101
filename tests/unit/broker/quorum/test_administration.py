"""What administrators change through brokers of an Odradek quorum, with an authorizer on brokers and controllers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.client import TopicPartition
from odradek.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    Admin,
    AlterConfig,
    ClientQuotaEntity,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
    ResourceType,
    ScramMechanism,
    ScramUpsertion,
)
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.quorum.controllers_in_process import quorum, until

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
READ = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
QUOTA = ClientQuotaEntity.of({"user": "bob"})
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")
FIRST = TopicPartition("orders", 0)


def test_brokers_pass_changes_on_and_controllers_keep_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, brokers=(1, 2), settings=SETTINGS) as running:
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await change_everything(admin)
            await running.stop(100)
            await running.start(100)
            await running.wait_until_active()
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await see_everything(admin)
            image = running.active.parts.metadata.image
            await until(lambda: image.topics["orders"].partitions[0].leader >= 0)

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


async def change_everything(admin: Admin) -> None:
    created = await admin.create_topics([NewTopic("orders", 1, 2), NewTopic("gone", 1, 1)])
    assert not any(isinstance(each, KafkaError) for each in created.values())
    assert await admin.create_partitions({"orders": 3}) == {"orders": None}
    assert await admin.delete_topics(["gone"]) == {"gone": None}
    assert await admin.alter_configs({TOPIC: [AlterConfig("retention.ms", "1000")]}) == {TOPIC: None}
    assert await admin.acls.create([READ]) == {READ: None}
    assert await admin.users.alter([ScramUpsertion("bob", ScramMechanism.SCRAM_SHA_256, "secret", 4096)]) == {
        "bob": None
    }
    assert await admin.quotas.alter({QUOTA: {"producer_byte_rate": 1000.0}}) == {QUOTA: None}
    elected = await admin.replicas.elect([FIRST], ElectionType.PREFERRED)
    failure = elected[FIRST]
    assert failure is None or failure.code is ErrorCode.ELECTION_NOT_NEEDED
    assert await admin.replicas.reassign({FIRST: [2, 1]}) == {FIRST: None}


async def see_everything(admin: Admin) -> None:
    assert set(await admin.list_topics()) == {"orders"}
    described = await admin.describe_topics(["orders"])
    topic = described["orders"]
    assert not isinstance(topic, KafkaError)
    assert len(topic.partitions) == 3
    configs = (await admin.describe_configs([TOPIC]))[TOPIC]
    assert not isinstance(configs, KafkaError)
    assert {each.name: each.value for each in configs.values()}["retention.ms"] == "1000"
    assert await admin.acls.describe() == [READ]
    assert "bob" in await admin.users.describe()
    assert (await admin.quotas.describe())[QUOTA] == {"producer_byte_rate": 1000.0}
    removed = await admin.acls.delete([AclFilter(ResourceType.TOPIC, "orders")])
    assert list(removed.values()) == [[READ]]
    assert await admin.acls.describe() == []
    features = await admin.features.describe()
    assert features.finalized["metadata.version"].max_version == 30
