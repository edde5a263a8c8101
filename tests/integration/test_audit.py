"""The audit topic of brokers with SASL and ACLs, over real sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.client import Admin, ClientError, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from odradek.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AlterConfig,
    ClientQuotaEntity,
    ConfigResource,
    ConfigResourceType,
    FeatureUpdate,
    FeatureUpgradeType,
    ResourceType,
    ScramMechanism,
    ScramUpsertion,
    TopicPartitionReplica,
)
from odradek.wire.errors import ErrorCode
from tests.certificates import Authority, Certificate
from tests.integration.clusters import QUICK, sound_cluster
from tests.integration.sasl_brokers import ADMIN_PASSWORD, ALICE, ALICE_PASSWORD, add_users, login, sasl_settings
from tests.integration.tls_brokers import Security

SECONDS = 60
TOPIC = "__odradek_audit"
PLANTED = "planted-password-4711"
Event = dict[str, Any]


def audited(data: Path, **others: str) -> dict[str, str]:
    return sasl_settings(
        data,
        authorizer_class_name="odradek",
        super_users="User:admin",
        odradek_audit_topic_enable="true",
        **others,
    )


async def read_until(options: dict[str, Any], is_complete: Callable[[list[Event]], bool]) -> tuple[list[Event], bytes]:
    """The events of the topic, and their bytes, once they meet the condition."""
    events: list[Event] = []
    raw = b""
    async with Consumer(TOPIC, **options, auto_offset_reset="earliest") as consumer:
        while not is_complete(events):
            for record in await consumer.poll(timeout_ms=500):
                raw += record.value
                events.append(json.loads(record.value))
    return events, raw


def find(events: list[Event], **fields: object) -> list[Event]:
    return [each for each in events if all(each.get(name) == value for name, value in fields.items())]


async def see_everything(bootstrap: str) -> None:
    """Logins, denials and changes, before and after, without a password."""
    config = ConfigResource(ConfigResourceType.TOPIC, "orders")
    own = ConfigResource(ConfigResourceType.BROKER, "1")
    place = TopicPartition("orders", 0)
    async with Admin(**login(bootstrap), client_id="tool") as admin:
        await admin.create_topics([NewTopic("orders", 1, 1)])
        await admin.alter_configs({config: [AlterConfig("retention.ms", "1000")]})
        await admin.acls.create([AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.DESCRIBE)])
        await admin.users.alter([ScramUpsertion("bob", ScramMechanism.SCRAM_SHA_256, PLANTED, 4096)])
        await admin.quotas.alter({ClientQuotaEntity.of({"user": "bob"}): {"producer_byte_rate": 1000.0}})
        await admin.groups.alter_offsets("readers", {place: 7})
        await admin.groups.alter_offsets("readers", {place: 3})
        await admin.groups.delete(["readers"])
        await admin.alter_configs({own: [AlterConfig("log.cleaner.threads", "2")]})
        await admin.delete_topics(["orders"])
    async with Admin(**login(bootstrap, "SCRAM-SHA-512", ALICE, ALICE_PASSWORD), client_id="snoop") as alice:
        assert isinstance((await alice.create_topics([NewTopic("secrets", 1, 1)]))["secrets"], KafkaError)
    with pytest.raises(ClientError):
        async with Admin(**login(bootstrap, "SCRAM-SHA-512", "mallory", PLANTED)) as mallory:
            await mallory.list_topics()
    events, raw = await read_until(login(bootstrap), lambda events: bool(find(events, event="login_failure")))

    assert {each["version"] for each in events} == {1}
    numbers = [each["sequence"] for each in events]
    assert numbers == list(range(1, len(numbers) + 1))
    assert find(events, event="login", principal="User:admin", mechanism="PLAIN", host="127.0.0.1")
    assert find(events, event="login_failure", principal="User:mallory", mechanism="SCRAM-SHA-512")
    [denial] = find(events, event="denial", resource_name="secrets")
    assert denial["principal"] == "User:alice"
    assert (denial["operation"], denial["resource_type"], denial["request"]) == ("CREATE", "TOPIC", "CREATE_TOPICS")
    assert (denial["client_id"], denial["enforced"]) == ("snoop", True)
    assert "rule" in denial

    [made] = find(events, request="CREATE_TOPICS", resource_name="orders")
    assert "before" not in made
    assert made["after"]["partitions"] == 1
    assert (made["principal"], made["client_id"]) == ("User:admin", "tool")
    [configured] = find(events, request="INCREMENTAL_ALTER_CONFIGS", resource_type="TOPIC")
    assert (configured["before"], configured["after"]) == ({"retention.ms": None}, {"retention.ms": "1000"})
    [allowed] = find(events, request="CREATE_ACLS")
    assert allowed["after"]["principal"] == "User:alice"
    [bob] = find(events, request="ALTER_USER_SCRAM_CREDENTIALS", resource_name="bob")
    assert bob["after"] == {"SCRAM-SHA-256": {"iterations": 4096}, "written": ["SCRAM-SHA-256"]}
    [quota] = find(events, request="ALTER_CLIENT_QUOTAS")
    assert (quota["resource_name"], quota["after"]) == ("user=bob", {"producer_byte_rate": 1000.0})
    steps = [(each["before"], each["after"]) for each in find(events, request="OFFSET_COMMIT")]
    assert steps == [({"offsets": {"0": None}}, {"offsets": {"0": 7}}), ({"offsets": {"0": 7}}, {"offsets": {"0": 3}})]
    [gone] = find(events, request="DELETE_GROUPS")
    assert gone["before"] == {"offsets": {"orders": {"0": 3}}}
    [deleted] = find(events, request="DELETE_TOPICS")
    assert deleted["before"]["configs"] == {"retention.ms": "1000"}
    assert "after" not in deleted
    for secret in (PLANTED, ALICE_PASSWORD, ADMIN_PASSWORD):
        assert secret.encode() not in raw


def test_audit_topic_has_logins_denials_and_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(BrokerConfig(audited(tmp_path)))
        await broker.start()
        try:
            await add_users(broker.bootstrap)
            await asyncio.wait_for(see_everything(broker.bootstrap), SECONDS)
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_only_brokers_and_super_users_may_change_the_topic(tmp_path: Path) -> None:
    """An ACL that allows everything on all topics lets a client read, not write or delete."""

    async def scenario() -> None:
        broker = Broker(BrokerConfig(audited(tmp_path)))
        await broker.start()
        try:
            await add_users(broker.bootstrap)
            async with Admin(**login(broker.bootstrap)) as admin:
                await admin.acls.create([AclBinding(ResourceType.TOPIC, "*", "User:alice", AclOperation.ALL)])
            options = login(broker.bootstrap, "SCRAM-SHA-256", ALICE, ALICE_PASSWORD)
            async with Admin(**options) as alice:
                while isinstance((await alice.describe_topics([TOPIC]))[TOPIC], KafkaError):
                    await asyncio.sleep(0.05)
                failure = (await alice.delete_topics([TOPIC]))[TOPIC]
                assert isinstance(failure, KafkaError)
                assert failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            async with Producer(**options, client_id="__admin_client") as producer:
                with pytest.raises(KafkaError) as caught:
                    await producer.send_and_wait(TOPIC, b"forged")
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_each_broker_of_a_cluster_writes_its_events(tmp_path: Path) -> None:
    """Forwarded changes are recorded once, by the controller; levels of loggers by the broker that has them."""

    async def scenario(bootstrap: str) -> list[Event]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for number in (1, 2, 3):
                name = f"t{number}"
                assert not isinstance((await admin.create_topics([NewTopic(name, 1, 3)]))[name], KafkaError)
                logger = ConfigResource(ConfigResourceType.BROKER_LOGGER, str(number))
                changed = await admin.alter_configs({logger: [AlterConfig("odradek.broker", "DEBUG")]})
                assert changed == {logger: None}
        events: list[Event] = []
        wanted: tuple[dict[str, object], ...] = ({"resource_type": "BROKER_LOGGER"}, {"request": "CREATE_TOPICS"})
        async with Consumer(TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            # An event may have been written twice.
            while min(len({each["resource_name"] for each in find(events, **fields)}) for fields in wanted) < 3:
                events += [json.loads(each.value) for each in await consumer.poll(timeout_ms=500)]
        return events

    settings = {"odradek.audit.topic.enable": "true", **QUICK}
    with sound_cluster(tmp_path, settings) as cluster:
        events = asyncio.run(asyncio.wait_for(scenario(cluster.bootstrap), SECONDS))
    loggers = find(events, resource_type="BROKER_LOGGER")
    assert {(str(each["broker"]), each["resource_name"]) for each in loggers} == {("1", "1"), ("2", "2"), ("3", "3")}
    made = {(each["broker"], each["sequence"]): each for each in find(events, request="CREATE_TOPICS")}
    assert sorted(each["resource_name"] for each in made.values()) == ["t1", "t2", "t3"]
    assert len({broker for broker, _ in made}) == 1


async def use_every_api(bootstrap: str, folder: Path) -> list[Event]:
    place = TopicPartition("orders", 0)
    topic = ConfigResource(ConfigResourceType.TOPIC, "orders")
    async with Producer(**login(bootstrap)) as producer, Admin(**login(bootstrap)) as admin:
        await admin.create_topics([NewTopic("orders", 1, 1)])
        await admin.create_partitions({"orders": 2})
        for _ in range(3):
            await producer.send_and_wait("orders", b"x", partition=0)
        await admin.delete_records({place: 2})
        await admin.groups.alter_offsets("readers", {place: 2})
        await admin.groups.delete_offsets("readers", [place])
        await admin.replicas.reassign({place: [1]})
        await admin.replicas.elect([TopicPartition("orders", 9)])
        await admin.log_dirs.alter({TopicPartitionReplica("orders", 0, 1): str(folder)})
        await admin.features.update({"group.version": FeatureUpdate(0, FeatureUpgradeType.SAFE_DOWNGRADE)})
        with pytest.raises(KafkaError):
            await admin.unregister_broker(7)
        await admin.alter_configs({topic: [AlterConfig("retention.ms", "1")]}, validate_only=True)
        binding = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
        await admin.acls.create([binding])
        await admin.acls.delete([AclFilter(ResourceType.TOPIC, "orders")])
        token = await admin.tokens.create()
        await admin.tokens.renew(token.hmac)
        await admin.tokens.expire(token.hmac)
    events, raw = await read_until(
        login(bootstrap), lambda events: bool(find(events, request="EXPIRE_DELEGATION_TOKEN"))
    )
    assert token.hmac not in raw
    return events


def test_every_administrative_api_is_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[Event]:
        settings = audited(tmp_path / "data", delegation_token_secret_key="of the tokens")
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            await add_users(broker.bootstrap)
            return await asyncio.wait_for(use_every_api(broker.bootstrap, tmp_path), SECONDS)
        finally:
            await broker.stop()

    events = asyncio.run(scenario())
    assert "could not be made" not in caplog.text
    steps = {each["request"]: each for each in find(events, event="change")}
    changed = {
        "CREATE_PARTITIONS": ("partitions", 1, 2),
        "DELETE_RECORDS": ("log_start_offset", 0, 2),
        "OFFSET_DELETE": ("offsets", {"0": 2}, {"0": None}),
        "UPDATE_FEATURES": ("group.version", None, 0),
    }
    for request, (field, before, after) in changed.items():
        assert (steps[request]["before"][field], steps[request]["after"][field]) == (before, after), request
    assert steps["ALTER_PARTITION_REASSIGNMENTS"]["after"]["replicas"] == [1]
    assert steps["DELETE_ACLS"]["before"] == steps["CREATE_ACLS"]["after"]
    expiries = [steps[f"{each}_DELEGATION_TOKEN"]["after"]["expiry_ms"] for each in ("CREATE", "RENEW", "EXPIRE")]
    assert expiries[0] <= expiries[1]
    assert expiries[2] < expiries[1]
    assert len({steps[f"{each}_DELEGATION_TOKEN"]["resource_name"] for each in ("CREATE", "RENEW", "EXPIRE")}) == 1
    assert {request: steps[request]["error"] for request in steps if "error" in steps[request]} == {
        "ELECT_LEADERS": "UNKNOWN_TOPIC_OR_PARTITION",
        "ALTER_REPLICA_LOG_DIRS": "LOG_DIR_NOT_FOUND",
        "UNREGISTER_BROKER": "BROKER_ID_NOT_REGISTERED",
    }
    assert not find(events, request="INCREMENTAL_ALTER_CONFIGS"), "it was validated only"


def test_certificates_are_logins_and_foreign_ones_failures(tmp_path: Path) -> None:
    security = Security(tmp_path / "certificates")
    foreign = Authority(tmp_path / "foreign", "foreign CA").issue("/CN=mallory")

    def options(bootstrap: str, certificate: Certificate) -> dict[str, Any]:
        return {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": security.authority.file,
            "ssl_certfile": certificate.certificate,
            "ssl_keyfile": certificate.key,
        }

    async def scenario() -> list[Event]:
        settings = security.settings(
            tmp_path / "data",
            ssl_client_auth="required",
            security_inter_broker_protocol="SSL",
            odradek_audit_topic_enable="true",
        )
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            alice = options(broker.bootstrap, security.client)
            async with Admin(**alice) as admin:
                await admin.list_topics()
            context = ssl.create_default_context(cafile=security.authority.file)
            context.load_cert_chain(foreign.certificate, foreign.key)
            reader, writer = await asyncio.open_connection(*broker.bootstrap.split(":"), ssl=context)
            with pytest.raises(OSError, match="ALERT_UNKNOWN_CA"):
                await reader.read(1)  # the handshake's end, as TLS 1.3 reports it to a client
            writer.close()
            events, _ = await read_until(alice, lambda events: bool(find(events, event="login_failure")))
            return events
        finally:
            await broker.stop()

    events = asyncio.run(asyncio.wait_for(scenario(), SECONDS))
    assert find(events, event="login", principal="User:CN=alice,O=Acme", mechanism="TLS", listener="SSL")
    assert find(events, event="login_failure", mechanism="TLS", listener="SSL")[0]["reason"]
