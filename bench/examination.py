"""./dev bench examination: what a look at each record of a producer's batch costs a broker.

Topics that are compacted, or bound timestamps, demand one. Processor time of one record, the least of many runs: as the
broker examines it, and as a consumer decodes it, in the same process.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from odradek.records.batch import parse_header
from odradek.records.builder import encode_batch
from odradek.records.examination import examine_records
from odradek.records.record import decode_columns

SHAPES: Final[dict[str, tuple[int, tuple[int, int], tuple[int, int]]]] = {
    "alike: keys of 10 B, values of 100 B": (1_000, (10, 10), (100, 100)),
    "keys of 5 to 20 B, values of 50 to 150 B": (1_000, (5, 20), (50, 150)),
    "keys of 5 to 20 B, values of 500 to 1,500 B": (200, (5, 20), (500, 1_500)),
    "the smallest: keys of 4 B, values of 5 to 9 B": (35_000, (4, 4), (5, 9)),
}
"""Name -> records of a batch, least and largest length of a key, and of a value."""


def batch(shape: tuple[int, tuple[int, int], tuple[int, int]]) -> memoryview:
    """A batch of that shape, the same in each run."""
    draw = random.Random(1)
    count, key, value = shape
    rows = [
        (1_000_000 + index // 50, bytes(draw.randint(*key)), bytes(draw.randint(*value)), ()) for index in range(count)
    ]
    return memoryview(encode_batch(rows))


def least_us(step: Callable[[], object], records: int, runs: int) -> float:
    """Microseconds of processor time for a record, in the fastest run."""
    found = []
    for _ in range(runs):
        before = time.process_time()
        step()
        found.append(time.process_time() - before)
    return min(found) / records * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench examination", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40, help="of each kind and batch (40)")
    args = parser.parse_args(arguments)
    table = Table("records", "examined, µs", "decoded, µs", title="processor time of one record")
    for name, shape in SHAPES.items():
        data = batch(shape)
        header = parse_header(data)
        examined = least_us(lambda data=data, header=header: examine_records(data, header), shape[0], args.runs)  # type: ignore[misc]
        decoded = least_us(lambda data=data, header=header: decode_columns(data, header), shape[0], args.runs)  # type: ignore[misc]
        table.add_row(name, f"{examined:.2f}", f"{decoded:.2f}")
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    return 0
