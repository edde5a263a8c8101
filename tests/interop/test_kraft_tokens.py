"""Delegation tokens of a KRaft cluster: controllers of one product create them, brokers of both admit their bearers."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin import Admin
from odradek.client.admin.tokens import DelegationToken
from odradek.client.errors import AuthenticationFailed
from tests.interop.conftest import JavaTools
from tests.interop.kraft_nodes import CONTROLLER, KraftNodes

pytestmark = pytest.mark.long

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_ADMIN = f'{_PLAIN} username="admin" password="secret"'
_BROKER = "listener.name.plaintext"
SETTINGS = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{_ADMIN} user_admin="secret";',
    "delegation.token.secret.key": "shared by all nodes",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "offsets.topic.replication.factor": "2",
}
OF_BROKERS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{_BROKER}.plain.sasl.jaas.config": f'{_ADMIN} user_admin="secret";',
    f"{_BROKER}.scram-sha-256.sasl.jaas.config": f"{_SCRAM};",
}


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    """Broker 1 is Apache's, broker 2 ours."""
    made = KraftNodes(tmp_path, brokers=(1, 2), settings=SETTINGS)
    for broker in (1, 2):
        made.add_settings(broker, OF_BROKERS)
    yield made
    made.close()


def login(nodes: KraftNodes, broker: int, mechanism: str, jaas: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{nodes.ports[broker]}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": jaas,
    }


def by_token(nodes: KraftNodes, broker: int, token: DelegationToken) -> dict[str, Any]:
    password = base64.b64encode(token.hmac).decode()
    jaas = f'{_SCRAM} username="{token.token_id}" password="{password}" tokenauth="true";'
    return login(nodes, broker, "SCRAM-SHA-256", jaas)


async def admits(nodes: KraftNodes, broker: int, token: DelegationToken) -> bool:
    try:
        async with Admin(**by_token(nodes, broker, token)) as admin:
            return bool(await admin.describe_cluster())
    except AuthenticationFailed:
        return False


async def wait_until_admitted(nodes: KraftNodes, broker: int, token: DelegationToken, *, wanted: bool) -> None:
    """A broker learns of a token from the metadata log."""
    end = time.monotonic() + 30
    while await admits(nodes, broker, token) is not wanted:
        assert time.monotonic() < end, f"broker {broker}: {wanted}\n{nodes.output(broker)[-2000:]}"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("controller", ["apache", "odradek"])
def test_brokers_of_both_kinds_admit_the_bearer_of_a_token(nodes: KraftNodes, controller: str) -> None:
    (nodes.start_apache if controller == "apache" else nodes.start_odradek)(CONTROLLER)
    nodes.wait_until_serving(CONTROLLER)
    nodes.start_apache(1)
    nodes.start_odradek(2)
    nodes.wait_until_serving(1, 2)

    async def scenario() -> None:
        for broker in (1, 2):
            async with Admin(**login(nodes, broker, "PLAIN", f"{_ADMIN};")) as admin:
                token = await admin.tokens.create(renewers=["User:other"])
                for each in (1, 2):
                    await wait_until_admitted(nodes, each, token, wanted=True)
                assert token.token_id in {each.token_id for each in await admin.tokens.describe()}
                await admin.tokens.expire(token.hmac)
                for each in (1, 2):
                    await wait_until_admitted(nodes, each, token, wanted=False)

    asyncio.run(scenario())
