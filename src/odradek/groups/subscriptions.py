"""What the coordinator reads in a classic member's metadata: which topics it subscribes to.

In a group that has, or gets, members of both protocols it also reads what a member owns, and writes assignments.
Everything else is opaque, and so is all of it for other protocol types than "consumer" (Connect's "connect",
Karapace's "sr", ...). Source: Kafka's ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from odradek.wire.primitives import DecodeError

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicSubscription(NamedTuple):
    """A member's metadata. `owned` are the partitions by topic name that it keeps while it joins."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def read_subscription(metadata: bytes) -> ClassicSubscription:
    """Raises DecodeError."""
    version = _version(metadata)
    found = ConsumerProtocolSubscription.decode(memoryview(metadata), 2, min(version, _NEWEST))[0]
    owned: dict[str, frozenset[int]] = {}
    for topic in found.owned_partitions:
        owned[topic.topic] = owned.get(topic.topic, frozenset()) | frozenset(topic.partitions)
    return ClassicSubscription(version, tuple(sorted(set(found.topics))), owned, found.rack_id or None)


def read_assignment(assignment: bytes) -> dict[str, frozenset[int]]:
    """Partitions by topic name; none in empty bytes, which a member has before its first. Raises DecodeError."""
    if not assignment:
        return {}
    version = min(_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    found = ConsumerProtocolAssignment.decode(memoryview(assignment), 2, version)[0]
    return {topic.topic: frozenset(topic.partitions) for topic in found.assigned_partitions}


def write_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """In the version of the member's own metadata."""
    version = min(version, ConsumerProtocolAssignment.MAX_VERSION)
    out = bytearray(version.to_bytes(2, "big"))
    topics = [ConsumerProtocolAssignmentTopicPartition(name, sorted(partitions[name])) for name in sorted(partitions)]
    ConsumerProtocolAssignment(topics).encode(out, version)
    return bytes(out)


def _version(data: bytes) -> int:
    if len(data) < 2 or data[0] & 0x80:
        raise DecodeError("a consumer protocol message begins with its version")
    return int.from_bytes(data[:2], "big")


_NEWEST = ConsumerProtocolSubscription.MAX_VERSION


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of these subscriptions; None when one of them is not in the consumer protocol's format."""
    topics: set[str] = set()
    for subscription in metadata:
        view = memoryview(subscription)
        if len(view) < 2 or view[0] & 0x80:
            return None
        try:
            # Version 0 is a prefix of every later one, so that no future version is unreadable.
            topics.update(ConsumerProtocolSubscription.decode(view, 2, 0)[0].topics)
        except DecodeError:
            return None
    return frozenset(topics)
