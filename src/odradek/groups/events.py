"""Requests to the group coordinator and its results: plain values, free of wire versions and of I/O.

A request method takes one of the requests below with a token (any value: the coordinator only returns it) and returns
a `GroupDecision`: records to append, replies to release, and a continuation for when they are stored or rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from odradek.groups.consumer.records import TopicPartitions
from odradek.groups.records import GroupRecord
from odradek.wire.errors import ErrorCode
from odradek.wire.primitives import ZERO_UUID

Token: TypeAlias = Any
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member supports, in its order of preference; metadata is opaque."""


class JoinRequest(NamedTuple):
    """JoinGroup. The last two depend on the version of the request: KIP-394 (v4) and KIP-814 (v9)."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str | None = None
    member_id_required: bool = True
    can_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    """A member as the leader of its group sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to JoinGroup; `members` is for the leader alone."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """SyncGroup; `assignments` maps member ids to opaque bytes and is empty but for the leader."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class SyncResult(NamedTuple):
    """The answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup; with an empty member id the static member of that instance id is meant."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    """The answer to one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


MaySee = Callable[[str], bool]
"""Whether a client may describe a topic."""


def every_topic(_name: str) -> bool:
    """A client that may describe every topic."""
    return True


class ConsumerHeartbeat(NamedTuple):
    """ConsumerGroupHeartbeat. Fields that have not changed since the last one are None (the timeout: -1).

    Epoch 0 joins, -1 leaves, -2 leaves for a while as a static member. `may_see` filters what a regular expression
    matches.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    regex: str | None
    server_assignor: str | None
    owned: TopicPartitions | None
    may_see: MaySee = every_topic


class ConsumerHeartbeatResult(NamedTuple):
    """`assignment` is None when the member knows it already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: TopicPartitions | None = None


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit; `leader_epoch` is -1 when unknown."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: bytes = ZERO_UUID


class CommitRequest(NamedTuple):
    """OffsetCommit and TxnOffsetCommit.

    `generation_id` is -1 for commits from outside of the group's membership. `retention_ms` is -1 unless the client
    sent one (versions 2 to 4). `unknown_group_error` is what an unknown group with a generation answers: it depends
    on the version. Members of consumer groups need version 9.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    offsets: Sequence[OffsetToCommit]
    retention_ms: int = -1
    unknown_group_error: ErrorCode = ErrorCode.ILLEGAL_GENERATION
    api_version: int = 9


class FetchedOffset(NamedTuple):
    """One partition's committed offset; -1 without one."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None
    error: ErrorCode = ErrorCode.NONE


class GroupListing(NamedTuple):
    """A group as ListGroups returns it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class CommittedValue(Protocol):
    """The content of an offset commit."""

    @property
    def offset(self) -> int:
        """The offset of the next record that the group reads."""
        ...


class CommittedOffset(Protocol):
    """An offset commit in the log."""

    @property
    def value(self) -> CommittedValue:
        """Its content."""
        ...


class GroupSurvey(NamedTuple):
    """A group as its metrics show it."""

    listing: GroupListing
    member_count: int
    offsets: Mapping[tuple[str, int], CommittedOffset]
    """Committed offsets by (topic, partition)."""


class DescribedMember(NamedTuple):
    """A classic member as DescribeGroups returns it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A classic group; `error` is GROUP_ID_NOT_FOUND (and the state Dead) if no classic group has this id.

    `is_other`: a group of another kind has it.
    """

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()
    is_other: bool = False


class ConsumerMemberDescription(NamedTuple):
    """A member as ConsumerGroupDescribe returns it; `assignment` includes partitions being revoked."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    regex: str | None
    assignment: TopicPartitions
    target: TopicPartitions
    is_classic: bool


class ConsumerGroupDescription(NamedTuple):
    """A KIP-848 group; `error` is GROUP_ID_NOT_FOUND if no such group has this id."""

    error: ErrorCode
    group_id: str
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[ConsumerMemberDescription] = ()
    message: str | None = None


class AssignmentStored(NamedTuple):
    """The leader's assignment is in the log: the generation becomes stable."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """A static member's new id is in the log. The other fields are restored if it cannot be stored."""

    group_id: str
    member_id: str
    old_member_id: str
    old_protocols: Protocols
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int
    old_leader: str
    can_skip_assignment: bool


class GroupStored(NamedTuple):
    """A group's first record is in the log."""

    group_id: str


class Downgraded(NamedTuple):
    """The last KIP-848 member of a group has left: the group is a classic one now.

    Members' protocols are not all in the record. Without `rebalance` the members' assignments stand.
    """

    group_id: str
    protocols: dict[str, Protocols]
    rebalance: bool


class TopicOffsetsDeleted(NamedTuple):
    """Tombstones of offsets of deleted topics are in the log; `topics` None stands for all outside the image.

    These records need not be in one batch.
    """

    topics: frozenset[str] | None


Continuation: TypeAlias = AssignmentStored | StaticMemberStored | GroupStored | Downgraded | TopicOffsetsDeleted


class GroupDecision(NamedTuple):
    """What the caller has to do.

    1. Append `records` as one batch; then `replay` each of them.
    2. Release `now` whatever happens, `replies` once the records, or without any those before them, are committed.
       When they cannot be stored, a token of `replies` gets the error that `append_failure` makes of the append's.
    3. With `then`, call `GroupCoordinator.stored` once they are committed or rejected, and execute its outcome too.
    """

    records: Sequence[GroupRecord] = ()
    replies: Sequence[tuple[Token, Any]] = ()
    then: Continuation | None = None
    now: Sequence[tuple[Token, Any]] = ()


NOTHING = GroupDecision()


def joined(first: GroupDecision, second: GroupDecision) -> GroupDecision:
    """Both outcomes in one; only the second may have a continuation."""
    if second is NOTHING:
        return first
    return GroupDecision(
        [*first.records, *second.records], [*first.replies, *second.replies], second.then, [*first.now, *second.now]
    )


_COORDINATOR_NOT_AVAILABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)
_NOT_COORDINATOR = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def append_failure(error: ErrorCode) -> ErrorCode:
    """The error that a client gets if the coordinator's append failed (Kafka: CoordinatorOperationExceptionHelper)."""
    if error in _COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error
