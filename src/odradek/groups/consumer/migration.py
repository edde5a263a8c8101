"""Online migration: a classic group becomes a consumer group with its first KIP-848 member, and back after its last.

Members keep their partitions: their assignment becomes the target, from which each continues in its own protocol.
Source: Kafka's GroupMetadataManager (convertToConsumerGroup, convertToClassicGroup), KIP-848 "Online Migration".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.rebalance import Rebalances
from odradek.groups.classic.records import ClassicGroupRecord, GroupValue, MemberValue
from odradek.groups.consumer.group import ConsumerGroup, ConsumerMember, Draft
from odradek.groups.consumer.membership import Memberships, hash_of_topics
from odradek.groups.consumer.records import (
    ClassicMetadata,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberState,
    Subscription,
    SubscriptionRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
    TopicPartitions,
)
from odradek.groups.events import Downgraded, GroupDecision, JoinResult, SyncResult, Token
from odradek.groups.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import DecodeError


class Migrations:
    """Knows both kinds of groups of a shard. `stored` are the values of the classic groups that have a record."""

    __slots__ = ("_members", "_rebalances", "_stored")

    def __init__(self, members: Memberships, rebalances: Rebalances, stored: Mapping[str, GroupValue]) -> None:
        self._members = members
        self._rebalances = rebalances
        self._stored = stored

    def _allows(self, direction: str) -> bool:
        return self._members.settings.consumer_migration_policy.lower() in (direction, "bidirectional")

    # --- classic to consumer ---

    def draft(self, group_id: str, *, joins: bool) -> Draft:
        """The consumer group to decide on: an existing one, a new one, or the one that a classic group becomes.

        Raises KafkaError GROUP_ID_NOT_FOUND.
        """
        group = self._members.groups.get(group_id)
        if group is not None:
            return Draft(group)
        classic = self._rebalances.groups.get(group_id)
        if not joins:
            text = f"Consumer group {group_id} not found."
            if classic is not None:
                text = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if classic is None or classic.is_empty:
            return Draft.of_new(group_id, replaces_classic=group_id in self._stored)
        self._check_upgrade(classic)
        try:
            return self._upgraded(classic)
        except DecodeError as error:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group_id} to consumer group because the embedded consumer protocol is "
                "malformed.",
            ) from error

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        reason = None
        if not self._allows("upgrade"):
            reason = "online upgrade is disabled"
        elif classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            reason = "the group does not use the consumer embedded protocol"
        elif len(classic.members) > self._members.settings.consumer_max_size:
            reason = "the group size exceeds the consumer group maximum size"
        if reason is not None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
            )

    def _upgraded(self, classic: ClassicGroup) -> Draft:
        """Every member keeps its assignment of the last generation; for members that wait, see `ask_to_rejoin`."""
        group_id, epoch = classic.group_id, classic.generation_id
        image = self._members.image()
        name = classic.protocol_name
        if name is None or classic.supported.get(name, 0) < len(classic.members):
            # A member that waits for the next generation need not have the protocol of the last one.
            name = classic.select_protocol()
        converted = [_converted(member, name, epoch, image) for member in classic.members.values()]
        draft = Draft.of_new(group_id, replaces_classic=group_id in self._stored)
        for member in converted:
            draft.emit(SubscriptionRecord(group_id, member.member_id, member.subscription))
        metadata_hash = hash_of_topics(image, draft.group.subscribed_topics())
        draft.emit(GroupEpochRecord(group_id, GroupEpoch(epoch, metadata_hash)))
        for member in converted:
            target = {topic_id: frozenset(epochs) for topic_id, epochs in member.current.assigned.items()}
            draft.emit(TargetRecord(group_id, member.member_id, target))
        draft.emit(TargetEpochRecord(group_id, TargetEpoch(epoch, 0)))
        for member in converted:
            draft.emit(CurrentAssignmentRecord(group_id, member.member_id, member.current))
        return draft

    def ask_to_rejoin(self, group_id: str) -> None:
        """Make members that wait in a classic group that is being upgraded join again."""
        classic = self._rebalances.groups.get(group_id)
        if classic is None:
            return
        for waiting in classic.members.values():
            rejected = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, waiting.member_id)
            classic.answer_join(waiting, rejected, self._rebalances.replies)
            classic.answer_sync(waiting, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS), self._rebalances.replies)

    def start_sessions(self, now_ms: int, draft: Draft) -> None:
        """The classic members of a group that has just been upgraded have their own session timeouts."""
        for member in draft.group.classic_members():
            classic = member.subscription.classic
            if classic is not None:
                self._members.touch(now_ms, draft.group.group_id, member.member_id, classic.session_timeout_ms)

    # --- consumer to classic ---

    def fence(
        self, now_ms: int, group: ConsumerGroup, member_ids: Collection[str], replies: Sequence[tuple[Token, Any]]
    ) -> GroupDecision:
        """Remove members; the group becomes a classic one if only members of that protocol remain."""
        draft = Draft(group)
        self._members.remove(now_ms, draft, member_ids)
        downgraded = self.downgrade(now_ms, group, draft, rebalance=True)
        if downgraded is None:
            return GroupDecision(draft.records, replies)
        return downgraded._replace(replies=replies)

    def downgrade(self, now_ms: int, group: ConsumerGroup, draft: Draft, *, rebalance: bool) -> GroupDecision | None:
        """Turn the group into a classic one of the draft's members; None if it stays a consumer group."""
        members = list(draft.group.members.values())
        was_mixed = any(not member.is_classic for member in group.members.values())
        if not was_mixed or not members or any(not member.is_classic for member in members):
            return None
        if not self._allows("downgrade") or len(members) > self._rebalances.settings.max_size:
            return None
        protocols = {m.member_id: m.subscription.classic.protocols for m in members if m.subscription.classic}
        name = _common_protocol(protocols.values())
        if name is None:
            return None
        names = self._members.image().topic_names
        stored = tuple(_stored_member(member, name, draft.group.target_of(member), names) for member in members)
        # Members that have to rebalance take the next generation; otherwise the draft's epoch is the generation.
        epoch = group.epoch if rebalance else draft.group.epoch
        value = GroupValue(CONSUMER_PROTOCOL_TYPE, epoch, name, members[0].member_id, now_ms, stored)
        records = [*group.tombstones(), ClassicGroupRecord(group.group_id, value)]
        return GroupDecision(records, then=Downgraded(group.group_id, protocols, rebalance))


def _converted(member: Any, name: str, epoch: int, image: ClusterImage) -> ConsumerMember:
    """A classic member as one of a consumer group. Raises DecodeError."""
    found = read_subscription(member.metadata(name))
    assigned: dict[bytes, dict[int, int]] = {}
    for topic_name, partitions in read_assignment(member.assignment).items():
        topic = image.topics.get(topic_name)
        if topic is not None and partitions:
            assigned[topic.id] = dict.fromkeys(sorted(partitions), epoch)
    return ConsumerMember(
        member.member_id,
        Subscription(
            member.group_instance_id,
            found.rack_id,
            member.client_id,
            member.client_host,
            found.topics,
            None,
            member.rebalance_timeout_ms,
            None,
            ClassicMetadata(member.session_timeout_ms, member.protocols),
        ),
        CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned, {}),
    )


def _common_protocol(protocols: Iterable[Iterable[tuple[str, bytes]]]) -> str | None:
    """The first member's most preferred one that all support."""
    supported = [[name for name, _ in found] for found in protocols]
    return next((name for name in supported[0] if all(name in names for names in supported)), None)


def _stored_member(
    member: ConsumerMember, protocol_name: str, target: TopicPartitions, names: Mapping[bytes, str]
) -> MemberValue:
    subscription = member.subscription
    classic = subscription.classic or ClassicMetadata(0, ())
    metadata = dict(classic.protocols)[protocol_name]
    return MemberValue(
        member.member_id,
        subscription.instance_id,
        subscription.client_id,
        subscription.client_host,
        subscription.rebalance_timeout_ms,
        classic.session_timeout_ms,
        metadata,
        write_assignment(by_name(target, names), int.from_bytes(metadata[:2], "big")),
    )


def by_name(partitions: TopicPartitions, names: Mapping[bytes, str]) -> dict[str, frozenset[int]]:
    """By topic name, as in the classic protocol; deleted topics are left out."""
    return {names[topic_id]: frozenset(found) for topic_id, found in partitions.items() if topic_id in names}


def by_id(partitions: Mapping[str, frozenset[int]], image: ClusterImage) -> TopicPartitions:
    """By topic id; topics that do not exist are left out."""
    return {image.topics[name].id: found for name, found in partitions.items() if name in image.topics and found}
