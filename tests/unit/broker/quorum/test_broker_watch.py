"""The active controller notices that a broker's process has ended: no session ends in these tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.quorum.controller_node import ControllerNode
from odradek.metadata.image import Broker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
)
from tests.integration.conftest import RawClient
from tests.unit.broker.quorum.controllers_in_process import CLUSTER, Quorum, add_broker, free_ports, quorum, until

BROKER = 7
LONG_SESSION = {"broker.session.timeout.ms": "600000"}


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """The listener of a broker that lives."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


def registered(node: ControllerNode) -> Broker:
    return node.parts.controller.image.brokers[BROKER]


def connect(running: Quorum, node: ControllerNode) -> RawClient:
    """A connection over which a heartbeat of the broker has come."""
    client = RawClient(f"127.0.0.1:{running.ports[node.parts.replica.leader.leader_id]}")
    answer = client.call(BrokerHeartbeatRequest(BROKER, registered(node).epoch, 1 << 40), 1)
    assert (answer.error_code, answer.is_fenced) == (0, False)
    return client


async def register(node: ControllerNode, incarnation: bytes, port: int, connection: int) -> None:
    """Another process of the broker registers."""
    request = BrokerRegistrationRequest(
        BROKER, CLUSTER, incarnation.rjust(16), [BrokerRegistrationRequestListener("PLAINTEXT", "127.0.0.1", port)],
        [
            BrokerRegistrationRequestFeature("metadata.version", 7, 30),
            BrokerRegistrationRequestFeature("group.version", 0, 1),
            BrokerRegistrationRequestFeature("transaction.version", 0, 2),
        ],
        log_dirs=[bytes(15) + b"\xfe"],
    )  # fmt: skip
    await node.parts.brokers.register(request, connection)


def test_broker_is_fenced_when_its_process_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            await add_broker(node, BROKER, ("127.0.0.1", free_ports(1)[0]))
            client = await asyncio.to_thread(connect, running, node)
            client.close()
            await until(lambda: registered(node).fenced)

    run(scenario)


@pytest.mark.parametrize("closed", [0, 1], ids=["all-listeners", "one-of-two"])
def test_broker_that_listens_keeps_its_session_when_its_connection_breaks(
    tmp_path: Path, listening: socket.socket, closed: int
) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            refused = [("127.0.0.1", port) for port in free_ports(closed)]
            await add_broker(node, BROKER, *refused, listening.getsockname())
            client = await asyncio.to_thread(connect, running, node)
            client.close()
            for _ in range(3):
                (await asyncio.get_running_loop().sock_accept(listening))[0].close()
            assert not registered(node).fenced

    run(scenario)


def test_next_controller_fences_a_broker_that_ended_with_the_former_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, settings=LONG_SESSION) as running:
            first = running.active
            await add_broker(first, BROKER, ("127.0.0.1", free_ports(1)[0]))
            assert not registered(first).fenced
            await running.stop(first.parts.replica.leader.leader_id)
            second = await running.wait_until_active()
            await until(lambda: registered(second).fenced)

    run(scenario)


def test_next_process_with_the_same_listeners_registers_at_once(tmp_path: Path, listening: socket.socket) -> None:
    """The next process listens already, so that the end of the former one cannot be seen by its address."""

    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            address = listening.getsockname()
            await add_broker(node, BROKER, address)
            client = await asyncio.to_thread(connect, running, node)
            for port in (address[1], address[1] + 1):
                with pytest.raises(KafkaError) as raised:
                    await register(node, b"second", port, 1)
                assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            client.close()
            (await asyncio.get_running_loop().sock_accept(listening))[0].close()
            with pytest.raises(KafkaError) as raised:
                await register(node, b"elsewhere", address[1] + 1, 1)
            assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            await register(node, b"second", address[1], 1)
            assert registered(node).incarnation_id == b"second".rjust(16)

    run(scenario)
