"""One shard of the group coordinator: all groups of one partition of `__consumer_offsets`.

Requests decide: they look at the state and answer with records and replies (`Outcome`). `replay` and `replay_marker`
alone change what is stored, live and at load alike, so that a shard is at every moment what its log says plus who
waits for what. Source: Kafka's GroupCoordinatorShard, GroupMetadataManager, OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from odradek.groups.classic import ClassicGroup, GroupState, restore
from odradek.groups.events import (
    NOTHING,
    AssignmentStored,
    CommitRequest,
    Continuation,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    GroupStored,
    JoinRequest,
    JoinResult,
    LeavingMember,
    Outcome,
    StaticMemberStored,
    SyncRequest,
    Token,
    append_failure,
)
from odradek.groups.offsets import NO_PRODUCER_ID, Offsets
from odradek.groups.rebalance import Rebalances
from odradek.groups.records import ClassicGroupRecord, GroupRecord, GroupValue, OffsetRecord, OffsetValue
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Timers
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError

CLASSIC_GROUP_TYPE: Final = "classic"
_EXPIRY_KEY: Final = ("offset-expiry",)


class _ExpireOffsets:
    """The deadline's payload of the periodic check for expired offsets."""

    __slots__ = ()


class GroupCoordinator:
    """A shard. Feed it its log through `replay`, then call `loaded`; before that it answers nothing sensible."""

    __slots__ = ("_live", "_rebalances", "_settings", "_timers", "groups", "offsets", "stored_groups")

    def __init__(self, settings: GroupSettings, random: Random) -> None:
        self._settings = settings
        self._timers = Timers()
        self._live = False
        self.stored_groups: dict[str, GroupValue] = {}
        """What the log says of each classic group that has a record."""
        self.offsets = Offsets()
        self.groups: dict[str, ClassicGroup] = {}
        """The live groups: stored ones, simple ones, and those whose first record is on its way."""
        self._rebalances = Rebalances(self.groups, self._timers, settings, random)

    # --- the log ---

    def replay(self, record: GroupRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take over a record that is in the log at `record_offset`; `producer_id` is of its transaction, if any."""
        if isinstance(record, OffsetRecord):
            self.offsets.apply(record, record_offset, producer_id)
            if self._live and record.value is not None and record.group_id not in self.groups:
                self.groups[record.group_id] = _simple_group(record.group_id)
            return
        group_id, value = record
        if value is not None:
            self.stored_groups[group_id] = value
            if self._live and group_id not in self.groups:
                self.groups[group_id] = restore(group_id, value)
            return
        self.stored_groups.pop(group_id, None)
        group = self.groups.pop(group_id, None)
        if group is not None:
            self._rebalances.forget(group)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction's end: its offsets become visible or vanish."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> Outcome:
        """The whole log has been replayed: bring the groups to life and start their deadlines."""
        self._live = True
        outcome = NOTHING
        for group_id, value in self.stored_groups.items():
            group = self.groups[group_id] = restore(group_id, value)
            outcome = _joined(outcome, self._rebalances.loaded(now_ms, group))
        for group_id in self.offsets.group_ids():
            if group_id not in self.groups:
                self.groups[group_id] = _simple_group(group_id)
        self._timers.schedule(
            _EXPIRY_KEY, now_ms + self._settings.offsets_retention_check_interval_ms, _ExpireOffsets()
        )
        return self._rebalances.take(outcome)

    def unload(self, now_ms: int) -> Outcome:
        """The partition has another leader. All waiting members are answered NOT_COORDINATOR."""
        for group in self.groups.values():
            self._rebalances.unload(now_ms, group)
        self._live = False
        return self._rebalances.take()

    def stored(self, then: Continuation, error: ErrorCode | None, now_ms: int) -> Outcome:
        """The records that `then` came with are committed, or refused with `error`."""
        rebalances = self._rebalances
        outcome = NOTHING
        if isinstance(then, AssignmentStored):
            outcome = rebalances.assignment_stored(now_ms, then, error)
        elif isinstance(then, StaticMemberStored):
            rebalances.static_member_stored(now_ms, then, error)
        elif error is not None:
            self._drop_new_group(then, error)
        return rebalances.take(outcome)

    def _drop_new_group(self, then: GroupStored, error: ErrorCode) -> None:
        group = self.groups.get(then.group_id)
        if group is None or then.group_id in self.stored_groups:
            return
        for member in list(group.members.values()):
            result = JoinResult(append_failure(error), "")
            group.answer_join(member, result, self._rebalances.replies)
        self._rebalances.forget(group)
        if group.group_id in self.offsets.group_ids():
            self.groups[group.group_id] = _simple_group(group.group_id)
        else:
            del self.groups[group.group_id]

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do, unless that is put off by then."""
        return self._timers.next_deadline_ms()

    def expire(self, now_ms: int) -> Outcome:
        """Act on every deadline that has passed."""
        outcome = NOTHING
        while (due := self._timers.pop_due(now_ms)) is not None:
            if isinstance(due.payload, _ExpireOffsets):
                outcome = _joined(outcome, self._expire_offsets(now_ms))
                next_ms = now_ms + self._settings.offsets_retention_check_interval_ms
                self._timers.schedule(_EXPIRY_KEY, next_ms, due.payload)
            else:
                outcome = _joined(outcome, self._rebalances.expire(now_ms, due.payload))
        return self._rebalances.take(outcome)

    def _expire_offsets(self, now_ms: int) -> Outcome:
        """KIP-211: offsets expire when their group has long been empty, or one by one where nobody subscribes."""
        records: list[GroupRecord] = []
        for group_id, group in self.groups.items():
            expired = self._expired_offsets(group, now_ms)
            records += expired
            remaining = len(self.offsets.of_group(group_id)) - len(expired)
            # Kafka deletes the group from under a member that was just told to come back with its id; we do not.
            unused = not remaining and not self.offsets.has_open_transaction(group_id)
            if unused and group.is_empty and not group.pending_join:
                records.append(ClassicGroupRecord(group_id, None))
        return Outcome(records=records) if records else NOTHING

    def _expired_offsets(self, group: ClassicGroup, now_ms: int) -> list[OffsetRecord]:
        group_id = group.group_id
        retention_ms = self._settings.offsets_retention_ms
        found: list[OffsetRecord] = []
        for (topic, partition), (value, _) in self.offsets.of_group(group_id).items():
            since_ms = group.offsets_expire_since(value.commit_timestamp_ms)
            if since_ms is None:
                break
            # An explicit retention counts from the commit, the broker's from what the group's state says.
            explicit_ms = value.expire_timestamp_ms
            expired = now_ms >= explicit_ms if explicit_ms >= 0 else now_ms - since_ms >= retention_ms
            if expired and not group.is_subscribed(topic) and not self.offsets.is_pending(group_id, (topic, partition)):
                found.append(OffsetRecord(group_id, topic, partition, None))
        return found

    # --- membership ---

    def join(self, now_ms: int, token: Token, request: JoinRequest) -> Outcome:
        """The reply is a JoinResult."""
        return self._rebalances.join(now_ms, token, request)

    def sync(self, token: Token, request: SyncRequest) -> Outcome:
        """The reply is a SyncResult."""
        return self._rebalances.sync(token, request)

    def heartbeat(
        self, now_ms: int, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        return self._rebalances.heartbeat(now_ms, group_id, member_id, group_instance_id, generation_id)

    def leave(self, now_ms: int, token: Token, group_id: str, leaving: Sequence[LeavingMember]) -> Outcome:
        """The reply is a list of LeftMember. Raises KafkaError INVALID_GROUP_ID or COORDINATOR_NOT_AVAILABLE."""
        return self._rebalances.leave(now_ms, token, group_id, leaving)

    # --- offsets ---

    def commit_offsets(
        self, now_ms: int, token: Token, request: CommitRequest, *, transactional: bool = False
    ) -> Outcome:
        """The reply is a list of error codes, one per offset. Raises KafkaError for the request as a whole.

        Records of a transactional commit have to be appended in a batch of that transaction and replayed with its
        producer id; `transactional` only says how the member is checked.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION if transactional else request.unknown_group_error)
        else:
            group.check_commit(
                request.member_id, request.group_instance_id, request.generation_id, transactional=transactional
            )
            if not transactional and group.state is not GroupState.EMPTY:
                # A commit shows as well as a heartbeat that the member lives.
                member = group.members.get(request.member_id)
                if member is not None:
                    self._rebalances.touch(now_ms, group, member)
        expire_ms = -1 if request.retention_ms == -1 else now_ms + request.retention_ms
        limit = self._settings.offset_metadata_max_bytes
        group_id = request.group_id
        records: list[OffsetRecord] = []
        errors: list[ErrorCode] = []
        for topic, partition, offset, leader_epoch, metadata, topic_id in request.offsets:
            if metadata and len(metadata) > limit:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            value = OffsetValue(offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id)
            records.append(OffsetRecord(group_id, topic, partition, value))
        return Outcome(records, [(token, errors)])

    def fetch_offsets(
        self, group_id: str, topics: Iterable[tuple[str, Iterable[int]]] | None, *, require_stable: bool = False
    ) -> list[tuple[str, list[FetchedOffset]]]:
        """Per topic the offsets asked for, or all that the group has committed when `topics` is None."""
        if topics is None:
            partitions: dict[str, list[int]] = {}
            for topic, partition in self.offsets.of_group(group_id):
                partitions.setdefault(topic, []).append(partition)
            topics = partitions.items()
        fetch = self.offsets.fetch
        return [(topic, fetch(group_id, topic, wanted, stable=require_stable)) for topic, wanted in topics]

    def delete_offsets(self, token: Token, group_id: str, partitions: Sequence[tuple[str, int]]) -> Outcome:
        """The reply is a list of error codes, one per partition. Raises KafkaError for the request as a whole."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty and group.protocol_type != "consumer":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        records: list[OffsetRecord] = []
        errors: list[ErrorCode] = []
        known = self.offsets.of_group(group_id)
        for topic, partition in partitions:
            if group.is_subscribed(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if (topic, partition) in known or self.offsets.is_pending(group_id, (topic, partition)):
                records.append(OffsetRecord(group_id, topic, partition, None))
        return Outcome(records, [(token, errors)])

    def topics_deleted(self, topics: Iterable[str]) -> Outcome:
        """Offsets of deleted topics go too: a topic of the same name created later must not inherit them."""
        found = self.offsets.of_topics(topics)
        return Outcome(
            records=[OffsetRecord(group_id, topic, partition, None) for group_id, (topic, partition) in found]
        )

    # --- groups ---

    def delete_groups(self, token: Token, group_ids: Sequence[str]) -> Outcome:
        """The reply is a list of error codes, one per group."""
        records: list[GroupRecord] = []
        errors: list[ErrorCode] = []
        deleted: set[str] = set()
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None or group.state is GroupState.DEAD or group_id in deleted:
                errors.append(ErrorCode.GROUP_ID_NOT_FOUND)
            elif not group.is_empty:
                errors.append(ErrorCode.NON_EMPTY_GROUP)
            else:
                keys = self.offsets.keys_of_group(group_id)
                records += [OffsetRecord(group_id, topic, partition, None) for topic, partition in keys]
                records.append(ClassicGroupRecord(group_id, None))
                deleted.add(group_id)
                errors.append(ErrorCode.NONE)
        return Outcome(records, [(token, errors)])

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        return [self._describe(group_id) for group_id in group_ids]

    def _describe(self, group_id: str) -> GroupDescription:
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return GroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, group_id, GroupState.DEAD.value)
        stable = group.state is GroupState.STABLE
        name = group.protocol_name
        return GroupDescription(
            ErrorCode.NONE,
            group_id,
            group.state.value,
            group.protocol_type or "",
            (name or "") if stable else "",
            [m.describe(m.metadata(name) if stable else b"") for m in group.members.values()],
        )

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Groups of these states and types; case does not matter, and empty means all."""
        wanted = {state.lower() for state in states}
        if types and CLASSIC_GROUP_TYPE not in {name.lower() for name in types}:
            return []
        return [
            GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC_GROUP_TYPE)
            for group in self.groups.values()
            if not wanted or group.state.value.lower() in wanted
        ]


def _simple_group(group_id: str) -> ClassicGroup:
    """The group of offsets that were committed without membership."""
    return ClassicGroup(group_id, GroupState.EMPTY, None)


def _joined(first: Outcome, second: Outcome) -> Outcome:
    """Both; neither comes with a continuation."""
    if second is NOTHING:
        return first
    return Outcome(
        [*first.records, *second.records], [*first.replies, *second.replies], None, [*first.now, *second.now]
    )
