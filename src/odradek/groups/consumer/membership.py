"""The steps that every request of a consumer group's member is made of, whichever protocol the member speaks.

Join or find the member, note what it subscribes to, bump the group's epoch where members or topics have changed, make
a new target assignment when it is time, and bring the member one step nearer to its target. Source: Kafka's
GroupMetadataManager (its consumer half), TargetAssignmentBuilder; KIP-848.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from odradek.groups.consumer.assignors import ASSIGNORS, MemberSpec
from odradek.groups.consumer.group import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Draft,
)
from odradek.groups.consumer.reconciliation import next_step
from odradek.groups.consumer.records import (
    CurrentAssignmentRecord,
    MemberState,
    OldMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    Subscription,
    SubscriptionRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
    TopicPartitions,
)
from odradek.groups.consumer.topic_patterns import compiled, matching_topics
from odradek.groups.events import MaySee
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Timers
from odradek.metadata.image import ClusterImage
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError

_RECONCILING_MS = 5_000
"""How long after a new target members send heartbeats often: a usual heartbeat interval."""
_HEARTBEATS_PER_SECOND = 500
"""Bound on the frequent heartbeats of one group."""
_MATCHED_FOR_MS = 600_000
"""After which a pattern is matched again, since rights may have changed (Kafka's REGEX_BATCH_REFRESH_MAX_INTERVAL)."""


class MemberExpired(NamedTuple):
    """A member's session has ended, or it did not join or sync in time."""

    group_id: str
    member_id: str


class RevocationExpired(NamedTuple):
    """A member has not revoked partitions of this epoch within its rebalance timeout."""

    group_id: str
    member_id: str
    member_epoch: int


ConsumerDeadline: TypeAlias = MemberExpired | RevocationExpired


class Memberships:
    """Shares the dictionary of a shard's consumer groups, and its timers, with the coordinator.

    `stale` holds the groups whose subscribed topics may have changed since their epoch's hash was made.
    """

    __slots__ = ("_unmatched", "groups", "image", "random", "settings", "stale", "timers")

    def __init__(
        self,
        groups: dict[str, ConsumerGroup],
        timers: Timers,
        settings: GroupSettings,
        random: Random,
        image: Callable[[], ClusterImage],
    ) -> None:
        self.groups = groups
        self.timers = timers
        self.settings = settings
        self.random = random
        self.image = image
        self.stale: set[str] = set()
        self._unmatched: set[str] = set()
        """Stale groups whose latest decision did not match their patterns: its epoch leaves them stale."""

    # --- configuration ---

    def configure(self, settings: GroupSettings) -> None:
        """Apply changed settings of the broker."""
        self.settings = settings

    def _own_number(self, group_id: str, name: str, default: int) -> int:
        text = self.image().group_configs.get(group_id, {}).get(name)
        return default if text is None else int(text)

    def session_timeout_ms(self, group_id: str) -> int:
        """The group's own setting, or the broker's."""
        return self._own_number(group_id, "consumer.session.timeout.ms", self.settings.consumer_session_timeout_ms)

    def assignment_interval_ms(self, group_id: str) -> int:
        """The group's own setting, or the broker's."""
        default = self.settings.consumer_assignment_interval_ms
        return self._own_number(group_id, "consumer.assignment.interval.ms", default)

    def heartbeat_interval_ms(self, now_ms: int, group: ConsumerGroup) -> int:
        """When a member sends its next heartbeat: soon while the group is reconciled to a new target."""
        settings = self.settings
        usual_ms = self._own_number(
            group.group_id, "consumer.heartbeat.interval.ms", settings.consumer_heartbeat_interval_ms
        )
        often_ms = settings.unsettled_heartbeat_interval_ms
        if not often_ms:
            return usual_ms
        since_ms = now_ms - group.target_timestamp_ms
        # A target of the future was made before the clock was set back, or under another broker's clock.
        if group.epoch == group.target_epoch and not 0 <= since_ms < _RECONCILING_MS:
            return usual_ms
        return min(usual_ms, max(often_ms, len(group.members) * 1000 // _HEARTBEATS_PER_SECOND))

    # --- members ---

    def new_member_id(self) -> str:
        """A new id, as Kafka's Uuid prints it."""
        return urlsafe_b64encode(self.random.uuid()).decode().rstrip("=")

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raise KafkaError GROUP_MAX_SIZE_REACHED if a new member would be one too many."""
        limit = self.settings.consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def enter(
        self, draft: Draft, member_id: str, instance_id: str | None, *, joins: bool, classic: bool
    ) -> ConsumerMember:
        """The member before the request; one that joins may be new, or replace another of its instance id.

        Raises KafkaError UNKNOWN_MEMBER_ID, UNRELEASED_INSTANCE_ID or FENCED_INSTANCE_ID.
        """
        group = draft.group
        if instance_id is None:
            found = group.members.get(member_id)
            return found or (ConsumerMember(member_id) if joins else group.member(member_id))
        holder = group.static_member(instance_id)
        if not joins:
            return check_static(holder, member_id, instance_id)
        if holder is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if holder.member_id == member_id:
            return holder
        if not classic and not holder.is_classic and holder.epoch != STATIC_LEAVING_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {holder.member_id} member.",
            )
        self._replace(draft, holder, member_id)
        return draft.group.members[member_id]

    def _replace(self, draft: Draft, holder: ConsumerMember, member_id: str) -> None:
        group_id = draft.group.group_id
        target = draft.group.target_of(holder)
        draft.remove(holder.member_id)
        draft.emit(SubscriptionRecord(group_id, member_id, holder.subscription))
        draft.emit(TargetRecord(group_id, member_id, target))
        current = holder.current._replace(epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        draft.emit(CurrentAssignmentRecord(group_id, member_id, current))

    def subscribe(
        self,
        now_ms: int,
        draft: Draft,
        before: ConsumerMember,
        wanted: Subscription,
        may_see: MaySee | None = None,
    ) -> bool:
        """Store the member's subscription; True if its topics or its pattern have changed.

        Patterns match the topics that `may_see` admits: those that the client of the request may describe, also for
        other members with the same pattern, as in Kafka. None of a request that does not match patterns again.
        Raises KafkaError INVALID_REGULAR_EXPRESSION.
        """
        member_id = before.member_id
        known = before.subscription
        is_new = member_id not in draft.group.members
        changed = wanted.topics != known.topics or wanted.regex != known.regex
        if wanted.regex and wanted.regex not in draft.group.regexes:
            compiled(wanted.regex)
        if is_new or wanted != known:
            draft.emit(SubscriptionRecord(draft.group.group_id, member_id, wanted))
        if may_see is not None and any(_is_old(now_ms, known) for known in draft.group.regexes.values()):
            self.stale.add(draft.group.group_id)
        self._refresh(now_ms, draft, changed=changed, may_see=may_see)
        return changed

    def reconcile(
        self, now_ms: int, draft: Draft, member_id: str, owned: TopicPartitions | None, *, changed: bool
    ) -> ConsumerMember:
        """Make a new target if one is due, and take the member's next step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        self._retarget(now_ms, draft)
        group = draft.group
        member = group.members[member_id]
        if not changed and member.is_reconciled_to(group.target_epoch):
            return member
        dropped: Collection[bytes] = ()
        if changed:
            names, wanted = self.image().topic_names, group.topics_of(member)
            dropped = [topic_id for topic_id in member.current.assigned if names.get(topic_id) not in wanted]
        step = next_step(member, group.target_epoch, group.target_of(member), group.owners, owned, dropped)
        if step == member.current:
            return member
        draft.set_current(member_id, step)
        member = draft.group.members[member_id]
        if not member.is_classic:
            self._await_revocation(now_ms, group.group_id, member)
        return member

    def remove(self, now_ms: int, draft: Draft, member_ids: Iterable[str]) -> None:
        """Remove members, whether they leave or are fenced; the group gets a new epoch.

        Their deadlines stay until the records are stored: the log may reject them.
        """
        for member_id in list(member_ids):
            draft.remove(member_id)
        self._refresh(now_ms, draft, changed=True)

    # --- topics ---

    def _refresh(self, now_ms: int, draft: Draft, *, changed: bool, may_see: MaySee | None = None) -> None:
        """Begin the next epoch if subscriptions, or the topics that they match, have changed."""
        group_id = draft.group.group_id
        if not changed and group_id not in self.stale:
            return
        image = self.image()
        changed = self._resolve_patterns(now_ms, draft, image, may_see) or changed
        if may_see is None and draft.group.regexes and group_id in self.stale:
            self._unmatched.add(group_id)
        else:
            self._unmatched.discard(group_id)
        metadata_hash = hash_of_topics(image, draft.group.subscribed_topics())
        if changed or metadata_hash != draft.group.metadata_hash:
            draft.bump(metadata_hash)
            if draft.group.has_old_metadata:
                draft.emit(OldMetadataRecord(group_id, exists=False))
        elif may_see is not None or not draft.group.regexes:
            self.stale.discard(group_id)

    def epoch_stored(self, group_id: str) -> None:
        """The epoch of the last decision is in the log; its hash is of the newest topics that patterns matched."""
        if group_id not in self._unmatched:
            self.stale.discard(group_id)

    def _resolve_patterns(self, now_ms: int, draft: Draft, image: ClusterImage, may_see: MaySee | None) -> bool:
        """Match each pattern with the topics again if a client asks; True if a result has changed."""
        group_id = draft.group.group_id
        wanted = list(draft.group.subscribed_regexes())
        news = False
        for regex in wanted if may_see is not None else ():
            known = draft.group.regexes.get(regex)
            if known is None or group_id in self.stale:
                topics = frozenset(filter(may_see, matching_topics(regex, image.topics)))
                is_changed = known is None or known.topics != topics
                news = news or is_changed
                if known is None or is_changed or _is_old(now_ms, known):
                    draft.emit(RegexRecord(group_id, regex, ResolvedRegex(topics, image.version, now_ms)))
        for regex in [name for name in draft.group.regexes if name not in wanted]:
            draft.emit(RegexRecord(group_id, regex, None))
        return news

    def _retarget(self, now_ms: int, draft: Draft) -> None:
        group = draft.group
        if group.epoch <= group.target_epoch:
            return
        since_ms = now_ms - group.target_timestamp_ms
        # A target of the future (the clock was set back, or another broker's is ahead) would delay the next one.
        if group.target_timestamp_ms and 0 <= since_ms < self.assignment_interval_ms(group.group_id):
            return
        targets = self._targets(group)
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                draft.emit(TargetRecord(group.group_id, member_id, target))
        draft.emit(TargetEpochRecord(group.group_id, TargetEpoch(group.epoch, now_ms)))

    def _targets(self, group: ConsumerGroup) -> dict[str, TopicPartitions]:
        image = self.image()
        partitions: dict[bytes, int] = {}
        specs: list[MemberSpec] = []
        alike: dict[frozenset[str], frozenset[bytes]] = {}
        for member in group.members.values():
            names = group.topics_of(member)
            ids = alike.get(names)
            if ids is None:
                topics = [image.topics[name] for name in names if name in image.topics]
                partitions.update((topic.id, len(topic.partitions)) for topic in topics)
                ids = alike[names] = frozenset(topic.id for topic in topics)
            specs.append(MemberSpec(member.member_id, member.instance_id, ids, group.target_of(member)))
        return ASSIGNORS[self.assignor_of(group)](specs, partitions)

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The name of the assignor that makes the targets of the group."""
        offered = self.settings.consumer_assignors
        preferred = group.preferred_assignor()
        return preferred if preferred in offered else offered[0]

    # --- time ---

    def touch(self, now_ms: int, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """The member has sent a request: restart its session."""
        timeout_ms = self.session_timeout_ms(group_id) if timeout_ms is None else timeout_ms
        key = ("member", group_id, member_id)
        if not self.timers.postpone(key, now_ms + timeout_ms):
            self.timers.schedule(key, now_ms + timeout_ms, MemberExpired(group_id, member_id))

    def _await_revocation(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """Give a member that has partitions to revoke the time of its rebalance for it."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            event = RevocationExpired(group_id, member.member_id, member.epoch)
            deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
            self.timers.schedule(("revocation", group_id, member.member_id), deadline_ms, event)

    def assigned(self, group_id: str, member_id: str, state: MemberState | None) -> None:
        """The member's assignment is in the log: unless it has partitions to revoke, its deadline for that ends.

        Not before: where the log rejects the record, the member stays as it was, and so does its deadline.
        """
        if state is not MemberState.UNREVOKED_PARTITIONS:
            self.timers.cancel(("revocation", group_id, member_id))

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Cancel all deadlines of a member."""
        for kind in ("member", "revocation", "member-join", "member-sync"):
            self.timers.cancel((kind, group_id, member_id))

    def loaded(self, now_ms: int, group: ConsumerGroup) -> None:
        """The group was loaded: its members have one session to send a request."""
        self.stale.add(group.group_id)
        for member in group.members.values():
            classic = member.subscription.classic
            timeout_ms = None if classic is None else classic.session_timeout_ms
            self.touch(now_ms, group.group_id, member.member_id, timeout_ms)
            self._await_revocation(now_ms, group.group_id, member)


def _is_old(now_ms: int, resolved: ResolvedRegex) -> bool:
    """Whether the topics of a pattern are due for another match, because rights may have changed."""
    return now_ms - resolved.timestamp_ms >= _MATCHED_FOR_MS


def check_static(holder: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The holder of an instance id, if it is this member. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def hash_of_topics(image: ClusterImage, names: Iterable[str]) -> int:
    """Changes when one of the topics is created, deleted, replaced or grows; 0 without topics. A signed 64-bit number.

    Kafka uses another hash function: a group that moves between the two begins one epoch more than necessary.
    """
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None:
            found = True
            digest.update(b"%b%b%d\0" % (topic.id, name.encode(), len(topic.partitions)))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
