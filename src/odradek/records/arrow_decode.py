"""Record batches to Arrow columns, without a Python object per record.

Only where records end is found by a walk in Python (one varint each, and not even that where records are of equal
size). All fields of all records of all batches are then decoded at once with numpy. Keys and values become a
binary_view over the batches' own memory, which Arrow's cast to binary gathers in C++.

The records of many batches are decoded together, because numpy's cost per call would otherwise rule for small batches:
consecutive uncompressed batches share the caller's buffer, consecutive compressed ones a buffer of what they contained.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c

from odradek.records.arrow_gather import PADDING, check_buffer, gather_binary, list_of_headers, primitive
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LAST_CODEC,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    split_batches,
)
from odradek.records.compression import MAX_UNCOMPRESSED_BYTES, decompress
from odradek.records.control import ControlType, decode_control_record
from odradek.records.errors import CorruptRecords
from odradek.records.fields import INT64_MAX
from odradek.records.record import MIN_RECORD_SIZE, decode_records
from odradek.records.varints import read_varints

Array: TypeAlias = "np.ndarray[Any, Any]"

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", pa.list_(HEADER_TYPE)))

_HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
_HEADER_BYTES: Final = np.arange(HEADER_SIZE)
_LENGTH: Final = Struct(">i")
_RUN_MIN: Final = 16
_WALK_STEP: Final = 64
_RUN_WINDOW: Final = 512
_INDEX_COPY_LIMIT: Final = 2048


class _Batches(NamedTuple):
    """The headers of some batches as columns, and where their records lie in `buffer`."""

    buffer: Any
    starts: Array
    ends: Array
    headers: Array


def decode_to_arrow(
    data: memoryview | bytes | bytearray,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    skip_control: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    include_headers: bool = False,
    check_crcs: bool = True,
    allow_partial_tail: bool = True,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> pa.RecordBatch:
    """The records of concatenated v2 batches, of offsets in [start_offset, end_offset), as SCHEMA.

    - timestamp in ms: the record's, or its batch's max timestamp where timestamp_type is 1 (LogAppendTime).
    - `aborted` is a fetch answer's (producer id, first offset) pairs: the transactions to leave out, read-committed.
    - `include_headers` adds headers: list<struct<key: string, value: binary>>, null for a record without any (as in
      Spark's Kafka source).
    - `allow_partial_tail`: a last batch that is cut off ends the data, as at the end of a fetch answer.

    Raises CorruptRecords for broken batches, ValueError where the result would exceed Arrow's 2 GiB a column.
    """
    view = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
    check_buffer(len(view))
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    positions = _positions(view, allow_partial_tail)
    if not positions:
        return pa.RecordBatch.from_pylist([], schema=schema)
    bytes_ = np.frombuffer(view, np.uint8)
    where = np.array(positions, np.int64)
    headers = bytes_[where[:, None] + _HEADER_BYTES].view(_HEADER_DTYPE)[:, 0]
    _check_headers(headers, where)
    first = -INT64_MAX if start_offset is None else start_offset
    stop = INT64_MAX if end_offset is None else end_offset
    base = headers["base_offset"].astype(np.int64)
    chosen = (base < stop) & (base + headers["last_offset_delta"] >= first) & (headers["records_count"] > 0)
    if aborted:
        chosen &= ~_aborted(view, where, headers, aborted)
    if skip_control:
        chosen &= headers["attributes"] & CONTROL_BIT == 0
    if not chosen.all():
        where, headers = where[chosen], headers[chosen]
    if check_crcs:
        _check_crcs(view, where, headers)
    parts = [
        _decode(group, first, stop, include_headers) for group in _groups(view, where, headers, max_uncompressed_bytes)
    ]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    columns = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _positions(view: memoryview, allow_partial_tail: bool) -> list[int]:
    """Where batches begin. Whatever is odd is left to `split_batches`, which knows how to say it."""
    positions: list[int] = []
    end = len(view)
    position = 0
    unpack = _LENGTH.unpack_from
    while position + HEADER_SIZE <= end:
        after = position + LOG_OVERHEAD + unpack(view, position + 8)[0]
        if after < position + HEADER_SIZE or after > end or view[position + 16] != 2:
            break
        positions.append(position)
        position = after
    if position < end:
        positions.extend(
            position for position, _ in split_batches(view, position, allow_partial_tail=allow_partial_tail)
        )
    return positions


def _check_headers(headers: Array, where: Array) -> None:
    counts: Array = headers["records_count"].astype(np.int64)
    deltas: Array = headers["last_offset_delta"].astype(np.int64)
    base = headers["base_offset"]
    wrong = (counts < 0) | (deltas < 0) | (counts > deltas + 1) | (base < 0) | (base > INT64_MAX - deltas)
    # A batch that compaction emptied is a bare header; no records in more than that is a contradiction.
    wrong |= (counts == 0) & (headers["batch_length"] != HEADER_SIZE - LOG_OVERHEAD)
    if wrong.any():
        index = int(wrong.argmax())
        raise CorruptRecords(
            f"record batch at byte {where[index]}: {counts[index]} records in {deltas[index] + 1} offsets from "
            f"{base[index]} in {headers['batch_length'][index]} bytes are impossible"
        )
    codecs: Array = headers["attributes"] & COMPRESSION_MASK
    if int(codecs.max()) > LAST_CODEC:
        index = int(codecs.argmax())
        raise CorruptRecords(f"record batch at byte {where[index]}: unknown compression codec {codecs[index]}")


def _check_crcs(view: memoryview, where: Array, headers: Array) -> None:
    ends = where + headers["batch_length"] + LOG_OVERHEAD
    crcs = [crc32c(view[start:end]) for start, end in zip((where + 21).tolist(), ends.tolist(), strict=True)]
    wrong = headers["crc"] != np.array(crcs, np.uint32)
    if wrong.any():
        index = int(wrong.argmax())
        raise CorruptRecords(
            f"record batch at byte {where[index]} (base offset {headers['base_offset'][index]}) has CRC "
            f"{headers['crc'][index]:#010x} but its content has {crcs[index]:#010x}"
        )


def _aborted(view: memoryview, where: Array, headers: Array, aborted: Iterable[tuple[int, int]]) -> Array:
    """Which batches belong to aborted transactions: begun at or before them and not ended by an abort marker yet.

    As Kafka's CompletedFetch does it: a producer's abort marker closes its earliest open entry.
    """
    pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    open_producers: set[int] = set()
    mask: Array = np.zeros(len(where), bool)
    flags: Array = headers["attributes"].astype(np.int64)
    last = (headers["base_offset"].astype(np.int64) + headers["last_offset_delta"]).tolist()
    producers = headers["producer_id"].tolist()
    for index in np.flatnonzero(flags & TRANSACTIONAL_BIT).tolist():
        while pending and pending[-1][1] <= last[index]:
            open_producers.add(pending.pop()[0])
        producer = producers[index]
        if producer not in open_producers:
            continue
        if flags[index] & CONTROL_BIT:
            position, header = next(split_batches(view, int(where[index])))
            markers = decode_records(view, header, position)
            if markers and decode_control_record(markers[0]).type is ControlType.ABORT:
                open_producers.discard(producer)
        else:
            mask[index] = True
    return mask


def _groups(view: memoryview, where: Array, headers: Array, max_uncompressed_bytes: int) -> Iterator[_Batches]:
    """Consecutive batches that can be decoded over one buffer."""
    if not len(where):
        return
    starts: Array = where + HEADER_SIZE
    ends = where + headers["batch_length"] + LOG_OVERHEAD
    codecs = headers["attributes"] & COMPRESSION_MASK
    compressed = codecs > 0
    if not compressed.any():
        yield _Batches(view, starts, ends, headers)
        return
    edges = [0, *(np.flatnonzero(compressed[1:] != compressed[:-1]) + 1).tolist(), len(where)]
    for first, last in pairwise(edges):
        group = slice(first, last)
        if compressed[first]:
            sections = zip(codecs[group].tolist(), starts[group].tolist(), ends[group].tolist(), strict=True)
            yield _decompressed(view, list(sections), headers[group], max_uncompressed_bytes)
        else:
            yield _Batches(view, starts[group], ends[group], headers[group])


def _decompressed(
    view: memoryview, sections: list[tuple[int, int, int]], headers: Array, max_uncompressed_bytes: int
) -> _Batches:
    contents = []
    ends = []
    size = 0
    for codec, start, end in sections:
        content = decompress(codec, view[start:end], max_uncompressed_bytes)
        size += len(content)
        check_buffer(size)
        contents.append(content)
        ends.append(size)
    if len(contents) == 1 and size >= PADDING:
        buffer = memoryview(contents[0])
    else:
        contents.append(bytes(PADDING))
        buffer = memoryview(b"".join(contents))
    return _Batches(buffer, np.array([0, *ends[:-1]], np.int64), np.array(ends, np.int64), headers)


def _decode(batches: _Batches, first: int, stop: int, include_headers: bool) -> list[Any]:
    data = np.frombuffer(batches.buffer, np.uint8)
    headers = batches.headers
    counts: Array = headers["records_count"].astype(np.int64)
    prefixes, ends = _boundaries(batches, data, counts)
    length, position = read_varints(data, prefixes, ends)
    _require(bool((position + length == ends).all()), "a record's length is wrong")
    # The shortest record is six bytes after its length, so the attributes byte is there to be skipped.
    _require(int(length.min()) >= MIN_RECORD_SIZE - 1, "a record is too short")
    timestamp_delta, position = read_varints(data, position + 1, ends, 64)
    offset_delta, position = read_varints(data, position, ends)
    _check_offsets(offset_delta, counts, headers)
    offset = np.repeat(headers["base_offset"].astype(np.int64), counts) + offset_delta
    timestamp, timestamp_type = _timestamps(headers, counts, timestamp_delta)
    key_length, key_start = read_varints(data, position, ends)
    position = _after(key_start, key_length, ends)
    value_length, value_start = read_varints(data, position, ends)
    position = _after(value_start, value_length, ends)
    header_count, position = read_varints(data, position, ends)
    _require(int(header_count.min()) >= 0, "a header count is negative")
    entries = None
    if header_count.any():
        entries, position = list_of_headers(data, position, ends, header_count)
    _require(bool((position == ends).all()), "a record's fields do not fill it")
    columns = [key_start, key_length, value_start, value_length, offset, timestamp, timestamp_type]
    inside = (offset >= first) & (offset < stop)
    whole = bool(inside.all())
    if not whole:
        columns = [column[inside] for column in columns]
    key_start, key_length, value_start, value_length, offset, timestamp, timestamp_type = columns
    result = [
        gather_binary(batches.buffer, data, key_start, key_length),
        gather_binary(batches.buffer, data, value_start, value_length),
        primitive(pa.int64(), offset),
        primitive(pa.int64(), timestamp),
        primitive(pa.int32(), timestamp_type),
    ]
    if include_headers:
        kept = len(offset)
        if entries is None:
            result.append(pa.nulls(kept, SCHEMA_WITH_HEADERS.field("headers").type))
        else:
            column = entries.to_arrow(batches.buffer, data, header_count)
            result.append(column if whole else column.filter(pa.array(inside)))
    return result


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise CorruptRecords(f"in a run of record batches {problem}")


def _after(start: Array, length: Array, ends: Array) -> Array:
    """Where a field of this length ends; null, -1, has no bytes."""
    position: Array = start + np.maximum(length, 0)
    _require(int(length.min()) >= -1 and bool((position <= ends).all()), "a field exceeds its record")
    return position


def _check_offsets(deltas: Array, counts: Array, headers: Array) -> None:
    stops = np.cumsum(counts)
    starts = stops - counts
    increasing = deltas[1:] > deltas[:-1]
    increasing[starts[1:] - 1] = True
    _require(bool(increasing.all()), "offsets do not increase")
    _require(bool((deltas[starts] >= 0).all()), "an offset is before its batch's first")
    _require(bool((deltas[stops - 1] <= headers["last_offset_delta"]).all()), "an offset is beyond its batch's last")


def _timestamps(headers: Array, counts: Array, deltas: Array) -> tuple[Array, Array]:
    append_time = headers["attributes"] & TIMESTAMP_TYPE_BIT != 0
    base: Array = np.repeat(headers["base_timestamp"].astype(np.int64), counts)
    timestamp = base + deltas
    _require(bool((((base ^ timestamp) & (deltas ^ timestamp)) >= 0).all()), "a timestamp exceeds 64 bits")
    if append_time.any():
        of_batch: Array = np.repeat(headers["max_timestamp"].astype(np.int64), counts)
        timestamp = np.where(np.repeat(append_time, counts), of_batch, timestamp)
    return timestamp, np.repeat(append_time.astype(np.int32), counts)


def _boundaries(batches: _Batches, data: Array, counts: Array) -> tuple[Array, Array]:
    """Where each record's length prefix begins and where the record ends, for all records of all batches."""
    sections = list(zip(batches.starts.tolist(), batches.ends.tolist(), counts.tolist(), strict=True))
    total = int(counts.sum())
    size = int((batches.ends - batches.starts).sum())
    if total * MIN_RECORD_SIZE > size:
        raise CorruptRecords(f"{size} bytes cannot hold {total} records")
    buffer = batches.buffer
    if len(buffer) < total * _INDEX_COPY_LIMIT and not isinstance(buffer.obj, bytes):
        buffer = bytes(buffer)
    elif isinstance(buffer.obj, bytes) and len(buffer.obj) == len(buffer):
        buffer = buffer.obj
    pieces: list[Array] = []
    ends: list[int] = []
    try:
        for start, end, count in sections:
            position = start
            if count < _RUN_MIN:
                position = _walk(buffer, position, count, ends)
            else:
                position = _walk_in_runs(buffer, data, (start, end, count), ends, pieces)
            if position != end:
                raise CorruptRecords(f"records end at byte {position} instead of {end}")
    except IndexError as error:
        raise CorruptRecords("record batches are cut off") from error
    if ends:
        pieces.append(np.array(ends, np.int64))
    all_ends = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    prefixes = np.empty_like(all_ends)
    prefixes[1:] = all_ends[:-1]
    prefixes[np.cumsum(counts) - counts] = batches.starts
    return prefixes, all_ends


def _walk(buffer: bytes | memoryview, position: int, count: int, ends: list[int]) -> int:
    """Step over `count` records, noting where each ends; lengths are checked later, all at once."""
    add = ends.append
    for _ in range(count):
        byte = buffer[position]
        if byte < 0x80:
            position += 1 + (byte >> 1)
        elif (second := buffer[position + 1]) < 0x80:
            position += 2 + ((byte & 0x7F | second << 7) >> 1)
        else:
            value, shift = byte & 0x7F | (second & 0x7F) << 7, 14
            position += 2
            while True:
                byte = buffer[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    raise CorruptRecords(f"record length of more than 5 bytes before byte {position}")
            position += value >> 1
        add(position)
    return position


def _walk_in_runs(
    buffer: bytes | memoryview, data: Array, section: tuple[int, int, int], ends: list[int], pieces: list[Array]
) -> int:
    """`_walk`, but runs of records of equal size are found by comparing all their length prefixes at once.

    That records at equal strides have the same length prefix is, by induction, what the walk would have found.
    """
    position, end, count = section
    while count:
        start = position
        position = _walk(buffer, position, min(2, count), ends)
        first_end = ends[-2] if count > 1 else position
        count -= min(2, count)
        size = position - first_end
        if count < _RUN_MIN or size != first_end - start:
            step = min(_WALK_STEP - 2, count)
            position = _walk(buffer, position, step, ends)
            count -= step
            continue
        window = _RUN_WINDOW
        while count:
            possible = min(count, (end - position) // size, window)
            run = _run_length(data, first_end, position, size, possible)
            if run:
                if ends:
                    pieces.append(np.array(ends, np.int64))
                    ends.clear()
                pieces.append(np.arange(position + size, position + run * size + 1, size, dtype=np.int64))
                position += run * size
                count -= run
            if run < window:
                break
            window *= 4
    return position


def _run_length(data: Array, model: int, position: int, size: int, possible: int) -> int:
    """How many records from `position` on, of `possible`, have the length prefix of the one at `model`."""
    if not possible:
        return 0
    same: Array | None = None
    for index in range(5):
        byte = data[model + index]
        equal = data[position + index : position + index + (possible - 1) * size + 1 : size] == byte
        same = equal if same is None else same & equal
        if byte < 0x80:
            break
    assert same is not None
    return possible if same.all() else int(same.argmin())
