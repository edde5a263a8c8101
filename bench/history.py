"""./dev bench history: the figures of the bench over commits.

Without a name it lists the figures that were recorded. With one or more it prints a row for each recorded run, oldest
first: commit, time, Odradek's median, Apache Kafka's and their ratio, and a bar of Odradek's. `!` marks runs beside
which other programs used more of the machine than the limit: they do not count as evidence. `./dev bench … --record`
adds a run.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import load
from bench.metrics import METRICS, Row

HISTORY: Final = load.ROOT / load.HISTORY
_BAR_WIDTH: Final = 30


class Entry(NamedTuple):
    """One recorded run of the bench: a line of the file."""

    commit: str
    when: str
    machine: Mapping[str, object]
    scale: float
    rounds: int
    others: float
    """The most that other programs used before or during one of its runs, in cores."""
    limit: float
    figures: Mapping[str, Mapping[str, float]]
    """Server -> metric -> median."""

    @property
    def is_quiet(self) -> bool:
        """Whether other programs used no more than the limit."""
        return self.others <= self.limit

    def line(self) -> str:
        """The entry as a line of the file."""
        return json.dumps(self._asdict(), ensure_ascii=False) + "\n"


class Point(NamedTuple):
    """A figure of one run."""

    entry: Entry
    odradek: float | None
    kafka: float | None

    @property
    def ratio(self) -> float | None:
        """Odradek's figure divided by Apache Kafka's."""
        return self.odradek / self.kafka if self.odradek is not None and self.kafka else None


def medians(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Server -> metric -> median, of the bench's table; those that failed are left out."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for server, value in (("odradek", row.odradek), ("kafka", row.kafka)):
            if value is not None and not math.isnan(value):
                found.setdefault(server, {})[row.metric] = value
    return found


def append(entry: Entry, path: Path = HISTORY) -> None:
    """Add a run at the end of the file."""
    with path.open("a") as file:
        file.write(entry.line())


def read(path: Path = HISTORY) -> list[Entry]:
    """The recorded runs, oldest first. Raises ValueError with the number of a wrong line."""
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            entry = Entry(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from error
        if unknown := {metric for values in entry.figures.values() for metric in values} - METRICS.keys():
            raise ValueError(f"{path.name}, line {number}: no figures {', '.join(sorted(unknown))} in bench/metrics.py")
        entries.append(entry)
    return entries


def points(entries: Sequence[Entry], metric: str) -> Iterator[Point]:
    """The runs that have the figure."""
    for entry in entries:
        found = Point(entry, *(entry.figures.get(server, {}).get(metric) for server in ("odradek", "kafka")))
        if found.odradek is not None or found.kafka is not None:
            yield found


def bar(value: float | None, most: float) -> str:
    """A bar whose length is the value's share of the largest one."""
    return "" if value is None or not most else "█" * max(1, round(_BAR_WIDTH * value / most))


def table_of(metric: str, found: Sequence[Point]) -> Table:
    """The figure over the runs, with its bar."""
    table = Table(title=f"{metric}, {METRICS[metric].unit or 'number'}", title_justify="left")
    for column in ("commit", "when", "scale", "odradek", "kafka", "ratio", "others", ""):
        table.add_column(column, justify="left" if column in ("commit", "when", "") else "right", no_wrap=True)
    most = max((each.odradek for each in found if each.odradek is not None), default=0.0)
    for each in found:
        entry = each.entry
        shown = ["-" if value is None else f"{value:,.4g}" for value in (each.odradek, each.kafka)]
        ratio = "-" if each.ratio is None else f"{each.ratio:.2f}×"
        others = f"{entry.others:.2f}{'' if entry.is_quiet else ' !'}"
        table.add_row(entry.commit, entry.when[:16], f"{entry.scale:g}", *shown, ratio, others, bar(each.odradek, most))
    return table


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench history", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", nargs="*", help="figure of the bench's table, in quotes: 'CPU in + out'")
    parser.add_argument("--last", type=int, metavar="N", help="the last N runs alone")
    parser.add_argument("--quiet", action="store_true", help="leave out runs beside a busy machine")
    parser.add_argument("--file", type=Path, default=HISTORY, help="default: bench/history.jsonl")
    given = parser.parse_args(arguments)
    if given.last is not None and given.last < 1:
        parser.error(f"--last {given.last}: at least 1 is needed")
    try:
        entries = [entry for entry in read(given.file) if entry.is_quiet or not given.quiet]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    recorded = {metric: number for metric in METRICS if (number := len(list(points(entries, metric))))}
    if unknown := [name for name in given.figure if name not in recorded]:
        parser.error(f"no run has {', '.join(map(repr, unknown))}; without a figure, this command lists them")
    console = Console(width=None if sys.stdout.isatty() else 130)
    if not given.figure:
        console.print("\n".join(f"{number:4}  {metric}" for metric, number in recorded.items()) or "no runs")
    for metric in given.figure:
        found = list(points(entries, metric))
        console.print(table_of(metric, found[-given.last :] if given.last else found))
    return 0
