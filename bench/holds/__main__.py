"""./dev bench holds: how long one request or job keeps a broker's event loop from serving all others.

Each group of triggers gets a running broker of its own on an empty disk. Another connection asks for ApiVersions
without a pause, and the figure is the largest processor time of the loop's thread (schedstat) between such a question
and its answer. Unlike the time on the clock, which is printed beside, it does not grow while other programs have the
processor; unlike the broker's own metric it includes timers and jobs. It is read to about one tick of the kernel.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.holds.broker import WatchedBroker
from bench.holds.triggers import ROWS, Row

PARTITIONS = 5000
QUICK_PARTITIONS = 500
SETTINGS = {
    "num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "odradek.max.request.partitions": 200_000,
}


def measure(names: list[str], count: int) -> list[Row]:
    """Run the triggers; each group has a new broker."""
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-holds-") as folder:
            broker = WatchedBroker(Path(folder), SETTINGS)
            try:
                for row in ROWS[name](broker, count):
                    print(f"  {row.held.cpu_ms:8.1f} ms  {row.trigger}", file=sys.stderr, flush=True)
                    rows.append(row)
            finally:
                broker.close()
    return rows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench holds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", nargs="*", help=f"default: all of {' '.join(ROWS)}")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"default: {PARTITIONS}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PARTITIONS} partitions, for a look")
    given = parser.parse_args(arguments)
    if unknown := set(given.row) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}")
    rows = measure(given.row or list(ROWS), QUICK_PARTITIONS if given.quick else given.partitions)
    table = Table(title=f"held, ms (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)", title_justify="left")
    table.add_column("trigger")
    table.add_column("processor time", justify="right")
    table.add_column("on the clock", justify="right")
    for row in rows:
        table.add_row(row.trigger, f"{row.held.cpu_ms:.1f}", f"{row.held.wall_ms:.1f}")
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
