"""The records of a KIP-848 consumer group in `__consumer_offsets`: types 3 to 8 and 16, in Kafka's format.

A group is the sum of its records: an epoch, subscriptions, a target assignment and each member's current assignment.
Mappings inside values are plain dicts that must not be changed. Source: Kafka's GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from odradek.groups.records import RecordType
from odradek.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMemberMetadataValueClassicMemberMetadata,
    ConsumerGroupMemberMetadataValueClassicProtocol,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMemberValueTopicPartition,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.wire.primitives import DecodeError

TopicPartitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions; never an empty set."""
OwnedPartitions: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch at which the member got it; never an empty mapping."""

_INT16 = Struct(">h")
_VERSION_0 = _INT16.pack(0)


class MemberState(IntEnum):
    """How far a member is reconciled to its target; numbers as in the records."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """The JoinGroup of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """A member's client and its subscription. `topics` is sorted; `regex` is RE2."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """A member's partitions, as far as the coordinator knows; it still has to revoke those in `revoking`."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: OwnedPartitions
    revoking: OwnedPartitions


class GroupEpoch(NamedTuple):
    """Grows with every change of members or of subscribed topics; the hash is of those topics."""

    epoch: int
    metadata_hash: int


class TargetEpoch(NamedTuple):
    """For which group epoch the target assignment was made, and when."""

    epoch: int
    timestamp_ms: int


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, in the image of this version."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class GroupEpochRecord(NamedTuple):
    """A group's epoch, or its tombstone, which removes the group."""

    group_id: str
    value: GroupEpoch | None


class OldMetadataRecord(NamedTuple):
    """Subscribed topics as Kafka 4.0 stored them; the next change of epoch removes the record."""

    group_id: str
    exists: bool


class SubscriptionRecord(NamedTuple):
    """A member's subscription, or its tombstone."""

    group_id: str
    member_id: str
    value: Subscription | None


class TargetEpochRecord(NamedTuple):
    """The epoch of a group's target assignment, or its tombstone."""

    group_id: str
    value: TargetEpoch | None


class TargetRecord(NamedTuple):
    """A member's target assignment, or its tombstone."""

    group_id: str
    member_id: str
    value: TopicPartitions | None


class CurrentAssignmentRecord(NamedTuple):
    """A member's current assignment, or its tombstone."""

    group_id: str
    member_id: str
    value: CurrentAssignment | None


class RegexRecord(NamedTuple):
    """A pattern's topics, or its tombstone."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerRecord: TypeAlias = (
    GroupEpochRecord
    | OldMetadataRecord
    | SubscriptionRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentAssignmentRecord
    | RegexRecord
)


# --- encoding ---


def _encode(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    out = bytearray(_INT16.pack(key.RECORD_TYPE))
    key.encode(out, 0)
    if value is None:
        return bytes(out), None
    body = bytearray(_VERSION_0)
    value.encode(body, 0)
    return bytes(out), bytes(body)


def _encode_current(record: CurrentAssignmentRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupCurrentMemberAssignmentKey(record.group_id, record.member_id)
    return _encode(key, None if record.value is None else _current_to_wire(record.value))


def _encode_target(record: TargetRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupTargetAssignmentMemberKey(record.group_id, record.member_id)
    return _encode(key, None if record.value is None else _target_to_wire(record.value))


def _encode_subscription(record: SubscriptionRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupMemberMetadataKey(record.group_id, record.member_id)
    return _encode(key, None if record.value is None else _subscription_to_wire(record.value))


def _encode_group_epoch(record: GroupEpochRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupMetadataKey(record.group_id)
    return _encode(key, None if record.value is None else ConsumerGroupMetadataValue(*record.value))


def _encode_target_epoch(record: TargetEpochRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupTargetAssignmentMetadataKey(record.group_id)
    return _encode(key, None if record.value is None else ConsumerGroupTargetAssignmentMetadataValue(*record.value))


def _encode_regex(record: RegexRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupRegularExpressionKey(record.group_id, record.regex)
    found = record.value
    if found is None:
        return _encode(key, None)
    return _encode(key, ConsumerGroupRegularExpressionValue(sorted(found.topics), found.version, found.timestamp_ms))


def _encode_old_metadata(record: OldMetadataRecord) -> tuple[bytes, bytes | None]:
    key = ConsumerGroupPartitionMetadataKey(record.group_id)
    return _encode(key, ConsumerGroupPartitionMetadataValue() if record.exists else None)


def _subscription_to_wire(found: Subscription) -> ConsumerGroupMemberMetadataValue:
    classic = found.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=found.instance_id,
        rack_id=found.rack_id,
        client_id=found.client_id,
        client_host=found.client_host,
        subscribed_topic_names=list(found.topics),
        subscribed_topic_regex=found.regex,
        rebalance_timeout_ms=found.rebalance_timeout_ms,
        server_assignor=found.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ConsumerGroupMemberMetadataValueClassicMemberMetadata(
            classic.session_timeout_ms,
            [ConsumerGroupMemberMetadataValueClassicProtocol(*protocol) for protocol in classic.protocols],
        ),
    )


def _target_to_wire(target: TopicPartitions) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        [
            ConsumerGroupTargetAssignmentMemberValueTopicPartition(topic_id, sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )


def _current_to_wire(found: CurrentAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=found.epoch,
        previous_member_epoch=found.previous_epoch,
        state=found.state,
        assigned_partitions=_owned_to_wire(found.assigned),
        partitions_pending_revocation=_owned_to_wire(found.revoking),
    )


def _owned_to_wire(owned: OwnedPartitions) -> list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(topic_id, list(epochs), list(epochs.values()))
        for topic_id, epochs in owned.items()
    ]


# --- decoding ---


def _version(body: memoryview | None) -> int:
    version: int = 0 if body is None else _INT16.unpack_from(body)[0]
    return version


def _decode_group_epoch(key: memoryview, body: memoryview | None) -> GroupEpochRecord:
    name = ConsumerGroupMetadataKey.decode(key, 2, 0)[0]
    if body is None:
        return GroupEpochRecord(name.group_id, None)
    value = ConsumerGroupMetadataValue.decode(body, 2, _version(body))[0]
    return GroupEpochRecord(name.group_id, GroupEpoch(value.epoch, value.metadata_hash))


def _decode_old_metadata(key: memoryview, body: memoryview | None) -> OldMetadataRecord:
    return OldMetadataRecord(ConsumerGroupPartitionMetadataKey.decode(key, 2, 0)[0].group_id, body is not None)


def _decode_subscription(key: memoryview, body: memoryview | None) -> SubscriptionRecord:
    name = ConsumerGroupMemberMetadataKey.decode(key, 2, 0)[0]
    if body is None:
        return SubscriptionRecord(name.group_id, name.member_id, None)
    value = ConsumerGroupMemberMetadataValue.decode(body, 2, _version(body))[0]
    found = value.classic_member_metadata
    classic = None
    if found is not None:
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in found.supported_protocols)
        classic = ClassicMetadata(found.session_timeout_ms, protocols)
    subscription = Subscription(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(sorted(value.subscribed_topic_names)),
        value.subscribed_topic_regex or None,
        value.rebalance_timeout_ms,
        value.server_assignor,
        classic,
    )
    return SubscriptionRecord(name.group_id, name.member_id, subscription)


def _decode_target_epoch(key: memoryview, body: memoryview | None) -> TargetEpochRecord:
    name = ConsumerGroupTargetAssignmentMetadataKey.decode(key, 2, 0)[0]
    if body is None:
        return TargetEpochRecord(name.group_id, None)
    value = ConsumerGroupTargetAssignmentMetadataValue.decode(body, 2, _version(body))[0]
    return TargetEpochRecord(name.group_id, TargetEpoch(value.assignment_epoch, value.assignment_timestamp))


def _decode_target(key: memoryview, body: memoryview | None) -> TargetRecord:
    name = ConsumerGroupTargetAssignmentMemberKey.decode(key, 2, 0)[0]
    if body is None:
        return TargetRecord(name.group_id, name.member_id, None)
    value = ConsumerGroupTargetAssignmentMemberValue.decode(body, 2, _version(body))[0]
    target = {bytes(topic.topic_id): frozenset(topic.partitions) for topic in value.topic_partitions}
    return TargetRecord(name.group_id, name.member_id, {topic_id: found for topic_id, found in target.items() if found})


def _decode_current(key: memoryview, body: memoryview | None) -> CurrentAssignmentRecord:
    name = ConsumerGroupCurrentMemberAssignmentKey.decode(key, 2, 0)[0]
    if body is None:
        return CurrentAssignmentRecord(name.group_id, name.member_id, None)
    value = ConsumerGroupCurrentMemberAssignmentValue.decode(body, 2, _version(body))[0]
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    current = CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        state,
        _owned_from_wire(value.assigned_partitions, value.member_epoch),
        _owned_from_wire(value.partitions_pending_revocation, value.member_epoch),
    )
    return CurrentAssignmentRecord(name.group_id, name.member_id, current)


def _owned_from_wire(
    topics: list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions], member_epoch: int
) -> OwnedPartitions:
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        # Kafka before 4.2 did not store the epochs; then the member's own is the safe one.
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        if len(epochs) != len(topic.partitions):
            raise DecodeError("as many assignment epochs as partitions are needed")
        if epochs:
            owned[bytes(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _decode_regex(key: memoryview, body: memoryview | None) -> RegexRecord:
    name = ConsumerGroupRegularExpressionKey.decode(key, 2, 0)[0]
    if body is None:
        return RegexRecord(name.group_id, name.regular_expression, None)
    value = ConsumerGroupRegularExpressionValue.decode(body, 2, _version(body))[0]
    resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    return RegexRecord(name.group_id, name.regular_expression, resolved)


CONSUMER_RECORD_TYPES: Final = (
    RecordType(ConsumerGroupMetadataKey.RECORD_TYPE, GroupEpochRecord, _encode_group_epoch, _decode_group_epoch),
    RecordType(
        ConsumerGroupPartitionMetadataKey.RECORD_TYPE, OldMetadataRecord, _encode_old_metadata, _decode_old_metadata
    ),
    RecordType(
        ConsumerGroupMemberMetadataKey.RECORD_TYPE, SubscriptionRecord, _encode_subscription, _decode_subscription
    ),
    RecordType(
        ConsumerGroupTargetAssignmentMetadataKey.RECORD_TYPE,
        TargetEpochRecord,
        _encode_target_epoch,
        _decode_target_epoch,
    ),
    RecordType(ConsumerGroupTargetAssignmentMemberKey.RECORD_TYPE, TargetRecord, _encode_target, _decode_target),
    RecordType(
        ConsumerGroupCurrentMemberAssignmentKey.RECORD_TYPE, CurrentAssignmentRecord, _encode_current, _decode_current
    ),
    RecordType(ConsumerGroupRegularExpressionKey.RECORD_TYPE, RegexRecord, _encode_regex, _decode_regex),
)
"""For `record_types`."""
