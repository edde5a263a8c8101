"""How late and how busy the event loop is, by a loop and a processor of the test."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability.loop_monitor import INTERVAL_SECONDS, LoopMonitor


class Loop:
    """Runs the only timer when the test says so."""

    def __init__(self) -> None:
        self.now = 50.0
        self.cpu = 7.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0
        self.monitor = LoopMonitor(self, lambda: self.cpu)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, call: Callable[[], None]) -> Any:
        self.timers.append((due, call))
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1

    def look(self, *, late: float = 0.0, busy: float = 0.0) -> None:
        due, call = self.timers[-1]
        self.now = due + late
        self.cpu += busy
        call()


@pytest.fixture
def loop() -> Loop:
    found = Loop()
    found.monitor.start()
    return found


def test_monitor_looks_ten_times_a_second(loop: Loop) -> None:
    loop.look(late=0.5)
    loop.look()
    assert [due for due, _ in loop.timers] == pytest.approx([50.1, 50.7, 50.8])
    assert INTERVAL_SECONDS == 0.1


def test_delay_is_the_time_by_which_the_timer_was_late(loop: Loop) -> None:
    for late in (0.0, 0.5, -0.01):
        loop.look(late=late)
    assert (loop.monitor.delays.count, loop.monitor.delays.total) == (3, pytest.approx(0.5))


@pytest.mark.parametrize(("busy", "share"), [(0.0, 1.0), (0.025, 0.75), (0.1, 0.0), (0.2, 0.0), (-0.1, 1.0)])
def test_idle_share_is_the_time_without_the_processor(loop: Loop, busy: float, share: float) -> None:
    assert loop.monitor.idle_share == 1.0
    loop.look(busy=busy)
    assert loop.monitor.idle_share == pytest.approx(share)


def test_idle_share_is_of_the_last_ten_seconds(loop: Loop) -> None:
    loop.look(busy=0.1)
    for _ in range(99):
        loop.look()
    assert loop.monitor.idle_share == pytest.approx(1.0)
    for _ in range(10):
        loop.look(busy=0.1)
    assert loop.monitor.idle_share == pytest.approx(1 - 10 / 99)


def test_looks_at_one_moment_are_no_division_by_zero() -> None:
    loop = Loop()
    loop.monitor.start()
    loop.monitor.start()
    assert loop.monitor.idle_share == 1.0


def test_stopped_monitor_cancels_its_timer_once(loop: Loop) -> None:
    loop.monitor.stop()
    loop.monitor.stop()
    assert loop.cancelled == 1
