"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from odradek.cli.demo_flights import Day, Totals

_LINE_EVERY_S = 2.0


class Progress(NamedTuple):
    """A moment of the demo, in records. group_lag is None until the group has its partitions."""

    phase: str
    seconds: float
    total: int
    produced: int
    processed: int
    micro_batches: int
    records_per_second: float
    results: int
    group_lag: int | None
    days: dict[Day, Totals]


class View:
    """`show` may be called as often as one likes."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout)
        self._live: Live | None = None
        self._last_line_s = -_LINE_EVERY_S
        self._last_phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=5, transient=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(self, at: Progress) -> None:
        if self._live is not None:
            self._live.update(_screen(at))
            return
        now = time.monotonic()
        if at.phase != self._last_phase or now - self._last_line_s >= _LINE_EVERY_S:
            self._last_phase, self._last_line_s = at.phase, now
            lag = "-" if at.group_lag is None else f"{at.group_lag}"
            print(
                f"{at.seconds:6.1f} s  {at.phase}: produced {at.produced:,}/{at.total:,}, Spark read {at.processed:,} "
                f"in {at.micro_batches} batches at {at.records_per_second:,.0f}/s, lag {at.produced - at.processed:,}, "
                f"results {at.results:,} (group lag {lag})",
                flush=True,
            )


def _screen(at: Progress) -> Group:
    bars = Table.grid(padding=(0, 2))
    for name, done in (("produced", at.produced), ("through Spark", at.processed)):
        bars.add_row(name, ProgressBar(total=max(at.total, 1), completed=done, width=40), f"{done:,} of {at.total:,}")
    numbers = Table.grid(padding=(0, 2))
    lag = "-" if at.group_lag is None else f"{at.group_lag:,}"
    numbers.add_row(
        f"{at.seconds:.1f} s",
        at.phase,
        f"{at.micro_batches} micro-batches",
        f"{at.records_per_second:,.0f} records/s",
        f"query lag {at.produced - at.processed:,}",
        f"{at.results:,} results",
        f"group lag {lag}",
    )
    return Group(bars, numbers, airports(at.days))


def airports(days: dict[Day, Totals]) -> Table:
    """Totals per airport."""
    table = Table(title="Departures from New York, 2013")
    for name in ("airport", "days", "flights", "cancelled", "mean delay, minutes"):
        table.add_column(name, justify="left" if name == "airport" else "right")
    for airport in sorted({airport for airport, _ in days}):
        found = [totals for (origin, _), totals in days.items() if origin == airport]
        departed = sum(each.departed for each in found)
        delay = sum((each.mean_delay or 0.0) * each.departed for each in found)
        table.add_row(
            airport,
            f"{len(found)}",
            f"{sum(each.flights for each in found):,}",
            f"{sum(each.cancelled for each in found):,}",
            f"{delay / departed:.2f}" if departed else "-",
        )
    return table
