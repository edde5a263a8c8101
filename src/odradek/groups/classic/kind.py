"""Classic groups as the coordinator sees them, and the simple groups of offsets committed without membership."""

from __future__ import annotations

from typing import Final

from odradek.groups.classic.group import ClassicGroup, GroupState, restore
from odradek.groups.classic.rebalance import InitialDelayOver, JoinExpired, Rebalances, SessionExpired, SyncExpired
from odradek.groups.classic.records import CLASSIC_RECORD_TYPES, ClassicGroupRecord, GroupValue
from odradek.groups.events import (
    NOTHING,
    AssignmentStored,
    CommitRequest,
    Downgraded,
    GroupDecision,
    GroupDescription,
    GroupStored,
    JoinResult,
    StaticMemberStored,
    SyncResult,
    append_failure,
    joined,
)
from odradek.groups.group import GroupHandlers, KindContext, KindRegistration
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Due
from odradek.wire.errors import ErrorCode

_EMPTY: Final = GroupState.EMPTY
"""A look-up of a member of an enumeration costs as much as a call."""


class ClassicGroups:
    """A `GroupKind`. `by_id` has stored groups, simple ones, and those whose first record is being written."""

    replays_between_deadlines = False
    """See `GroupKind`."""

    __slots__ = ("_has_offsets", "_is_live", "_other_has", "by_id", "handlers", "rebalances", "stored")

    def __init__(self, context: KindContext) -> None:
        self._has_offsets = context.has_offsets
        self._other_has = context.other_has
        self._is_live = False
        self.by_id: dict[str, ClassicGroup] = {}
        self.stored: dict[str, GroupValue] = {}
        """What the log says of each group that has a record."""
        self.rebalances = Rebalances(self.by_id, context.timers, context.settings, context.random)
        self.handlers = GroupHandlers(
            replay={ClassicGroupRecord: self._replay},
            expire=dict.fromkeys((SessionExpired, InitialDelayOver, JoinExpired, SyncExpired), self._expire),
            stored={
                AssignmentStored: self.rebalances.assignment_stored,
                StaticMemberStored: self._static_member_stored,
                GroupStored: self._group_stored,
                Downgraded: self._downgraded,
            },
        )

    # --- the log ---

    def _replay(self, record: ClassicGroupRecord) -> None:
        group_id, value = record
        if value is not None:
            self.stored[group_id] = value
            if self._is_live and group_id not in self.by_id:
                self.by_id[group_id] = restore(group_id, value)
            return
        self.stored.pop(group_id, None)
        self.discard(group_id)

    def add_simple(self, group_id: str) -> None:
        """The group of offsets that were committed without membership."""
        self.by_id[group_id] = ClassicGroup(group_id, GroupState.EMPTY, None)

    def discard(self, group_id: str) -> None:
        """The id has no classic group, or no longer one."""
        group = self.by_id.pop(group_id, None)
        if group is not None:
            self.rebalances.forget(group)

    def loaded(self, now_ms: int) -> GroupDecision:
        """See `GroupKind`."""
        self._is_live = True
        outcome = NOTHING
        for group_id, value in self.stored.items():
            group = self.by_id[group_id] = restore(group_id, value)
            outcome = joined(outcome, self.rebalances.loaded(now_ms, group))
        return outcome

    def unload(self, now_ms: int) -> None:
        """See `GroupKind`."""
        for group in self.by_id.values():
            self.rebalances.unload(now_ms, group)
        self._is_live = False

    # --- what was stored ---

    def _static_member_stored(self, now_ms: int, then: StaticMemberStored, error: ErrorCode | None) -> GroupDecision:
        self.rebalances.static_member_stored(now_ms, then, error)
        return NOTHING

    def _downgraded(self, now_ms: int, then: Downgraded, _error: ErrorCode | None) -> GroupDecision:
        return self.rebalances.downgraded(now_ms, then)

    def _group_stored(self, _now_ms: int, then: GroupStored, error: ErrorCode | None) -> GroupDecision:
        group = self.by_id.get(then.group_id)
        if error is None or group is None or then.group_id in self.stored:
            return NOTHING
        code, replies = append_failure(error), self.rebalances.replies
        for member in list(group.members.values()):
            group.answer_join(member, JoinResult(code, ""), replies)
            # The error may have come late: a rebalance without an initial delay is further by then.
            group.answer_sync(member, SyncResult(code), replies)
        self.rebalances.forget(group)
        # The empty group of another kind that it was to replace is still there.
        if self._has_offsets(group.group_id) and not self._other_has(group.group_id, self):
            self.add_simple(group.group_id)
        else:
            del self.by_id[group.group_id]
        return NOTHING

    # --- what the coordinator asks ---

    def _expire(self, now_ms: int, due: Due) -> GroupDecision:
        return self.rebalances.expire(now_ms, due.payload)

    def configure(self, settings: GroupSettings) -> None:
        """See `GroupKind`. Kafka lets no setting of classic groups change on a running broker."""

    def topics_changed(self, topics: frozenset[str]) -> None:
        """See `GroupKind`. Members of classic groups watch their topics themselves."""

    def check_commit(self, now_ms: int, request: CommitRequest, *, transactional: bool) -> None:
        """See `GroupKind`."""
        group = self.by_id[request.group_id]
        member_id = request.member_id
        group.check_commit(member_id, request.group_instance_id, request.generation_id, transactional=transactional)
        if not transactional and group.state is not _EMPTY:
            # A commit shows as well as a heartbeat that the member is alive.
            member = group.members.get(member_id)
            if member is not None:
                self.rebalances.touch(now_ms, group, member)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """See `GroupKind`. Every client may fetch the offsets of a classic group."""

    def describe(self, group_id: str) -> GroupDescription:
        """The group as DescribeGroups returns it."""
        group = self.by_id.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            other = self._other_has(group_id, self)
            return GroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, group_id, GroupState.DEAD.value, is_other=other)
        is_stable = group.state is GroupState.STABLE
        name = group.protocol_name
        return GroupDescription(
            ErrorCode.NONE,
            group_id,
            group.state.value,
            group.protocol_type or "",
            (name or "") if is_stable else "",
            [member.describe(member.metadata(name) if is_stable else b"") for member in group.members.values()],
        )


CLASSIC_KIND: Final = KindRegistration("classic", ClassicGroups, CLASSIC_RECORD_TYPES)
"""For `kinds.KINDS`."""
