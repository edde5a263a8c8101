"""One shard of the group coordinator: all groups of one partition of `__consumer_offsets`.

Requests decide: they look at the state and return records and replies (`GroupDecision`). `replay` and `replay_marker`
are the only methods that change stored state, live and at load alike. So a shard is at every moment what its log says,
plus the members that wait for an answer. Source: Kafka's GroupCoordinatorShard, GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from odradek.groups.classic.kind import ClassicGroups
from odradek.groups.consumer.kind import ConsumerGroups
from odradek.groups.events import (
    NOTHING,
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    Continuation,
    FetchedOffset,
    GroupDecision,
    GroupDescription,
    GroupListing,
    GroupSurvey,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    Token,
    TopicOffsetsDeleted,
    joined,
)
from odradek.groups.group import CheckPartition, Group, GroupKind, Kind, KindContext
from odradek.groups.kinds import KINDS
from odradek.groups.offsets.committed import NO_PRODUCER_ID, Offsets
from odradek.groups.offsets.deletions import OffsetDeletions, RetryDeletion
from odradek.groups.offsets.expiry import ExpireOffsets, OffsetExpiry
from odradek.groups.offsets.records import OffsetRecord
from odradek.groups.offsets.requests import OffsetRequests
from odradek.groups.records import GroupRecord
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Due, Timers
from odradek.metadata.image import ClusterImage, Topic
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

DEADLINES_AT_ONCE: Final = 64
"""Deadlines in one step: that of a thousand groups whose members join, or whose sessions end, at the same time would
hold up all other clients."""


class GroupCoordinator:
    """A shard. Pass its log to `replay`, then call `loaded`; before that its answers mean nothing."""

    __slots__ = (
        "_context",
        "_deletions",
        "_expire",
        "_expiry",
        "_is_live",
        "_kinds",
        "_offset_requests",
        "_one_at_a_time",
        "_replay",
        "_stored",
        "_timers",
        "classic",
        "consumer",
        "offsets",
    )

    def __init__(
        self,
        settings: GroupSettings,
        random: Random,
        image: Callable[[], ClusterImage] = ClusterImage,
        knows_all_topics: Callable[[], bool] = lambda: True,
    ) -> None:
        """`knows_all_topics`: whether a topic outside the image does not exist; else the image may be incomplete."""
        self._timers = Timers()
        self._is_live = False
        self.offsets = Offsets()
        """Committed offsets, and those of open transactions."""
        self._offset_requests = OffsetRequests(settings, self.offsets, image)
        self._deletions = OffsetDeletions(self.offsets, self._timers, image, knows_all_topics)
        self._expiry = OffsetExpiry(settings, self._timers, self.offsets, self._group_ids, self._find)
        self._replay: dict[type, Callable[[Any], None]] = {}
        self._expire: dict[type, Callable[[int, Due], GroupDecision]] = {
            ExpireOffsets: self._expiry.expire,
            RetryDeletion: self._deletions.expire,
        }
        self._one_at_a_time: set[type] = {RetryDeletion}
        self._stored: dict[type, Callable[[int, Any, ErrorCode | None], GroupDecision]] = {
            TopicOffsetsDeleted: self._deletions.stored
        }
        self._kinds: list[GroupKind] = []
        self._context = KindContext(settings, random, image, self._timers, self.offsets.has_group, self._other_has)
        for registration in KINDS:
            self._add_kind(registration.create(self._context))
        self.classic = self.kind(ClassicGroups)
        """The kind of groups that serve JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
        self.consumer = self.kind(ConsumerGroups)
        """The kind of groups that serve ConsumerGroupHeartbeat."""

    def _add_kind(self, kind: GroupKind) -> None:
        self._context.kinds[type(kind)] = kind
        self._kinds.append(kind)
        self._replay.update(kind.handlers.replay)
        self._expire.update(kind.handlers.expire)
        self._stored.update(kind.handlers.stored)
        if kind.replays_between_deadlines:
            self._one_at_a_time.update(kind.handlers.expire)

    def configure(self, settings: GroupSettings) -> None:
        """Use these settings from now on, as far as Kafka lets them change on a running broker."""
        for kind in self._kinds:
            kind.configure(settings)

    # --- kinds of groups ---

    def kind(self, wanted: type[Kind]) -> Kind:
        """The groups of one kind, for the requests that only this kind serves."""
        return self._context.kind(wanted)

    def _kind_of(self, group_id: str) -> GroupKind | None:
        for kind in self._kinds:
            if group_id in kind.by_id:
                return kind
        return None

    def _find(self, group_id: str) -> Group | None:
        kind = self._kind_of(group_id)
        return None if kind is None else kind.by_id[group_id]

    def _other_has(self, group_id: str, kind: GroupKind) -> bool:
        return any(group_id in other.by_id for other in self._kinds if other is not kind)

    def _group_ids(self) -> list[str]:
        return [group_id for kind in self._kinds for group_id in kind.by_id]

    def _groups(self) -> Iterator[Group]:
        return (group for kind in self._kinds for group in kind.by_id.values())

    # --- the log ---

    def replay(self, record: GroupRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record that is in the log at `record_offset`; `producer_id` is that of its transaction, or -1."""
        if not isinstance(record, OffsetRecord):
            self._replay[type(record)](record)
            return
        self.offsets.apply(record, record_offset, producer_id)
        if self._is_live and record.value is not None:
            group_id = record.group_id
            for kind in self._kinds:
                if group_id in kind.by_id:
                    return
            self.classic.add_simple(group_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction has ended: its offsets become visible or are dropped."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> GroupDecision:
        """The whole log has been replayed: serve the groups and start their deadlines."""
        self._is_live = True
        outcome = NOTHING
        for kind in self._kinds:
            outcome = joined(outcome, kind.loaded(now_ms))
        for group_id in self.offsets.group_ids():
            if self._kind_of(group_id) is None:
                self.classic.add_simple(group_id)
        self._expiry.start(now_ms)
        return self._with_replies(outcome)

    def unload(self, now_ms: int) -> GroupDecision:
        """Another broker leads the partition. All waiting members are answered NOT_COORDINATOR."""
        for kind in self._kinds:
            kind.unload(now_ms)
        self._is_live = False
        return self._with_replies(NOTHING)

    def release_waiting(self, now_ms: int) -> GroupDecision:
        """Another broker may coordinate the groups. As `unload`, but this coordinator keeps its state."""
        for group in self.classic.by_id.values():
            self.classic.rebalances.release_waiting(now_ms, group)
        return self._with_replies(NOTHING)

    def stored(self, then: Continuation, error: ErrorCode | None, now_ms: int) -> GroupDecision:
        """The records that `then` came with are committed, or were rejected with `error`."""
        return self._with_replies(self._stored[type(then)](now_ms, then, error))

    def _with_replies(self, outcome: GroupDecision) -> GroupDecision:
        return self.classic.rebalances.take(outcome)

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do, unless that deadline has moved by then."""
        return self._timers.next_deadline_ms()

    def expire(self, now_ms: int) -> GroupDecision:
        """Act on deadlines that have passed: on `DEADLINES_AT_ONCE` at most; `next_deadline_ms` has the others."""
        outcome = NOTHING
        for _ in range(DEADLINES_AT_ONCE):
            due = self._timers.pop_due(now_ms)
            if due is None:
                break
            deadline = type(due.payload)
            follows = self._expire[deadline](now_ms, due)
            outcome = joined(outcome, follows)
            if follows.records and deadline in self._one_at_a_time:
                break
        return self._with_replies(outcome)

    # --- membership ---

    def join(self, now_ms: int, token: Token, request: JoinRequest) -> GroupDecision:
        """JoinGroup. The reply is a JoinResult."""
        rebalances = self.classic.rebalances
        group = self.consumer.by_id.get(request.group_id)
        if group is not None and group.members:
            rejected = rebalances.rejection(request)
            if rejected is not None:
                return GroupDecision(now=[(token, JoinResult(rejected, request.member_id))])
            return self.consumer.classic_members.join(now_ms, token, group, request)
        outcome = rebalances.join(now_ms, token, request)
        if group is None or not outcome.records:
            return outcome
        # An empty group takes the kind of its first member.
        return outcome._replace(records=[*group.tombstones(), *outcome.records])

    def sync(self, now_ms: int, token: Token, request: SyncRequest) -> GroupDecision:
        """SyncGroup. The reply is a SyncResult."""
        group = self.consumer.by_id.get(request.group_id)
        if group is not None:
            return self.consumer.classic_members.sync(now_ms, token, group, request)
        return self.classic.rebalances.sync(token, request)

    def consumer_heartbeat(self, now_ms: int, token: Token, request: ConsumerHeartbeat) -> GroupDecision:
        """The reply is a ConsumerHeartbeatResult. Raises KafkaError where the heartbeat is rejected."""
        return self._with_replies(self.consumer.heartbeat(now_ms, token, request))

    def heartbeat(
        self, now_ms: int, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat of a member that speaks the classic protocol."""
        group = self.consumer.by_id.get(group_id)
        if group is not None:
            members = self.consumer.classic_members
            return members.heartbeat(now_ms, group, member_id, group_instance_id, generation_id)
        return self.classic.rebalances.heartbeat(now_ms, group_id, member_id, group_instance_id, generation_id)

    def leave(self, now_ms: int, token: Token, group_id: str, leaving: Sequence[LeavingMember]) -> GroupDecision:
        """The reply is a list of LeftMember. Raises KafkaError INVALID_GROUP_ID or COORDINATOR_NOT_AVAILABLE."""
        group = self.consumer.by_id.get(group_id)
        if group is not None:
            return self.consumer.classic_members.leave(now_ms, token, group, leaving)
        return self.classic.rebalances.leave(now_ms, token, group_id, leaving)

    # --- offsets ---

    def commit_offsets(
        self, now_ms: int, token: Token, request: CommitRequest, *, transactional: bool = False
    ) -> GroupDecision:
        """The reply is a list of error codes, one per offset. Raises KafkaError for the request as a whole.

        Records of a transactional commit have to be appended in a batch of that transaction and replayed with its
        producer id; `transactional` changes only how the member is checked.
        """
        check: CheckPartition | None = None
        kind = self._kind_of(request.group_id)
        if kind is not None:
            check = kind.check_commit(now_ms, request, transactional=transactional)
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION if transactional else request.unknown_group_error)
        return self._offset_requests.commit(now_ms, token, request, check)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise KafkaError unless this member may fetch offsets now."""
        kind = self._kind_of(group_id)
        if kind is not None:
            kind.check_fetch(group_id, member_id, member_epoch)

    def fetch_offsets(
        self, group_id: str, topics: Iterable[tuple[str, Iterable[int]]] | None, *, require_stable: bool = False
    ) -> list[tuple[str, list[FetchedOffset]]]:
        """Per topic the offsets asked for, or all that the group has committed if `topics` is None."""
        return self._offset_requests.fetch(group_id, topics, require_stable=require_stable)

    def delete_offsets(self, token: Token, group_id: str, partitions: Sequence[PartitionKey]) -> GroupDecision:
        """The reply is a list of error codes, one per partition. Raises KafkaError for the request as a whole."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._find(group_id)
        if group is None or group.is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return self._offset_requests.delete(token, group, partitions)

    # --- topics ---

    def topics_deleted(self, topics: Iterable[str]) -> GroupDecision:
        """Delete the offsets of deleted topics."""
        return self._deletions.topics_deleted(topics)

    def topics_missed(self) -> GroupDecision:
        """As `topics_deleted`, for every topic outside the image, which has to be complete."""
        return self._deletions.topics_missed()

    def topics_changed(self, now_ms: int, topics: Collection[str], grown: Iterable[tuple[Topic, int]]) -> GroupDecision:
        """Topics were created or deleted or grew; `grown` has the last, each with its previous number of partitions."""
        names = frozenset(topics)
        for kind in self._kinds:
            kind.topics_changed(names)
        return self._offset_requests.topics_grown(now_ms, self._groups(), grown)

    # --- groups ---

    def delete_groups(self, token: Token, group_ids: Sequence[str]) -> GroupDecision:
        """The reply is a list of error codes, one per group."""
        records: list[GroupRecord] = []
        errors: list[ErrorCode] = []
        deleted: set[str] = set()
        for group_id in group_ids:
            group = self._find(group_id)
            if group is None or group_id in deleted or group.is_dead:
                errors.append(ErrorCode.GROUP_ID_NOT_FOUND)
            elif not group.is_empty:
                errors.append(ErrorCode.NON_EMPTY_GROUP)
            else:
                keys = self.offsets.keys_of_group(group_id)
                records += [OffsetRecord(group_id, topic, partition, None) for topic, partition in keys]
                records += group.tombstones()
                deleted.add(group_id)
                errors.append(ErrorCode.NONE)
        return GroupDecision(records, [(token, errors)])

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Classic groups, as DescribeGroups returns them."""
        return [self.classic.describe(group_id) for group_id in group_ids]

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """A KIP-848 group, as ConsumerGroupDescribe returns it."""
        return self.consumer.describe(group_id)

    def survey(self) -> Iterator[GroupSurvey]:
        """Every group with its committed offsets, for metrics."""
        for group in list(self._groups()):
            listing = group.listing()
            offsets = self.offsets.of_group(listing.group_id)
            yield GroupSurvey(listing, group.member_count, dict(offsets))

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Groups of these states and types; case does not matter, and an empty collection means all."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {name.lower() for name in types}
        return [
            listing
            for listing in (group.listing() for group in self._groups())
            if (not wanted_types or listing.group_type in wanted_types)
            and (not wanted_states or listing.state.lower() in wanted_states)
        ]
