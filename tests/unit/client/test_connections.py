"""Connections that are asked for and given up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, cast

import pytest

from odradek.client.config import ADMIN_DEFAULTS, CommonOptions
from odradek.client.errors import ClientError, Disconnected
from odradek.client.metrics.windows import Windows
from odradek.client.network.connection import Connection
from odradek.client.network.connections import BrokerAddress, Connections
from odradek.ports.network import SYSTEM_BUFFERS, BufferSizes, Listener, Stream
from odradek.ports.randomness import SeededRandom
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

pytestmark = pytest.mark.usefixtures("each_loop")


class SilentNetwork:
    """Connecting takes a moment and fails."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_fail = asyncio.Event()

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        raise NotImplementedError

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> Stream:
        self.asked.set()
        await self.may_fail.wait()
        raise TimeoutError

    def own_host(self) -> str:
        return "here"


class ClosedNetwork:
    """No address accepts connections; notes which were tried."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        raise NotImplementedError

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> Stream:
        self.tried.append(host)
        raise ConnectionRefusedError

    def own_host(self) -> str:
        return "here"


def connections_of(network: SilentNetwork | ClosedNetwork, seed: int = 1) -> Connections:
    options = {
        **ADMIN_DEFAULTS,
        "bootstrap_servers": "there:1", "client_id": "c", "socket_connection_setup_timeout_ms": 1000,
        "request_timeout_ms": 1000, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 1,
        "security_protocol": "PLAINTEXT",
    }  # fmt: skip
    windows = Windows(asyncio.get_running_loop().time, 30, 2)
    return Connections(network, SeededRandom(seed), cast("CommonOptions", options), windows)


@pytest.mark.parametrize("seed", range(4))
def test_broker_that_failed_is_tried_last_when_any_will_do(seed: int) -> None:
    async def body() -> list[str]:
        network = ClosedNetwork()
        connections = connections_of(network, seed)
        connections.update_brokers({node: BrokerAddress(node, f"b{node}", 1) for node in (1, 2, 3)})
        with pytest.raises(ClientError):
            await connections.get(2)
        network.tried.clear()
        with pytest.raises(ClientError):
            await connections.any()
        await connections.close()
        return network.tried

    tried = asyncio.run(body())
    assert sorted(tried) == ["b1", "b2", "b3", "there"]
    assert tried[-1] == "b2"


def test_attempt_without_a_waiting_caller_is_not_reported() -> None:
    """Found by the simulator (cluster-79000): asyncio complained of an exception that was never retrieved."""
    complaints: list[Any] = []

    async def body() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        network = SilentNetwork()
        connections = connections_of(network)
        waiting = loop.create_task(connections.any())
        await network.asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        network.may_fail.set()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        await connections.close()

    asyncio.run(body())
    assert complaints == []


class BrokenStream:
    """A stream whose peer is gone, which shows when something is sent."""

    peer_host, peer_port = "there", 1

    def send(self, part: bytes, more: bool) -> int:
        raise BrokenPipeError("broken pipe")

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        pass

    def close(self) -> None:
        pass


def test_request_fails_after_its_call_when_writing_breaks() -> None:
    async def body() -> None:
        connection = Connection(cast(Stream, BrokenStream()), "c", asyncio.get_running_loop())
        results: list[object] = []
        connection.send(ApiVersionsRequest("c", "1"), ApiVersionsResponse, 3, 1000, results.append)
        assert not results
        assert connection.in_flight == 0
        await asyncio.sleep(0)
        assert [type(each) for each in results] == [Disconnected]
        with pytest.raises(Disconnected):
            connection.send(ApiVersionsRequest("c", "1"), ApiVersionsResponse, 3, 1000, results.append)

    asyncio.run(body())
