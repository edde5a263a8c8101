"""Time as coordinators see it: a clock that does not jump, and one timer per partition (Kafka's CoordinatorTimer)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.ports.clock import Clock


class CoordinatorClock:
    """Milliseconds since the epoch that never jump: the wall clock at the start, advanced by the monotonic one.

    Setting the machine's wall clock must not expire every session and transaction at once.
    """

    __slots__ = ("_clock", "_offset")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now_ms() / 1000 - clock.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int((self._clock.monotonic() + self._offset) * 1000)


class CoordinatorTimer:
    """Calls back no later than the earliest deadline that it was armed with."""

    __slots__ = ("_armed_ms", "_callback", "_clock", "_handle", "_loop")

    def __init__(self, clock: CoordinatorClock, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._loop = loop
        self._callback = callback
        self._armed_ms: int | None = None
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, deadline_ms: int | None) -> None:
        """Fire at the deadline, unless an earlier one is armed; None arms nothing."""
        if deadline_ms is None or (self._armed_ms is not None and self._armed_ms <= deadline_ms):
            return
        self.cancel()
        self._armed_ms = deadline_ms
        self._handle = self._loop.call_later(max(deadline_ms - self._clock.now_ms(), 1) / 1000, self._fire)

    def _fire(self) -> None:
        self._handle = self._armed_ms = None
        self._callback()

    def cancel(self) -> None:
        """Fire no more until `arm`."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._armed_ms = None
