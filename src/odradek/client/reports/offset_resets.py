"""New offsets for a group, planned as Kafka's `--reset-offsets` does (OffsetsUtils); nothing is set here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from odradek.client.admin.requests import raise_first
from odradek.client.model import EARLIEST, LATEST
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import Admin

SCENARIOS: Final = (
    "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration", "from-file",
)  # fmt: skip

Offsets = dict[TopicPartition, int]
Note = Callable[[str], None]
"""Receives a sentence where an offset differs from what was asked for."""


class ResetError(ValueError):
    """The plan cannot be made."""


async def plan_reset(
    admin: Admin,
    scenario: str,
    target: int,
    partitions: Collection[TopicPartition],
    current: Mapping[TopicPartition, int],
    given: Mapping[TopicPartition, int],
    note: Note,
) -> Offsets:
    """New offsets by partition, none outside of its log.

    `target` is an offset, a shift, or a time in ms since the epoch; `given` has the offsets of `from-file`. Raises
    ResetError, KafkaError.
    """
    if not partitions:
        return {}
    if scenario == "to-earliest":
        return await _listed(admin, partitions, EARLIEST)
    ends = await _listed(admin, partitions, LATEST)
    if scenario == "to-latest":
        return ends
    if scenario == "to-current":
        return {key: current.get(key, ends[key]) for key in partitions}
    if scenario in ("to-datetime", "by-duration"):
        times = await _listed(admin, partitions, target)
        return {key: at if at >= 0 else _at_end(key, ends[key], note) for key, at in times.items()}
    if scenario == "to-offset":
        wanted = dict.fromkeys(partitions, target)
    elif scenario == "from-file":
        wanted = {key: given[key] for key in partitions}
    else:
        missing = [str(key) for key in partitions if key not in current]
        if missing:
            raise ResetError(f"cannot shift {', '.join(missing)}: no committed offset")
        wanted = {key: current[key] + target for key in partitions}
    starts = await _listed(admin, partitions, EARLIEST)
    return {key: within(key, offset, starts[key], ends[key], note) for key, offset in wanted.items()}


async def _listed(admin: Admin, partitions: Collection[TopicPartition], time_ms: int) -> Offsets:
    found = raise_first(await admin.list_offsets(dict.fromkeys(partitions, time_ms)))
    return {key: found[key].offset for key in partitions}


def _at_end(key: TopicPartition, end: int, note: Note) -> int:
    note(f"{key} has no record of that time or later: the end of its log, {end}, is used")
    return end


def within(key: TopicPartition, offset: int, start: int, end: int, note: Note) -> int:
    """The offset, or the nearest one that the log has, with a note."""
    nearest = min(max(offset, start), end)
    if nearest != offset:
        note(f"{key} has offsets {start} to {end}, not {offset}: {nearest} is used")
    return nearest
