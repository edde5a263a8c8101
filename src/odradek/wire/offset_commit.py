"""OffsetCommit by hand: consumers send it as often as they poll, mostly for a few partitions.

The generated codec (`messages/offset_commit.py`) says the same thing; tests hold the two equal in every version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from odradek.wire.primitives import (
    COUNTED_FROM_BYTES,
    DECODE_FAULTS,
    ENCODE_FAULTS,
    DecodeError,
    EncodeError,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
    skip_tags,
    spend_elements,
    unsupported,
    write_compact_string,
    write_string,
    write_unsigned_varint,
)

# The name (to version 9) or the id (16 bytes, from 10) of a topic.
TopicKey: TypeAlias = str | bytes
# Partition, offset, leader epoch, metadata.
Position: TypeAlias = tuple[int, int, int, str | None]
Topics: TypeAlias = list[tuple[TopicKey, list[Position]]]

FLEXIBLE_FROM: Final = 8
TOPIC_ID_FROM: Final = 10
_MIN_VERSION: Final = 2
_MAX_VERSION: Final = 10

_unpack_int16 = Struct(">h").unpack_from
_unpack_int32 = Struct(">i").unpack_from
_unpack_generation = Struct(">ih").unpack_from
_unpack_int64 = Struct(">q").unpack_from
_unpack_old = Struct(">iqh").unpack_from
_unpack_epoch = Struct(">iqih").unpack_from
_unpack_flexible = Struct(">iqiB").unpack_from
_pack_int32 = Struct(">i").pack
_pack_code = Struct(">ih").pack
_pack_flexible_code = Struct(">ihB").pack
_pack_head_v2 = Struct(">iii").pack
_pack_head_v3 = Struct(">iiii").pack
_pack_flexible_head = Struct(">iiBi").pack
_pack_into_int32 = Struct(">i").pack_into


class OffsetCommit(NamedTuple):
    """A request as the broker needs it; `topics` keep the order and the repetitions of the wire.

    `generation_id` is the member epoch in consumer groups; `retention_ms` is -1 unless the client sent one.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    topics: Topics


def decode_request(view: memoryview, position: int, version: int) -> tuple[OffsetCommit, int]:
    """(request, position behind it); raises DecodeError."""
    try:
        if version >= FLEXIBLE_FROM:
            if version > _MAX_VERSION:
                raise unsupported("OffsetCommitRequest", version)
            return _decode_flexible(view, position, version)
        if version < _MIN_VERSION:
            raise unsupported("OffsetCommitRequest", version)
        return _decode_classic(view, position, version)
    except DECODE_FAULTS as fault:
        raise DecodeError(f"OffsetCommitRequest version {version}: {fault}") from fault


def _decode_classic(view: memoryview, position: int, version: int) -> tuple[OffsetCommit, int]:
    limit = len(view)
    # Strings are read here and not by `read_string`: calls are a tenth of the time that a commit takes.
    (size,) = _unpack_int16(view, position)
    end = position + 2 + size
    if size < 0 or end > limit:
        raise _too_long(size, limit - position - 2)
    group_id = str(view[position + 2 : end], "utf-8")
    generation_id, size = _unpack_generation(view, end)
    position = end + 6 + size
    if size < 0 or position > limit:
        raise _too_long(size, limit - end - 6)
    member_id = str(view[end + 6 : position], "utf-8")
    instance_id = None
    retention_ms = -1
    if version >= 7:
        instance_id, position = read_nullable_string(view, position)
    elif version <= 4:
        (retention_ms,) = _unpack_int64(view, position)
        position += 8
    (topic_count,) = _unpack_int32(view, position)
    position += 4
    if topic_count < 0 or topic_count * 6 > limit - position:
        raise DecodeError(f"{topic_count} topics with {limit - position} bytes left")
    if limit > COUNTED_FROM_BYTES:
        spend_elements(topic_count)
    topics: Topics = []
    for _ in range(topic_count):
        (size,) = _unpack_int16(view, position)
        end = position + 2 + size
        if size < 0 or end > limit:
            raise _too_long(size, limit - position - 2)
        name = str(view[position + 2 : end], "utf-8")
        (count,) = _unpack_int32(view, end)
        position = end + 4
        if count < 0 or count * 14 > limit - position:
            raise DecodeError(f"{count} partitions with {limit - position} bytes left")
        if limit > COUNTED_FROM_BYTES:
            spend_elements(count)
        partitions: list[Position] = []
        for _ in range(count):
            if version >= 6:
                index, offset, epoch, size = _unpack_epoch(view, position)
                position += 18
            else:
                index, offset, size = _unpack_old(view, position)
                epoch = -1
                position += 14
            if size > 0:
                metadata, position = read_string(view, position - 2)
                partitions.append((index, offset, epoch, metadata))
            elif size >= -1:
                partitions.append((index, offset, epoch, None if size else ""))
            else:
                raise DecodeError(f"metadata of {size} bytes")
        topics.append((name, partitions))
    # Without the keyword handling of a NamedTuple's constructor.
    fields = (group_id, generation_id, member_id, instance_id, retention_ms, topics)
    return tuple.__new__(OffsetCommit, fields), position


def _too_long(size: int, left: int) -> DecodeError:
    return DecodeError(f"string length {size} with {left} bytes left")


def _decode_flexible(view: memoryview, position: int, version: int) -> tuple[OffsetCommit, int]:
    limit = len(view)
    group_id, position = read_compact_string(view, position)
    (generation_id,) = _unpack_int32(view, position)
    member_id, position = read_compact_string(view, position + 4)
    instance_id, position = read_compact_nullable_string(view, position)
    topic_count, position = read_unsigned_varint(view, position)
    topic_count -= 1
    if topic_count < 0 or topic_count * 3 > limit - position:
        raise DecodeError(f"{topic_count} topics with {limit - position} bytes left")
    if limit > COUNTED_FROM_BYTES:
        spend_elements(topic_count)
    topics: Topics = []
    for _ in range(topic_count):
        key: TopicKey
        if version >= TOPIC_ID_FROM:
            key = bytes(view[position : position + 16])
            position += 16
        else:
            key, position = read_compact_string(view, position)
        count, position = read_unsigned_varint(view, position)
        partitions, position = _flexible_partitions(view, position, count - 1)
        position = skip_tags(view, position) if view[position] else position + 1
        topics.append((key, partitions))
    position = skip_tags(view, position) if view[position] else position + 1
    return tuple.__new__(OffsetCommit, (group_id, generation_id, member_id, instance_id, -1, topics)), position


def _flexible_partitions(view: memoryview, position: int, count: int) -> tuple[list[Position], int]:
    limit = len(view)
    if count < 0 or count * 18 > limit - position:
        raise DecodeError(f"{count} partitions with {limit - position} bytes left")
    if limit > COUNTED_FROM_BYTES:
        spend_elements(count)
    partitions: list[Position] = []
    for _ in range(count):
        index, offset, epoch, size = _unpack_flexible(view, position)
        position += 17
        metadata: str | None = ""
        if size != 1:
            metadata, position = read_compact_nullable_string(view, position - 1)
        partitions.append((index, offset, epoch, metadata))
        position = skip_tags(view, position) if view[position] else position + 1
    return partitions, position


def encode_response(
    version: int, correlation_id: int, topics: Topics, codes: Sequence[int] | None = None, throttle_time_ms: int = 0
) -> bytearray:
    """The whole frame: size, response header, body. `codes` are the partitions' in order, None when all are 0.

    Raises EncodeError.
    """
    errors: Iterator[int] = repeat(0) if codes is None else iter(codes)
    try:
        if version >= FLEXIBLE_FROM:
            out = bytearray(_pack_flexible_head(0, correlation_id, 0, throttle_time_ms))
            _encode_flexible(out, version, topics, errors)
        else:
            if version >= 3:
                out = bytearray(_pack_head_v3(0, correlation_id, throttle_time_ms, len(topics)))
            else:
                out = bytearray(_pack_head_v2(0, correlation_id, len(topics)))
            for key, partitions in topics:
                out += _string(key)
                out += _pack_int32(len(partitions))
                if codes is None:
                    for partition in partitions:
                        out += _pack_code(partition[0], 0)
                else:
                    for partition in partitions:
                        out += _pack_code(partition[0], next(errors))
        _pack_into_int32(out, 0, len(out) - 4)
    except ENCODE_FAULTS as fault:
        raise EncodeError(f"OffsetCommitResponse version {version}: {fault}") from fault
    return out


def _encode_flexible(out: bytearray, version: int, topics: Topics, errors: Iterable[int]) -> None:
    codes = iter(errors)
    write_unsigned_varint(out, len(topics) + 1)
    for key, partitions in topics:
        if version >= TOPIC_ID_FROM:
            if isinstance(key, str):
                raise EncodeError(f"a topic name in version {version}")
            out += key
        else:
            write_compact_string(out, _name(key))
        write_unsigned_varint(out, len(partitions) + 1)
        for partition in partitions:
            out += _pack_flexible_code(partition[0], next(codes), 0)
        out.append(0)
    out.append(0)


@lru_cache(maxsize=10_000)
def _string(key: TopicKey) -> bytes:
    """A topic's name as older versions have it: groups commit the same topics repeatedly. Raises EncodeError."""
    out = bytearray()
    write_string(out, _name(key))
    return bytes(out)


def _name(key: TopicKey) -> str:
    if isinstance(key, str):
        return key
    raise EncodeError(f"a topic id in a version before {TOPIC_ID_FROM}")
