"""ACLs over real sockets: clients with certificates, one broker and three."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.client import Admin, Producer
from odradek.client.admin import AclBinding, AclFilter, AclOperation, NewTopic, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from tests.certificates import Authority, Certificate


class People:
    """The broker's certificate, an administrator's and that of a user without rights."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.broker = self.authority.issue("/CN=localhost")
        self.admin = self.authority.issue("/CN=admin")
        self.alice = self.authority.issue("/CN=alice")

    def settings(self, data: Path, **others: str) -> dict[str, str]:
        """A broker with an authorizer, whose super user is the administrator."""
        return {
            "listeners": "SSL://127.0.0.1:0",
            "log.dirs": str(data),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.broker.both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
            "ssl.client.auth": "required",
            "offsets.topic.num.partitions": "1",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:CN=admin",
        } | {name.replace("_", "."): value for name, value in others.items()}

    def options(self, bootstrap: str, certificate: Certificate) -> dict[str, Any]:
        """Client options of somebody."""
        return {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": self.authority.file,
            "ssl_certfile": certificate.certificate,
            "ssl_keyfile": certificate.key,
        }


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    return People(tmp_path_factory.mktemp("certificates"))


async def produced(producer: Producer, topic: str) -> ErrorCode:
    try:
        await asyncio.wait_for(producer.send_and_wait(topic, b"v"), 20)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_acl_admits_and_its_removal_denies_an_open_connection(people: People, tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(BrokerConfig(people.settings(tmp_path)))
        await broker.start()
        try:
            admin = Admin(**people.options(broker.bootstrap, people.admin))
            await admin.start()
            await admin.create_topics([NewTopic("orders", 1, 1)])
            producer = Producer(**people.options(broker.bootstrap, people.alice))
            await producer.start()
            assert await produced(producer, "orders") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            binding = AclBinding(ResourceType.TOPIC, "orders", "User:CN=alice", AclOperation.WRITE)
            assert (await admin.acls.create([binding])) == {binding: None}
            assert await admin.acls.describe() == [binding]
            assert await produced(producer, "orders") is ErrorCode.NONE
            matching = AclFilter(ResourceType.TOPIC)
            assert (await admin.acls.delete([matching])) == {matching: [binding]}
            assert await produced(producer, "orders") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await producer.close()
            await admin.close()
        finally:
            await broker.stop()

    asyncio.run(scenario())
