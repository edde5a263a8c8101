"""`odradek groups --describe`: where groups stand, who is in them, how they are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from odradek.cli.errors import CommandError
from odradek.cli.groups import chosen_groups
from odradek.cli.output import DOCUMENTS, Column, show, show_document
from odradek.cli.session import run_admin
from odradek.client.admin import Admin
from odradek.client.cluster import GROUP_COORDINATOR, error_of
from odradek.client.groups import GroupDescription
from odradek.client.model import LATEST, TopicPartition
from odradek.client.offsets import by_topic
from odradek.wire.errors import ErrorCode, KafkaError

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


class Member(NamedTuple):
    """A member of either protocol; epochs and target are None with the classic one."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: Collection[TopicPartition]
    epoch: int | None = None
    target: Collection[TopicPartition] | None = None


class Group(NamedTuple):
    group_id: str
    type: str
    state: str
    strategy: str
    coordinator_id: int
    members: list[Member]
    epoch: int | None = None
    assignment_epoch: int | None = None


def describe(arguments: argparse.Namespace) -> int:
    """Prints what was asked for of each group; 1 if one could not be described."""
    view = "members" if arguments.members else "state" if arguments.state is not None else "offsets"

    async def work(admin: Admin) -> tuple[list[Group], dict[str, KafkaError], list[dict[str, Any]]]:
        found, failures = await describe_groups(admin, await chosen_groups(admin, arguments))
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
    groups: list[Group],
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


# --- asking ---


async def describe_groups(admin: Admin, group_ids: Iterable[str]) -> tuple[list[Group], dict[str, KafkaError]]:
    """Groups of the classic and of the consumer protocol, and the errors of those that could not be described."""
    wanted = list(group_ids)
    groups: list[Group] = []
    failures: dict[str, KafkaError] = {}
    for group_id, classic in (await admin.groups.describe(wanted)).items():
        if isinstance(classic, KafkaError):
            other = await describe_consumer_group(admin, group_id)
            if isinstance(other, Group):
                groups.append(other)
            else:
                failures[group_id] = other or classic
        elif classic.state == "Dead" and not classic.members:
            # Before KIP-1043 a group that does not exist was answered as a dead one.
            failures[group_id] = error_of(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        else:
            groups.append(_classic(classic))
    return groups, failures


def _classic(found: GroupDescription) -> Group:
    members = [
        Member(e.member_id, e.group_instance_id, e.client_id, e.client_host, e.assignment or ()) for e in found.members
    ]
    return Group(found.group_id, "Classic", found.state, found.partition_assignor, found.coordinator_id, members)


async def describe_consumer_group(admin: Admin, group_id: str) -> Group | KafkaError | None:
    """A group of KIP-848's protocol; None where the broker knows no such groups."""
    from odradek.cli.topic_details import offers
    from odradek.wire.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    if not await offers(admin, ConsumerGroupDescribeRequest):
        return None
    cluster = admin.cluster

    async def attempt() -> Any:
        response = await cluster.request_coordinator(
            GROUP_COORDINATOR, group_id, ConsumerGroupDescribeRequest([group_id]), ConsumerGroupDescribeResponse
        )
        group = response.groups[0]
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            cluster.check_coordinator(GROUP_COORDINATOR, group_id, group.error_code, group.error_message)
        return group

    found = await cluster.retrying(attempt, f"describe group {group_id}")
    if found.error_code:
        return error_of(found.error_code, found.error_message)
    members = [
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _partitions(each.assignment),
            each.member_epoch,
            _partitions(each.target_assignment),
        )
        for each in found.members
    ]
    node = await cluster.coordinator(GROUP_COORDINATOR, group_id)
    return Group(
        group_id,
        "Consumer",
        found.group_state,
        found.assignor_name,
        node,
        members,
        found.group_epoch,
        found.assignment_epoch,
    )


def _partitions(assignment: Any) -> list[TopicPartition]:
    return [
        TopicPartition(each.topic_name, number) for each in assignment.topic_partitions for number in each.partitions
    ]


# --- rows ---


async def offset_rows(admin: Admin, group: Group) -> list[dict[str, Any]]:
    """A row per partition that has a committed offset or a member that reads it."""
    committed = await admin.groups.offsets(group.group_id)
    owners = {key: member for member in group.members for key in member.assignment}
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


def member_rows(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "consumer_id": each.member_id,
            "group_instance_id": each.group_instance_id,
            "host": each.client_host,
            "client_id": each.client_id,
            "partition_count": len(each.assignment),
            "current_epoch": each.epoch,
            "assignment": _listed(each.assignment),
            "assignment_text": _text(each.assignment),
            "target_epoch": group.assignment_epoch,
            "target_assignment": None if each.target is None else _listed(each.target),
            "target_assignment_text": None if each.target is None else _text(each.target),
        }
        for each in group.members
    ]


def _listed(assignment: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": sorted(each)} for topic, each in sorted(by_topic(assignment).items())]


def _text(assignment: Collection[TopicPartition]) -> str:
    return ";".join(f"{e['topic']}:{','.join(map(str, e['partitions']))}" for e in _listed(assignment))


def state_row(group: Group, admin: Admin) -> dict[str, Any]:
    coordinator = admin.cluster.connections.brokers.get(group.coordinator_id)
    address = None if coordinator is None else f"{coordinator.host}:{coordinator.port}"
    return {
        "group": group.group_id,
        "coordinator": {"id": group.coordinator_id, "address": address},
        "coordinator_text": f"{address or '-'} ({group.coordinator_id})",
        "assignment_strategy": group.strategy or None,
        "state": group.state,
        "type": group.type,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
    }
