"""Connections to the other brokers: which requests share one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.cluster import peers as peers_module
from odradek.broker.cluster.peers import Peers, Purpose
from odradek.metadata.image import Broker, ClusterImage, Endpoint
from odradek.ports.network import TcpNetwork
from tests.unit.broker.cluster.broker_proofs import no_proof


class OneAtATime:
    """A connection whose broker answers one request after the other, each once it is let."""

    def __init__(self) -> None:
        self.closed: Exception | None = None
        self.may_answer = asyncio.Event()
        self._turn = asyncio.Lock()

    async def request(self, request: Any, *_: Any) -> Any:
        async with self._turn:
            await self.may_answer.wait()
            return request

    def close(self) -> None:
        self.closed = ConnectionError("closed")


def test_a_request_waits_for_others_of_its_kind_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers, for a broker that is slow to write them, must not hold up the question whether a transaction is open."""

    async def test() -> None:
        opened: list[OneAtATime] = []

        async def open_connection(*_: Any, **__: Any) -> OneAtATime:
            opened.append(OneAtATime())
            return opened[-1]

        monkeypatch.setattr(peers_module, "open_connection", open_connection)
        image = ClusterImage().with_broker(Broker(2, 1, None, {"PLAINTEXT": Endpoint("127.0.0.1", 1, "PLAINTEXT")}))
        peers = Peers(TcpNetwork(), lambda: image, "PLAINTEXT", 1, no_proof)

        def ask(purpose: Purpose, request: Any) -> asyncio.Task[Any]:
            return asyncio.create_task(peers.request(purpose, 2, request, Any, 0, 1000))

        markers = [ask(Purpose.MARKERS, number) for number in range(2)]
        async with asyncio.timeout(10):
            while not opened:
                await asyncio.sleep(0)
            verification = ask(Purpose.VERIFICATION, "open?")
            while len(opened) < 2:
                await asyncio.sleep(0)
            opened[1].may_answer.set()
            assert await verification == "open?"
            assert not any(each.done() for each in markers)
            opened[0].may_answer.set()
            assert await asyncio.gather(*markers) == [0, 1]
        assert len(opened) == 2, "those of one kind share a connection"
        peers.close()
        assert all(each.closed for each in opened)

    asyncio.run(test())
