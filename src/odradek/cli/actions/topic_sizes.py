"""`odradek topics --describe --sizes`: records and bytes of topics, and how fast they grow."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.top_view import with_short_rates
from odradek.cli.arguments.topic_selection import matching_or_error
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.cli.terminal.watching import repeat

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.reports.activity import Sample

FIRST_INTERVAL_S: Final = 1.0
"""Time between the two samples of the first result; later ones compare with the result before."""
COLUMNS: Final = (
    Column("TOPIC", "topic", 15),
    Column("PARTITIONS", "partitions"),
    Column("RECORDS", "records", 10),
    Column("BYTES", "size_bytes", 10),
    Column("BYTES-OF-ALL-REPLICAS", "total_bytes"),
    Column("RECORDS/S", "records_per_second", 10),
    Column("BYTES/S", "bytes_per_second"),
)


def describe_sizes(arguments: argparse.Namespace) -> int:
    """Print a row for each topic, repeatedly with `--watch`; a document has the partitions as well."""
    from odradek.client.reports.activity import partition_rows, topic_rows

    before: Sample | None = None

    def once() -> int:
        nonlocal before
        earlier = before
        first, now = run_admin(arguments, lambda admin: _samples(admin, arguments, earlier))
        before = now
        rows = topic_rows(first, now)
        if arguments.output in DOCUMENTS:
            partitions = partition_rows(first, now)
            document: list[dict[str, Any]] = [{**row, "partitions": partitions[row["topic"]]} for row in rows]
            show_document(document, arguments.output)
        else:
            show([with_short_rates(row) for row in rows], COLUMNS, arguments.output)
        return 0

    return repeat(once) if arguments.watch else once()


async def _samples(admin: Admin, arguments: argparse.Namespace, earlier: Sample | None) -> tuple[Sample, Sample]:
    names = frozenset(await matching_or_error(admin, arguments))
    if earlier is None:
        earlier = await _sample(admin, names)
        await asyncio.sleep(FIRST_INTERVAL_S)
    return earlier, await _sample(admin, names)


async def _sample(admin: Admin, names: frozenset[str]) -> Sample:
    from odradek.client.reports.activity import Sample, sample_partitions

    return Sample(time.monotonic(), {}, await sample_partitions(admin, names), {})
