"""How late and how busy the event loop is. Runs only while metrics are served: a timer ten times a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from odradek.metrics.histogram import Histogram

INTERVAL_SECONDS: Final = 0.1
_WINDOW: Final = 100
"""Looks whose processor time the idle share is of: ten seconds' worth."""


class LoopMonitor:
    """Sets a timer, and counts how late it runs."""

    __slots__ = ("_cpu_s", "_due", "_looks", "_loop", "_timer", "delays")

    def __init__(self, loop: asyncio.AbstractEventLoop, cpu_s: Callable[[], float]) -> None:
        """`cpu_s` is the processor time of the loop's thread, in seconds."""
        self._loop = loop
        self._cpu_s = cpu_s
        self._looks: deque[tuple[float, float]] = deque(maxlen=_WINDOW)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.delays = Histogram()
        """Seconds by which timers ran late."""

    def start(self) -> None:
        """Begin to look."""
        self._looks.append((self._loop.time(), self._cpu_s()))
        self._arm()

    def _arm(self) -> None:
        self._due = self._loop.time() + INTERVAL_SECONDS
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self.delays.observe(max(0.0, now - self._due))
        self._looks.append((now, self._cpu_s()))
        self._arm()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def idle_share(self) -> float:
        """The share of the last ten seconds in which the thread used no processor; 1 before there is a second look."""
        if len(self._looks) < 2:
            return 1.0
        (began, cpu_before), (now, cpu_now) = self._looks[0], self._looks[-1]
        busy = (cpu_now - cpu_before) / max(now - began, 1e-9)
        return min(1.0, max(0.0, 1.0 - busy))
