"""The records of `__consumer_offsets`, in Kafka's format: what 4.3 writes, and every version it reads.

A key is the record's type as an int16 and then the key's fields; a value is its version as an int16 and then its
fields; a null value is a tombstone. Types 0 and 1 are offset commits (the older format is read only), type 2 is a
classic group; those of KIP-848 are in `consumer_records`; the others belong to share and streams groups. Source:
Kafka's GroupCoordinatorRecordHelpers and its record schemas.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

from odradek.groups.consumer_records import ConsumerRecord, decode_consumer_record, encode_consumer_record
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMemberMetadata,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.primitives import ZERO_UUID, DecodeError

_INT16 = Struct(">h")
_OFFSET_TYPE = _INT16.pack(1)
_GROUP_TYPE = _INT16.pack(2)
_PLAIN_OFFSET = Struct(">hqiBqBBB16s")
"""Version 4 without metadata: version, offset, leader epoch, length + 1, time, one tag: number, size, topic id."""
_OFFSET_VALUE_VERSION = 4
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3


class OffsetValue(NamedTuple):
    """A committed offset; timestamps in ms, `expire_timestamp_ms` is -1 unless the client asked for a retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID


class OffsetRecord(NamedTuple):
    """An offset commit, or its tombstone."""

    group_id: str
    topic: str
    partition: int
    value: OffsetValue | None


class MemberValue(NamedTuple):
    """A member of a stored classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A stored classic group; `state_timestamp_ms` is when it got into its state, -1 when unknown."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


class ClassicGroupRecord(NamedTuple):
    """A classic group's metadata, or its tombstone."""

    group_id: str
    value: GroupValue | None


GroupRecord: TypeAlias = OffsetRecord | ClassicGroupRecord | ConsumerRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as they are in the log. Raises EncodeError when a string or number is out of range."""
    if isinstance(record, OffsetRecord):
        return _encode_offset(record)
    if not isinstance(record, ClassicGroupRecord):
        return encode_consumer_record(record)
    key = bytearray(_GROUP_TYPE)
    GroupMetadataKey(record.group_id).encode(key, 0)
    return bytes(key), None if record.value is None else _encode_group(record.value)


def _encode_offset(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    key = _offset_key(record.group_id, record.topic, record.partition)
    found = record.value
    if found is None:
        return key, None
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = found
    if not metadata and expire_ms < 0 and topic_id != ZERO_UUID:
        # Nearly all commits; the generated codec makes the same bytes in five times the time.
        return key, _PLAIN_OFFSET.pack(4, offset, leader_epoch, 1, commit_ms, 1, 0, 16, topic_id)
    # Kafka keeps to version 1 for an explicit expiry: later versions dropped the field.
    version = _OFFSET_VALUE_VERSION if expire_ms < 0 else _EXPIRING_OFFSET_VALUE_VERSION
    value = bytearray(_INT16.pack(version))
    OffsetCommitValue(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id).encode(value, version)
    return key, bytes(value)


@lru_cache(maxsize=10_000)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """A group commits the same partitions over and over."""
    key = bytearray(_OFFSET_TYPE)
    OffsetCommitKey(group_id, topic, partition).encode(key, 0)
    return bytes(key)


def _encode_group(group: GroupValue) -> bytes:
    value = bytearray(_INT16.pack(_GROUP_VALUE_VERSION))
    GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValueMemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ],
    ).encode(value, _GROUP_VALUE_VERSION)
    return bytes(value)


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> GroupRecord | None:
    """The record, or None for a type that is not known here. Raises DecodeError for bytes that are none."""
    key = memoryview(key)
    if len(key) < 2:
        raise DecodeError("a group record's key has no type")
    (kind,) = _INT16.unpack_from(key)
    body = None if value is None else memoryview(value)
    if body is not None and len(body) < 2:
        raise DecodeError("a group record's value has no version")
    if kind in (0, 1):
        decode = OffsetCommitKey.decode if kind else LegacyOffsetCommitKey.decode
        name = decode(key, 2, 0)[0]
        return OffsetRecord(
            name.group, name.topic, name.partition, None if body is None else _decode_offset(body, kind)
        )
    if kind == 2:
        group_id = GroupMetadataKey.decode(key, 2, 0)[0].group
        return ClassicGroupRecord(group_id, None if body is None else _decode_group(body))
    return decode_consumer_record(kind, key, body)


def _decode_offset(body: memoryview, kind: int) -> OffsetValue:
    (version,) = _INT16.unpack_from(body)
    if not kind:
        old = LegacyOffsetCommitValue.decode(body, 2, version)[0]
        return OffsetValue(old.offset, -1, old.metadata, old.commit_timestamp)
    value = OffsetCommitValue.decode(body, 2, version)[0]
    return OffsetValue(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        bytes(value.topic_id),
    )


def _decode_group(body: memoryview) -> GroupValue:
    (version,) = _INT16.unpack_from(body)
    value = GroupMetadataValue.decode(body, 2, version)[0]
    return GroupValue(
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        tuple(
            MemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                # Version 0 did not store it; Kafka takes the session timeout then.
                member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                member.session_timeout,
                bytes(member.subscription),
                bytes(member.assignment),
            )
            for member in value.members
        ),
    )
