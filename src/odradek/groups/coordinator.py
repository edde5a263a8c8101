"""One shard of the group coordinator: all groups of one partition of `__consumer_offsets`.

Requests decide: they look at the state and answer with records and replies (`Outcome`). `replay` and `replay_marker`
alone change what is stored, live and at load alike, so that a shard is at every moment what its log says plus who
waits for what. Source: Kafka's GroupCoordinatorShard, GroupMetadataManager, OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from odradek.groups.classic import ClassicGroup, GroupState, restore
from odradek.groups.classic_members import ClassicMembers
from odradek.groups.consumer import ConsumerGroup, ConsumerMember, check_partition
from odradek.groups.consumer_descriptions import describe_consumer_group
from odradek.groups.consumer_records import ConsumerRecord, GroupEpochRecord, OldMetadataRecord, SubscriptionRecord
from odradek.groups.events import (
    NOTHING,
    AssignmentStored,
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    Continuation,
    Downgraded,
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
from odradek.groups.heartbeats import Heartbeats
from odradek.groups.membership import MemberExpired, Memberships, RevocationExpired
from odradek.groups.migration import Migrations
from odradek.groups.offsets import NO_PRODUCER_ID, Offsets, is_of
from odradek.groups.rebalance import Rebalances
from odradek.groups.records import ClassicGroupRecord, GroupRecord, GroupValue, OffsetRecord, OffsetValue
from odradek.groups.settings import GroupSettings
from odradek.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from odradek.groups.timers import Timers
from odradek.metadata.image import ClusterImage, Topic
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

CLASSIC_GROUP_TYPE: Final = "classic"
CONSUMER_GROUP_TYPE: Final = "consumer"
_EXPIRY_KEY: Final = ("offset-expiry",)
_EXPIRY_SLICE: Final = 500
"""How many groups are looked at before other work gets its turn."""
_NEVER_MS: Final = (1 << 63) - 1
_REFUSED_AGAIN_MS: Final = 500
"""After which an expiry is tried again whose records could not be written."""

Group = ClassicGroup | ConsumerGroup


class _ExpireOffsets:
    """The deadline's payload of the periodic check for expired offsets; `remaining` are groups still to look at."""

    __slots__ = ("remaining",)

    def __init__(self) -> None:
        self.remaining: list[str] = []


class GroupCoordinator:
    """A shard. Feed it its log through `replay`, then call `loaded`; before that it answers nothing sensible."""

    __slots__ = (
        "_classic_members",
        "_heartbeats",
        "_live",
        "_members",
        "_migrations",
        "_rebalances",
        "_settings",
        "_timers",
        "consumer_groups",
        "groups",
        "offsets",
        "stored_groups",
    )

    def __init__(
        self, settings: GroupSettings, random: Random, image: Callable[[], ClusterImage] = ClusterImage
    ) -> None:
        self._settings = settings
        self._timers = Timers()
        self._live = False
        self.stored_groups: dict[str, GroupValue] = {}
        """What the log says of each classic group that has a record."""
        self.offsets = Offsets()
        self.groups: dict[str, ClassicGroup] = {}
        """The live classic groups: stored ones, simple ones, and those whose first record is on its way."""
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """KIP-848; what the log says is all there is to them, but for their deadlines. No id is in both."""
        self._rebalances = Rebalances(self.groups, self._timers, settings, random)
        self._members = Memberships(self.consumer_groups, self._timers, settings, random, image)
        self._migrations = Migrations(self._members, self._rebalances, self.stored_groups)
        self._heartbeats = Heartbeats(self._members, self._migrations)
        self._classic_members = ClassicMembers(self._members, self._migrations)

    def configure(self, settings: GroupSettings) -> None:
        """Those of consumer groups are these from now on; Kafka lets nobody change the others of a running broker."""
        self._members.settings = settings

    # --- the log ---

    def replay(self, record: GroupRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take over a record that is in the log at `record_offset`; `producer_id` is of its transaction, if any."""
        if isinstance(record, OffsetRecord):
            self.offsets.apply(record, record_offset, producer_id)
            if self._live and record.value is not None and self._group(record.group_id) is None:
                self.groups[record.group_id] = _simple_group(record.group_id)
            return
        if not isinstance(record, ClassicGroupRecord):
            self._replay_consumer(record)
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

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group_id = record.group_id
        group = self.consumer_groups.get(group_id)
        if group is None:
            value = record.exists if isinstance(record, OldMetadataRecord) else record.value
            if not value:
                return  # what is left of a group that compaction has removed the rest of
            group = self.consumer_groups[group_id] = ConsumerGroup(group_id)
            simple = self.groups.pop(group_id, None)
            if simple is not None:
                self._rebalances.forget(simple)
        group.apply(record)
        if isinstance(record, SubscriptionRecord) and record.value is None:
            self._members.cancel_timers(group_id, record.member_id)
        elif isinstance(record, GroupEpochRecord):
            self._members.stale.discard(group_id)
            if record.value is None:
                del self.consumer_groups[group_id]

    def _group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id) or self.consumer_groups.get(group_id)

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
        for consumer_group in self.consumer_groups.values():
            self._members.loaded(now_ms, consumer_group)
        for group_id in self.offsets.group_ids():
            if self._group(group_id) is None:
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
        elif isinstance(then, Downgraded):
            outcome = self._migrations.downgraded(now_ms, then)
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
        # The group that it was to take the place of, an empty one of the other kind, is still there.
        is_other = group.group_id in self.consumer_groups
        if group.group_id in self.offsets.group_ids() and not is_other:
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
            payload = due.payload
            if isinstance(payload, _ExpireOffsets):
                outcome = _joined(outcome, self._expire_offsets(now_ms, payload))
            elif isinstance(payload, MemberExpired | RevocationExpired):
                fenced = self._heartbeats.expire(now_ms, payload)
                if fenced.records:
                    # If the log refuses them, for instance while too few replicas are in sync, this comes again.
                    self._timers.schedule(due.key, now_ms + _REFUSED_AGAIN_MS, payload)
                    # Its records have to be replayed before the next deadline of the same group is looked at.
                    return self._rebalances.take(_joined(outcome, fenced))
            else:
                outcome = _joined(outcome, self._rebalances.expire(now_ms, payload))
        return self._rebalances.take(outcome)

    def _expire_offsets(self, now_ms: int, progress: _ExpireOffsets) -> Outcome:
        """KIP-211: offsets expire when their group has long been empty, or one by one where nobody subscribes."""
        if not progress.remaining:
            progress.remaining = [*self.groups, *self.consumer_groups]
        records: list[GroupRecord] = []
        for group_id in progress.remaining[-_EXPIRY_SLICE:]:
            group = self._group(group_id)
            if group is not None:
                records += self._expire_group(group, now_ms)
        del progress.remaining[-_EXPIRY_SLICE:]
        wait_ms = 1 if progress.remaining else self._settings.offsets_retention_check_interval_ms
        self._timers.schedule(_EXPIRY_KEY, now_ms + wait_ms, progress)
        return Outcome(records=records) if records else NOTHING

    def _expire_group(self, group: Group, now_ms: int) -> list[GroupRecord]:
        group_id = group.group_id
        records: list[GroupRecord] = list(self._expired_offsets(group, now_ms))
        remaining = len(self.offsets.of_group(group_id)) - len(records)
        if remaining or self.offsets.has_open_transaction(group_id):
            return records
        if isinstance(group, ConsumerGroup):
            if not group.members:
                records += group.tombstones()
        # Kafka deletes the group from under a member that was just told to come back with its id; we do not.
        elif group.is_empty and not group.pending_join:
            records.append(ClassicGroupRecord(group_id, None))
        return records

    def _expired_offsets(self, group: Group, now_ms: int) -> list[OffsetRecord]:
        group_id = group.group_id
        retention_ms = self._settings.offsets_retention_ms
        found: list[OffsetRecord] = []
        for (topic, partition), (value, _) in self.offsets.of_group(group_id).items():
            commit_ms = value.commit_timestamp_ms
            since_ms = commit_ms if isinstance(group, ConsumerGroup) else group.offsets_expire_since(commit_ms)
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
        group = self.consumer_groups.get(request.group_id)
        if group is not None and group.members:
            refused = self._rebalances.refusal(request)
            if refused is not None:
                return Outcome(now=[(token, JoinResult(refused, request.member_id))])
            return self._classic_members.join(now_ms, token, group, request)
        outcome = self._rebalances.join(now_ms, token, request)
        if group is None or not outcome.records:
            return outcome
        # An empty group is of no kind: it becomes what its first member is.
        return outcome._replace(records=[*group.tombstones(), *outcome.records])

    def sync(self, now_ms: int, token: Token, request: SyncRequest) -> Outcome:
        """The reply is a SyncResult."""
        group = self.consumer_groups.get(request.group_id)
        if group is not None:
            return self._classic_members.sync(now_ms, token, group, request)
        return self._rebalances.sync(token, request)

    def consumer_heartbeat(self, now_ms: int, token: Token, request: ConsumerHeartbeat) -> Outcome:
        """The reply is a ConsumerHeartbeatResult. Whatever is refused is raised as KafkaError."""
        return self._rebalances.take(self._heartbeats.heartbeat(now_ms, token, request))

    def heartbeat(
        self, now_ms: int, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        group = self.consumer_groups.get(group_id)
        if group is not None:
            return self._classic_members.heartbeat(now_ms, group, member_id, group_instance_id, generation_id)
        return self._rebalances.heartbeat(now_ms, group_id, member_id, group_instance_id, generation_id)

    def leave(self, now_ms: int, token: Token, group_id: str, leaving: Sequence[LeavingMember]) -> Outcome:
        """The reply is a list of LeftMember. Raises KafkaError INVALID_GROUP_ID or COORDINATOR_NOT_AVAILABLE."""
        group = self.consumer_groups.get(group_id)
        if group is not None:
            return self._classic_members.leave(now_ms, token, group, leaving)
        return self._rebalances.leave(now_ms, token, group_id, leaving)

    # --- offsets ---

    def commit_offsets(
        self, now_ms: int, token: Token, request: CommitRequest, *, transactional: bool = False
    ) -> Outcome:
        """The reply is a list of error codes, one per offset. Raises KafkaError for the request as a whole.

        Records of a transactional commit have to be appended in a batch of that transaction and replayed with its
        producer id; `transactional` only says how the member is checked.
        """
        late = self._check_commit(now_ms, request, transactional=transactional)
        expire_ms = -1 if request.retention_ms == -1 else min(now_ms + request.retention_ms, _NEVER_MS)
        limit = self._settings.offset_metadata_max_bytes
        group_id = request.group_id
        records: list[OffsetRecord] = []
        errors: list[ErrorCode] = []
        new = tuple.__new__
        for topic, partition, offset, leader_epoch, metadata, topic_id in request.offsets:
            if metadata and len(metadata) > limit:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            if late is not None:
                check_partition(late, request.generation_id, topic_id, partition)
            errors.append(ErrorCode.NONE)
            # Commits are what a group asks most; `tuple.__new__` is twice as fast as a NamedTuple's constructor.
            value = new(OffsetValue, (offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id))
            records.append(new(OffsetRecord, (group_id, topic, partition, value)))
        return new(Outcome, (records, [(token, errors)], None, ()))

    def _check_commit(self, now_ms: int, request: CommitRequest, *, transactional: bool) -> ConsumerMember | None:
        """Raises KafkaError unless the member may commit; a member whose epoch is late is answered, to be looked at."""
        group = self._group(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION if transactional else request.unknown_group_error)
            return None
        member_id, instance_id = request.member_id, request.group_instance_id
        if isinstance(group, ConsumerGroup):
            return group.check_commit(
                member_id,
                instance_id,
                request.generation_id,
                api_version=request.api_version,
                transactional=transactional,
            )
        group.check_commit(member_id, instance_id, request.generation_id, transactional=transactional)
        if not transactional and group.state is not GroupState.EMPTY:
            # A commit shows as well as a heartbeat that the member lives.
            member = group.members.get(member_id)
            if member is not None:
                self._rebalances.touch(now_ms, group, member)
        return None

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError unless this member of a consumer group may fetch offsets now."""
        group = self.consumer_groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, member_epoch)

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
        living = self._members.image().topics
        found: list[tuple[str, list[FetchedOffset]]] = []
        for name, wanted in topics:
            topic_id = living[name].id if name in living else ZERO_UUID
            found.append((name, fetch(group_id, name, wanted, stable=require_stable, topic_id=topic_id)))
        return found

    def delete_offsets(self, token: Token, group_id: str, partitions: Sequence[tuple[str, int]]) -> Outcome:
        """The reply is a list of error codes, one per partition. Raises KafkaError for the request as a whole."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._group(group_id)
        if group is None or (isinstance(group, ClassicGroup) and group.state is GroupState.DEAD):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup) and not group.is_empty and group.protocol_type != "consumer":
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
        """Offsets of deleted topics go too: a topic of the same name created later must not inherit them.

        Nor lose its own: that one topic has taken the place of another may be heard of in one piece, and acted upon
        when a shard has loaded, or this broker its directories, while consumers of the new one commit already.
        """
        living = self._members.image().topics
        records = []
        for group_id, (topic, partition) in self.offsets.of_topics(topics):
            found = living.get(topic)
            # One of the old topic beside a pending one of the new is not fetched, and goes when that is committed.
            if found is None or found.id not in self.offsets.topic_ids(group_id, (topic, partition)):
                records.append(OffsetRecord(group_id, topic, partition, None))
        return Outcome(records=records)

    def topics_missed(self) -> Outcome:
        """As `topics_deleted`, of all that the image has not or not any more under this id.

        Only for an image that has every topic. The tombstones of a deleted topic may have been refused, and nobody
        wrote them if this broker stopped between the deletion and them.
        """
        gone = self.offsets.of_others(self._members.image().topics)
        return Outcome(records=[OffsetRecord(group_id, *key, None) for group_id, key in gone])

    # --- topics ---

    def topics_changed(self, now_ms: int, topics: Collection[str], grown: Iterable[tuple[Topic, int]]) -> Outcome:
        """These came, went or grew; `grown` are the last with the number of partitions that they had before.

        Consumer groups look at their topics again with their next heartbeat. A group that reads a topic gets offset 0
        in its new partitions, so that members that begin at the end lose nothing written before they see them.
        """
        names = frozenset(topics)
        for group_id, group in self.consumer_groups.items():
            if any(member.subscription.regex for member in group.members.values()) or not names.isdisjoint(
                group.subscribed_topics()
            ):
                self._members.stale.add(group_id)
        if not self._settings.new_partitions_from_start:
            return NOTHING
        records = [record for topic, count in grown for record in self._start_of_new(now_ms, topic, count)]
        return Outcome(records=records) if records else NOTHING

    def _start_of_new(self, now_ms: int, topic: Topic, old_count: int) -> Iterable[OffsetRecord]:
        value = OffsetValue(0, -1, "", now_ms, -1, topic.id)
        groups: list[Group] = [*self.groups.values(), *self.consumer_groups.values()]
        for group in groups:
            if not _will_read(group, topic.name):
                continue
            offsets = self.offsets.of_group(group.group_id)
            found = [offsets.get((topic.name, index)) for index in range(len(topic.partitions))]
            known = [stored is not None and is_of(stored.value.topic_id, topic.id) for stored in found]
            if any(known[:old_count]):
                for index in range(old_count, len(topic.partitions)):
                    if not known[index]:
                        yield OffsetRecord(group.group_id, topic.name, index, value)

    # --- groups ---

    def delete_groups(self, token: Token, group_ids: Sequence[str]) -> Outcome:
        """The reply is a list of error codes, one per group."""
        records: list[GroupRecord] = []
        errors: list[ErrorCode] = []
        deleted: set[str] = set()
        for group_id in group_ids:
            group = self._group(group_id)
            is_consumer = isinstance(group, ConsumerGroup)
            if group is None or group_id in deleted or (not is_consumer and group.state is GroupState.DEAD):
                errors.append(ErrorCode.GROUP_ID_NOT_FOUND)
            elif group.members if isinstance(group, ConsumerGroup) else not group.is_empty:
                errors.append(ErrorCode.NON_EMPTY_GROUP)
            else:
                keys = self.offsets.keys_of_group(group_id)
                records += [OffsetRecord(group_id, topic, partition, None) for topic, partition in keys]
                if isinstance(group, ConsumerGroup):
                    records += group.tombstones()
                else:
                    records.append(ClassicGroupRecord(group_id, None))
                deleted.add(group_id)
                errors.append(ErrorCode.NONE)
        return Outcome(records, [(token, errors)])

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        return [self._describe(group_id) for group_id in group_ids]

    def _describe(self, group_id: str) -> GroupDescription:
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            other = group_id in self.consumer_groups
            return GroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, group_id, GroupState.DEAD.value, is_other=other)
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

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        group = self.consumer_groups.get(group_id)
        if group is None:
            text = "is not a consumer group" if group_id in self.groups else "not found"
            return ConsumerGroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, group_id, message=f"Group {group_id} {text}.")
        return describe_consumer_group(group, self._members.assignor_of(group))

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Groups of these states and types; case does not matter, and empty means all."""
        wanted = {state.lower() for state in states}
        kinds = {name.lower() for name in types}
        found: list[GroupListing] = []
        if not kinds or CLASSIC_GROUP_TYPE in kinds:
            for group in self.groups.values():
                listing = GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC_GROUP_TYPE)
                found.append(listing)
        if not kinds or CONSUMER_GROUP_TYPE in kinds:
            found += [
                GroupListing(consumer.group_id, "consumer", consumer.state.value, CONSUMER_GROUP_TYPE)
                for consumer in self.consumer_groups.values()
            ]
        return [listing for listing in found if not wanted or listing.state.lower() in wanted]


def _will_read(group: Group, topic: str) -> bool:
    """Whether a group that has offsets of the topic reads it, or will when its members are back.

    What an empty group's members will subscribe to is not known; that they read on is likely, and an offset that nobody
    asks for does no harm. Who commits without ever having been a member chooses partitions by hand.
    """
    if isinstance(group, ConsumerGroup):
        return not group.members or group.is_subscribed(topic)
    if group.is_empty:
        return group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return group.topics is not None and topic in group.topics


def _simple_group(group_id: str) -> ClassicGroup:
    """The group of offsets that were committed without membership."""
    return ClassicGroup(group_id, GroupState.EMPTY, None)


def _joined(first: Outcome, second: Outcome) -> Outcome:
    """Both; only the second may come with a continuation."""
    if second is NOTHING:
        return first
    return Outcome(
        [*first.records, *second.records], [*first.replies, *second.replies], second.then, [*first.now, *second.now]
    )
