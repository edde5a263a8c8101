"""Arrow columns to record batches, without a Python object per record.

The varints of all records are built at once with numpy. Arrow's binary_join_element_wise then concatenates, per record,
the prefix (length, attributes, timestamp, offset, key length), the key, the value's length, the value and the headers:
the data buffer of its result is the encoded record section of one or many batches.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.records.arrow_gather import binary_scalar, primitive
from odradek.records.batch import HEADER_SIZE, MAX_SEQUENCE
from odradek.records.builder import DEFAULT_FIELDS, BatchFields, finish_batch
from odradek.records.compression import Codec, check_level
from odradek.records.errors import RecordTooLarge
from odradek.records.section import varint
from odradek.records.varints import varint_size, varint_sizes, write_constant, write_varints, zigzag

Array: TypeAlias = "np.ndarray[Any, Any]"
Numbers: TypeAlias = "Array | int"
"""One number for each record, or the one that all have."""

_WINDOW_BYTES: Final = 32 * 1024 * 1024
"""Records are encoded in windows of whole batches of about this size: bounds memory and fits Arrow's 32-bit offsets."""

_MAX_SPAN: Final = 1 << 61
_EMPTY: Final = binary_scalar(b"")
_NO_HEADERS: Final = binary_scalar(b"\0")


class _Columns(NamedTuple):
    """The input, checked and of one type each; a column of nulls only becomes None, headers are encoded."""

    key: Any
    value: Any
    timestamp: Numbers
    headers: Any


class _Lengths(NamedTuple):
    """Per record, in bytes: key and value (-1 null), and the encoded headers with their count."""

    key: Numbers
    value: Numbers
    headers: Numbers


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
    columns, count = _columns(key, value, timestamp_ms, headers)
    if not count:
        return []
    batches: list[bytearray] = []
    sequence = fields.base_sequence
    for first, last, section in _sections(columns, count, max_batch_bytes - HEADER_SIZE):
        shape = (last - first, last - first - 1, *_time_range(columns.timestamp, first, last))
        batch_fields = fields if sequence < 0 else fields._replace(base_sequence=sequence)
        batches.append(finish_batch(section, codec, level, shape, batch_fields))
        if sequence >= 0:
            sequence = (sequence + last - first) & MAX_SEQUENCE
    return batches


def _sections(columns: _Columns, count: int, room: int) -> Iterator[tuple[int, int, memoryview]]:
    """The first record, the one behind the last, and the record section of each batch."""
    lengths = _Lengths(
        _lengths(columns.key),
        _lengths(columns.value),
        1 if columns.headers is None else _lengths(columns.headers),
    )
    sizes = _upper_sizes(columns.timestamp, lengths, count)
    if isinstance(sizes, int):
        yield from _sections_of_one_size(columns, lengths, count, room // sizes or _too_large(0, sizes, room))
        return
    for cuts in _windows(sizes, room):
        section, ends = _encode(columns, lengths, cuts)
        start = 0
        for first, last, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), ends, strict=True):
            yield first, last, section[start:end]
            start = end


def _time_range(timestamp: Numbers, first: int, last: int) -> tuple[int, int]:
    """The first and the largest timestamp."""
    if isinstance(timestamp, int):
        return timestamp, timestamp
    times = timestamp[first:last]
    return int(times[0]), int(times.max())


def _columns(key: Any, value: Any, timestamp_ms: Any, headers: Any) -> tuple[_Columns, int]:
    """The columns, and the number of records."""
    given = next((column for column in (value, key) if column is not None), None)
    if given is None:
        raise ValueError("keys and values cannot both be missing")
    count = len(given)
    timestamp = _timestamps(timestamp_ms)
    columns = _Columns(_binary(key), _binary(value), timestamp, _plain(headers))
    for name, column in zip(_Columns._fields, columns, strict=True):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise ValueError(f"{len(column)} elements of {name} for {count} records")
    if columns.headers is not None and count:
        columns = columns._replace(headers=_encode_headers(columns.headers))
    return columns._replace(timestamp=_constant(timestamp)), count


def _constant(numbers: Numbers) -> Numbers:
    """The number itself where all are the same."""
    if isinstance(numbers, int) or not len(numbers) or (numbers != numbers[0]).any():
        return numbers
    return int(numbers[0])


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


def _timestamps(timestamp_ms: Any) -> Numbers:
    if isinstance(timestamp_ms, int):
        return timestamp_ms
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


def _lengths(column: Any) -> Numbers:
    """Of each element in bytes, -1 for null."""
    if column is None:
        return -1
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    found = _constant(lengths.to_numpy(zero_copy_only=False))
    return found if isinstance(found, int) else found.astype(np.int64)


def _varint_column(unsigned: Array, sizes: Array) -> Any:
    """The varints as a binary array."""
    offsets: Array = np.zeros(len(unsigned) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data: Array = np.empty(int(offsets[-1]), np.uint8)
    write_varints(data, offsets[:-1].astype(np.int64), unsigned)
    return pa.Array.from_buffers(pa.binary(), len(unsigned), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _length_column(lengths: Numbers) -> Any:
    """Zigzag varints of lengths, where -1 is null: a scalar when all are the same."""
    if isinstance(lengths, int):
        return binary_scalar(varint(lengths))
    unsigned = zigzag(lengths)
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
        _length_column(_lengths(names)),
        names,
        _length_column(_lengths(values)),
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


def _upper_sizes(timestamp: Numbers, lengths: _Lengths, count: int) -> Numbers:
    """No record takes more bytes than this in a batch, wherever batches begin; one number if records are alike."""
    span = 0 if isinstance(timestamp, int) else int(timestamp.max()) - int(timestamp.min())
    body: Any = 1 + varint_size(2 * span) + varint_size(2 * count) + lengths.headers
    for length in (lengths.key, lengths.value):
        body = body + _varint_sizes(zigzag(length)) + _at_least_none(length)
    if isinstance(body, int) and not isinstance(timestamp, int):
        return np.full(count, body + varint_size(body << 1), np.int64)
    sizes: Numbers = body + _varint_sizes(body << 1)
    return sizes


def _varint_sizes(unsigned: Numbers) -> Numbers:
    return varint_size(unsigned) if isinstance(unsigned, int) else varint_sizes(unsigned)


def _at_least_none(length: Numbers) -> Numbers:
    """The bytes that follow a length: none for null."""
    return max(length, 0) if isinstance(length, int) else np.maximum(length, 0)


def _too_large(record: int, size: int, room: int) -> NoReturn:
    raise RecordTooLarge(f"record {record} takes about {size} bytes, more than the {room} of a batch")


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
            _too_large(cut, int(sizes[cut]), room)
        cuts.append(cut)
        done = int(total[cut - 1])
        if cut == count or done - window_start > _WINDOW_BYTES:
            windows.append(np.array(cuts, np.int64))
            cuts = [cut]
            window_start = done
    return windows


def _sections_of_one_size(
    columns: _Columns, lengths: _Lengths, count: int, rows: int
) -> Iterator[tuple[int, int, memoryview]]:
    """Batches of `rows` records whose parts have the same lengths, and which have one timestamp.

    Apart from their content such records differ in their offset within the batch only, so that batches share prefixes.
    """
    assert isinstance(lengths.key, int)
    assert isinstance(lengths.value, int)
    assert isinstance(lengths.headers, int)
    most = 1 << (min(rows, count) - 1).bit_length()
    prefixes, ends = _prefixes_of_one_size(lengths.key, lengths.value, lengths.headers, most)
    for first in range(0, count, rows):
        last = min(first + rows, count)
        yield first, last, _joined(columns, prefixes.slice(0, last - first), lengths.value, first, last, ends)


@lru_cache(maxsize=4)
def _prefixes_of_one_size(key: int, value: int, headers: int, rows: int) -> tuple[Any, Array]:
    """The prefix of each record of a batch, and where each record ends."""
    return _prefixes(0, np.arange(rows, dtype=np.int64), _Lengths(key, value, headers))


def _encode(columns: _Columns, lengths: _Lengths, cuts: Array) -> tuple[memoryview, list[int]]:
    """The record sections of the batches between `cuts`, back to back, and where each ends."""
    first, last = int(cuts[0]), int(cuts[-1])
    rows = slice(first, last)
    starts: Array = np.repeat(cuts[:-1], np.diff(cuts))
    delta = 0 if isinstance(columns.timestamp, int) else columns.timestamp[rows] - columns.timestamp[starts]
    those = _Lengths(*(each if isinstance(each, int) else each[rows] for each in lengths))
    prefixes, ends = _prefixes(delta, np.arange(first, last, dtype=np.int64) - starts, those)
    return _joined(columns, prefixes, those.value, first, last, ends), ends[cuts[1:] - first - 1].tolist()


def _joined(columns: _Columns, prefixes: Any, value_length: Numbers, first: int, last: int, ends: Array) -> memoryview:
    """The records from `first` to before `last`, behind their prefixes."""
    pieces = [prefixes]
    if columns.key is not None:
        pieces.append(_filled(columns.key, first, last))
    pieces.append(_length_column(value_length))
    if columns.value is not None:
        pieces.append(_filled(columns.value, first, last))
    pieces.append(_NO_HEADERS if columns.headers is None else columns.headers.slice(first, last - first))
    joined = pc.binary_join_element_wise(*pieces, _EMPTY)
    return memoryview(joined.buffers()[2])[: int(ends[last - first - 1])]


def _filled(column: Any, first: int, last: int) -> Any:
    column = column.slice(first, last - first)
    if pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    return column.fill_null(b"") if column.null_count else column


def _prefixes(timestamp: Numbers, offset: Array, lengths: _Lengths) -> tuple[Any, Array]:
    """What precedes each record's key: length, attributes, timestamp, offset and the key's length; and where it ends.

    `timestamp` and `offset` are deltas within the batch. Records follow each other.
    """
    parts = [zigzag(timestamp), zigzag(offset), zigzag(lengths.key)]
    part_sizes = [_varint_sizes(part) for part in parts]
    head: Any = 1 + part_sizes[0] + part_sizes[1] + part_sizes[2]
    body: Any = head + _at_least_none(lengths.key) + _varint_sizes(zigzag(lengths.value))
    body = body + _at_least_none(lengths.value) + lengths.headers
    length = body << 1
    length_size = varint_sizes(length)
    offsets: Array = np.zeros(len(offset) + 1, np.int32)
    np.cumsum(head + length_size, out=offsets[1:])
    data: Array = np.zeros(int(offsets[-1]), np.uint8)
    position: Array = offsets[:-1].astype(np.int64)
    write_varints(data, position, length)
    position = position + length_size + 1  # the attributes between are always zero
    for part, size in zip(parts, part_sizes, strict=True):
        if isinstance(part, int):
            write_constant(data, position, part)
        else:
            write_varints(data, position, part)
        position = position + size
    column = pa.Array.from_buffers(pa.binary(), len(offset), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return column, np.cumsum(body + length_size)
