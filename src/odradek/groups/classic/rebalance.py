"""The rebalance protocol of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the timeouts between them.

Source: Kafka's GroupMetadataManager (its classic half), KIP-134 (initial delay), KIP-345 (static members), KIP-394
(member ids before membership), KIP-559 (protocol checks in SyncGroup), KIP-814 (leader skips assignment).

A rebalance changes nothing that is stored: it works on the live group and ends with one record, the leader's
assignment, after whose storing the generation is stable. A coordinator that dies on the way comes back with the last
stable generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.groups.classic.group import ClassicGroup, ClassicMember, GroupState, Replies, member_of
from odradek.groups.classic.records import ClassicGroupRecord, GroupValue
from odradek.groups.events import (
    NOTHING,
    AssignmentStored,
    Downgraded,
    GroupDecision,
    GroupStored,
    JoinRequest,
    JoinResult,
    LeavingMember,
    LeftMember,
    StaticMemberStored,
    SyncRequest,
    SyncResult,
    Token,
    append_failure,
)
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Timers
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError

UNKNOWN_MEMBER: Final = ""

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD
_NONE = ErrorCode.NONE


class SessionExpired(NamedTuple):
    """A member, or a pending one, has sent no heartbeat within its session timeout."""

    group_id: str
    member_id: str


class InitialDelayOver(NamedTuple):
    """The wait for more members of a new group; `remaining_ms` is what the rebalance timeout leaves."""

    group_id: str
    delay_ms: int
    remaining_ms: int


class JoinExpired(NamedTuple):
    """The rebalance timeout is over: continue with the members that have joined."""

    group_id: str


class SyncExpired(NamedTuple):
    """The rebalance timeout is over: remove members that have not synced."""

    group_id: str
    generation_id: int


Deadline: TypeAlias = SessionExpired | InitialDelayOver | JoinExpired | SyncExpired


class Rebalances:
    """Drives the classic groups of one shard, whose dictionary it shares with the coordinator.

    Every method appends answers that need no write to `self.replies`; the caller takes them with `take`.
    """

    __slots__ = ("groups", "random", "replies", "settings", "timers")

    def __init__(
        self, groups: dict[str, ClassicGroup], timers: Timers, settings: GroupSettings, random: Random
    ) -> None:
        self.groups = groups
        self.timers = timers
        self.settings = settings
        self.random = random
        self.replies: Replies = []

    def take(self, outcome: GroupDecision = NOTHING) -> GroupDecision:
        """The outcome with all answers that have gathered."""
        if not self.replies:
            return outcome
        replies, self.replies = self.replies, []
        return outcome._replace(now=[*outcome.now, *replies])

    # --- JoinGroup ---

    def join(self, now_ms: int, token: Token, request: JoinRequest) -> GroupDecision:
        """JoinGroup. The reply is a JoinResult."""
        rejected = self.rejection(request)
        if rejected is not None:
            return GroupDecision(now=[(token, JoinResult(rejected, request.member_id))])
        group = self.groups.get(request.group_id)
        is_new = group is None
        if group is None:
            if request.member_id != UNKNOWN_MEMBER:
                return GroupDecision(now=[(token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))])
            group = ClassicGroup(request.group_id, _EMPTY, now_ms)
            self.groups[request.group_id] = group
        outcome = NOTHING
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self.timers.cancel(_session_key(group, request.member_id))
            self.replies.append((token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)))
        elif request.member_id == UNKNOWN_MEMBER:
            outcome = self._join_unknown(now_ms, token, request, group)
        else:
            outcome = self._join_known(now_ms, token, request, group)
        if is_new and not outcome.records:
            # A group exists from its first JoinGroup on, before it has a generation.
            record = ClassicGroupRecord(group.group_id, GroupValue("", 0, None, None, now_ms, ()))
            outcome = outcome._replace(records=[record], then=GroupStored(group.group_id))
        return self.take(outcome)

    def rejection(self, request: JoinRequest) -> ErrorCode | None:
        """The error of a request that no group would accept, or None."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        settings = self.settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return None

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size lets this member in.

        While a rebalance is prepared those count who have joined again, so that a group above a lowered limit shrinks.
        """
        if group.state is _PREPARING:
            known = group.members.get(member_id)
            return (known is not None and known.join_token is not None) or group.joining < self.settings.max_size
        if group.state in (_COMPLETING, _STABLE):
            return member_id in group.members or len(group.members) < self.settings.max_size
        return True

    def _join_unknown(self, now_ms: int, token: Token, request: JoinRequest, group: ClassicGroup) -> GroupDecision:
        if group.state is _DEAD:
            return self._reject_join(token, ErrorCode.COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER)
        if not group.supports(request.protocol_type, request.protocols):
            return self._reject_join(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER)
        instance_id = request.group_instance_id
        member_id = self._new_member_id(request.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                return self._replace_static(now_ms, token, request, group, old_id, member_id)
        elif request.member_id_required:
            group.pending_join.add(member_id)
            self._schedule_session(now_ms, group, member_id, request.session_timeout_ms)
            return self._reject_join(token, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add_member(now_ms, token, request, group, member_id)

    def _new_member_id(self, prefix: str) -> str:
        text = self.random.uuid().hex()
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _join_known(self, now_ms: int, token: Token, request: JoinRequest, group: ClassicGroup) -> GroupDecision:
        member_id = request.member_id
        if group.state is _DEAD:
            return self._reject_join(token, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        if not group.supports(request.protocol_type, request.protocols):
            return self._reject_join(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Pending ids are never given to static members.
                return self._reject_join(token, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            return self._add_member(now_ms, token, request, group, member_id)
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return self._reject_join(token, error.code, member_id)
        member = group.members[member_id]
        if group.state is _EMPTY:
            return self._reject_join(token, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        # An unchanged follower gets the current generation again; a leader that joins a stable group wants a rebalance.
        unchanged = member.protocols == request.protocols
        if unchanged and (group.state is _COMPLETING or (group.state is _STABLE and group.leader != member_id)):
            self.replies.append((token, group.join_result(member_id)))
            return NOTHING
        group.update(member, request, token, self.replies)
        return self._rebalance(now_ms, group)

    def _reject_join(self, token: Token, error: ErrorCode, member_id: str) -> GroupDecision:
        self.replies.append((token, JoinResult(error, member_id)))
        return NOTHING

    def _add_member(
        self, now_ms: int, token: Token, request: JoinRequest, group: ClassicGroup, member_id: str
    ) -> GroupDecision:
        if group.state is _PREPARING and group.previous_state is _EMPTY:
            group.new_member_added = True
        group.add(member_of(member_id, request), token)
        # Not the session timeout: a new member cannot send heartbeats while its JoinGroup waits.
        self._schedule_session(now_ms, group, member_id, self.settings.new_member_join_timeout_ms)
        return self._rebalance(now_ms, group)

    def _replace_static(
        self, now_ms: int, token: Token, request: JoinRequest, group: ClassicGroup, old_id: str, new_id: str
    ) -> GroupDecision:
        """A static member came back without its id: it takes its own place, if possible without a rebalance."""
        leader = group.leader or ""
        self.timers.cancel(_session_key(group, old_id))
        member = group.replace_static(old_id, new_id, self.replies)
        before = StaticMemberStored(
            group.group_id,
            new_id,
            old_id,
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            leader,
            request.can_skip_assignment,
        )
        self._schedule_session(now_ms, group, new_id, member.session_timeout_ms)
        group.update(member, request, token, self.replies)
        if group.state is _STABLE:
            if group.protocol_name == group.select_protocol():
                return GroupDecision(records=[group.record()], then=before)
            return self._rebalance(now_ms, group)
        if group.state is _COMPLETING:
            # The leader may have got the old id to assign to.
            return self._prepare(now_ms, group)
        return self._maybe_complete_join(now_ms, group)

    def static_member_stored(self, now_ms: int, then: StaticMemberStored, error: ErrorCode | None) -> None:
        """The new id of a static member is stored, or was not because of `error`."""
        group = self.groups.get(then.group_id)
        member = None if group is None else group.members.get(then.member_id)
        if group is None or member is None:
            return
        if group.state is not _STABLE or member.join_token is None:
            return  # a rebalance has begun: the member takes part under its new id, and the rebalance answers it
        if error is None:
            skip = then.can_skip_assignment and group.leader == then.member_id
            # Before KIP-814 a leader did not assign if the answer named its previous member id as the leader.
            old = None if then.can_skip_assignment else then.old_leader
            group.answer_join(member, group.join_result(then.member_id, skip_assignment=skip, leader=old), self.replies)
            return
        result = group.join_result(UNKNOWN_MEMBER, leader=then.old_leader)._replace(error=append_failure(error))
        group.answer_join(member, result, self.replies)
        group.set_protocols(
            member,
            then.old_protocols,
            session_ms=then.old_session_timeout_ms,
            rebalance_ms=then.old_rebalance_timeout_ms,
        )
        self.timers.cancel(_session_key(group, then.member_id))
        old_member = group.replace_static(then.member_id, then.old_member_id, self.replies)
        self._schedule_session(now_ms, group, then.old_member_id, old_member.session_timeout_ms)

    # --- from joining to syncing ---

    def _rebalance(self, now_ms: int, group: ClassicGroup) -> GroupDecision:
        return self._prepare(now_ms, group) if group.can_rebalance else self._maybe_complete_join(now_ms, group)

    def _prepare(self, now_ms: int, group: ClassicGroup) -> GroupDecision:
        """Make every member join again."""
        if group.state is _COMPLETING:
            self._drop_assignments(now_ms, group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self.timers.cancel(_sync_key(group))
        initial = group.state is _EMPTY
        if initial:
            # Members of a new group tend to come together; one rebalance for all is worth a wait.
            delay_ms = self.settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            event = InitialDelayOver(group.group_id, delay_ms, remaining_ms)
            self.timers.schedule(_join_key(group), now_ms + delay_ms, event)
        group.transition(_PREPARING, now_ms)
        if initial:
            return NOTHING
        if group.all_joined:
            return self._complete_join(now_ms, group)
        self._schedule_join(now_ms, group)
        return NOTHING

    def _schedule_join(self, now_ms: int, group: ClassicGroup) -> None:
        self.timers.schedule(_join_key(group), now_ms + group.rebalance_timeout_ms, JoinExpired(group.group_id))

    def _maybe_complete_join(self, now_ms: int, group: ClassicGroup) -> GroupDecision:
        if group.state is _PREPARING and group.previous_state is not _EMPTY and group.all_joined:
            return self._complete_join(now_ms, group)
        return NOTHING

    def _complete_join(self, now_ms: int, group: ClassicGroup) -> GroupDecision:
        """Begin the next generation with the members that have joined; static members stay until their session ends."""
        self.timers.cancel(_join_key(group))
        gone = [m for m in group.members.values() if m.join_token is None and m.group_instance_id is None]
        for member in gone:
            group.remove(member.member_id)
            self.timers.cancel(_session_key(group, member.member_id))
        if not group.elect_joined_leader() and group.members:
            # Only absent static members: wait until one comes back or their sessions end.
            self._schedule_join(now_ms, group)
            return NOTHING
        group.begin_generation(now_ms)
        if group.state is _EMPTY:
            return GroupDecision(records=[group.record({})])
        for member in group.members.values():
            group.answer_join(member, group.join_result(member.member_id), self.replies)
            self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        event = SyncExpired(group.group_id, group.generation_id)
        self.timers.schedule(_sync_key(group), now_ms + group.rebalance_timeout_ms, event)
        return NOTHING

    # --- SyncGroup ---

    def sync(self, token: Token, request: SyncRequest) -> GroupDecision:
        """SyncGroup. The reply is a SyncResult."""
        return self.take(self._sync(token, request))

    def _sync(self, token: Token, request: SyncRequest) -> GroupDecision:
        group = self.groups.get(request.group_id)
        rejected = _sync_rejection(group, request)
        if rejected is not None or group is None:
            self.replies.append((token, SyncResult(rejected or ErrorCode.UNKNOWN_MEMBER_ID)))
            return NOTHING
        member = group.members[request.member_id]
        self._synced(group, member.member_id)
        if group.state is _STABLE:
            self.replies.append((token, _sync_result(group, member)))
            return NOTHING
        if member.sync_token is not None:
            group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS), self.replies)
        member.sync_token = token
        if group.leader != member.member_id:
            return NOTHING
        assignments = {name: request.assignments.get(name, b"") for name in group.members}
        then = AssignmentStored(group.group_id, group.generation_id, assignments)
        return GroupDecision(records=[group.record(assignments)], then=then)

    def _synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.timers.cancel(_sync_key(group))

    def assignment_stored(self, now_ms: int, then: AssignmentStored, error: ErrorCode | None) -> GroupDecision:
        """The assignment is stored, or was not because of `error`: then the group rebalances again."""
        group = self.groups.get(then.group_id)
        if group is None or group.state is not _COMPLETING or group.generation_id != then.generation_id:
            return NOTHING  # another rebalance began meanwhile
        if error is not None:
            self._drop_assignments(now_ms, group, append_failure(error))
            return self._rebalance(now_ms, group)
        for member in group.members.values():
            member.assignment = then.assignments.get(member.member_id, b"")
        group.transition(_STABLE, now_ms)
        self._answer_syncs(now_ms, group)
        return NOTHING

    def _answer_syncs(self, now_ms: int, group: ClassicGroup) -> None:
        for member in group.members.values():
            if group.answer_sync(member, _sync_result(group, member), self.replies):
                # Its session does not end while it waits.
                self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)

    def _drop_assignments(self, now_ms: int, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, SyncResult(error), self.replies):
                self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)

    # --- Heartbeat ---

    def heartbeat(
        self, now_ms: int, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat. Restarts the session of the member."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.INVALID_GROUP_ID if not group_id else ErrorCode.UNKNOWN_MEMBER_ID
        state = group.state
        if state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            group.check_member(member_id, group_instance_id)
        except KafkaError as error:
            return error.code
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if state is _EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.touch(now_ms, group, group.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if state is _PREPARING else _NONE

    def touch(self, now_ms: int, group: ClassicGroup, member: ClassicMember) -> None:
        """The member has sent a request: restart its session."""
        self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)

    def _schedule_session(self, now_ms: int, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        key = ("session", group.group_id, member_id)
        if not self.timers.postpone(key, now_ms + timeout_ms):
            self.timers.schedule(key, now_ms + timeout_ms, SessionExpired(group.group_id, member_id))

    # --- LeaveGroup ---

    def leave(self, now_ms: int, token: Token, group_id: str, leaving: Sequence[LeavingMember]) -> GroupDecision:
        """The reply is a list of LeftMember; raises KafkaError for the request as a whole."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(group_id)
        if group is None:
            unknown = [LeftMember(m.member_id, m.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for m in leaving]
            return GroupDecision(now=[(token, unknown)])
        if group.state is _DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        left = [LeftMember(m.member_id, m.group_instance_id, self._leave_one(group, m)) for m in leaving]
        outcome = NOTHING
        if any(member.error == ErrorCode.NONE for member in left):
            if group.state in (_STABLE, _COMPLETING):
                outcome = self._rebalance(now_ms, group)
            elif group.state is _PREPARING:
                outcome = self._maybe_complete_join(now_ms, group)
        return self.take(outcome._replace(replies=[*outcome.replies, (token, left)]))

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id, instance_id, _ = leaving
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id.
            found = None if instance_id is None else group.static_members.get(instance_id)
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in group.pending_join:
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
        self._remove(group, member_id)
        return ErrorCode.NONE

    def _remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member or a pending member; if it waits for an answer, it gets one that makes it join again."""
        self.timers.cancel(_session_key(group, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER), self.replies)
            group.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID), self.replies)
        group.remove(member_id)

    # --- deadlines ---

    def expire(self, now_ms: int, event: Deadline) -> GroupDecision:
        """Act on a deadline that has passed."""
        group = self.groups.get(event.group_id)
        if group is None or group.state is _DEAD:
            return NOTHING
        if isinstance(event, SessionExpired):
            return self._expire_session(now_ms, group, event.member_id)
        if isinstance(event, InitialDelayOver):
            return self._expire_initial_delay(now_ms, group, event)
        if isinstance(event, SyncExpired):
            return self._expire_sync(now_ms, group, event)
        return self._complete_join(now_ms, group) if group.state is _PREPARING else NOTHING

    def _expire_session(self, now_ms: int, group: ClassicGroup, member_id: str) -> GroupDecision:
        member = group.members.get(member_id)
        if member is None:
            if member_id not in group.pending_join:
                return NOTHING
        elif member.has_satisfied_heartbeat:
            return NOTHING
        self._remove(group, member_id)
        if member is not None and group.state in (_STABLE, _COMPLETING):
            return self._rebalance(now_ms, group)
        return self._complete_join(now_ms, group) if group.state is _PREPARING and group.all_joined else NOTHING

    def _expire_initial_delay(self, now_ms: int, group: ClassicGroup, event: InitialDelayOver) -> GroupDecision:
        if group.state is not _PREPARING:
            return NOTHING
        if not group.new_member_added or not event.remaining_ms:
            return self._complete_join(now_ms, group)
        group.new_member_added = False
        delay_ms = min(self.settings.initial_rebalance_delay_ms, event.remaining_ms)
        again = InitialDelayOver(group.group_id, delay_ms, max(event.remaining_ms - event.delay_ms, 0))
        self.timers.schedule(_join_key(group), now_ms + delay_ms, again)
        return NOTHING

    def _expire_sync(self, now_ms: int, group: ClassicGroup, event: SyncExpired) -> GroupDecision:
        """Remove members that have joined and not synced: the others must not wait for them."""
        late = [name for name in group.members if name in group.pending_sync]
        if event.generation_id != group.generation_id or group.state not in (_COMPLETING, _STABLE) or not late:
            return NOTHING
        for member_id in late:
            self._remove(group, member_id)
        return self._prepare(now_ms, group)

    # --- loading and unloading ---

    def loaded(self, now_ms: int, group: ClassicGroup) -> GroupDecision:
        """The group was loaded: its members have one session to send a request."""
        for member in group.members.values():
            self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)
        if len(group.members) > self.settings.max_size:
            return self._prepare(now_ms, group)
        return NOTHING

    def downgraded(self, now_ms: int, then: Downgraded) -> GroupDecision:
        """A consumer group has become this classic one; its members have to agree on a classic generation."""
        group = self.groups.get(then.group_id)
        if group is None or group.state is not _STABLE:
            return NOTHING
        for member in group.members.values():
            known = then.protocols.get(member.member_id, member.protocols)
            group.set_protocols(
                member, known, session_ms=member.session_timeout_ms, rebalance_ms=member.rebalance_timeout_ms
            )
            self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)
        return self._prepare(now_ms, group) if then.rebalance else NOTHING

    def unload(self, now_ms: int, group: ClassicGroup) -> None:
        """This broker no longer coordinates the group: members that wait are answered NOT_COORDINATOR."""
        group.transition(_DEAD, now_ms)
        for member in group.members.values():
            self._not_here(group, member)

    def release_waiting(self, now_ms: int, group: ClassicGroup) -> None:
        """Answer members that wait NOT_COORDINATOR; they have one session to come back."""
        for member in group.members.values():
            answered = len(self.replies)
            self._not_here(group, member)
            if len(self.replies) > answered:
                self._schedule_session(now_ms, group, member.member_id, member.session_timeout_ms)

    def _not_here(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id), self.replies)
        group.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR), self.replies)

    def forget(self, group: ClassicGroup) -> None:
        """The group is deleted: cancel its deadlines."""
        for member_id in (*group.members, *group.pending_join):
            self.timers.cancel(_session_key(group, member_id))
        self.timers.cancel(_join_key(group))
        self.timers.cancel(_sync_key(group))


def _session_key(group: ClassicGroup, member_id: str) -> tuple[str, ...]:
    return ("session", group.group_id, member_id)


def _join_key(group: ClassicGroup) -> tuple[str, ...]:
    return ("join", group.group_id)


def _sync_key(group: ClassicGroup) -> tuple[str, ...]:
    return ("sync", group.group_id)


def _sync_result(group: ClassicGroup, member: ClassicMember) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _sync_rejection(group: ClassicGroup | None, request: SyncRequest) -> ErrorCode | None:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is _EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is _DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    differs = request.protocol_type is not None and request.protocol_type != group.protocol_type
    if differs or (request.protocol_name is not None and request.protocol_name != group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is _PREPARING else None
