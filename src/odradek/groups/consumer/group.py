"""A KIP-848 consumer group, as its records make it up.

All of it is stored; `apply` is the only thing that changes a group. A decision that takes several steps works on a
`Draft`, a copy that every record it decides on is applied to. Source: Kafka's ConsumerGroup, ConsumerGroupMember,
ModernGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from odradek.groups.classic.records import ClassicGroupRecord
from odradek.groups.consumer.records import (
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberState,
    OldMetadataRecord,
    OwnedPartitions,
    RegexRecord,
    ResolvedRegex,
    Subscription,
    SubscriptionRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
    TopicPartitions,
)
from odradek.groups.events import GroupListing
from odradek.records.topic_partition import TopicIdPartition
from odradek.wire.errors import ErrorCode, KafkaError

CONSUMER_GROUP_TYPE: Final = "consumer"
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2

NO_TOPICS: Final[TopicPartitions] = {}
NOT_JOINED: Final = CurrentAssignment(0, -1, MemberState.STABLE, {}, {})
NO_SUBSCRIPTION: Final = Subscription(None, None, "", "", (), None, -1, None)
_NEW_EPOCH = GroupEpoch(1, 0)
"""Of a group before its first record of an epoch."""
_NO_TARGET = TargetEpoch(1, 0)


class ConsumerGroupState(Enum):
    """The states of a consumer group; the values are the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerMember(NamedTuple):
    """A member; a new one has no subscription and no partitions."""

    member_id: str
    subscription: Subscription = NO_SUBSCRIPTION
    current: CurrentAssignment = NOT_JOINED

    @property
    def epoch(self) -> int:
        """Its member epoch."""
        return self.current.epoch

    @property
    def instance_id(self) -> str | None:
        """Its group instance id, if it is a static member."""
        return self.subscription.instance_id

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.subscription.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it owns exactly its target of this epoch."""
        return self.current.state is MemberState.STABLE and self.current.epoch == target_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch at which it got a partition that it owns or is revoking; None for other partitions."""
        current = self.current
        for owned in (current.assigned, current.revoking):
            epochs = owned.get(topic_id)
            if epochs is not None and partition in epochs:
                return epochs[partition]
        return None


class ConsumerGroup:
    """`owners` maps each partition to its member, including partitions that the member is revoking."""

    __slots__ = (
        "epoch",
        "group_id",
        "has_old_metadata",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_members",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch, self.metadata_hash = _NEW_EPOCH
        self.target_epoch, self.target_timestamp_ms = _NO_TARGET
        self.has_old_metadata = False
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Group instance id -> member id."""
        self.targets: dict[str, TopicPartitions] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        self.regexes: dict[str, ResolvedRegex] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerGroup):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> ConsumerGroup:
        """A copy that may be changed; the values inside are shared."""
        twin = ConsumerGroup(self.group_id)
        twin.epoch = self.epoch
        twin.metadata_hash = self.metadata_hash
        twin.target_epoch = self.target_epoch
        twin.target_timestamp_ms = self.target_timestamp_ms
        twin.has_old_metadata = self.has_old_metadata
        twin.members = dict(self.members)
        twin.static_members = dict(self.static_members)
        twin.targets = dict(self.targets)
        twin.owners = dict(self.owners)
        twin.regexes = dict(self.regexes)
        return twin

    # --- replay ---

    def apply(self, record: ConsumerRecord) -> None:
        """Apply one of the group's records; a tombstone of its epoch means that the group is removed."""
        if isinstance(record, CurrentAssignmentRecord):
            self._set_current(record.member_id, record.value)
        elif isinstance(record, TargetRecord):
            if record.value is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.value
        elif isinstance(record, SubscriptionRecord):
            self._set_subscription(record.member_id, record.value)
        elif isinstance(record, GroupEpochRecord):
            self.epoch, self.metadata_hash = record.value or _NEW_EPOCH
        elif isinstance(record, TargetEpochRecord):
            self.target_epoch, self.target_timestamp_ms = record.value or _NO_TARGET
        elif isinstance(record, RegexRecord):
            if record.value is None:
                self.regexes.pop(record.regex, None)
            else:
                self.regexes[record.regex] = record.value
        else:
            self.has_old_metadata = record.exists

    def _set_subscription(self, member_id: str, subscription: Subscription | None) -> None:
        old = self.members.get(member_id)
        if old is not None and old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]
        if subscription is None:
            if old is not None:
                self._disown(old)
                del self.members[member_id]
            return
        self.members[member_id] = ConsumerMember(member_id, subscription, NOT_JOINED if old is None else old.current)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def _set_current(self, member_id: str, stored: CurrentAssignment | None) -> None:
        old = self.members.get(member_id)
        if old is None:
            if stored is None:
                return  # compaction has kept only the tombstones of a member
            # Compaction has removed the subscription before this record, and kept a later one.
            old = ConsumerMember(member_id)
        current = stored or NOT_JOINED._replace(epoch=LEAVING_EPOCH)
        self._disown(old)
        self.members[member_id] = old._replace(current=current)
        for key in _keys(current):
            self.owners[key] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        owners, member_id = self.owners, member.member_id
        for key in _keys(member.current):
            if owners.get(key) == member_id:
                del owners[key]

    # --- questions ---

    @property
    def state(self) -> ConsumerGroupState:
        """Follows from the epochs of the group and of its members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        target = self.target_epoch
        is_stable = all(member.is_reconciled_to(target) for member in self.members.values())
        return ConsumerGroupState.STABLE if is_stable else ConsumerGroupState.RECONCILING

    def member(self, member_id: str) -> ConsumerMember:
        """Raises KafkaError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member of a group instance id, if there is one."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Topic names that a member subscribes to, by name or by pattern; they need not exist."""
        subscription = member.subscription
        resolved = self.regexes.get(subscription.regex) if subscription.regex else None
        return frozenset(subscription.topics) if resolved is None else resolved.topics.union(subscription.topics)

    def subscribed_topics(self) -> frozenset[str]:
        """Topic names that members subscribe to, by name or by pattern."""
        names: set[str] = set()
        for member in self.members.values():
            names.update(member.subscription.topics)
        for regex in self.subscribed_regexes():
            if regex in self.regexes:
                names |= self.regexes[regex].topics
        return frozenset(names)

    def subscribed_regexes(self) -> Iterator[str]:
        """The patterns that members subscribe to, each once."""
        return iter({m.subscription.regex: None for m in self.members.values() if m.subscription.regex})

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by name or by pattern."""
        return any(topic in member.subscription.topics for member in self.members.values()) or any(
            topic in resolved.topics for resolved in self.regexes.values()
        )

    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for; None if no member asks for one."""
        votes = Counter(m.subscription.server_assignor for m in self.members.values() if m.subscription.server_assignor)
        return max(votes, key=lambda name: votes[name]) if votes else None

    def target_of(self, member: ConsumerMember) -> TopicPartitions:
        """A static member that came back under another id inherits the target of the old one."""
        target = self.targets.get(member.member_id)
        if target is None and member.instance_id is not None:
            target = self.targets.get(self.static_members.get(member.instance_id, ""))
        return NO_TOPICS if target is None else target

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of its target is still another member's."""
        assigned = member.current.assigned
        return any(
            partition not in assigned.get(topic_id, ()) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.target_of(member).items()
            for partition in partitions
        )

    # --- members that speak the classic protocol ---

    def classic_members(self) -> list[ConsumerMember]:
        """The members that speak the classic protocol."""
        return [member for member in self.members.values() if member.is_classic]

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols can join."""
        if protocol_type != "consumer":
            return False
        wanted = list(names)
        if not self.members:
            return bool(wanted)
        classic = [m.subscription.classic for m in self.members.values() if m.subscription.classic is not None]
        supported = Counter(name for found in classic for name, _ in found.protocols)
        return any(supported.get(name, 0) == len(classic) for name in wanted)

    # --- offsets ---

    def check_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, api_version: int, transactional: bool
    ) -> ConsumerMember | None:
        """The member whose commit has to be checked per partition (`check_partition`), or None when all is well.

        Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION or UNSUPPORTED_VERSION.
        """
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and not member.is_classic and api_version < 9:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise KafkaError(stale_epoch(member))
        return member

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if member.epoch != epoch:
            raise KafkaError(stale_epoch(member))

    # --- what every kind of group answers ---

    @property
    def is_dead(self) -> bool:
        """See `Group`. The group is removed with its records."""
        return False

    @property
    def is_empty(self) -> bool:
        """See `Group`."""
        return not self.members

    @property
    def is_idle(self) -> bool:
        """See `Group`."""
        return not self.members

    @property
    def lets_offsets_be_deleted(self) -> bool:
        """See `Group`."""
        return True

    def will_read(self, topic: str) -> bool:
        """See `Group`. The later subscription of an empty group is unknown; it is likely to read on."""
        return not self.members or self.is_subscribed(topic)

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int:
        """See `Group`."""
        return commit_timestamp_ms

    @property
    def member_count(self) -> int:
        """See `Group`."""
        return len(self.members)

    def listing(self) -> GroupListing:
        """See `Group`."""
        return GroupListing(self.group_id, "consumer", self.state.value, CONSUMER_GROUP_TYPE)

    # --- storage ---

    def tombstones(self) -> Iterator[ConsumerRecord]:
        """The records that remove the group from the log, in Kafka's order."""
        group_id = self.group_id
        for member_id in self.members:
            yield CurrentAssignmentRecord(group_id, member_id, None)
        for member_id in self.targets:
            yield TargetRecord(group_id, member_id, None)
        yield TargetEpochRecord(group_id, None)
        for member_id in self.members:
            yield SubscriptionRecord(group_id, member_id, None)
        for regex in self.regexes:
            yield RegexRecord(group_id, regex, None)
        if self.has_old_metadata:
            yield OldMetadataRecord(group_id, exists=False)
        yield GroupEpochRecord(group_id, None)


class Draft:
    """A group as it will be once `records` are in the log; the group itself stays untouched until then."""

    __slots__ = ("_is_copy", "group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[ConsumerRecord | ClassicGroupRecord] = []
        self._is_copy = False

    @classmethod
    def of_new(cls, group_id: str, *, replaces_classic: bool) -> Draft:
        """A new group; a classic group of its id that has a record is removed first."""
        draft = cls(ConsumerGroup(group_id))
        draft._is_copy = True
        if replaces_classic:
            draft.records.append(ClassicGroupRecord(group_id, None))
        return draft

    def emit(self, record: ConsumerRecord) -> None:
        """Add a record, and apply it to the draft."""
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.records.append(record)
        self.group.apply(record)

    def bump(self, metadata_hash: int) -> None:
        """Begin the next epoch: members or topics have changed."""
        group = self.group
        self.emit(GroupEpochRecord(group.group_id, GroupEpoch(group.epoch + 1, metadata_hash)))

    def set_current(self, member_id: str, current: CurrentAssignment) -> None:
        """Replace a member's current assignment."""
        self.emit(CurrentAssignmentRecord(self.group.group_id, member_id, current))

    def remove(self, member_id: str) -> None:
        """Remove a member."""
        group_id = self.group.group_id
        self.emit(CurrentAssignmentRecord(group_id, member_id, None))
        self.emit(TargetRecord(group_id, member_id, None))
        self.emit(SubscriptionRecord(group_id, member_id, None))


def stale_epoch(member: ConsumerMember) -> ErrorCode:
    """The error of a wrong epoch in the protocol that the member speaks."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def check_partition(member: ConsumerMember, epoch: int, topic_id: bytes, partition: int) -> None:
    """Check that the member has owned the partition ever since the older epoch that it commits with.

    Raises KafkaError STALE_MEMBER_EPOCH or ILLEGAL_GENERATION. Source: KIP-1251.
    """
    since = member.assignment_epoch(topic_id, partition)
    if since is None or epoch < since:
        raise KafkaError(stale_epoch(member))


def _keys(current: CurrentAssignment) -> Iterator[TopicIdPartition]:
    for owned in (current.assigned, current.revoking):
        for topic_id, partitions in owned.items():
            for partition in partitions:
                yield topic_id, partition


def without_epochs(owned: OwnedPartitions) -> TopicPartitions:
    """The partitions alone."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
