"""A member's next step from its current to its target assignment.

A partition is assigned to its new owner only after the old owner has reported that it revoked the partition. So no
partition ever has two owners. Source: Kafka's CurrentAssignmentBuilder, KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.groups.consumer.group import ConsumerMember
from odradek.groups.consumer.records import CurrentAssignment, MemberState, OwnedPartitions, TopicPartitions
from odradek.records.topic_partition import TopicIdPartition
from odradek.wire.errors import ErrorCode, KafkaError

Owners = Mapping[TopicIdPartition, str]


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: TopicPartitions,
    owners: Owners,
    reported: TopicPartitions | None,
    unsubscribed: Collection[bytes] = (),
) -> CurrentAssignment:
    """The member's current assignment after this heartbeat.

    `reported` are the partitions that it reports to own, None if it reported none. `unsubscribed` are topics of its
    partitions that its last change of subscription has dropped: it revokes them before the next target is made.
    Raises KafkaError FENCED_MEMBER_EPOCH if the member's state is unknown.
    """
    current = member.current
    if current.state is MemberState.STABLE:
        if current.epoch != target_epoch:
            return _advance(current, target_epoch, target, owners, reported)
        return _drop(current, unsubscribed, reported)
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(reported, current.revoking):
            return _drop(current, unsubscribed, reported)
        return _advance(current, target_epoch, target, owners, reported)
    if current.state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(current, target_epoch, target, owners, reported)
    if reported is None or reported:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _advance(current._replace(epoch=target_epoch), target_epoch, target, owners, reported)


def _still_owns(reported: TopicPartitions | None, partitions: OwnedPartitions) -> bool:
    if reported is None:
        return True
    return any(not found.isdisjoint(partitions.get(topic_id, ())) for topic_id, found in reported.items())


def _advance(
    current: CurrentAssignment,
    target_epoch: int,
    target: TopicPartitions,
    owners: Owners,
    reported: TopicPartitions | None,
) -> CurrentAssignment:
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, epoch in epochs.items():
            (kept if partition in wanted else revoking).setdefault(topic_id, {})[partition] = epoch
    if revoking and _still_owns(reported, revoking):
        return _moved(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    given_back = {(topic_id, partition) for topic_id, epochs in current.revoking.items() for partition in epochs}
    unreleased = False
    for topic_id, wanted in target.items():
        for partition in sorted(wanted.difference(kept.get(topic_id, ()))):
            if (topic_id, partition) in owners and (topic_id, partition) not in given_back:
                unreleased = True
            else:
                kept.setdefault(topic_id, {})[partition] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(current, target_epoch, state, kept, {})


def _drop(
    current: CurrentAssignment, unsubscribed: Collection[bytes], reported: TopicPartitions | None
) -> CurrentAssignment:
    dropped = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id in unsubscribed}
    if not dropped:
        return current
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in dropped}
    revoking = dict(current.revoking)
    for topic_id, epochs in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    if _still_owns(reported, revoking):
        return _moved(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return _moved(current, current.epoch, current.state, kept, current.revoking)


def _moved(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: OwnedPartitions, revoking: OwnedPartitions
) -> CurrentAssignment:
    return CurrentAssignment(epoch, current.epoch, state, assigned, revoking)
