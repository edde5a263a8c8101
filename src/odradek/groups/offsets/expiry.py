"""Expiry of committed offsets, and of groups that have neither offsets nor members (KIP-211)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from odradek.groups.events import NOTHING, GroupDecision
from odradek.groups.group import Group
from odradek.groups.offsets.committed import Offsets
from odradek.groups.offsets.records import OffsetRecord
from odradek.groups.records import GroupRecord
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Due, Timers

_KEY: Final = ("offset-expiry",)
_SLICE_GROUPS: Final = 500
"""Groups that are checked before other work gets its turn."""
_NEXT_SLICE_MS: Final = 1


class ExpireOffsets:
    """Payload of the deadline of the periodic check; `remaining` are group ids still to check."""

    __slots__ = ("remaining",)

    def __init__(self) -> None:
        self.remaining: list[str] = []


class OffsetExpiry:
    """Checks all groups every `offsets_retention_check_interval_ms`, one slice at a time."""

    __slots__ = ("_find", "_group_ids", "_offsets", "_settings", "_timers")

    def __init__(
        self,
        settings: GroupSettings,
        timers: Timers,
        offsets: Offsets,
        group_ids: Callable[[], list[str]],
        find: Callable[[str], Group | None],
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._offsets = offsets
        self._group_ids = group_ids
        self._find = find

    def start(self, now_ms: int) -> None:
        """Schedule the first check."""
        self._timers.schedule(_KEY, now_ms + self._settings.offsets_retention_check_interval_ms, ExpireOffsets())

    def expire(self, now_ms: int, due: Due) -> GroupDecision:
        """Check the next slice of groups, and schedule the one after it."""
        progress: ExpireOffsets = due.payload
        if not progress.remaining:
            progress.remaining = self._group_ids()
        records: list[GroupRecord] = []
        for group_id in progress.remaining[-_SLICE_GROUPS:]:
            group = self._find(group_id)
            if group is not None:
                records += self._expire_group(group, now_ms)
        del progress.remaining[-_SLICE_GROUPS:]
        wait_ms = _NEXT_SLICE_MS if progress.remaining else self._settings.offsets_retention_check_interval_ms
        self._timers.schedule(_KEY, now_ms + wait_ms, progress)
        return GroupDecision(records=records) if records else NOTHING

    def _expire_group(self, group: Group, now_ms: int) -> list[GroupRecord]:
        group_id = group.group_id
        records: list[GroupRecord] = list(self._expired_offsets(group, now_ms))
        remaining = len(self._offsets.of_group(group_id)) - len(records)
        if not remaining and not self._offsets.has_open_transaction(group_id) and group.is_idle:
            records += group.tombstones()
        return records

    def _expired_offsets(self, group: Group, now_ms: int) -> Iterable[OffsetRecord]:
        group_id = group.group_id
        retention_ms = self._settings.offsets_retention_ms
        for (topic, partition), (value, _) in self._offsets.of_group(group_id).items():
            since_ms = group.offsets_expire_since(value.commit_timestamp_ms)
            if since_ms is None:
                break
            # A retention that the client asked for counts from the commit, the broker's from the group's state.
            explicit_ms = value.expire_timestamp_ms
            expired = now_ms >= explicit_ms if explicit_ms >= 0 else now_ms - since_ms >= retention_ms
            if (
                expired
                and not group.is_subscribed(topic)
                and not self._offsets.is_pending(group_id, (topic, partition))
            ):
                yield OffsetRecord(group_id, topic, partition, None)
