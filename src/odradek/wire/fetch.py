"""Fetch by hand: requests name many partitions, answers must not touch the records.

The generated codec (`messages/fetch.py`) says the same thing; tests hold the two equal in every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from odradek.wire.primitives import (
    DECODE_FAULTS,
    ENCODE_FAULTS,
    ZERO_UUID,
    DecodeError,
    EncodeError,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_string,
    read_tag,
    read_unsigned_varint,
    skip_tags,
    tag_mismatch,
    unsupported,
    write_compact_string,
    write_string,
    write_unsigned_varint,
)
from odradek.wire.produce import NodeEndpoint, TopicKey, encode_endpoints

if TYPE_CHECKING:
    from odradek.ports.disk import FileRange

Part: TypeAlias = "bytes | bytearray | memoryview | FileRange"
# (partition, current leader epoch, fetch offset, last fetched epoch, log start offset, partition max bytes)
FetchPartition: TypeAlias = tuple[int, int, int, int, int, int]

FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13
UNKNOWN_HIGH_WATERMARK: Final = 0x7FFFFFFFFFFFFFFF
_MIN_VERSION: Final = 4
_MAX_VERSION: Final = 18

_unpack_int32 = Struct(">i").unpack_from
_unpack_int64 = Struct(">q").unpack_from
_unpack_replica_state = Struct(">iq").unpack_from
_unpack_head_v4 = Struct(">iiiib").unpack_from
_unpack_head_v7 = Struct(">iiiibii").unpack_from
_unpack_head_v15 = Struct(">iiibii").unpack_from
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_PARTITION_V12_UNTAGGED = Struct(">iiqiqix")
_unpack_partition_v12 = _PARTITION_V12_UNTAGGED.unpack_from
_pack_int16 = Struct(">h").pack
_pack_int32 = Struct(">i").pack
_pack_into_int32 = Struct(">i").pack_into
_pack_head_v4 = Struct(">iii").pack
_pack_head_v7 = Struct(">iiihi").pack
_pack_head_flexible = Struct(">iiBihi").pack
_pack_part_v4 = Struct(">ihqq").pack
_pack_part_v5 = Struct(">ihqqq").pack
_pack_no_aborted = Struct(">ihqqqBi").pack
_pack_pair = Struct(">qq").pack
_pack_epoch_end = Struct(">iq").pack
_pack_leader = Struct(">ii").pack
_pack_snapshot = Struct(">qi").pack


class FetchRequest:
    """A request as the broker needs it.

    `replica_id` is -1 for a consumer. `forgotten` are (topic, partitions) that leave the session (KIP-227). `tagged`
    holds (replica directory id, high watermark) by (topic, partition) for the rare partitions that carry one of them.
    """

    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "tagged",
        "topics",
    )

    cluster_id: str | None
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]
    rack_id: str
    tagged: dict[tuple[TopicKey, int], tuple[bytes, int]]


class FetchedPartition(NamedTuple):
    """The answer for one partition.

    `records` are the parts that make up `records_size` bytes of whole batches; None is null. `aborted_transactions` are
    (producer id, first offset), null for read_uncommitted. `diverging_epoch` is (epoch, end offset), `current_leader`
    (id, epoch), `snapshot_id` (end offset, epoch); they are lost before version 12.
    """

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Part] | None = ()
    records_size: int = 0
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


def decode_request(view: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    """(request, position behind it); raises DecodeError."""
    if not _MIN_VERSION <= version <= _MAX_VERSION:
        raise unsupported("FetchRequest", version)
    request = FetchRequest()
    request.cluster_id = None
    request.replica_epoch = -1
    request.tagged = {}
    try:
        if version >= FLEXIBLE_FROM:
            return request, _decode_flexible(request, view, position, version)
        return request, _decode_classic(request, view, position, version)
    except DECODE_FAULTS as fault:
        raise DecodeError(f"FetchRequest version {version}: {fault}") from fault


def _decode_classic(request: FetchRequest, view: memoryview, position: int, version: int) -> int:
    if version >= 7:
        (
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        ) = _unpack_head_v7(view, position)
        position += 25
    else:
        (
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
        ) = _unpack_head_v4(view, position)
        request.session_id, request.session_epoch = 0, -1
        position += 17
    row = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    topic_count, position = read_count(view, position, 6)
    for _ in range(topic_count):
        name, position = read_string(view, position)
        count, position = read_count(view, position, row.size)
        end = position + count * row.size
        rows = row.iter_unpack(view[position:end])
        position = end
        if version >= 9:
            topics.append((name, [(p, epoch, offset, -1, start, size) for p, epoch, offset, start, size in rows]))
        elif version >= 5:
            topics.append((name, [(p, -1, offset, -1, start, size) for p, offset, start, size in rows]))
        else:
            topics.append((name, [(p, -1, offset, -1, -1, size) for p, offset, size in rows]))
    request.topics = topics
    request.forgotten = []
    if version >= 7:
        topic_count, position = read_count(view, position, 6)
        for _ in range(topic_count):
            name, position = read_string(view, position)
            count, position = read_count(view, position, 4)
            request.forgotten.append((name, list(unpack_from(f">{count}i", view, position))))
            position += 4 * count
    request.rack_id = ""
    if version >= 11:
        request.rack_id, position = read_string(view, position)
    return position


def _decode_flexible(request: FetchRequest, view: memoryview, position: int, version: int) -> int:
    request.replica_id = -1
    if version < 15:
        (request.replica_id,) = _unpack_int32(view, position)
        position += 4
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    ) = _unpack_head_v15(view, position)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    topic_count, position = read_compact_count(view, position + 21, 3)
    for _ in range(topic_count):
        key, position = _read_topic_key(view, position, version)
        count, position = read_compact_count(view, position, 33)
        end = position + 33 * count
        if count == 1 and not view[position + 32]:  # most requests: without two slices of the view
            rows, position = [_unpack_partition_v12(view, position)], end
        elif any(view[position + 32 : end : 33]):
            rows, position = _tagged_partitions(request, key, view, position, count, version)
        else:
            rows, position = list(_PARTITION_V12_UNTAGGED.iter_unpack(view[position:end])), end
        topics.append((key, rows))
        position = skip_tags(view, position) if view[position] else position + 1
    request.topics = topics
    request.forgotten = []
    topic_count, position = read_compact_count(view, position, 3)
    for _ in range(topic_count):
        key, position = _read_topic_key(view, position, version)
        count, position = read_compact_count(view, position, 4)
        request.forgotten.append((key, list(unpack_from(f">{count}i", view, position))))
        position = skip_tags(view, position + 4 * count)
    request.rack_id, position = read_compact_string(view, position)
    if view[position]:
        return _request_tags(request, view, position, version)
    return position + 1


def _read_topic_key(view: memoryview, position: int, version: int) -> tuple[TopicKey, int]:
    if version < TOPIC_ID_FROM:
        return read_compact_string(view, position)
    end = position + 16
    if end > len(view):
        raise DecodeError(f"topic id with {len(view) - position} bytes left")
    return bytes(view[position:end]), end


def _tagged_partitions(
    request: FetchRequest, key: TopicKey, view: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    rows: list[FetchPartition] = []
    for _ in range(count):
        row: FetchPartition = _PARTITION_V12.unpack_from(view, position)
        rows.append(row)
        directory_id, high_watermark = ZERO_UUID, UNKNOWN_HIGH_WATERMARK
        tags, position = read_unsigned_varint(view, position + 32)
        for _ in range(tags):
            tag, position, end = read_tag(view, position)
            if tag == 0 and version >= 17:
                directory_id = bytes(view[position : position + 16])
                position += 16
            elif tag == 1 and version >= 18:
                (high_watermark,) = _unpack_int64(view, position)
                position += 8
            else:
                position = end
            if position != end:
                raise tag_mismatch(tag, position, end)
        if directory_id != ZERO_UUID or high_watermark != UNKNOWN_HIGH_WATERMARK:
            request.tagged[key, row[0]] = (directory_id, high_watermark)
    return rows, position


def _request_tags(request: FetchRequest, view: memoryview, position: int, version: int) -> int:
    tags, position = read_unsigned_varint(view, position)
    for _ in range(tags):
        tag, position, end = read_tag(view, position)
        if tag == 0:
            request.cluster_id, position = read_compact_nullable_string(view, position)
        elif tag == 1 and version >= 15:
            request.replica_id, request.replica_epoch = _unpack_replica_state(view, position)
            position = skip_tags(view, position + 12)
        else:
            position = end
        if position != end:
            raise tag_mismatch(tag, position, end)
    return position


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """The whole frame: size, response header and body, with the partitions' records as they are; raises EncodeError.

    Before version 7 error code and session id are lost.
    """
    parts: list[Part] = []
    try:
        if version >= FLEXIBLE_FROM:
            out = bytearray(_pack_head_flexible(0, correlation_id, 0, throttle_time_ms, error_code, session_id))
            size, out = _encode_flexible(parts, out, version, topics)
            if node_endpoints and version >= 16:
                encode_endpoints(out, node_endpoints)
            else:
                out.append(0)
        else:
            if version >= 7:
                out = bytearray(_pack_head_v7(0, correlation_id, throttle_time_ms, error_code, session_id))
            else:
                out = bytearray(_pack_head_v4(0, correlation_id, throttle_time_ms))
            size, out = _encode_classic(parts, out, version, topics)
        parts.append(out)
        head = parts[0]
        assert isinstance(head, bytearray)
        _pack_into_int32(head, 0, size + len(out) - 4)
    except ENCODE_FAULTS as fault:
        raise EncodeError(f"FetchResponse version {version}: {fault}") from fault
    if not out:
        parts.pop()
    return parts


def _encode_classic(
    parts: list[Part], out: bytearray, version: int, topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]]
) -> tuple[int, bytearray]:
    """(bytes in `parts`, the unfinished last part)."""
    total = 0
    out += _pack_int32(len(topics))
    for key, partitions in topics:
        if not isinstance(key, str):
            raise EncodeError(f"a topic id in version {version}")
        write_string(out, key)
        out += _pack_int32(len(partitions))
        for index, code, high, stable, start, records, size, aborted, preferred, _, _, _ in partitions:
            if version >= 5:
                out += _pack_part_v5(index, code, high, stable, start)
            else:
                out += _pack_part_v4(index, code, high, stable)
            if aborted is None:
                out += b"\xff\xff\xff\xff"
            else:
                out += _pack_int32(len(aborted))
                for producer_id, first_offset in aborted:
                    out += _pack_pair(producer_id, first_offset)
            if version >= 11:
                out += _pack_int32(preferred)
            elif preferred != -1:
                raise EncodeError(f"a preferred read replica in version {version}")
            out += _pack_int32(-1 if records is None else size)
            if records:
                parts.append(out)
                parts += records
                total += len(out) + size
                out = bytearray()
    return total, out


def _encode_flexible(
    parts: list[Part], out: bytearray, version: int, topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]]
) -> tuple[int, bytearray]:
    """(bytes in `parts`, the unfinished last part)."""
    total = 0
    write_unsigned_varint(out, len(topics) + 1)
    for key, partitions in topics:
        _write_topic_key(out, key, version)
        write_unsigned_varint(out, len(partitions) + 1)
        for row in partitions:
            index, code, high, stable, start, records, size, aborted, preferred, diverging, leader, snapshot = row
            if aborted:
                out += _pack_part_v5(index, code, high, stable, start)
                write_unsigned_varint(out, len(aborted) + 1)
                for producer_id, first_offset in aborted:
                    out += _pack_pair(producer_id, first_offset)
                    out.append(0)
                out += _pack_int32(preferred)
            else:
                out += _pack_no_aborted(index, code, high, stable, start, 0 if aborted is None else 1, preferred)
            write_unsigned_varint(out, 0 if records is None else size + 1)
            if records:
                parts.append(out)
                parts += records
                total += len(out) + size
                out = bytearray()
            if diverging is None and leader is None and snapshot is None:
                out.append(0)
            else:
                _encode_partition_tags(out, diverging, leader, snapshot)
        out.append(0)
    return total, out


def _write_topic_key(out: bytearray, key: TopicKey, version: int) -> None:
    if version < TOPIC_ID_FROM:
        if not isinstance(key, str):
            raise EncodeError(f"a topic id in version {version}")
        write_compact_string(out, key)
    elif isinstance(key, str) or len(key) != 16:
        raise EncodeError(f"{key!r} is no topic id, which version {version} needs")
    else:
        out += key


def _encode_partition_tags(
    out: bytearray,
    diverging: tuple[int, int] | None,
    leader: tuple[int, int] | None,
    snapshot: tuple[int, int] | None,
) -> None:
    out.append((diverging is not None) + (leader is not None) + (snapshot is not None))
    if diverging is not None:
        out += b"\0\x0d" + _pack_epoch_end(*diverging) + b"\0"
    if leader is not None:
        out += b"\1\x09" + _pack_leader(*leader) + b"\0"
    if snapshot is not None:
        out += b"\2\x0d" + _pack_snapshot(*snapshot) + b"\0"
