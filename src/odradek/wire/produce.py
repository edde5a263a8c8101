"""Produce by hand: every record passes here, on many connections a request carries one batch.

The generated codec (`messages/produce.py`) says the same thing; tests hold the two equal in every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from odradek.wire.primitives import (
    COUNTED_FROM_BYTES,
    DECODE_FAULTS,
    ENCODE_FAULTS,
    DecodeError,
    EncodeError,
    read_compact_nullable_string,
    read_nullable_string,
    read_unsigned_varint,
    skip_tags,
    spend_elements,
    unsupported,
    write_compact_nullable_string,
    write_compact_string,
    write_nullable_string,
    write_string,
    write_tag,
    write_unsigned_varint,
)

# The name (to version 12) or the id (16 bytes, from 13) of a topic.
TopicKey: TypeAlias = str | bytes
RequestedPartition: TypeAlias = tuple[TopicKey, int]
"""(topic name or, in versions that use them, topic id; partition), as a request names a partition."""
# Partition and its record batches: a slice of the frame.
ProducePartition: TypeAlias = tuple[int, memoryview | None]

FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13
_MIN_VERSION: Final = 3
_MAX_VERSION: Final = 13

_unpack_acks_byte = Struct(">hiB").unpack_from
_unpack_acks_count = Struct(">hii").unpack_from
_unpack_int16 = Struct(">h").unpack_from
_unpack_int32 = Struct(">i").unpack_from
_unpack_index_size = Struct(">ii").unpack_from
_unpack_index_byte = Struct(">iB").unpack_from
_pack_int32 = Struct(">i").pack
_pack_flexible_head = Struct(">iiB").pack
_pack_into_int32 = Struct(">i").pack_into
_pack_one_head = Struct(">iiBB").pack
_pack_one_tail = Struct(">BihqqqBBBBiB").pack
_LENGTHS: Final = [bytes((size + 1,)) for size in range(127)]
"""Lengths of short strings as compact strings begin with them."""
_pack_v3 = Struct(">ihqq").pack
_pack_v5 = Struct(">ihqqq").pack
_pack_v8 = Struct(">ihqqqih").pack
_pack_v9 = Struct(">ihqqqBBB").pack
_pack_leader = Struct(">ii").pack


class ProduceRequest:
    """A request as the broker needs it; `topics` keep the order and the repetitions of the wire."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[tuple[TopicKey, list[ProducePartition]]],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics

    def __repr__(self) -> str:
        topics = [(key, [(index, records and len(records)) for index, records in rows]) for key, rows in self.topics]
        return f"ProduceRequest({self.transactional_id!r}, acks={self.acks}, timeout_ms={self.timeout_ms}, {topics})"


class ProducedPartition(NamedTuple):
    """The answer for one partition; `record_errors` are (index in the batch, message), `current_leader` (id, epoch)."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None


class NodeEndpoint(NamedTuple):
    """Where a current leader listens (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def decode_request(view: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    """(request, position behind it); raises DecodeError."""
    try:
        if version >= FLEXIBLE_FROM:
            if version > _MAX_VERSION:
                raise unsupported("ProduceRequest", version)
            return _decode_flexible(view, position, version)
        if version < _MIN_VERSION:
            raise unsupported("ProduceRequest", version)
        return _decode_classic(view, position)
    except DECODE_FAULTS as fault:
        raise DecodeError(f"ProduceRequest version {version}: {fault}") from fault


def _decode_classic(view: memoryview, position: int) -> tuple[ProduceRequest, int]:
    limit = len(view)
    transactional_id, position = read_nullable_string(view, position)
    acks, timeout_ms, topic_count = _unpack_acks_count(view, position)
    position += 10
    if topic_count < 0 or topic_count * 6 > limit - position:
        raise DecodeError(f"{topic_count} topics with {limit - position} bytes left")
    if limit > COUNTED_FROM_BYTES:
        spend_elements(topic_count)
    topics: list[tuple[TopicKey, list[ProducePartition]]] = []
    for _ in range(topic_count):
        (size,) = _unpack_int16(view, position)
        start = position + 2
        position = start + size
        if size < 0 or position > limit:
            raise DecodeError(f"topic name of {size} bytes with {limit - start} left")
        name = str(view[start:position], "utf-8")
        (count,) = _unpack_int32(view, position)
        position += 4
        if count < 0 or count * 8 > limit - position:
            raise DecodeError(f"{count} partitions with {limit - position} bytes left")
        if limit > COUNTED_FROM_BYTES:
            spend_elements(count)
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index, size = _unpack_index_size(view, position)
            start = position + 8
            if size < 0:
                if size != -1:
                    raise DecodeError(f"records of {size} bytes")
                partitions.append((index, None))
                position = start
                continue
            position = start + size
            if position > limit:
                raise DecodeError(f"records of {size} bytes with {limit - start} left")
            partitions.append((index, view[start:position]))
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _decode_flexible(view: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    limit = len(view)
    if view[position]:
        transactional_id, position = read_compact_nullable_string(view, position)
    else:
        transactional_id = None
        position += 1
    acks, timeout_ms, topic_count = _unpack_acks_byte(view, position)
    if topic_count > 127:
        topic_count, position = read_unsigned_varint(view, position + 6)
    else:
        position += 7
    topic_count -= 1
    if topic_count < 0 or topic_count * 3 > limit - position:
        raise DecodeError(f"{topic_count} topics with {limit - position} bytes left")
    if limit > COUNTED_FROM_BYTES:
        spend_elements(topic_count)
    topics: list[tuple[TopicKey, list[ProducePartition]]] = []
    for _ in range(topic_count):
        key: TopicKey
        if version >= TOPIC_ID_FROM:
            start = position
            position += 16
            if position > limit:
                raise DecodeError(f"topic id with {limit - start} bytes left")
            key = bytes(view[start:position])
        else:
            size = view[position]
            start = position + 1
            if size > 127:
                size, start = read_unsigned_varint(view, position)
            position = start + size - 1
            if size == 0 or position > limit:
                raise DecodeError(f"topic name of {size - 1} bytes with {limit - start} left")
            key = str(view[start:position], "utf-8")
        count = view[position]
        if count > 127:
            count, position = read_unsigned_varint(view, position)
        else:
            position += 1
        partitions, position = _flexible_partitions(view, position, count - 1)
        if view[position]:
            position = skip_tags(view, position)
        else:
            position += 1
        topics.append((key, partitions))
    position = skip_tags(view, position) if view[position] else position + 1
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _flexible_partitions(view: memoryview, position: int, count: int) -> tuple[list[ProducePartition], int]:
    limit = len(view)
    if count < 0 or count * 6 > limit - position:
        raise DecodeError(f"{count} partitions with {limit - position} bytes left")
    if limit > COUNTED_FROM_BYTES:
        spend_elements(count)
    partitions: list[ProducePartition] = []
    for _ in range(count):
        index, size = _unpack_index_byte(view, position)
        start = position + 5
        if size > 127:
            high = view[start]
            if high > 127:
                size, start = read_unsigned_varint(view, position + 4)
            else:
                # Two bytes, as most requests of few records have it.
                size += (high << 7) - 128
                start += 1
        if size:
            position = start + size - 1
            if position > limit:
                raise DecodeError(f"records of {size - 1} bytes with {limit - start} left")
            partitions.append((index, view[start:position]))
        else:
            partitions.append((index, None))
            position = start
        if view[position]:
            position = skip_tags(view, position)
        else:
            position += 1
    return partitions, position


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[ProducedPartition]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytearray:
    """The whole frame: size, response header, body; raises EncodeError."""
    try:
        if version >= FLEXIBLE_FROM:
            if len(topics) == 1 and len(topics[0][1]) == 1 and not node_endpoints:
                ((key, (row,)),) = topics
                if not row[5] and row[6] is None and row[7] is None:
                    return _success_of_one(version, correlation_id, key, row, throttle_time_ms)
            out = bytearray(_pack_flexible_head(0, correlation_id, 0))
            _encode_flexible(out, version, topics)
            out += _pack_int32(throttle_time_ms)
            if node_endpoints and version >= 10:
                encode_endpoints(out, node_endpoints)
            else:
                out.append(0)
        else:
            out = bytearray(b"\0\0\0\0" + _pack_int32(correlation_id) + _pack_int32(len(topics)))
            for key, partitions in topics:
                write_string(out, _name(key))
                out += _pack_int32(len(partitions))
                _encode_classic(out, version, partitions)
            out += _pack_int32(throttle_time_ms)
        _pack_into_int32(out, 0, len(out) - 4)
    except ENCODE_FAULTS as fault:
        raise EncodeError(f"ProduceResponse version {version}: {fault}") from fault
    return out


def _success_of_one(
    version: int, correlation_id: int, key: TopicKey, row: ProducedPartition, throttle_time_ms: int
) -> bytearray:
    """The frame for one partition without record errors, message and leader: most answers, in two steps."""
    if version >= TOPIC_ID_FROM:
        name = _topic_id(key, version)
        prefix = b""
    else:
        name = _name(key).encode()
        prefix = _compact_length(len(name))
    index, code, offset, append_time, log_start, _, _, _ = row
    head = _pack_one_head(len(prefix) + len(name) + 46, correlation_id, 0, 2)
    tail = _pack_one_tail(2, index, code, offset, append_time, log_start, 1, 0, 0, 0, throttle_time_ms, 0)
    return bytearray(b"".join((head, prefix, name, tail)))


def _compact_length(size: int) -> bytes:
    if size < 127:
        return _LENGTHS[size]
    out = bytearray()
    write_unsigned_varint(out, size + 1)
    return bytes(out)


def _topic_id(key: TopicKey, version: int) -> bytes:
    if len(key) != 16 or isinstance(key, str):
        raise EncodeError(f"a topic name in version {version}")
    return key


def _name(key: TopicKey) -> str:
    if isinstance(key, str):
        return key
    raise EncodeError(f"a topic id in a version before {TOPIC_ID_FROM}")


def _encode_classic(out: bytearray, version: int, partitions: Sequence[ProducedPartition]) -> None:
    for index, code, offset, append_time, log_start, record_errors, message, _ in partitions:
        if version >= 8:
            if not record_errors and message is None:
                out += _pack_v8(index, code, offset, append_time, log_start, 0, -1)
                continue
            out += _pack_v5(index, code, offset, append_time, log_start)
            out += _pack_int32(len(record_errors))
            for batch_index, record_message in record_errors:
                out += _pack_int32(batch_index)
                write_nullable_string(out, record_message)
            write_nullable_string(out, message)
        elif version >= 5:
            out += _pack_v5(index, code, offset, append_time, log_start)
        else:
            out += _pack_v3(index, code, offset, append_time)


def _encode_flexible(
    out: bytearray, version: int, topics: Sequence[tuple[TopicKey, Sequence[ProducedPartition]]]
) -> None:
    count = len(topics) + 1
    if count > 127:
        write_unsigned_varint(out, count)
    else:
        out.append(count)
    for key, partitions in topics:
        if version >= TOPIC_ID_FROM:
            out += _topic_id(key, version)
        else:
            write_compact_string(out, _name(key))
        count = len(partitions) + 1
        if count > 127:
            write_unsigned_varint(out, count)
        else:
            out.append(count)
        for index, code, offset, append_time, log_start, record_errors, message, leader in partitions:
            if not record_errors and message is None and (leader is None or version < 10):
                # No record errors, no message, no tagged fields.
                out += _pack_v9(index, code, offset, append_time, log_start, 1, 0, 0)
                continue
            out += _pack_v5(index, code, offset, append_time, log_start)
            write_unsigned_varint(out, len(record_errors) + 1)
            for batch_index, record_message in record_errors:
                out += _pack_int32(batch_index)
                write_compact_nullable_string(out, record_message)
                out.append(0)
            write_compact_nullable_string(out, message)
            if leader is None or version < 10:
                out.append(0)
            else:
                out += b"\1\0\x09" + _pack_leader(*leader) + b"\0"
        out.append(0)


def encode_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """The tag section with node endpoints in tag 0."""
    value = bytearray()
    write_unsigned_varint(value, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        value += _pack_int32(node_id)
        write_compact_string(value, host)
        value += _pack_int32(port)
        write_compact_nullable_string(value, rack)
        value.append(0)
    out.append(1)
    write_tag(out, 0, value)
