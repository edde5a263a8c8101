"""`odradek groups --describe`: where groups stand, who is in them, how they are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import Any, Final

from odradek.cli.errors import CommandError
from odradek.cli.groups import chosen_groups
from odradek.cli.output import DOCUMENTS, Column, show, show_document
from odradek.cli.session import run_admin
from odradek.client.admin import Admin, GroupDescription
from odradek.client.model import LATEST, TopicPartition
from odradek.client.offsets import by_topic
from odradek.wire.errors import KafkaError

OFFSET_COLUMNS: Final = (
    Column("GROUP", "group", 15),
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition", 10),
    Column("LEADER-EPOCH", "leader_epoch", 15, wide=True),
    Column("CURRENT-OFFSET", "current_offset", 15),
    Column("LOG-END-OFFSET", "log_end_offset", 15),
    Column("LAG", "lag", 15),
    Column("CONSUMER-ID", "consumer_id", 15),
    Column("HOST", "host", 15),
    Column("CLIENT-ID", "client_id"),
)
MEMBER_COLUMNS: Final = (
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
STATE_COLUMNS: Final = (
    Column("GROUP", "group", 15),
    Column("COORDINATOR (ID)", "coordinator_text", 25),
    Column("ASSIGNMENT-STRATEGY", "assignment_strategy", 20),
    Column("STATE", "state", 20),
    Column("GROUP-EPOCH", "group_epoch", 15, wide=True),
    Column("TARGET-ASSIGNMENT-EPOCH", "assignment_epoch", 25, wide=True),
    Column("#MEMBERS", "member_count"),
)


def describe(arguments: argparse.Namespace) -> int:
    """Prints what was asked for of each group; 1 if one could not be described."""
    view = "members" if arguments.members else "state" if arguments.state is not None else "offsets"

    async def work(admin: Admin) -> tuple[list[GroupDescription], dict[str, KafkaError], list[dict[str, Any]]]:
        described = await admin.groups.describe(await chosen_groups(admin, arguments))
        found = [each for each in described.values() if isinstance(each, GroupDescription)]
        failures = {name: each for name, each in described.items() if isinstance(each, KafkaError)}
        rows: list[dict[str, Any]] = []
        for group in found:
            if view == "offsets":
                rows += await offset_rows(admin, group)
            elif view == "members":
                rows += member_rows(group)
            else:
                rows.append(state_row(group, admin))
        return found, failures, rows

    groups, failures, rows = run_admin(arguments, work)
    if failures and not groups and len(failures) == 1:
        error = next(iter(failures.values()))
        raise CommandError(str(error), error.code.name)
    print_rows(arguments, view, groups, failures, rows)
    return 1 if failures else 0


def print_rows(
    arguments: argparse.Namespace,
    view: str,
    groups: list[GroupDescription],
    failures: dict[str, KafkaError],
    rows: list[dict[str, Any]],
) -> None:
    output = arguments.output
    for group_id, error in failures.items():
        print(f"odradek groups: group {group_id}: {error}", file=sys.stderr)
    if output in DOCUMENTS:
        errors = [{"group": name, "error": {"code": e.code.name, "message": e.message}} for name, e in failures.items()]
        plain = [{name: value for name, value in row.items() if not name.endswith("_text")} for row in rows]
        show_document(plain + errors, output)
        return
    columns = {"members": MEMBER_COLUMNS, "offsets": OFFSET_COLUMNS, "state": STATE_COLUMNS}[view]
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


# --- rows ---


async def offset_rows(admin: Admin, group: GroupDescription) -> list[dict[str, Any]]:
    """A row per partition that has a committed offset or a member that reads it."""
    committed = await admin.groups.offsets(group.group_id)
    owners = {key: member for member in group.members for key in member.assignment or ()}
    partitions = sorted(committed.keys() | owners.keys())
    ends = await end_offsets(admin, partitions)
    rows = []
    for key in partitions:
        at, owner, end = committed.get(key), owners.get(key), ends.get(key)
        rows.append(
            {
                "group": group.group_id,
                "topic": key.topic,
                "partition": key.partition,
                "leader_epoch": None if at is None or at.leader_epoch < 0 else at.leader_epoch,
                "current_offset": None if at is None else at.offset,
                "log_end_offset": end,
                "lag": None if at is None or end is None else max(0, end - at.offset),
                "consumer_id": None if owner is None else owner.member_id,
                "host": None if owner is None else owner.client_host,
                "client_id": None if owner is None else owner.client_id,
            }
        )
    idle = [each for each in group.members if not each.assignment]
    for member in idle:
        row: dict[str, Any] = {each.key: None for each in OFFSET_COLUMNS}
        row.update(
            group=group.group_id, consumer_id=member.member_id, host=member.client_host, client_id=member.client_id
        )
        rows.append(row)
    return rows


async def end_offsets(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Ends of the partitions that exist; topics may have been deleted since their offsets were committed."""
    if not partitions:
        return {}
    described = await admin.describe_topics(sorted({each.topic for each in partitions}))
    there = [key for key in partitions if key.partition in getattr(described[key.topic], "available", ())]
    found = await admin.list_offsets(dict.fromkeys(there, LATEST)) if there else {}
    return {key: at.offset for key, at in found.items()}


def member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "consumer_id": each.member_id,
            "group_instance_id": each.group_instance_id,
            "host": each.client_host,
            "client_id": each.client_id,
            "partition_count": len(each.assignment or ()),
            "current_epoch": each.epoch,
            "assignment": _listed(each.assignment or ()),
            "assignment_text": _text(each.assignment or ()),
            "target_epoch": group.assignment_epoch,
            "target_assignment": None if each.target_assignment is None else _listed(each.target_assignment),
            "target_assignment_text": None if each.target_assignment is None else _text(each.target_assignment),
        }
        for each in group.members
    ]


def _listed(assignment: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": sorted(each)} for topic, each in sorted(by_topic(assignment).items())]


def _text(assignment: Collection[TopicPartition]) -> str:
    return ";".join(f"{e['topic']}:{','.join(map(str, e['partitions']))}" for e in _listed(assignment))


def state_row(group: GroupDescription, admin: Admin) -> dict[str, Any]:
    coordinator = admin.cluster.connections.brokers.get(group.coordinator_id)
    address = None if coordinator is None else f"{coordinator.host}:{coordinator.port}"
    return {
        "group": group.group_id,
        "coordinator": {"id": group.coordinator_id, "address": address},
        "coordinator_text": f"{address or '-'} ({group.coordinator_id})",
        "assignment_strategy": group.partition_assignor or None,
        "state": group.state,
        "type": group.type,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
    }
