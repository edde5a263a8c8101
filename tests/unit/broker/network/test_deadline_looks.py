"""Each look at slow peers: whom it closes, whom it remembers, and when the next look is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.network.deadlines import IDLE, NOT_ADMITTED, STALL_BYTES, STALL_SECONDS, STALLED, Deadlines

UNAUTHENTICATED_MS, IDLE_MS = 10_000, 60_000


class Peer:
    """A connection in a state of the test's choice."""

    def __init__(self, identifier: int) -> None:
        self.identifier = identifier
        self.is_admitted = False
        self.awaits_peer = True
        self.idle = True
        self.is_blocked = False
        self.requests_received = 0
        self.sends_resumed = 0
        self.large_request_bytes: int | None = None
        self.closed: list[str] = []

    def close(self, reason: str) -> None:
        self.closed.append(reason)


class Timer:
    """A call that the loop owes."""

    def __init__(self, delay: float, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.delay = delay
        self._call = call
        self._args = args
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        self._call(*self._args)


class Watch:
    """Deadlines over two peers, whose timers the test lets run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.settings = {
            "odradek.unauthenticated.timeout.ms": UNAUTHENTICATED_MS,
            "connections.max.idle.ms": IDLE_MS,
        }
        self.peers = {number: Peer(number) for number in (1, 2)}
        self.trims = 0
        self.buffers = SimpleNamespace(in_use=1, trim=self._trim)
        config: Any = SimpleNamespace(number=self.settings.__getitem__)
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(call_later=self._call_later))
        self.timers: list[Timer] = []
        self.deadlines = Deadlines(config, clock, self.peers, self.buffers)  # type: ignore[arg-type]

    def _trim(self) -> None:
        self.trims += 1

    def _call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(delay, call, args))
        return self.timers[-1]

    def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.deadlines.begin(self.peers[number])  # type: ignore[arg-type]

    def newcomers(self) -> Timer | None:
        timer = self.deadlines._newcomer_timer
        assert timer is None or isinstance(timer, Timer)
        return timer

    def idle(self) -> Timer | None:
        timer = self.deadlines._idle_timer
        assert timer is None or isinstance(timer, Timer)
        return timer

    def stalls(self) -> Timer | None:
        timer = self.deadlines._stall_timer
        assert timer is None or isinstance(timer, Timer)
        return timer

    def look(self, kind: Callable[[], Timer | None], after: float = 0.0) -> None:
        self.now += after
        timer = kind()
        assert timer is not None
        timer.run()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_connections_share_one_timer_of_each_kind(watch: Watch) -> None:
    watch.begin(1, 2)
    assert [timer.delay for timer in watch.timers] == [1.0, 30.0, STALL_SECONDS]


def test_stopped_deadlines_cancel_their_timers_and_begin_again(watch: Watch) -> None:
    watch.begin(1)
    watch.deadlines.close()
    assert [timer.is_cancelled for timer in watch.timers] == [True] * 3
    assert (watch.newcomers(), watch.idle(), watch.stalls()) == (None, None, None)
    watch.deadlines.close()
    watch.begin(2)
    assert len(watch.timers) == 6
    watch.look(watch.newcomers, after=100)
    watch.look(watch.newcomers)
    assert (watch.peers[1].closed, watch.peers[2].closed) == ([], [NOT_ADMITTED])


def test_newcomer_is_closed_at_the_second_look_after_its_time(watch: Watch) -> None:
    """What it sent may wait to be read after a pause of this process."""
    watch.begin(1)
    watch.look(watch.newcomers, after=9.9)
    watch.look(watch.newcomers)
    assert watch.peers[1].closed == []
    watch.look(watch.newcomers, after=0.1)
    assert watch.peers[1].closed == []
    watch.look(watch.newcomers)
    assert watch.peers[1].closed == [NOT_ADMITTED]
    assert watch.newcomers() is None


def test_broker_that_answers_late_closes_no_newcomer(watch: Watch) -> None:
    watch.begin(1)
    watch.look(watch.newcomers, after=20)
    watch.peers[1].awaits_peer = False
    watch.look(watch.newcomers)
    watch.peers[1].awaits_peer = True
    watch.look(watch.newcomers)
    assert watch.peers[1].closed == [], "the look between forgot that it was late"
    watch.look(watch.newcomers)
    assert watch.peers[1].closed == [NOT_ADMITTED]


def test_admitted_and_closed_peers_are_watched_no_longer(watch: Watch) -> None:
    watch.begin(1, 2)
    watch.look(watch.newcomers, after=20)
    watch.peers[1].is_admitted = True
    watch.deadlines.end(watch.peers[2])  # type: ignore[arg-type]
    watch.look(watch.newcomers)
    watch.peers[1].is_admitted = False
    assert watch.newcomers() is None
    assert (watch.peers[1].closed, watch.peers[2].closed) == ([], [])


def test_one_late_newcomer_is_closed_and_the_other_stays(watch: Watch) -> None:
    watch.begin(1)
    watch.now += 5
    watch.begin(2)
    watch.look(watch.newcomers, after=6)
    watch.look(watch.newcomers)
    assert (watch.peers[1].closed, watch.peers[2].closed) == ([NOT_ADMITTED], [])
    assert watch.newcomers() is not None


# --- requests that stand still ---


@pytest.mark.parametrize(
    ("first", "second", "is_closed"),
    [(100, 100, True), (100, 99 + STALL_BYTES, True), (100, 100 + STALL_BYTES, False), (0, STALL_BYTES, False)],
)
def test_request_that_gains_too_little_between_looks_is_closed(
    watch: Watch, first: int, second: int, is_closed: bool
) -> None:
    peer = watch.peers[1]
    watch.begin(1)
    peer.large_request_bytes = first
    watch.look(watch.stalls)
    assert peer.closed == []
    peer.large_request_bytes = second
    watch.look(watch.stalls)
    assert peer.closed == ([STALLED] if is_closed else [])


@pytest.mark.parametrize("change", ["a new request", "no large request", "the broker works", "no buffers in use"])
def test_request_is_not_closed_if_its_peer_is_not_to_blame(watch: Watch, change: str) -> None:
    peer = watch.peers[1]
    watch.begin(1)
    peer.large_request_bytes = 100
    watch.look(watch.stalls)
    if change == "a new request":
        peer.requests_received += 1
    elif change == "no large request":
        peer.large_request_bytes = None
    elif change == "the broker works":
        peer.awaits_peer = False
    else:
        watch.buffers.in_use = 0
    watch.look(watch.stalls)
    assert peer.closed == []
    watch.buffers.in_use = 1
    peer.large_request_bytes, peer.awaits_peer = 100, True
    watch.look(watch.stalls)
    assert peer.closed == ([STALLED] if change == "a new request" else [])


def test_peer_without_a_large_request_does_not_end_the_look(watch: Watch) -> None:
    watch.begin(1, 2)
    watch.peers[2].large_request_bytes = 100
    watch.look(watch.stalls)
    watch.look(watch.stalls)
    assert (watch.peers[1].closed, watch.peers[2].closed) == ([], [STALLED])


def test_looks_at_requests_end_with_the_last_connection(watch: Watch) -> None:
    watch.begin(1)
    watch.look(watch.stalls)
    assert watch.stalls() is not None
    watch.peers.clear()
    watch.look(watch.stalls)
    assert watch.stalls() is None


def test_each_look_frees_idle_buffers_and_the_last_one_all(watch: Watch) -> None:
    watch.begin(1)
    watch.look(watch.stalls)
    assert watch.trims == 1, "a buffer that was used since the last look stays"
    watch.peers.clear()
    watch.look(watch.stalls)
    assert watch.trims == 3, "a second call frees what the first one only marks"


# --- idle peers ---


def test_peer_is_idle_after_the_time_without_a_request(watch: Watch) -> None:
    watch.begin(1)
    watch.look(watch.idle)
    watch.look(watch.idle, after=59.9)
    assert watch.peers[1].closed == []
    watch.look(watch.idle, after=0.1)
    assert watch.peers[1].closed == [IDLE]
    assert watch.peers[2].closed == [IDLE]
    assert watch.idle() is None, "there is no peer left to look at"


@pytest.mark.parametrize("event", ["request", "busy"])
def test_peer_that_is_served_is_not_idle(watch: Watch, event: str) -> None:
    peer = watch.peers[1]
    watch.begin(1)
    watch.look(watch.idle)
    peer.requests_received += event == "request"
    peer.idle = event == "request"
    watch.look(watch.idle, after=60)
    peer.idle = True
    watch.look(watch.idle, after=59.9)
    assert (peer.closed, watch.peers[2].closed[:1]) == ([], [IDLE])
    watch.look(watch.idle, after=0.1)
    assert peer.closed == [IDLE]


def test_peer_that_takes_no_answers_is_idle_unless_it_makes_room(watch: Watch) -> None:
    watch.begin(1)
    for peer in watch.peers.values():
        peer.idle, peer.is_blocked = False, True
    watch.look(watch.idle)
    watch.peers[2].sends_resumed += 1
    watch.look(watch.idle, after=60)
    assert (watch.peers[1].closed, watch.peers[2].closed) == ([IDLE], [])


@pytest.mark.parametrize(("idle_ms", "delay"), [(60_000, 30.0), (2_000, 1.0), (10, 1.0), (0, None), (-1, None)])
def test_idle_peers_are_looked_for_twice_in_their_time(watch: Watch, idle_ms: int, delay: float | None) -> None:
    watch.settings["connections.max.idle.ms"] = idle_ms
    watch.begin(1)
    timer = watch.idle()
    assert (None if timer is None else timer.delay) == delay
