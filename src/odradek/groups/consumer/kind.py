"""KIP-848 consumer groups as the coordinator sees them."""

from __future__ import annotations

from functools import partial
from typing import Final

from odradek.groups.classic.kind import ClassicGroups
from odradek.groups.consumer.classic_members import ClassicMembers
from odradek.groups.consumer.descriptions import describe_consumer_group
from odradek.groups.consumer.group import ConsumerGroup, check_partition
from odradek.groups.consumer.heartbeats import Heartbeats
from odradek.groups.consumer.membership import ConsumerDeadline, MemberExpired, Memberships, RevocationExpired
from odradek.groups.consumer.migration import Migrations
from odradek.groups.consumer.records import (
    CONSUMER_RECORD_TYPES,
    ConsumerRecord,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    OldMetadataRecord,
    SubscriptionRecord,
)
from odradek.groups.events import (
    NOTHING,
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    GroupDecision,
    Token,
)
from odradek.groups.group import CheckPartition, GroupHandlers, KindContext, KindRegistration
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Due
from odradek.wire.errors import ErrorCode

_RETRY_MS: Final = 500
"""After which a deadline is expired again whose records could not be written."""


class ConsumerGroups:
    """A `GroupKind`. Everything about these groups is stored, except for their deadlines."""

    replays_between_deadlines = True
    """See `GroupKind`."""

    __slots__ = ("_classic", "_heartbeats", "_members", "_timers", "by_id", "classic_members", "handlers")

    def __init__(self, context: KindContext) -> None:
        self._classic = context.kind(ClassicGroups)
        self._timers = context.timers
        self.by_id: dict[str, ConsumerGroup] = {}
        self._members = Memberships(self.by_id, context.timers, context.settings, context.random, context.image)
        migrations = Migrations(self._members, self._classic.rebalances, self._classic.stored)
        self._heartbeats = Heartbeats(self._members, migrations)
        self.classic_members = ClassicMembers(self._members, migrations)
        """Requests of members that speak the classic protocol."""
        self.handlers = GroupHandlers(
            replay={record_type.record: self._replay for record_type in CONSUMER_RECORD_TYPES},
            expire={MemberExpired: self._expire, RevocationExpired: self._expire},
            stored={},
        )

    # --- the log ---

    def _replay(self, record: ConsumerRecord) -> None:
        group_id = record.group_id
        group = self.by_id.get(group_id)
        if group is None:
            value = record.exists if isinstance(record, OldMetadataRecord) else record.value
            if not value:
                return  # the rest of a group that compaction has removed
            group = self.by_id[group_id] = ConsumerGroup(group_id)
            self._classic.discard(group_id)
        group.apply(record)
        if isinstance(record, SubscriptionRecord) and record.value is None:
            self._members.cancel_timers(group_id, record.member_id)
        elif isinstance(record, CurrentAssignmentRecord):
            self._members.assigned(group_id, record.member_id, None if record.value is None else record.value.state)
        elif isinstance(record, GroupEpochRecord):
            self._members.epoch_stored(group_id)
            if record.value is None:
                del self.by_id[group_id]

    def loaded(self, now_ms: int) -> GroupDecision:
        """See `GroupKind`."""
        for group in self.by_id.values():
            self._members.loaded(now_ms, group)
        return NOTHING

    def unload(self, now_ms: int) -> None:
        """See `GroupKind`. No member of these groups waits for an answer."""

    # --- what the coordinator asks ---

    def _expire(self, now_ms: int, due: Due) -> GroupDecision:
        deadline: ConsumerDeadline = due.payload
        outcome = self._heartbeats.expire(now_ms, deadline)
        if outcome.records:
            # The log may reject them, for instance with too few replicas in sync; then this is tried again.
            self._timers.schedule(due.key, now_ms + _RETRY_MS, deadline)
        return outcome

    def configure(self, settings: GroupSettings) -> None:
        """See `GroupKind`."""
        self._members.configure(settings)

    def topics_changed(self, topics: frozenset[str]) -> None:
        """See `GroupKind`. A group looks at its topics again with its next heartbeat."""
        for group_id, group in self.by_id.items():
            if any(member.subscription.regex for member in group.members.values()) or not topics.isdisjoint(
                group.subscribed_topics()
            ):
                self._members.stale.add(group_id)

    def check_commit(self, _now_ms: int, request: CommitRequest, *, transactional: bool) -> CheckPartition | None:
        """See `GroupKind`. A commit of an older epoch is checked for each partition."""
        late = self.by_id[request.group_id].check_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            api_version=request.api_version,
            transactional=transactional,
        )
        return None if late is None else partial(check_partition, late, request.generation_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """See `GroupKind`."""
        self.by_id[group_id].check_fetch(member_id, member_epoch)

    def heartbeat(self, now_ms: int, token: Token, request: ConsumerHeartbeat) -> GroupDecision:
        """The reply is a ConsumerHeartbeatResult. Raises KafkaError where the heartbeat is rejected."""
        return self._heartbeats.heartbeat(now_ms, token, request)

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """The group as ConsumerGroupDescribe returns it."""
        group = self.by_id.get(group_id)
        if group is None:
            text = "is not a consumer group" if group_id in self._classic.by_id else "not found"
            return ConsumerGroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, group_id, message=f"Group {group_id} {text}.")
        return describe_consumer_group(group, self._members.assignor_of(group))


CONSUMER_KIND: Final = KindRegistration("consumer", ConsumerGroups, CONSUMER_RECORD_TYPES)
"""For `kinds.KINDS`."""
