"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup for them.

To such a member the group looks like a classic one that has a leader elsewhere: its generation is its member epoch,
and each step of its reconciliation is a rebalance. Source: Kafka's GroupMetadataManager
(classicGroupJoinToConsumerGroup and its siblings), KIP-848.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.groups.consumer.group import ConsumerGroup, ConsumerMember, Draft, without_epochs
from odradek.groups.consumer.membership import MemberExpired, Memberships, check_static
from odradek.groups.consumer.migration import Migrations, by_id, by_name
from odradek.groups.consumer.records import ClassicMetadata, MemberState, Subscription
from odradek.groups.events import (
    GroupDecision,
    JoinRequest,
    JoinResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
    Token,
)
from odradek.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, read_subscription, write_assignment
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import DecodeError


class ClassicMembers:
    """Serves requests whose group is a consumer group."""

    __slots__ = ("_members", "_migrations")

    def __init__(self, members: Memberships, migrations: Migrations) -> None:
        self._members = members
        self._migrations = migrations

    # --- JoinGroup ---

    def join(self, now_ms: int, token: Token, group: ConsumerGroup, request: JoinRequest) -> GroupDecision:
        """The reply is a JoinResult."""
        try:
            return self._join(now_ms, token, group, request)
        except KafkaError as error:
            return GroupDecision(now=[(token, JoinResult(error.code, ""))])

    def _join(self, now_ms: int, token: Token, group: ConsumerGroup, request: JoinRequest) -> GroupDecision:
        members, group_id = self._members, group.group_id
        member_id = request.member_id or members.new_member_id()
        members.check_room(group, member_id)
        if not group.supports_classic(request.protocol_type, [name for name, _ in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = request.group_instance_id
        if not request.member_id and request.member_id_required and instance_id is None:
            return GroupDecision(now=[(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))])
        try:
            found = read_subscription(request.protocols[0][1])
        except DecodeError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
        draft = Draft(group)
        joins = instance_id is None or not request.member_id
        before = members.enter(draft, member_id, instance_id, joins=joins, classic=True)
        known = before.subscription
        wanted = Subscription(
            known.instance_id if instance_id is None else instance_id,
            found.rack_id or known.rack_id,
            request.client_id,
            request.client_host,
            found.topics,
            None,
            request.rebalance_timeout_ms,
            known.server_assignor,
            ClassicMetadata(request.session_timeout_ms, request.protocols),
        )
        changed = members.subscribe(now_ms, draft, before, wanted)
        owned = by_id(found.owned, members.image())
        after = members.reconcile(now_ms, draft, member_id, owned, changed=changed)
        result = JoinResult(
            ErrorCode.NONE, member_id, after.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0], leader=""
        )
        downgraded = self._migrations.downgrade(now_ms, group, draft, rebalance=False)
        if downgraded is not None:
            return downgraded._replace(replies=[(token, result._replace(generation_id=draft.group.epoch))])
        members.timers.cancel(("member-join", group_id, member_id))
        members.touch(now_ms, group_id, member_id, request.session_timeout_ms)
        deadline_ms = now_ms + request.rebalance_timeout_ms
        members.timers.schedule(("member-sync", group_id, member_id), deadline_ms, MemberExpired(group_id, member_id))
        return GroupDecision(draft.records, [(token, result)])

    # --- SyncGroup ---

    def sync(self, now_ms: int, token: Token, group: ConsumerGroup, request: SyncRequest) -> GroupDecision:
        """The reply is a SyncResult."""
        try:
            member, classic = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
            self._check_protocol(classic, request)
            if group.target_epoch > member.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(now_ms, group, member)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return GroupDecision(now=[(token, SyncResult(error.code))])
        members = self._members
        members.timers.cancel(("member-sync", group.group_id, member.member_id))
        members.touch(now_ms, group.group_id, member.member_id, classic.session_timeout_ms)
        partitions = by_name(without_epochs(member.current.assigned), members.image().topic_names)
        version = int.from_bytes(classic.protocols[0][1][:2], "big")
        assignment = write_assignment(partitions, version)
        result = SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)
        return GroupDecision(replies=[(token, result)])

    def _check_protocol(self, classic: ClassicMetadata, request: SyncRequest) -> None:
        differs = request.protocol_type is not None and request.protocol_type != CONSUMER_PROTOCOL_TYPE
        name = classic.protocols[0][0]
        if differs or (request.protocol_name is not None and request.protocol_name != name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    # --- Heartbeat ---

    def heartbeat(
        self, now_ms: int, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat. REBALANCE_IN_PROGRESS if the member has to join again."""
        try:
            member, classic = self._member(group, member_id, group_instance_id, generation_id)
        except KafkaError as error:
            return error.code
        self._members.touch(now_ms, group.group_id, member.member_id, classic.session_timeout_ms)
        state = member.current.state
        if (
            member.epoch < group.target_epoch
            or state is MemberState.UNREVOKED_PARTITIONS
            or (state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            self._expect_join(now_ms, group, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _expect_join(self, now_ms: int, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member must join again within its rebalance timeout."""
        key = ("member-join", group.group_id, member.member_id)
        if self._members.timers.deadline_of(key) is None:
            event = MemberExpired(group.group_id, member.member_id)
            self._members.timers.schedule(key, now_ms + member.subscription.rebalance_timeout_ms, event)

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerMember, ClassicMetadata]:
        """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION."""
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_static(group.static_member(instance_id), member_id, instance_id)
        if member.subscription.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.epoch != generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.subscription.classic

    # --- LeaveGroup ---

    def leave(self, now_ms: int, token: Token, group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> GroupDecision:
        """The reply is a list of LeftMember. Administrators remove members of both protocols so.

        It names each member as the request did, with an empty member id too: Java's client looks for what it asked.
        """
        left: list[LeftMember] = []
        gone: list[str] = []
        for member_id, instance_id, _ in leaving:
            try:
                member = self._leaving_member(group, member_id, instance_id)
            except KafkaError as error:
                left.append(LeftMember(member_id, instance_id, error.code))
                continue
            left.append(LeftMember(member_id, instance_id, ErrorCode.NONE))
            gone.append(member.member_id)
        if not gone:
            return GroupDecision(now=[(token, left)])
        return self._migrations.fence(now_ms, group, dict.fromkeys(gone), [(token, left)])

    def _leaving_member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            holder = group.static_member(instance_id)
            # An administrator removes a static member by its instance id alone.
            member = check_static(holder, member_id or (holder.member_id if holder else ""), instance_id)
        return member
