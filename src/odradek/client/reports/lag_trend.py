"""How lag changes between looks at a group. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

WINDOW_S: Final = 30.0
"""Consumers commit every 5 s by default; a window of several commits shows the trend instead of the steps."""


class LagTrend:
    """Lag in records by key (a partition of a group, or a group), over the last 30 seconds of looks."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[Hashable, int]]] = deque()

    def observe(self, now_s: float, lags: Mapping[Hashable, int]) -> None:
        """Add a look at `now_s` (seconds of a monotonic clock)."""
        self._looks.append((now_s, dict(lags)))
        # The last look before the window stays, so that the window is covered completely.
        while len(self._looks) > 2 and self._looks[1][0] <= now_s - WINDOW_S:
            self._looks.popleft()

    def per_second(self, key: Hashable) -> float | None:
        """Records per second by which the lag grows (shrinks if negative); None before two looks have the key."""
        times = [(at_s, lags[key]) for at_s, lags in self._looks if key in lags]
        if len(times) < 2 or times[-1][0] <= times[0][0] or key not in self._looks[-1][1]:
            return None
        (first_s, first), (last_s, last) = times[0], times[-1]
        return (last - first) / (last_s - first_s)


def trend_text(per_second: float | None) -> str | None:
    """The trend as a word of a table: `steady`, `+12.0/s` where lag grows, `-3.5/s` where it shrinks."""
    if per_second is None:
        return None
    return "steady" if abs(per_second) < 0.05 else f"{per_second:+.1f}/s"
