"""Connections to the other brokers: which requests share one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.cluster import peers as peers_module
from odradek.broker.cluster.peers import PeerLimits, Peers, Purpose
from odradek.client.errors import Disconnected, RequestTimedOut
from odradek.metadata.image import Broker, ClusterImage, Endpoint
from odradek.ports.network import SYSTEM_BUFFERS, BufferSizes, TcpNetwork, TcpStream
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
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
        async with asyncio.timeout(60):
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


class Endless(TcpNetwork):
    """A network in which no connection is completed."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> TcpStream:
        self.asked.append((timeout, silence))
        await asyncio.Event().wait()
        raise AssertionError


BROKER_2 = ClusterImage().with_broker(Broker(2, 1, None, {"PLAINTEXT": Endpoint("127.0.0.1", 1, "PLAINTEXT")}))


def test_request_waits_for_a_connection_within_its_timeout() -> None:
    async def test() -> None:
        network = Endless()
        limits = PeerLimits(setup_ms=60_000, silence_ms=4_000)
        peers = Peers(network, lambda: BROKER_2, "PLAINTEXT", 1, no_proof, limits=limits)
        with pytest.raises(RequestTimedOut):
            await peers.request(Purpose.LEASES, 2, MetadataRequest(), MetadataResponse, 0, 10)
        assert network.asked == [(60.0, 4.0)]
        peers.close()

    asyncio.run(test())


def test_abandoned_connections_fail_their_requests_at_once() -> None:
    async def test() -> None:
        peers = Peers(Endless(), lambda: BROKER_2, "PLAINTEXT", 1, no_proof)
        requests = [
            asyncio.create_task(peers.request(purpose, 2, MetadataRequest(), MetadataResponse, 0, 60_000))
            for purpose in (Purpose.OWN, Purpose.MARKERS)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        peers.abandon(2, (Purpose.OWN, Purpose.LEASES))
        async with asyncio.timeout(30):
            with pytest.raises(Disconnected):
                await requests[0]
        assert not requests[1].done(), "its purpose was not named"
        requests[1].cancel()
        peers.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    "after", [ClusterImage(), BROKER_2.with_broker(BROKER_2.brokers[2]._replace(fenced=True))], ids=["gone", "fenced"]
)
def test_requests_of_transactions_fail_when_their_broker_does_not_live(after: ClusterImage) -> None:
    async def test() -> None:
        peers = Peers(Endless(), lambda: BROKER_2, "PLAINTEXT", 1, no_proof)
        requests = [
            asyncio.create_task(peers.request(purpose, 2, MetadataRequest(), MetadataResponse, 0, 60_000))
            for purpose in (Purpose.MARKERS, Purpose.VERIFICATION, Purpose.FORWARDED)
        ]
        await asyncio.sleep(0)
        peers.follow(BROKER_2, BROKER_2.with_broker(BROKER_2.brokers[2]._replace(rack="other")))
        await asyncio.sleep(0)
        assert not any(each.done() for each in requests)
        peers.follow(BROKER_2, after)
        async with asyncio.timeout(30):
            for each in requests[:2]:
                with pytest.raises(Disconnected):
                    await each
        assert not requests[2].done(), "the broker may still answer it"
        requests[2].cancel()
        peers.close()

    asyncio.run(test())


def test_abandoned_request_fails_before_its_connection_has_begun() -> None:
    """The opening's first step comes after the request's: an attempt that is ended between them runs no code."""

    async def test() -> None:
        network = Endless()
        peers = Peers(network, lambda: BROKER_2, "PLAINTEXT", 1, no_proof)
        request = asyncio.create_task(peers.request(Purpose.OWN, 2, MetadataRequest(), MetadataResponse, 0, 60_000))
        await asyncio.sleep(0)
        assert not network.asked
        peers.abandon(2, (Purpose.OWN,))
        async with asyncio.timeout(30):
            with pytest.raises(Disconnected):
                await request
            again = asyncio.create_task(peers.request(Purpose.OWN, 2, MetadataRequest(), MetadataResponse, 0, 60_000))
            while not network.asked:
                await asyncio.sleep(0)
        peers.close()
        with pytest.raises(Disconnected):
            await again

    asyncio.run(test())


def test_cancelled_request_is_cancelled() -> None:
    async def test() -> None:
        peers = Peers(Endless(), lambda: BROKER_2, "PLAINTEXT", 1, no_proof)
        request = asyncio.create_task(peers.request(Purpose.OWN, 2, MetadataRequest(), MetadataResponse, 0, 60_000))
        await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        peers.close()

    asyncio.run(test())


def test_next_request_after_abandoning_connects_again() -> None:
    async def test() -> None:
        network = Endless()
        peers = Peers(network, lambda: BROKER_2, "PLAINTEXT", 1, no_proof)
        for attempt in (1, 2):
            task = asyncio.create_task(peers.request(Purpose.OWN, 2, MetadataRequest(), MetadataResponse, 0, 60_000))
            async with asyncio.timeout(30):
                while len(network.asked) < attempt:
                    await asyncio.sleep(0)
                peers.abandon(2, (Purpose.OWN,))
                with pytest.raises(Disconnected):
                    await task
        peers.close()

    asyncio.run(test())


def test_connection_of_an_earlier_registration_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        opened: list[OneAtATime] = []

        async def open_connection(*_: Any, **__: Any) -> OneAtATime:
            opened.append(OneAtATime())
            opened[-1].may_answer.set()
            return opened[-1]

        monkeypatch.setattr(peers_module, "open_connection", open_connection)
        endpoints = {"PLAINTEXT": Endpoint("127.0.0.1", 1, "PLAINTEXT")}
        images = [ClusterImage().with_broker(Broker(2, 1, None, endpoints))]
        peers = Peers(TcpNetwork(), lambda: images[-1], "PLAINTEXT", 1, no_proof)

        async def ask() -> int:
            await peers.request(Purpose.MARKERS, 2, MetadataRequest(), MetadataResponse, 0, 1000)
            return len(opened)

        assert [await ask(), await ask()] == [1, 1]
        images.append(ClusterImage().with_broker(Broker(2, 2, None, endpoints)))
        assert await ask() == 2
        assert opened[0].closed is not None
        opened[1].closed = ConnectionError("reset")
        assert await ask() == 3
        peers.close()

    asyncio.run(test())
