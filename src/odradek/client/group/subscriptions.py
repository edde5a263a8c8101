"""The consumer protocol's messages: subscriptions to the group's leader, and assignments from it.

Each begins with its version as an int16; of versions newer than ours the known part is read (Kafka's ConsumerProtocol).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from odradek.client.group.assignors import MemberSubscription
from odradek.client.offsets import by_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from odradek.wire.primitives import DecodeError

_SUBSCRIPTION_VERSION: Final = 3
_ASSIGNMENT_VERSION: Final = 3


def encode_subscription(
    topics: Sequence[str],
    user_data: bytes | None,
    owned: Collection[TopicPartition],
    generation: int,
    rack_id: str | None,
) -> bytes:
    """A member's topics, user data and owned partitions, as JoinGroup carries them."""
    out = bytearray(_SUBSCRIPTION_VERSION.to_bytes(2, "big"))
    partitions = [ConsumerProtocolSubscriptionTopicPartition(t, numbers) for t, numbers in by_topic(owned).items()]
    message = ConsumerProtocolSubscription(list(topics), user_data, partitions, generation, rack_id)
    message.encode(out, _SUBSCRIPTION_VERSION)
    return bytes(out)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> MemberSubscription:
    """Raises KafkaError (INCONSISTENT_GROUP_PROTOCOL) for bytes that are no subscription."""
    try:
        version = min(int.from_bytes(data[:2], "big", signed=True), _SUBSCRIPTION_VERSION)
        decoded, _ = ConsumerProtocolSubscription.decode(memoryview(data), 2, version)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's subscription: {error}") from error
    owned = [TopicPartition(each.topic, number) for each in decoded.owned_partitions for number in each.partitions]
    return MemberSubscription(
        decoded.topics, owned, decoded.generation_id, decoded.user_data, group_instance_id, decoded.rack_id
    )


def encode_assignment(partitions: Collection[TopicPartition], user_data: bytes | None = None) -> bytes:
    """A member's partitions, as SyncGroup carries them."""
    out = bytearray(_ASSIGNMENT_VERSION.to_bytes(2, "big"))
    grouped = [ConsumerProtocolAssignmentTopicPartition(t, numbers) for t, numbers in by_topic(partitions).items()]
    ConsumerProtocolAssignment(grouped, user_data).encode(out, _ASSIGNMENT_VERSION)
    return bytes(out)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Empty bytes are an empty assignment. Raises KafkaError (INCONSISTENT_GROUP_PROTOCOL) for other bytes."""
    if not data:
        return []
    try:
        version = min(int.from_bytes(data[:2], "big", signed=True), _ASSIGNMENT_VERSION)
        decoded, _ = ConsumerProtocolAssignment.decode(memoryview(data), 2, version)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"an assignment: {error}") from error
    return [TopicPartition(each.topic, number) for each in decoded.assigned_partitions for number in each.partitions]
