"""Nodes of a KRaft cluster whose controllers ask for TLS, SCRAM and the right to cluster actions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import Producer
from odradek.client.admin import Admin, NewTopic
from tests.certificates import Authority
from tests.integration.test_quorum import NODES, Nodes, values_of
from tests.unit.broker.quorum.controllers_in_process import CLUSTER

pytestmark = pytest.mark.long
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PREFIX = "listener.name.controller"


def protection(folder: Path) -> dict[str, str]:
    authority = Authority(folder)
    return {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        f"{PREFIX}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{PREFIX}.scram-sha-512.sasl.jaas.config": f'{MODULE} required username="node" password="node-secret";',
        f"{PREFIX}.ssl.keystore.type": "PEM",
        f"{PREFIX}.ssl.keystore.location": authority.issue("/CN=node").both,
        f"{PREFIX}.ssl.truststore.type": "PEM",
        f"{PREFIX}.ssl.truststore.location": authority.file,
        f"{PREFIX}.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:ANONYMOUS",
    }


def format_with_user(nodes: Nodes, node: int) -> None:
    arguments = ["storage", "format", "--cluster-id", CLUSTER, "--config", str(nodes.directory / f"{node}.properties")]
    arguments += ["--add-scram", "SCRAM-SHA-512=[name=node,password=node-secret]"]
    subprocess.run([sys.executable, "-m", "odradek.cli.main", *arguments], check=True, timeout=60, capture_output=True)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    running = Nodes(tmp_path, protection(tmp_path / "certificates"), format_with_user)
    try:
        running.start(*NODES)
        running.wait_until("odradek ready", *NODES)
        yield running
    finally:
        running.close()


def test_protected_quorum_continues_after_all_nodes_were_killed(nodes: Nodes) -> None:
    async def fill() -> None:
        async with Admin(bootstrap_servers=nodes.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 3, 3)])
        async with Producer(bootstrap_servers=nodes.bootstrap, acks="all") as producer:
            for number in range(50):
                await producer.send_and_wait("t", value=b"%d" % number)

    asyncio.run(fill())
    nodes.kill(*NODES)
    nodes.start(*NODES)
    nodes.wait_until("odradek ready", *NODES, times=2)
    assert asyncio.run(values_of(nodes.bootstrap, 50)) == {b"%d" % number for number in range(50)}
