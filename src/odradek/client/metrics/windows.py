"""Rates, averages and maxima over the last windows, from numbers that only grow (Kafka's SampledStat and Rate).

The numbers are copied once per window; whatever happens in between costs the place where it happens an addition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from odradek.client.metrics.counts import Counts

C = TypeVar("C", bound=Counts)
_Copy = dict[str, float]


class Span:
    """Some objects of one kind added up, over the last windows and in all."""

    __slots__ = ("_before", "_highs", "_now", "seconds")

    def __init__(self, now: _Copy, before: _Copy, highs: _Copy, seconds: float) -> None:
        self._now = now
        self._before = before
        self._highs = highs
        self.seconds = seconds
        """The time that rates are spread over."""

    def total(self, names: tuple[str, ...]) -> float:
        """The sum of these numbers since the client started."""
        return sum(self._now.get(name, 0) for name in names)

    def recent(self, names: tuple[str, ...]) -> float:
        """The sum of what these numbers grew by in the windows."""
        return sum(self._now.get(name, 0) - self._before.get(name, 0) for name in names)

    def high(self, names: tuple[str, ...]) -> float:
        """The highest of these values in the windows."""
        return max(self._highs.get(name, 0) for name in names)


class Windows:
    """The last `samples` windows of `window_s` each, of every object that is tracked."""

    __slots__ = ("_clock", "_copies", "_loop", "_samples", "_starts", "_timer", "_tracked", "_window_s")

    def __init__(self, clock: Callable[[], float], window_s: float, samples: int) -> None:
        """`clock` returns seconds; the owner calls `roll` every `window_s`, or `run_on` a loop."""
        self._clock = clock
        self._window_s = window_s
        self._samples = samples
        self._tracked: list[Counts] = []
        self._copies: dict[int, deque[_Copy]] = {}
        self._starts: deque[float] = deque([clock()], maxlen=samples)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a window every `window_s` until `stop`."""
        self._loop = loop
        self._timer = loop.call_later(self._window_s, self._tick)

    def stop(self) -> None:
        """Begin no further windows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def track(self, counts: C) -> C:
        """Have the object's numbers copied with each window; returns it."""
        self._tracked.append(counts)
        self._copies[id(counts)] = deque(maxlen=self._samples)
        return counts

    def roll(self) -> None:
        """Begin a window."""
        self._starts.append(self._clock())
        for each in self._tracked:
            self._copies[id(each)].append({name: getattr(each, name) for name in each.__slots__})
            for name in each.HIGHS:
                setattr(each, name, 0)

    def span(self, objects: Iterable[Counts]) -> Span:
        """The sum of tracked objects."""
        now: _Copy = {}
        before: _Copy = {}
        highs: _Copy = {}
        for each in objects:
            copies = self._copies[id(each)]
            # The copy of a window's end is that of the next one's start.
            start = copies[-self._samples] if len(copies) == self._samples else {}
            recent = list(copies)[-(self._samples - 1) :] if self._samples > 1 else []
            for name in each.__slots__:
                value = getattr(each, name)
                if name in each.HIGHS:
                    highs[name] = max(highs.get(name, 0), value, *(copy[name] for copy in recent))
                else:
                    now[name] = now.get(name, 0) + value
                    before[name] = before.get(name, 0) + start.get(name, 0)
        return Span(now, before, highs, self._seconds())

    def _seconds(self) -> float:
        """As Kafka's Rate: windows that are not there yet count as if nothing had happened in them."""
        elapsed = self._clock() - self._starts[0]
        missing = self._samples - 1 - int(elapsed // self._window_s)
        return max(elapsed + max(0, missing) * self._window_s, self._window_s)

    def _tick(self) -> None:
        self.roll()
        assert self._loop is not None
        self._timer = self._loop.call_later(self._window_s, self._tick)
