"""When the demo gives up: not after a fixed time, but when nothing progressed although it had time enough to.

Time without progress counts by the work that the machine allowed: a second on a machine that is ten times slower than
an idle one counts as a tenth. Pure; the caller passes the time and what it measured.
"""

from __future__ import annotations

from typing import Final

IDLE_START_SECONDS: Final = 0.5
"""A broker's start takes this long at most on an idle machine."""
_GAP_FACTOR: Final = 3.0
"""A gap without progress may be this many times longer than the longest that ended."""
_MEMORY: Final = 0.8
"""Part of the smoothed lateness that the next sample leaves."""


class Slowness:
    """How many times slower than an idle machine this one is: the largest of three estimates, 1 or more.

    Runnable tasks per core come from the load average, the lateness of timers from the caller's own sleeps, and the
    start of the broker is a piece of work of known size.
    """

    def __init__(self, cores: int) -> None:
        self._cores = max(cores, 1)
        self._lateness = 1.0
        self._start = 1.0

    def observe_start(self, seconds: float) -> None:
        """`seconds`: from the start of the broker's process to its ready line."""
        self._start = max(1.0, seconds / IDLE_START_SECONDS)

    def observe_sleep(self, asked: float, slept: float) -> None:
        """`slept`: how long a sleep of `asked` seconds took."""
        self._lateness = _MEMORY * self._lateness + (1 - _MEMORY) * max(1.0, slept / asked)

    def factor(self, load: float) -> float:
        """`load`: the average number of runnable tasks, 0 where the system does not report it."""
        return max(1.0, self._lateness, self._start, load / self._cores)


class Patience:
    """Counts the time without progress; `seconds` of an idle machine without any exhaust it."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._marks: object = None
        self._last = now
        self._progressed = now
        self._waited = 0.0
        self._longest = 0.0

    def observe(self, now: float, marks: object, slowness: float) -> None:
        """`marks` change whenever something progressed; `slowness` is that since the previous call."""
        self._waited += (now - self._last) / slowness
        self._last = now
        if marks != self._marks:
            self._marks = marks
            self._longest = max(self._longest, self._waited)
            self._waited = 0.0
            self._progressed = now

    @property
    def is_exhausted(self) -> bool:
        """Whether the time without progress exceeds the limit."""
        return self._waited > self.limit

    @property
    def limit(self) -> float:
        """Seconds of an idle machine that may pass without progress."""
        return max(self._seconds, _GAP_FACTOR * self._longest)

    @property
    def quiet_seconds(self) -> float:
        """Seconds on the clock since the last progress."""
        return self._last - self._progressed
