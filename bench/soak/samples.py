"""What is seen of a broker during a soak, and whether it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

from rich.table import Table

FEWEST: Final = 6
"""Samples without which nothing is said."""
MOST_ROWS: Final = 20


class Sample(NamedTuple):
    """One window."""

    minute: float
    memory_mb: float
    descriptors: int
    cpu_percent: float
    holds: int
    """Requests and slices in the window that kept the event loop for `odradek.slow.loop.ms`."""
    records: int
    p50_ms: float
    p99_ms: float
    most_ms: float
    others: float
    """What other programs used in the window, in cores."""


class Verdict(NamedTuple):
    """How a figure changed from the second third of the time to the last; the first is the warm-up."""

    figure: str
    before: float
    after: float
    allowed: float
    """The largest `after` that counts as no growth."""

    @property
    def is_met(self) -> bool:
        """Whether it did not grow."""
        return self.after <= self.allowed


class Watched(NamedTuple):
    """A figure that must not grow: by more than a share of what it was, or than an amount, whichever is larger."""

    figure: str
    of: Callable[[Sample], float]
    share: float
    amount: float


WATCHED: Final = (
    Watched("memory, MB", lambda each: each.memory_mb, 0.03, 3.0),
    Watched("descriptors", lambda each: each.descriptors, 0.1, 5.0),
    Watched("CPU, %", lambda each: each.cpu_percent, 0.25, 5.0),
    Watched("end to end p99, ms", lambda each: each.p99_ms, 0.5, 5.0),
    Watched("holds in a window", lambda each: each.holds, 0.5, 1.0),
)


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """Medians of the second and the last third. Raises ValueError for too few samples."""
    if len(samples) < FEWEST:
        raise ValueError(f"{len(samples)} samples, at least {FEWEST} are needed")
    third = len(samples) // 3
    second, last = samples[third : 2 * third], samples[-third:]
    found = []
    for watched in WATCHED:
        before, after = (median(map(watched.of, part)) for part in (second, last))
        found.append(Verdict(watched.figure, before, after, before + max(watched.share * before, watched.amount)))
    return found


def merged(samples: Sequence[Sample], rows: int = MOST_ROWS) -> list[Sample]:
    """At most so many samples: of several neighbours the sums of counts, medians, the largest latency and load."""
    step = -(-len(samples) // rows)
    found = []
    for start in range(0, len(samples), step):
        part = samples[start : start + step]
        found.append(
            Sample(
                part[-1].minute,
                median(each.memory_mb for each in part),
                round(median(each.descriptors for each in part)),
                median(each.cpu_percent for each in part),
                sum(each.holds for each in part),
                sum(each.records for each in part),
                median(each.p50_ms for each in part),
                median(each.p99_ms for each in part),
                max(each.most_ms for each in part),
                max(each.others for each in part),
            )
        )
    return found


def table_of(samples: Sequence[Sample]) -> Table:
    """The samples over time."""
    table = Table(title="soak", title_justify="left")
    for column in (
        "minute",
        "memory, MB",
        "descriptors",
        "CPU, %",
        "holds",
        "records",
        "p50, ms",
        "p99, ms",
        "max, ms",
        "others",
    ):
        table.add_column(column, justify="right")
    for each in merged(samples):
        table.add_row(
            f"{each.minute:.1f}", f"{each.memory_mb:.1f}", str(each.descriptors), f"{each.cpu_percent:.0f}",
            str(each.holds), f"{each.records:,}", *(f"{ms:.1f}" for ms in (each.p50_ms, each.p99_ms, each.most_ms)),
            f"{each.others:.2f}",
        )  # fmt: skip
    return table


def mark_of(samples: Sequence[Sample], limit: float) -> str | None:
    """A line about windows beside a busy machine, in which latencies and holds are not the broker's alone; or None."""
    busy = sum(each.others > limit for each in samples)
    if not busy:
        return None
    return f"! in {busy} of {len(samples)} windows other programs used more than {limit:g} cores"


def line_of(verdict: Verdict) -> str:
    """One line about a figure."""
    what = "no growth" if verdict.is_met else f"GROWS: at most {verdict.allowed:.3g} is allowed"
    return f"{verdict.figure}: {verdict.before:.3g} in the second third, {verdict.after:.3g} in the last; {what}"
