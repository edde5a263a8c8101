"""Deadlines of peers: admission, stalled requests, and who is exempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.api.requests.session import Authentication, Session
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network import deadlines as module
from odradek.broker.network.connection import InboundConnection, Pending, Shared
from odradek.broker.network.deadlines import NOT_ADMITTED, STALLED, Deadlines
from odradek.broker.network.turns import Turns
from odradek.ports.clock import SystemClock
from odradek.ports.network import Part
from odradek.wire.frames import FrameReader, ReceiveBuffers
from tests.unit.broker.network.test_connection import ScriptedStream

SECONDS = 30


class Watched:
    """A connection under deadlines, whose requests are answered at once or, beginning with `wait`, later."""

    def __init__(self, timeout_ms: int = 20) -> None:
        self.reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stream = ScriptedStream()
        self.session = Session("PLAINTEXT", "127.0.0.1")
        self.pending: Pending | None = None
        buffers = ReceiveBuffers()
        self.connection = InboundConnection(
            self.stream,
            Shared(self._dispatch, lambda _, why: self.reason.set_result(why), Turns()),
            1,
            self.session,
            FrameReader(1 << 24, buffers),
            100,
        )
        config = BrokerConfig({"odradek.unauthenticated.timeout.ms": str(timeout_ms), "log.dirs": "/nowhere"})
        self.deadlines = Deadlines(config, SystemClock(), {1: self.connection}, buffers)
        self.deadlines.begin(self.connection)

    def _dispatch(self, frame: memoryview, connection: InboundConnection) -> list[Part] | Pending:
        if bytes(frame).startswith(b"wait"):
            self.pending = Pending(connection, True)
            return self.pending
        return [b"answer"]

    async def closed(self) -> str:
        return await asyncio.wait_for(asyncio.shield(self.reason), SECONDS)

    async def looks(self, count: int = 3) -> None:
        """Wait until the deadlines have looked that often."""
        for _ in range(count):
            before = self.deadlines._newcomer_timer
            async with asyncio.timeout(SECONDS):
                while before is not None and self.deadlines._newcomer_timer is before:
                    await asyncio.sleep(0.001)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_silent_peer_is_closed() -> None:
    async def scenario() -> None:
        assert await Watched().closed() == NOT_ADMITTED

    run(scenario)


def test_bytes_that_trickle_do_not_extend_the_deadline() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.stream.deliver()
        while not watched.reason.done():
            watched.stream.incoming.append(b"\0")
            if watched.stream.read_callback is not None:
                watched.stream.read_callback()
            await asyncio.sleep(0.01)
            if watched.connection.requests_received:
                break
        assert watched.reason.result() == NOT_ADMITTED

    run(scenario)


def test_peer_with_a_complete_request_stays_idle() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.stream.deliver(b"request")
        async with asyncio.timeout(SECONDS):
            while watched.deadlines._newcomer_timer is not None:
                await asyncio.sleep(0.001)
        assert not watched.connection.closed
        watched.deadlines.close()

    run(scenario)


@pytest.mark.parametrize("state", [Authentication.REQUIRED, Authentication.IN_PROGRESS])
def test_requests_do_not_replace_authentication(state: Authentication) -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.session.authentication = state
        watched.stream.deliver(b"request")
        assert await watched.closed() == NOT_ADMITTED

    run(scenario)


def test_authenticated_peer_is_admitted() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.session.authentication = Authentication.REQUIRED
        watched.stream.deliver(b"request")
        watched.session.authentication = Authentication.COMPLETE
        async with asyncio.timeout(SECONDS):
            while watched.deadlines._newcomer_timer is not None:
                await asyncio.sleep(0.001)
        assert not watched.connection.closed
        watched.deadlines.close()

    run(scenario)


def test_peer_that_takes_no_answers_does_not_extend_the_deadline() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.session.authentication = Authentication.REQUIRED
        watched.stream.window = 0
        watched.stream.deliver(b"request")
        assert await watched.closed() == NOT_ADMITTED

    run(scenario)


def test_time_of_the_broker_does_not_count() -> None:
    async def scenario() -> None:
        watched = Watched(timeout_ms=5)
        watched.session.authentication = Authentication.IN_PROGRESS
        watched.stream.deliver(b"wait")
        await watched.looks(30)
        assert not watched.connection.closed
        assert watched.pending is not None
        watched.pending.answer([b"answer"])
        assert await watched.closed() == NOT_ADMITTED

    run(scenario)


def test_large_request_that_stands_still_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.02)

    async def scenario() -> None:
        watched = Watched()
        watched.stream.deliver(b"request")
        begun = (10_000_000).to_bytes(4, "big") + bytes(100_000)
        for part in (begun, bytes(50_000)):
            watched.stream.incoming.append(part)
            assert watched.stream.read_callback is not None
            watched.stream.read_callback()
        assert watched.connection.large_request_bytes is not None
        assert (await watched.closed()).startswith(STALLED[:30])

    run(scenario)


def test_limit_of_a_frame_rises_with_authentication() -> None:
    limit = 10
    reader = FrameReader(lambda: limit)
    frame = (20).to_bytes(4, "big") + bytes(20)
    space = reader.space()
    space[: len(frame)] = frame
    limit = 100
    assert [len(each) for each in reader.received(len(frame))] == [20]
    assert reader.max_frame_bytes == 100
