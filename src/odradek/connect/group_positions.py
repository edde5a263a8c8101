"""Positions of a group whose members have ended, in its cluster."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.client.admin.admin import Admin
from odradek.records.topic_partition import TopicPartition


async def set_positions(admin: Admin, group: str, positions: Mapping[TopicPartition, int | None]) -> None:
    """Set positions; None removes one that the group has. Raises KafkaError, the first of several; ClientError."""
    kept = {each: offset for each, offset in positions.items() if offset is not None}
    removed = [each for each, offset in positions.items() if offset is None]
    errors = dict(await admin.groups.alter_offsets(group, kept)) if kept else {}
    if removed:
        errors |= await admin.groups.delete_offsets(group, removed)
    for failed in filter(None, errors.values()):
        raise failed
