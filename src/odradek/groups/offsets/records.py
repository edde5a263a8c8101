"""Offset commits in `__consumer_offsets`: record type 1, and type 0, the older format, which is only read.

Source: Kafka's GroupCoordinatorRecordHelpers and its record schemas.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from odradek.groups.records import RecordType
from odradek.wire.messages.consumer_offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.primitives import ZERO_UUID

_INT16 = Struct(">h")
_OFFSET_TYPE = _INT16.pack(1)
_PLAIN_OFFSET = Struct(">hqiBqBBB16s")
"""Version 4 without metadata: version, offset, leader epoch, length + 1, time, one tag: number, size, topic id."""
_OFFSET_VALUE_VERSION = 4
_EXPIRING_OFFSET_VALUE_VERSION = 1


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


def encode_offset(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """(key, value). Raises EncodeError when a string or number is out of range."""
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
    """A group commits the same partitions repeatedly."""
    key = bytearray(_OFFSET_TYPE)
    OffsetCommitKey(group_id, topic, partition).encode(key, 0)
    return bytes(key)


def _decode(key: memoryview, body: memoryview | None) -> OffsetRecord:
    name = OffsetCommitKey.decode(key, 2, 0)[0]
    if body is None:
        return OffsetRecord(name.group, name.topic, name.partition, None)
    (version,) = _INT16.unpack_from(body)
    value = OffsetCommitValue.decode(body, 2, version)[0]
    found = OffsetValue(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        bytes(value.topic_id),
    )
    return OffsetRecord(name.group, name.topic, name.partition, found)


def _decode_legacy(key: memoryview, body: memoryview | None) -> OffsetRecord:
    name = LegacyOffsetCommitKey.decode(key, 2, 0)[0]
    if body is None:
        return OffsetRecord(name.group, name.topic, name.partition, None)
    (version,) = _INT16.unpack_from(body)
    old = LegacyOffsetCommitValue.decode(body, 2, version)[0]
    value = OffsetValue(old.offset, -1, old.metadata, old.commit_timestamp)
    return OffsetRecord(name.group, name.topic, name.partition, value)


OFFSET_RECORD_TYPES: Final = (
    RecordType(0, OffsetRecord, None, _decode_legacy),
    RecordType(1, OffsetRecord, encode_offset, _decode),
)
"""For `record_types`."""
