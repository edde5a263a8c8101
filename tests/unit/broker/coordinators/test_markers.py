"""Markers on their way to the leaders of their partitions: what is tried again, and what is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from odradek.broker.cluster import peers as peers_module
from odradek.broker.cluster.peers import Peers
from odradek.broker.coordinators import markers as markers_module
from odradek.broker.coordinators.marker_channels import MarkerChannels
from odradek.broker.coordinators.markers import MarkerWriter, RoutedMarkers
from odradek.client.errors import UnsupportedByBroker
from odradek.client.network.connection import Connection
from odradek.metadata.image import Broker, ClusterImage, Endpoint
from odradek.ports.network import TcpNetwork
from odradek.transactions.events import Markers
from odradek.transactions.service import PartitionMarker
from odradek.wire.errors import ErrorCode
from tests.unit.broker.cluster.broker_proofs import no_proof

MARKERS = Markers("id", 7, 0, True, frozenset({("t", 0), ("t", 1)}), 0)


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_markers_are_dropped_when_the_coordinator_has_resigned(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """Their coordinator has lost its partition: another one sends them."""
    monkeypatch.setattr(markers_module, "_RETRY_SECONDS", 0.0)

    async def test() -> None:
        sent: list[Callable[[ErrorCode], None]] = []
        wanted = True
        markers = RoutedMarkers(
            cast(MarkerWriter, None),
            lambda _topic, _index: 2,
            lambda _leader, _marker, answered: sent.append(answered),
            asyncio.get_running_loop(),
        )
        markers.send(MARKERS, 0, lambda: wanted, pytest.fail)
        assert markers.pending("id") == MARKERS.partitions
        wanted = False
        for answered in sent:
            answered(code)
        async with asyncio.timeout(60):
            while markers.pending("id") is not None:
                await asyncio.sleep(0)
        assert len(sent) == 2

    asyncio.run(test())


def test_unreachable_broker_does_not_block_later_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async def refuse(*_: Any, **__: Any) -> Connection:
            raise UnsupportedByBroker("ApiVersions answered with error -1")

        monkeypatch.setattr(peers_module, "open_connection", refuse)
        other = Broker(2, 1, None, {"PLAINTEXT": Endpoint("127.0.0.1", 1, "PLAINTEXT")})
        image = ClusterImage().with_broker(other)
        loop = asyncio.get_running_loop()
        channels = MarkerChannels(Peers(TcpNetwork(), lambda: image, "PLAINTEXT", 1, no_proof), loop, 1000)
        for _ in range(2):
            completed: asyncio.Future[ErrorCode] = loop.create_future()
            channels.send(2, PartitionMarker("t", 0, 7, 0, True, 0, 0), completed.set_result)
            assert await asyncio.wait_for(completed, 10) is ErrorCode.NETWORK_EXCEPTION

    asyncio.run(test())


def test_markers_behind_a_malformed_answer_get_network_exception(caplog: pytest.LogCaptureFixture) -> None:
    class Nonsense:
        """Answers with bytes that cannot be decoded, once another request waits."""

        def __init__(self) -> None:
            self.asked = asyncio.Event()
            self.others_wait = asyncio.Event()

        async def request(self, *_: object) -> object:
            self.asked.set()
            await self.others_wait.wait()
            return None

    async def test() -> None:
        loop = asyncio.get_running_loop()
        nonsense = Nonsense()
        channels = MarkerChannels(cast(Peers, nonsense), loop, 1000)
        completed: list[asyncio.Future[ErrorCode]] = [loop.create_future() for _ in range(3)]
        for index, each in enumerate(completed):
            channels.send(2, PartitionMarker("t", index, 7, 0, True, 0, 0), each.set_result)
            await nonsense.asked.wait()
        nonsense.others_wait.set()
        assert await asyncio.wait_for(asyncio.gather(*completed), 10) == [ErrorCode.NETWORK_EXCEPTION] * 3

    asyncio.run(test())
    assert "sending transaction markers failed" in caplog.text
