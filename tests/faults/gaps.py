"""The table of gaps: how long a partition took no write, by kind of fault, ours beside others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from tests.faults.judge import Gap


class Spread(NamedTuple):
    """Of the longest gaps of several faults, in seconds."""

    times: int
    median: float
    worst: float

    def __str__(self) -> str:
        return f"{self.median:6.1f} / {self.worst:4.1f}"


def spreads(gaps: Iterable[Gap]) -> dict[tuple[str, str], Spread]:
    """By kind of fault and client; of each fault counts the partition that was without a write for the longest time."""
    longest: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for gap in gaps:
        faults = longest[gap.kind, gap.client]
        faults[gap.event] = max(faults[gap.event], gap.seconds)
    return {key: Spread(len(found), median(found.values()), max(found.values())) for key, found in longest.items()}


def table(columns: Sequence[tuple[str, Iterable[Gap]]], clients: Sequence[str]) -> list[str]:
    """Lines of text: a row for each kind of fault, and for each deployment a median and a worst gap by client."""
    found = [(name, spreads(gaps)) for name, gaps in columns]
    kinds = sorted({kind for _, by in found for kind, _ in by})
    width = max([len(kind) for kind in kinds] + [len("median / worst, s")])
    head = "".join(f"  {f'{name}: {client}':>30}" for name, _ in found for client in clients)
    lines = [f"{'median / worst, s':{width}} {'times':>11}{head}"]
    for kind in kinds:
        times = "+".join(
            str(max((by[kind, c].times for c in clients if (kind, c) in by), default=0)) for _, by in found
        )
        cells = "".join(f"  {by.get((kind, client), '-')!s:>30}" for _, by in found for client in clients)
        lines.append(f"{kind:{width}} {times:>11}{cells}")
    return lines
