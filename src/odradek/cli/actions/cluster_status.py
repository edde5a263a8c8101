"""`odradek cluster status`: leaders, replicas and lag of each broker."""

from __future__ import annotations

import argparse
from typing import Any, Final

from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.cli.terminal.watching import repeat
from odradek.client.reports.cluster import look

COLUMNS: Final = (
    Column("BROKER", "broker", 6),
    Column("HOST", "address", 20),
    Column("RACK", "rack"),
    Column("ROLE", "role", 10),
    Column("LEADS", "leads"),
    Column("PREFERRED", "preferred"),
    Column("REPLICAS", "replicas"),
    Column("OUT-OF-SYNC", "out_of_sync"),
    Column("LAG", "lag"),
)


def status(arguments: argparse.Namespace) -> int:
    """Exit status 1 when partitions have no leader or too few replicas in sync."""

    def once() -> int:
        found = run_admin(arguments, look)
        _show(found, arguments.output)
        return 1 if found["under_replicated"] or found["leaderless"] else 0

    return repeat(once) if arguments.watch else once()


def _show(found: dict[str, Any], output: str | None) -> None:
    if output in DOCUMENTS:
        show_document(found, output)
        return
    if output != "tsv":
        print(
            f"Cluster {found['cluster_id']}: {found['partitions']} partitions, "
            f"{found['under_replicated']} under-replicated, {found['leaderless']} without a leader"
        )
    show(found["brokers"], COLUMNS, output)
