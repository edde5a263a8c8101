"""Arrow columns to record batches, without a Python object per record.

The varints of all records are built at once with numpy. Arrow's binary_join_element_wise then concatenates, per record,
the prefix (length, attributes, timestamp, offset, key length), the key, the value's length, the value and the headers:
the data buffer of its result is the encoded record section of one or many batches.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.records.arrow_gather import binary_scalar, primitive
from odradek.records.batch import HEADER_SIZE, MAX_SEQUENCE
from odradek.records.builder import DEFAULT_FIELDS, BatchFields, finish_batch
from odradek.records.compression import Codec, check_level
from odradek.records.errors import RecordTooLarge
from odradek.records.varints import varint_sizes, write_varints, zigzag

Array: TypeAlias = "np.ndarray[Any, Any]"

_WINDOW_BYTES: Final = 32 * 1024 * 1024
"""Records are encoded in windows of whole batches of about this size: bounds memory and fits Arrow's 32-bit offsets."""

_MAX_SPAN: Final = 1 << 61
_EMPTY: Final = binary_scalar(b"")
_NO_HEADERS: Final = binary_scalar(b"\0")


class _Columns(NamedTuple):
    """The input, checked and of one type each; a column of nulls only becomes None."""

    key: Any
    value: Any
    timestamp: Array
    headers: Any


class _Lengths(NamedTuple):
    """Per record, in bytes: key and value (-1 null), and the encoded headers with their count."""

    key: Array
    value: Array
    headers: Array


def encode_from_arrow(
    key: Any,
    value: Any,
    timestamp_ms: Any,
    headers: Any = None,
    *,
    compression: int = Codec.NONE,
    level: int | None = None,
    max_batch_bytes: int = 1_000_000,
    fields: BatchFields = DEFAULT_FIELDS,
) -> list[bytearray]:
    """Complete v2 batches of all records in order, each of at most `max_batch_bytes`.

    - key, value: Arrow arrays (plain or chunked) of any binary or string type, nulls allowed; None for all null, though
      not both.
    - timestamp_ms: an int for all, an int64 array of numpy or Arrow, or an Arrow timestamp array; no nulls.
    - headers: None, or list<struct<key: string, value: binary>>; a null list is no headers, a null key is an error.
    - `fields`: written to every batch, base_sequence advancing by the records (from 0 again after 2^31 - 1).

    Sizes are limited before compression, and an encoding counts a few bytes more than it may take. Raises
    RecordTooLarge where one record alone exceeds the limit, ValueError for columns that do not fit together.
    """
    codec = Codec(compression)
    level = check_level(codec, level)
    columns = _columns(key, value, timestamp_ms, headers)
    count = len(columns.timestamp)
    if not count:
        return []
    encoded_headers = None if columns.headers is None else _encode_headers(columns.headers)
    lengths = _Lengths(
        _lengths(columns.key, count),
        _lengths(columns.value, count),
        np.ones(count, np.int64) if encoded_headers is None else _lengths(encoded_headers, count),
    )
    batches: list[bytearray] = []
    sequence = fields.base_sequence
    for cuts in _windows(_upper_sizes(columns.timestamp, lengths), max_batch_bytes - HEADER_SIZE):
        section, ends = _encode(columns._replace(headers=encoded_headers), lengths, cuts)
        start = 0
        for first, last, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), ends, strict=True):
            timestamps = columns.timestamp[first:last]
            shape = (last - first, last - first - 1, int(timestamps[0]), int(timestamps.max()))
            batch_fields = fields if sequence < 0 else fields._replace(base_sequence=sequence)
            batches.append(finish_batch(section[start:end], codec, level, shape, batch_fields))
            start = end
            if sequence >= 0:
                sequence = (sequence + last - first) & MAX_SEQUENCE
    return batches


def _columns(key: Any, value: Any, timestamp_ms: Any, headers: Any) -> _Columns:
    given = next((column for column in (value, key) if column is not None), None)
    if given is None:
        raise ValueError("keys and values cannot both be missing")
    count = len(given)
    columns = _Columns(_binary(key), _binary(value), _timestamps(timestamp_ms, count), _plain(headers))
    for name, column in zip(_Columns._fields, columns, strict=True):
        if column is not None and len(column) != count:
            raise ValueError(f"{len(column)} elements of {name} for {count} records")
    return columns


def _plain(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column


def _binary(column: Any) -> Any:
    """As binary, or large_binary where it is one; None if it is all null."""
    column = _plain(column)
    if column is None or column.null_count == len(column):
        return None
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.binary())


def _timestamps(timestamp_ms: Any, count: int) -> Array:
    if isinstance(timestamp_ms, int):
        return np.full(count, timestamp_ms, np.int64)
    if isinstance(timestamp_ms, np.ndarray):
        result: Array = timestamp_ms.astype(np.int64, copy=False)
    else:
        column = _plain(timestamp_ms)
        if column.null_count:
            raise ValueError("timestamps may not be null")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        result = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    # Deltas are taken within 64 bits; any real clock's timestamps are close enough to each other.
    if len(result) and int(result.max()) - int(result.min()) >= _MAX_SPAN:
        raise ValueError("timestamps are too far apart")
    return result


def _lengths(column: Any, count: int) -> Array:
    if column is None:
        return np.full(count, -1, np.int64)
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    result: Array = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return result


def _varint_column(unsigned: Array, sizes: Array) -> Any:
    """The varints as a binary array."""
    offsets: Array = np.zeros(len(unsigned) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data: Array = np.empty(int(offsets[-1]), np.uint8)
    write_varints(data, offsets[:-1].astype(np.int64), unsigned)
    return pa.Array.from_buffers(pa.binary(), len(unsigned), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _length_column(lengths: Array) -> Any:
    """Zigzag varints of lengths, where -1 is null: a scalar when all are the same."""
    unsigned = zigzag(lengths)
    if len(unsigned) and (unsigned == unsigned[0]).all():
        unsigned = unsigned[:1]
        return _varint_column(unsigned, varint_sizes(unsigned))[0]
    return _varint_column(unsigned, varint_sizes(unsigned))


def _encode_headers(headers: Any) -> Any:
    """Each record's headers, count included, as one binary array."""
    if not (pa.types.is_list(headers.type) or pa.types.is_large_list(headers.type)):
        raise ValueError(f"headers are {headers.type}, not a list of structs")
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = headers.flatten()
    names, values = (_struct_field(entries, field) for field in ("key", "value"))
    if entries.null_count or names.null_count:
        raise ValueError("a header and its key may not be null")
    names = names.cast(pa.binary())
    values = values.cast(pa.binary())
    joined = pc.binary_join_element_wise(
        _length_column(_lengths(names, len(names))),
        names,
        _length_column(_lengths(values, len(values))),
        values.fill_null(b""),
        _EMPTY,
    )
    if not isinstance(joined, pa.Array):
        joined = pa.array([], pa.binary())
    offsets: Array = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    bodies = pc.binary_join(pa.ListArray.from_arrays(primitive(pa.int32(), offsets), joined), _EMPTY)
    return pc.binary_join_element_wise(_varint_column(zigzag(counts), varint_sizes(zigzag(counts))), bodies, _EMPTY)


def _struct_field(entries: Any, name: str) -> Any:
    if not pa.types.is_struct(entries.type) or entries.type.get_field_index(name) < 0:
        raise ValueError(f"headers are a list of {entries.type}, not of structs with key and value")
    return pc.struct_field(entries, name)


def _upper_sizes(timestamp: Array, lengths: _Lengths) -> Array:
    """No record takes more bytes than this in a batch, wherever batches begin."""
    count = len(timestamp)
    span = int(timestamp.max()) - int(timestamp.min())
    deltas = varint_sizes(np.array([2 * span, 2 * count], np.int64)).sum()
    body: Array = 1 + deltas + lengths.headers
    for length in (lengths.key, lengths.value):
        body += varint_sizes(zigzag(length)) + np.maximum(length, 0)
    sizes: Array = body + varint_sizes(body << 1)
    return sizes


def _windows(sizes: Array, room: int) -> list[Array]:
    """Where batches begin and the last one ends, as record numbers, in windows of about `_WINDOW_BYTES`."""
    total = np.cumsum(sizes)
    count = len(sizes)
    windows = []
    cuts = [0]
    done = 0
    window_start = 0
    while cuts[-1] < count:
        cut = int(np.searchsorted(total, done + room, "right"))
        if cut == cuts[-1]:
            raise RecordTooLarge(f"record {cut} takes about {sizes[cut]} bytes, more than the {room} of a batch")
        cuts.append(cut)
        done = int(total[cut - 1])
        if cut == count or done - window_start > _WINDOW_BYTES:
            windows.append(np.array(cuts, np.int64))
            cuts = [cut]
            window_start = done
    return windows


def _encode(columns: _Columns, lengths: _Lengths, cuts: Array) -> tuple[memoryview, list[int]]:
    """The record sections of the batches between `cuts`, back to back, and where each ends."""
    first, last = int(cuts[0]), int(cuts[-1])
    rows = slice(first, last)
    sizes = np.diff(cuts)
    starts: Array = np.repeat(cuts[:-1], sizes)
    key_length, value_length, header_length = (column[rows] for column in lengths)
    timestamp = zigzag(columns.timestamp[rows] - columns.timestamp[starts])
    offset = (np.arange(first, last, dtype=np.int64) - starts) << 1
    key = zigzag(key_length)
    parts = [timestamp, offset, key]
    part_sizes = [varint_sizes(part) for part in parts]
    head: Array = 1 + part_sizes[0] + part_sizes[1] + part_sizes[2]
    value_size = varint_sizes(zigzag(value_length))
    body = head + np.maximum(key_length, 0) + value_size + np.maximum(value_length, 0) + header_length
    body_size = varint_sizes(body << 1)
    prefix = _prefixes(head + body_size, [(body << 1, body_size), None, *zip(parts, part_sizes, strict=True)])
    pieces = [prefix]
    if columns.key is not None:
        pieces.append(_filled(columns.key, first, last))
    pieces.append(_length_column(value_length))
    if columns.value is not None:
        pieces.append(_filled(columns.value, first, last))
    pieces.append(_NO_HEADERS if columns.headers is None else columns.headers.slice(first, last - first))
    joined = pc.binary_join_element_wise(*pieces, _EMPTY)
    offsets = np.cumsum(body + body_size)
    section = memoryview(joined.buffers()[2])[: int(offsets[-1])]
    return section, offsets[cuts[1:] - first - 1].tolist()


def _filled(column: Any, first: int, last: int) -> Any:
    column = column.slice(first, last - first)
    if pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    return column.fill_null(b"") if column.null_count else column


def _prefixes(sizes: Array, parts: list[tuple[Array, Array] | None]) -> Any:
    """The varints side by side for each record; None stands for the attributes byte, always zero."""
    offsets: Array = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data: Array = np.zeros(int(offsets[-1]), np.uint8)
    position: Array = offsets[:-1].astype(np.int64)
    for part in parts:
        if part is None:
            position = position + 1
        else:
            write_varints(data, position, part[0])
            position = position + part[1]
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
