"""Histograms with fixed bounds, and quantiles of their last minutes.

An observation is a bisection and an addition. Quantiles are those of the observations between two looks at the
histogram, so that nothing has to be done for them between scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.metrics.definition import Sample

DURATION_BOUNDS: Final = tuple(
    factor * scale for scale in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0) for factor in (1.0, 2.5, 5.0)
)
"""Seconds, from 10 µs to 50 s."""

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms, as the JMX exporter shows them."""

WINDOW_SECONDS: Final = 60.0
"""Quantiles are of the observations of at least this time, if there was a look that long ago."""


class Histogram:
    """Observations by bound; the last bucket has those above all bounds.

    Hot paths write `h.counts[bisect_left(BOUNDS, value)] += 1; h.total += value` themselves.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = DURATION_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Number of observations by bucket, not cumulative."""
        self.total = 0.0
        """Sum of all observations."""

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def samples(self, labels: str) -> Iterator[Sample]:
        """The samples of a Prometheus histogram."""
        yield from histogram_samples(labels, self.bounds, self.counts, self.total)


def histogram_samples(labels: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Iterator[Sample]:
    """Cumulative buckets, count and sum; `labels` is text without braces."""
    prefix = f"{labels}," if labels else ""
    number = 0
    for bound, count in zip(bounds, counts, strict=False):
        number += count
        yield "_bucket", f'{prefix}le="{bound:.6g}"', number
    number += counts[-1]
    yield "_bucket", f'{prefix}le="+Inf"', number
    yield "_count", labels, number
    yield "_sum", labels, total


def quantile(bounds: Sequence[float], counts: Sequence[int], wanted: float) -> float:
    """The value below which the share `wanted` of the observations lies, interpolated in its bucket; 0 without any.

    Observations above all bounds count as the last bound.
    """
    number = sum(counts)
    if not number:
        return 0.0
    rank = wanted * number
    seen = 0
    lower = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and seen + count >= rank:
            return lower + (bound - lower) * max(0.0, rank - seen) / count
        seen += count
        lower = bound
    return bounds[-1]


class RecentCounts:
    """What the counts of one histogram were at earlier looks, so that the last minutes can be computed alone."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: deque[tuple[float, list[int]]] = deque()

    def since(self, counts: Sequence[int], now: float) -> list[int]:
        """The counts of the last WINDOW_SECONDS at least, or of all time before there was a look so long ago.

        `now` is in seconds on a monotonic clock. Looks that follow each other quickly are remembered as one.
        """
        looks = self._looks
        while len(looks) > 1 and now - looks[1][0] >= WINDOW_SECONDS:
            looks.popleft()
        is_old = bool(looks) and now - looks[0][0] >= WINDOW_SECONDS
        base = looks[0][1] if is_old else [0] * len(counts)
        if not looks or now - looks[-1][0] >= WINDOW_SECONDS / 6:
            looks.append((now, list(counts)))
        return [count - before for count, before in zip(counts, base, strict=True)]
