"""Consumer groups as ConsumerGroupDescribe returns them."""

from __future__ import annotations

from odradek.groups.consumer.group import NO_TOPICS, ConsumerGroup, ConsumerMember
from odradek.groups.consumer.records import TopicPartitions
from odradek.groups.events import ConsumerGroupDescription, ConsumerMemberDescription
from odradek.wire.errors import ErrorCode


def describe_consumer_group(group: ConsumerGroup, assignor: str) -> ConsumerGroupDescription:
    """The group and all of its members."""
    members = [_describe(group, member) for member in group.members.values()]
    return ConsumerGroupDescription(
        ErrorCode.NONE, group.group_id, group.state.value, group.epoch, group.target_epoch, assignor, members
    )


def _describe(group: ConsumerGroup, member: ConsumerMember) -> ConsumerMemberDescription:
    subscription = member.subscription
    return ConsumerMemberDescription(
        member.member_id,
        subscription.instance_id,
        subscription.rack_id,
        member.epoch,
        subscription.client_id,
        subscription.client_host,
        subscription.topics,
        subscription.regex,
        _held(member),
        group.targets.get(member.member_id, NO_TOPICS),
        member.is_classic,
    )


def _held(member: ConsumerMember) -> TopicPartitions:
    """Partitions that it owns, and those that it is revoking."""
    found: dict[bytes, frozenset[int]] = {}
    for owned in (member.current.assigned, member.current.revoking):
        for topic_id, partitions in owned.items():
            found[topic_id] = found.get(topic_id, frozenset()).union(partitions)
    return found
