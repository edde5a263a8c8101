"""Time, as handed to everything that must not look at the real clock."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is measured."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch (may jump)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back.

        Times for `loop.call_at` come from `loop.time()`, never from here: uvloop's is this clock in whole milliseconds
        at the beginning of the loop's turn, so that a time of one may be past by the other.
        """
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the machine's clock."""
        return time.time_ns() // 1_000_000

    # Read twice for every batch that is written: not worth a frame of Python.
    monotonic = staticmethod(time.monotonic)


def process_age() -> float:
    """Seconds since this process was started, to a hundredth; its CPU time without /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            started = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError):
        return time.process_time()
