"""`odradek groups --describe`: offsets and lag, members, state."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from odradek.cli.arguments.errors import CommandError
from odradek.cli.arguments.group_selection import chosen_groups
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.cli.terminal.watching import repeat
from odradek.client.admin import Admin, GroupDescription
from odradek.client.reports.groups import add_lag_seconds, member_rows, offset_rows, state_row
from odradek.client.reports.lag_trend import LagTrend, trend_text
from odradek.wire.errors import KafkaError

OFFSET_COLUMNS: Final[tuple[Column, ...]] = (
    Column("GROUP", "group", 15),
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition", 10),
    Column("LEADER-EPOCH", "leader_epoch", 15, wide=True),
    Column("CURRENT-OFFSET", "current_offset", 15),
    Column("LOG-END-OFFSET", "log_end_offset", 15),
    Column("LAG", "lag", 15),
    Column("LAG-SECONDS", "lag_seconds", 11, wide=True),
    Column("CONSUMER-ID", "consumer_id", 15),
    Column("HOST", "host", 15),
    Column("CLIENT-ID", "client_id"),
)
WATCHED_OFFSET_COLUMNS: Final[tuple[Column, ...]] = (
    *OFFSET_COLUMNS[:7],
    Column("LAG-SECONDS", "lag_seconds", 11),
    Column("TREND", "trend", 10),
    *OFFSET_COLUMNS[8:],
)
"""With `--watch`; without it, a table has the columns of Apache's tool."""
MEMBER_COLUMNS: Final[tuple[Column, ...]] = (
    Column("GROUP", "group", 15),
    Column("CONSUMER-ID", "consumer_id", 15),
    Column("GROUP-INSTANCE-ID", "group_instance_id", 17),
    Column("HOST", "host", 15),
    Column("CLIENT-ID", "client_id", 15),
    Column("#PARTITIONS", "partition_count", 15),
    Column("CURRENT-EPOCH", "current_epoch", 15, wide=True),
    Column("CURRENT-ASSIGNMENT", "assignment_text", 20, wide=True),
    Column("TARGET-EPOCH", "target_epoch", 15, wide=True),
    Column("TARGET-ASSIGNMENT", "target_assignment_text", wide=True),
)
STATE_COLUMNS: Final[tuple[Column, ...]] = (
    Column("GROUP", "group", 15),
    Column("COORDINATOR (ID)", "coordinator_text", 25),
    Column("ASSIGNMENT-STRATEGY", "assignment_strategy", 20),
    Column("STATE", "state", 20),
    Column("GROUP-EPOCH", "group_epoch", 15, wide=True),
    Column("TARGET-ASSIGNMENT-EPOCH", "assignment_epoch", 25, wide=True),
    Column("#MEMBERS", "member_count"),
)


def watch(arguments: argparse.Namespace) -> int:
    """Describe groups repeatedly, with the trend of their lag."""
    trend = LagTrend()
    return repeat(lambda: describe(arguments, trend))


def describe(arguments: argparse.Namespace, trend: LagTrend | None = None) -> int:
    """Prints what was asked for of each group; 1 if one could not be described. `trend` keeps earlier looks."""
    view = "members" if arguments.members else "state" if arguments.state is not None else "offsets"

    async def work(admin: Admin) -> tuple[list[GroupDescription], dict[str, KafkaError], list[dict[str, Any]]]:
        described = await admin.groups.describe(await chosen_groups(admin, arguments))
        found = [each for each in described.values() if isinstance(each, GroupDescription)]
        failures = {name: each for name, each in described.items() if isinstance(each, KafkaError)}
        rows: list[dict[str, Any]] = []
        for group in found:
            if view == "offsets":
                offsets = await offset_rows(admin, group)
                if trend is not None or arguments.verbose or arguments.output not in (None, "table"):
                    await add_lag_seconds(admin, offsets, time.time_ns() // 1_000_000)
                rows += offsets
            elif view == "members":
                rows += member_rows(group)
            else:
                rows.append(state_row(group, admin))
        return found, failures, rows

    groups, failures, rows = run_admin(arguments, work)
    if failures and not groups and len(failures) == 1:
        error = next(iter(failures.values()))
        raise CommandError(str(error), error.code.name)
    if trend is not None and view == "offsets":
        add_trend(rows, trend, time.monotonic())
    print_rows(arguments, view, groups, failures, rows)
    return 1 if failures else 0


def add_trend(rows: list[dict[str, Any]], trend: LagTrend, now_s: float) -> None:
    """Add `lag_per_second` to rows of offsets: how fast lag grows since earlier looks, None at the first."""
    keys = [(row["group"], row["topic"], row["partition"]) for row in rows]
    trend.observe(now_s, {key: row["lag"] for key, row in zip(keys, rows, strict=True) if row["lag"] is not None})
    for key, row in zip(keys, rows, strict=True):
        row["lag_per_second"] = trend.per_second(key)


def print_rows(
    arguments: argparse.Namespace,
    view: str,
    groups: list[GroupDescription],
    failures: dict[str, KafkaError],
    rows: list[dict[str, Any]],
) -> None:
    """Print the rows of a view of groups in the chosen output, and the failed groups on standard error."""
    output = arguments.output
    for group_id, error in failures.items():
        print(f"odradek groups: group {group_id}: {error}", file=sys.stderr)
    if output in DOCUMENTS:
        errors = [{"group": name, "error": {"code": e.code.name, "message": e.message}} for name, e in failures.items()]
        show_document(rows + errors, output)
        return
    rows = [with_texts(each) for each in rows]
    offset_columns = WATCHED_OFFSET_COLUMNS if arguments.watch else OFFSET_COLUMNS
    columns = {"members": MEMBER_COLUMNS, "offsets": offset_columns, "state": STATE_COLUMNS}[view]
    if view == "members" and output != "tsv" and not any(each["group_instance_id"] for each in rows):
        columns = tuple(each for each in columns if each.key != "group_instance_id")
    shown = "wide" if arguments.verbose and output in (None, "table") else output
    for number, group in enumerate(groups):
        if output is None and not group.members and group.state != "Stable":
            print(f"Consumer group '{group.group_id}' has no active members.", file=sys.stderr)
        if output is None and len(groups) > 1:
            # Apache prints a table for each group.
            if number:
                print()
            show([row for row in rows if row["group"] == group.group_id], columns, shown)
    if output is not None or len(groups) <= 1:
        show(rows, columns, shown)


# --- text ---


def with_texts(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the texts that a table shows for assignments, the coordinator and the trend."""
    texts: dict[str, Any] = {}
    if "lag_per_second" in row:
        texts["trend"] = trend_text(row["lag_per_second"])
    for name in ("assignment", "target_assignment"):
        if row.get(name) is not None:
            texts[f"{name}_text"] = _text(row[name])
    if "coordinator" in row:
        coordinator = row["coordinator"]
        texts["coordinator_text"] = f"{coordinator['address'] or '-'} ({coordinator['id']})"
    return {**row, **texts}


def _text(assignment: list[dict[str, Any]]) -> str:
    return ";".join(f"{each['topic']}:{','.join(map(str, each['partitions']))}" for each in assignment)
