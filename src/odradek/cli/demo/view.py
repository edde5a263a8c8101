"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from odradek.cli.demo.flights import Day, Totals

_LINE_EVERY_S = 2.0


class Progress(NamedTuple):
    """A moment of the demo, in records. `group_lag` is None until the group has its partitions."""

    phase: str
    seconds: float
    total: int
    produced: int = 0
    processed: int = 0
    micro_batches: int = 0
    records_per_second: float = 0.0
    results: int = 0
    group_lag: int | None = None
    days: Mapping[Day, Totals] = MappingProxyType({})

    def line(self) -> str:
        """One line for a log: only what has begun."""
        parts = [self.phase]
        if self.produced:
            parts.append(f"sent {self.produced:,} of {self.total:,}")
        if self.micro_batches:
            parts.append(
                f"Spark read {self.processed:,} in {counted(self.micro_batches, 'micro-batch', 'micro-batches')} "
                f"at {self.records_per_second:,.0f}/s"
            )
        if self.results:
            parts.append(f"{self.results:,} results, group lag {'-' if self.group_lag is None else self.group_lag}")
        return f"{self.seconds:6.1f} s  {'; '.join(parts)}"


def counted(number: int, one: str, many: str) -> str:
    """A number with the word that fits it."""
    return f"{number:,} {one if number == 1 else many}"


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

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if self._live is not None:
            self._live.console.print(line, highlight=False)
        else:
            print(line, flush=True)

    def show(self, at: Progress) -> None:
        """Draw the moment on a terminal; elsewhere print a line for each phase and every two seconds."""
        if self._live is not None:
            self._live.update(screen(at))
            return
        now = time.monotonic()
        if at.phase != self._last_phase or now - self._last_line_s >= _LINE_EVERY_S:
            self._last_phase, self._last_line_s = at.phase, now
            print(at.line(), flush=True)


def screen(at: Progress) -> Group:
    """What a terminal shows: the phase with its seconds, then only what has begun."""
    words = [f"{at.seconds:.1f} s", at.phase]
    if at.micro_batches:
        words += [
            counted(at.micro_batches, "micro-batch", "micro-batches"),
            f"{at.records_per_second:,.0f} records/s",
            f"query lag {at.produced - at.processed:,}",
            f"{at.results:,} results",
            f"group lag {'-' if at.group_lag is None else f'{at.group_lag:,}'}",
        ]
    parts: list[Table | Text] = [Text("  ".join(words))]
    if at.produced:
        bars = Table.grid(padding=(0, 2))
        for name, done in (("sent", at.produced), ("through Spark", at.processed)):
            bar = ProgressBar(total=max(at.total, 1), completed=done, width=40)
            bars.add_row(name, bar, f"{done:,} of {at.total:,}")
        parts.insert(0, bars)
    if at.days:
        parts.append(airports(at.days))
    return Group(*parts)


def airports(days: Mapping[Day, Totals]) -> Table:
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
