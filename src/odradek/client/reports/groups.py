"""Rows about consumer groups: offsets and lag, members, state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.client.admin.requests import raise_first
from odradek.client.model import LATEST
from odradek.client.offsets import by_topic
from odradek.client.reports.record_age import first_timestamps
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import Admin, GroupDescription

OFFSET_FIELDS: Final = (
    "group", "topic", "partition", "leader_epoch", "current_offset", "log_end_offset", "lag", "consumer_id", "host",
    "client_id",
)  # fmt: skip
"""The names in a row of offsets."""


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
        row: dict[str, Any] = dict.fromkeys(OFFSET_FIELDS)
        row.update(
            group=group.group_id, consumer_id=member.member_id, host=member.client_host, client_id=member.client_id
        )
        rows.append(row)
    return rows


async def add_lag_seconds(admin: Admin, rows: Sequence[dict[str, Any]], now_ms: int) -> None:
    """Add `lag_seconds` to rows of one group: the age at `now_ms` of the first record that the group has not read.

    0 without lag; None where the offset or the record's timestamp is unknown.
    """
    unread = {TopicPartition(row["topic"], row["partition"]): row["current_offset"] for row in rows if row["lag"]}
    timestamps = await first_timestamps(admin, unread)
    for row in rows:
        if row["lag"] is None:
            row["lag_seconds"] = None
            continue
        timestamp = timestamps.get(TopicPartition(row["topic"], row["partition"])) if row["lag"] else now_ms
        row["lag_seconds"] = None if timestamp is None else max(0, now_ms - timestamp) / 1000


async def end_offsets(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Ends of the partitions that exist; topics may have been deleted since their offsets were committed."""
    if not partitions:
        return {}
    described = await admin.describe_topics(sorted({each.topic for each in partitions}))
    there = [key for key in partitions if key.partition in getattr(described[key.topic], "available", ())]
    found = raise_first(await admin.list_offsets(dict.fromkeys(there, LATEST))) if there else {}
    return {key: at.offset for key, at in found.items()}


def member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    """A row per member, with the partitions that it reads."""
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
            "target_epoch": group.assignment_epoch,
            "target_assignment": None if each.target_assignment is None else _listed(each.target_assignment),
        }
        for each in group.members
    ]


def _listed(assignment: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": sorted(each)} for topic, each in sorted(by_topic(assignment).items())]


def state_row(group: GroupDescription, admin: Admin) -> dict[str, Any]:
    """The group's state, type, assignor and coordinator."""
    coordinator = admin.cluster.connections.brokers.get(group.coordinator_id)
    address = None if coordinator is None else f"{coordinator.host}:{coordinator.port}"
    return {
        "group": group.group_id,
        "coordinator": {"id": group.coordinator_id, "address": address},
        "assignment_strategy": group.partition_assignor or None,
        "state": group.state,
        "type": group.type,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
    }
