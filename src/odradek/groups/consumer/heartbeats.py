"""ConsumerGroupHeartbeat: the whole of the KIP-848 protocol between a member and the coordinator.

Source: Kafka's GroupCoordinatorService (checks of the request) and GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from odradek.groups.consumer.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    without_epochs,
)
from odradek.groups.consumer.membership import ConsumerDeadline, Memberships, RevocationExpired, check_static
from odradek.groups.consumer.migration import Migrations
from odradek.groups.consumer.records import (
    CurrentAssignmentRecord,
    MemberState,
    OwnedPartitions,
    Subscription,
    TopicPartitions,
)
from odradek.groups.events import (
    NOTHING,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupDecision,
    Token,
)
from odradek.wire.errors import ErrorCode, KafkaError


class Heartbeats:
    """Decides on heartbeats and on members whose deadline has passed."""

    __slots__ = ("_members", "_migrations")

    def __init__(self, members: Memberships, migrations: Migrations) -> None:
        self._members = members
        self._migrations = migrations

    def heartbeat(self, now_ms: int, token: Token, request: ConsumerHeartbeat) -> GroupDecision:
        """The reply is a ConsumerHeartbeatResult. Raises KafkaError where the heartbeat is rejected."""
        self._check(request)
        if request.member_epoch < JOINING_EPOCH:
            return self._leave(now_ms, token, request)
        members = self._members
        joins = request.member_epoch == JOINING_EPOCH
        draft = self._migrations.draft(request.group_id, joins=joins)
        if draft.records:
            self._migrations.start_sessions(now_ms, draft)
        members.check_room(draft.group, request.member_id)
        member_id = request.member_id or members.new_member_id()
        before = members.enter(draft, member_id, request.instance_id, joins=joins, classic=False)
        _check_epoch(before, request)
        changed = members.subscribe(now_ms, draft, before, _subscription(before, request), request.may_see)
        after = members.reconcile(now_ms, draft, member_id, request.owned, changed=changed)
        members.touch(now_ms, request.group_id, member_id)
        if joins:
            # Last, when the request can no longer be rejected: until then the classic group stays as it was.
            self._migrations.ask_to_rejoin(request.group_id)
        says_all = (
            request.rebalance_timeout_ms != -1
            and (request.topics is not None or request.regex is not None)
            and request.owned is not None
        )
        assignment = None
        # A member with an older epoch has not received the answer that had the newer one.
        missed = request.member_epoch < before.epoch
        if joins or says_all or missed or after.current.assigned != before.current.assigned:
            assignment = without_epochs(after.current.assigned)
        interval_ms = members.heartbeat_interval_ms(now_ms, draft.group)
        result = ConsumerHeartbeatResult(member_id, after.epoch, interval_ms, assignment)
        return GroupDecision(draft.records, [(token, result)])

    def _check(self, request: ConsumerHeartbeat) -> None:
        offered = self._members.settings.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in offered:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(offered)}.",
            )

    # --- going ---

    def _leave(self, now_ms: int, token: Token, request: ConsumerHeartbeat) -> GroupDecision:
        group = self._migrations.draft(request.group_id, joins=False).group
        result = ConsumerHeartbeatResult(request.member_id, request.member_epoch)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = check_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.member_epoch == LEAVING_EPOCH:
            return self._migrations.fence(now_ms, group, [member.member_id], [(token, result)])
        # Its place and partitions stay until the session ends; partitions that it was revoking are free now.
        current = member.current._replace(epoch=STATIC_LEAVING_EPOCH, revoking={})
        return GroupDecision([CurrentAssignmentRecord(group.group_id, member.member_id, current)], [(token, result)])

    def expire(self, now_ms: int, event: ConsumerDeadline) -> GroupDecision:
        """Fence the member whose deadline has passed.

        A deadline for a revocation that the log rejected, or that has ended, fences no member.
        """
        group = self._members.groups.get(event.group_id)
        member = None if group is None else group.members.get(event.member_id)
        if group is None or member is None:
            return NOTHING
        if isinstance(event, RevocationExpired) and (
            member.epoch != event.member_epoch or member.current.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            return NOTHING
        return self._migrations.fence(now_ms, group, [event.member_id], [])


def check_request(request: ConsumerHeartbeat, version: int) -> None:
    """Raise KafkaError INVALID_REQUEST if the request contradicts itself."""
    wrong = None
    epoch = request.member_epoch
    if not request.member_id and (version >= 1 or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH):
        wrong = "MemberId can't be empty."
    elif not request.group_id:
        wrong = "GroupId can't be empty."
    elif request.instance_id == "":
        wrong = "InstanceId can't be empty."
    elif request.rack_id == "":
        wrong = "RackId can't be empty."
    elif epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            wrong = "RebalanceTimeoutMs must be provided in first request."
        elif request.owned is None or request.owned:
            wrong = "TopicPartitions must be empty when (re-)joining."
        elif request.topics is None and request.regex is None:
            wrong = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif epoch < STATIC_LEAVING_EPOCH:
        wrong = "MemberEpoch is invalid."
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _subscription(before: ConsumerMember, request: ConsumerHeartbeat) -> Subscription:
    """The member's subscription with this request; fields that it leaves out stay."""
    known = before.subscription
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=known.topics if request.topics is None else request.topics,
        regex=known.regex if request.regex is None else request.regex or None,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=known.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH. The previous epoch is accepted if the last answer may be lost."""
    received, known = request.member_epoch, member.epoch
    if received in (JOINING_EPOCH, known):
        return
    if received > known:
        size = "greater"
    elif received == member.current.previous_epoch and _is_part(request.owned, member.current.assigned):
        return
    else:
        size = "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _is_part(owned: TopicPartitions | None, assigned: OwnedPartitions) -> bool:
    if owned is None:
        return False
    return all(partitions.issubset(assigned.get(topic_id, ())) for topic_id, partitions in owned.items())
