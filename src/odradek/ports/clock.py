"""Time, as handed to everything that must not look at the real clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is measured."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch (may jump)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; the clock of the event loop's timers."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
