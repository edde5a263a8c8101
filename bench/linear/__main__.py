"""./dev bench linear: whether the cost of one element stays the same as their number grows.

Each subject gets a running broker of its own on an empty disk. Figures in µs are the processor time of the broker's
process (schedstat of all threads) for one partition of a request that names all partitions, or for one request; the
smallest of several runs, so that other programs matter little. Starts and stops are by the clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.linear.broker import MeasuredBroker, MeasuredKafka
from bench.linear.cases import SUBJECTS, Figure, partitions_of_peer

QUICK = 0.05
SETTINGS = {
    "num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "log.segment.delete.delay.ms": 2000,
    "odradek.max.request.partitions": 200_000,
    "odradek.max.request.topics": 200_000,
}


def measure(names: list[str], scale: float) -> list[Figure]:
    """Run the subjects; each has a new broker."""
    figures: list[Figure] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-linear-") as folder:
            broker = MeasuredBroker(Path(folder), SETTINGS)
            try:
                figures += _shown(SUBJECTS[name](broker, scale))
            finally:
                broker.close()
    return figures


def measure_peer(scale: float) -> list[Figure]:
    """The costs per partition of Apache Kafka."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-linear-", ignore_cleanup_errors=True) as folder:
        peer = MeasuredKafka(Path(folder))
        try:
            return list(_shown(partitions_of_peer(peer, scale)))
        finally:
            peer.close()


def _shown(figures: Iterator[Figure]) -> Iterator[Figure]:
    for figure in figures:
        print(f"  {figure.value:10.3f} {figure.unit:8}  {figure.name}", file=sys.stderr, flush=True)
        yield figure


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench linear", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", nargs="*", help=f"default: all of {' '.join(SUBJECTS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies all numbers")
    parser.add_argument("--quick", action="store_true", help=f"the same as --scale {QUICK}, for a look")
    parser.add_argument("--peer", action="store_true", help="the costs per partition of Apache Kafka, too")
    given = parser.parse_args(arguments)
    if unknown := set(given.subject) - set(SUBJECTS):
        parser.error(f"no subject {', '.join(sorted(unknown))}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scale = QUICK if given.quick else given.scale
    figures = measure(given.subject or list(SUBJECTS), scale)
    if given.peer:
        figures += measure_peer(scale)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    table = Table(title=f"growth ({load})", title_justify="left")
    for column in ("", "figure", "unit", "at most", "met"):
        table.add_column(column, justify="right" if column in ("figure", "at most") else "left")
    for figure in figures:
        most = "" if figure.most is None else f"{figure.most:g}"
        met = "" if figure.most is None else "yes" if figure.value <= figure.most else "NO"
        table.add_row(figure.name, f"{figure.value:,.3g}", figure.unit, most, met)
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
