"""A classic group: its members, its five states, and the questions that the rebalance protocol asks it.

Source: Kafka's ClassicGroup, ClassicGroupMember, ClassicGroupState. The log has only the last stable generation of a
group (`GroupValue`); members that wait are forgotten with the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from odradek.groups.classic.records import ClassicGroupRecord, GroupValue, MemberValue
from odradek.groups.events import (
    DescribedMember,
    GroupListing,
    JoinedMember,
    JoinRequest,
    JoinResult,
    Protocols,
    SyncResult,
    Token,
)
from odradek.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from odradek.wire.errors import ErrorCode, KafkaError

CLASSIC_GROUP_TYPE: Final = "classic"
Replies = list[tuple[Token, Any]]


class GroupState(Enum):
    """The states of a classic group; the values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = GroupState
# A look-up of a member of an enumeration costs as much as a call.
_EMPTY = GroupState.EMPTY
_COMPLETING = GroupState.COMPLETING_REBALANCE
_DEAD = GroupState.DEAD
PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(GroupState),
}
"""From which states each state may be entered."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member; `join_token` and `sync_token` are set while it waits for the answer of that request."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_token: Token = None
    sync_token: Token = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol. Raises ValueError if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol_name}")

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it waits for the coordinator. New members do not count, as they may be gone (KAFKA-7610)."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def vote(self, candidates: set[str]) -> str:
        """The candidate that it prefers. Raises ValueError if it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} supports none of {candidates}")

    def describe(self, metadata: bytes) -> DescribedMember:
        """The member as DescribeGroups returns it."""
        return DescribedMember(
            self.member_id, self.group_instance_id, self.client_id, self.client_host, metadata, self.assignment
        )


def member_of(member_id: str, request: JoinRequest) -> ClassicMember:
    """A new member, as its JoinGroup describes it."""
    return ClassicMember(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        request.protocols,
        is_new=True,
    )


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """A group and its bookkeeping. A simple group (offsets committed without membership) has no protocol type."""

    group_id: str
    state: GroupState
    state_timestamp_ms: int | None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    previous_state: GroupState = GroupState.DEAD
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Group instance id -> member id."""
    pending_join: set[str] = field(default_factory=set)
    """Ids given to new members (KIP-394) that have not joined with them yet."""
    pending_sync: set[str] = field(default_factory=set)
    joining: int = 0
    """How many members wait for the answer to their JoinGroup."""
    new_member_added: bool = False
    topics: frozenset[str] | None = None
    """Subscribed topics, if the members' metadata can be read."""
    supported: dict[str, int] = field(default_factory=dict)
    """Protocol name -> number of members that support it."""

    # --- states ---

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin in this state."""
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def transition(self, state: GroupState, now_ms: int) -> None:
        """Raises ValueError for a step that the table does not have."""
        if self.state not in PREVIOUS_STATES[state]:
            raise ValueError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """All members have joined: select the protocol and wait for the assignment, or be empty."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self.compute_topics()
        self.pending_sync.clear()
        self.transition(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    # --- members ---

    def add(self, member: ClassicMember, token: Token = None) -> None:
        """Add a new member; `token` is the one of its JoinGroup."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        member.join_token = token
        if token is not None:
            self.joining += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Forget a member or a pending member; if it was the leader, the longest member leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.join_token is not None:
                self.joining -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(self, member: ClassicMember, request: JoinRequest, token: Token, replies: Replies) -> None:
        """A member joins again, perhaps with other metadata."""
        self.set_protocols(
            member, request.protocols, session_ms=request.session_timeout_ms, rebalance_ms=request.rebalance_timeout_ms
        )
        # Kafka never answers the older of two requests; its connection would wait for ever.
        self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), replies)
        member.join_token = token
        self.joining += 1

    def set_protocols(self, member: ClassicMember, protocols: Protocols, *, session_ms: int, rebalance_ms: int) -> None:
        """Replace the protocols and timeouts of a member."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.session_timeout_ms = session_ms
        member.rebalance_timeout_ms = rebalance_ms

    def replace_static(self, old_id: str, new_id: str, replies: Replies) -> ClassicMember:
        """Give a static member another id, and fence requests that wait under the old id (KIP-345)."""
        old = self.members[old_id]
        self.answer_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id), replies)
        self.answer_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID), replies)
        new = ClassicMember(
            new_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        # The member keeps its place: an order that changes would give a leader another view of an unchanged group.
        self.members = {new_id if name == old_id else name: m for name, m in self.members.items()}
        self.members[new_id] = new
        if self.leader == old_id:
            self.leader = new_id
        if old.group_instance_id is not None:
            self.static_members[old.group_instance_id] = new_id
        return new

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raises KafkaError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def all_joined(self) -> bool:
        """Whether every member and every pending member waits for the next generation."""
        return len(self.members) == self.joining and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else take the first member that has; False when none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_token is None:
            joined = (member.member_id for member in self.members.values() if member.join_token is not None)
            found = next(joined, None)
            if found is None:
                return False
            self.leader = found
        return True

    # --- answers ---

    def answer_join(self, member: ClassicMember, result: JoinResult, replies: Replies) -> None:
        """Answer the JoinGroup of a member, if it waits."""
        if member.join_token is not None:
            replies.append((member.join_token, result))
            member.join_token = None
            self.joining -= 1

    def answer_sync(self, member: ClassicMember, result: SyncResult, replies: Replies) -> bool:
        """Answer the SyncGroup of a member; False if it does not wait."""
        if member.sync_token is None:
            return False
        replies.append((member.sync_token, result))
        member.sync_token = None
        return True

    def join_result(self, member_id: str, *, skip_assignment: bool = False, leader: str | None = None) -> JoinResult:
        """The answer to JoinGroup in the current generation; the leader's has all members."""
        leads = self.leader == member_id and leader is None
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            (self.leader if leader is None else leader) or "",
            skip_assignment,
            self.joined_members() if leads else (),
        )

    def joined_members(self) -> list[JoinedMember]:
        """All members, as the leader sees them."""
        name = self.protocol_name
        return [JoinedMember(m.member_id, m.group_instance_id, m.metadata(name)) for m in self.members.values()]

    # --- protocols ---

    def _count(self, member: ClassicMember, by: int) -> None:
        for name, _ in member.protocols:
            self.supported[name] = self.supported.get(name, 0) + by

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these can be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        count = len(self.members)
        return any(self.supported.get(name, 0) == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that all members support and most prefer; among equals the one voted for first."""
        count = len(self.members)
        candidates = {name for name, supporters in self.supported.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def compute_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None if they cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def is_subscribed(self, topic: str) -> bool:
        """True also when the group is a consumer group whose subscriptions cannot be read."""
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    # --- offsets ---

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, transactional: bool = False
    ) -> None:
        """Raises KafkaError unless this member may commit offsets now."""
        state = self.state
        if state is _DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and state is _EMPTY:
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            if generation_id != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            # A client outside the group must not commit for a group with members.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and state is _COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset runs (KIP-211); None when no offset of the group may expire now."""
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        aware = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.topics is not None
        return commit_timestamp_ms if aware and self.state is GroupState.STABLE else None

    # --- what every kind of group answers ---

    @property
    def is_dead(self) -> bool:
        """See `Group`."""
        return self.state is GroupState.DEAD

    @property
    def is_idle(self) -> bool:
        """See `Group`. Kafka lets a group expire whose first member was just given its id; we do not."""
        return self.is_empty and not self.pending_join

    @property
    def lets_offsets_be_deleted(self) -> bool:
        """See `Group`. The subscriptions of other protocol types are unknown."""
        return self.is_empty or self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def will_read(self, topic: str) -> bool:
        """See `Group`.

        The later subscription of an empty group is unknown; it is likely to read on, and an offset that no member
        fetches does no harm. Clients that commit without membership choose their partitions themselves.
        """
        if self.is_empty:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return self.topics is not None and topic in self.topics

    @property
    def member_count(self) -> int:
        """See `Group`."""
        return len(self.members)

    def listing(self) -> GroupListing:
        """See `Group`."""
        return GroupListing(self.group_id, self.protocol_type or "", self.state.value, CLASSIC_GROUP_TYPE)

    def tombstones(self) -> list[ClassicGroupRecord]:
        """See `Group`."""
        return [ClassicGroupRecord(self.group_id, None)]

    # --- storage ---

    def record(self, assignments: dict[str, bytes] | None = None) -> ClassicGroupRecord:
        """The group with these assignments, or with the members' own."""
        members = tuple(
            MemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        timestamp_ms = -1 if self.state_timestamp_ms is None else self.state_timestamp_ms
        value = GroupValue(
            self.protocol_type or "", self.generation_id, self.protocol_name, self.leader, timestamp_ms, members
        )
        return ClassicGroupRecord(self.group_id, value)


def restore(group_id: str, value: GroupValue) -> ClassicGroup:
    """The group as its record has it: stable, or empty without members."""
    group = ClassicGroup(
        group_id,
        GroupState.STABLE if value.members else GroupState.EMPTY,
        None if value.state_timestamp_ms == -1 else value.state_timestamp_ms,
        value.generation_id,
        value.protocol_type or None,
        value.protocol_name if not value.members else value.protocol_name or "",
        value.leader,
    )
    for member in _restored_members(value):
        group.add(member)
    group.topics = group.compute_topics()
    return group


def _restored_members(value: GroupValue) -> Iterable[ClassicMember]:
    for member in value.members:
        yield ClassicMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            value.protocol_type,
            ((value.protocol_name or "", member.subscription),),
            member.assignment,
        )
