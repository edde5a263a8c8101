"""Connections that are asked for and given up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, cast

import pytest

from odradek.client.config import CommonOptions
from odradek.client.metrics.windows import Windows
from odradek.client.network.connections import Connections
from odradek.ports.network import Listener, Stream
from odradek.ports.randomness import SeededRandom


class SilentNetwork:
    """Connecting takes a moment and fails."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_fail = asyncio.Event()

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        raise NotImplementedError

    async def connect(self, host: str, port: int, timeout: float, silence: float = 0.0) -> Stream:
        self.asked.set()
        await self.may_fail.wait()
        raise TimeoutError

    def own_host(self) -> str:
        return "here"


def test_attempt_without_a_waiting_caller_is_not_reported() -> None:
    """Found by the simulator (cluster-79000): asyncio complained of an exception that was never retrieved."""
    complaints: list[Any] = []

    async def body() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        network = SilentNetwork()
        options = {
            "bootstrap_servers": "there:1", "client_id": "c", "socket_connection_setup_timeout_ms": 1000,
            "request_timeout_ms": 1000, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 1,
            "security_protocol": "PLAINTEXT",
        }  # fmt: skip
        windows = Windows(asyncio.get_running_loop().time, 30, 2)
        connections = Connections(network, SeededRandom(1), cast("CommonOptions", options), windows)
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
