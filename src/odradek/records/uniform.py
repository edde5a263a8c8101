"""Decoding a batch whose records have one shape: column by column, so that a record costs no more than its slices.

Such records have keys of one length, values of one length, headers of one length, and no gaps between their offsets.
The varints of timestamps and offsets may grow within the batch: they divide it into runs of records of one size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any, Final, NamedTuple

from odradek.records.batch import BatchHeader
from odradek.records.columns import EncodedColumns
from odradek.records.errors import CorruptRecords
from odradek.records.fields import INT64_MAX, INT64_MIN, UNZIGZAG, Field, read_varint

FEW_RECORDS: Final = 8
"""With fewer records, looking for a common shape costs more than it saves."""
OFFSETS_IN_BYTE: Final = 64
SHORT_OFFSETS: Final = 8192
"""Offset deltas below these are varints of one byte, and of two."""
OFFSET_LOW: Final = (
    bytes(delta << 1 & 0x7F for delta in range(OFFSETS_IN_BYTE)),
    bytes(delta << 1 & 0x7F | 0x80 for delta in range(SHORT_OFFSETS)),
)
OFFSET_HIGH: Final = bytes(delta >> 6 for delta in range(SHORT_OFFSETS))
"""The bytes of offset deltas, by delta."""
_MOST_RUNS: Final = 8
"""More runs cost more than a walk."""
_RECORDS_AT_ONCE: Final = 64
_LONGEST_DELTA: Final = 8192
"""Timestamp deltas of one or two bytes are below this, in ms."""


class Shape(NamedTuple):
    """Where the parts of a record are, in bytes from the beginning of its length."""

    body: int
    time_width: int
    key_prefix: int
    key: int
    key_length: int
    value_prefix: int
    value: int
    value_length: int
    headers: int
    size: int

    @property
    def has_headers(self) -> bool:
        """Whether more than their count, zero, is where headers are."""
        return self.size - self.headers > 1


class Run(NamedTuple):
    """Records of one size, one after the other."""

    position: int
    stop: int
    records: int
    shape: Shape
    timestamps: list[int]
    """In ms."""


def decode_uniform(
    data: bytes | memoryview, source: bytes | memoryview, header: BatchHeader, *, copy: bool = False
) -> EncodedColumns | None:
    """The records of a section of one shape, as slices of `source`. None for others, which a walk must judge.

    `data` and `source` have the same bytes; with `copy`, keys, values and headers are bytes whatever they are.
    """
    runs = uniform_runs(data, header)
    if runs is None:
        return None
    timestamps: list[int] = []
    keys: list[Field] = []
    values: list[Field] = []
    headers: list[bytes | memoryview] = []
    for position, stop, records, shape, times in runs:
        timestamps += times
        found = _copies(data, position, stop, shape) if copy else _slices(source, position, stop, shape)
        keys += [None] * records if shape.key_length < 0 else next(found)
        values += [None] * records if shape.value_length < 0 else next(found)
        headers += next(found) if shape.has_headers else [b""] * records
    base_offset = header[0]
    return EncodedColumns(range(base_offset, base_offset + header[12]), timestamps, keys, values, headers)


def uniform_runs(data: bytes | memoryview, header: BatchHeader) -> list[Run] | None:
    """The runs that a section of records of one shape consists of, checked but for their headers. None for others."""
    count, base_timestamp = header[12], header[7]
    if count < FEW_RECORDS or count > SHORT_OFFSETS or header[6] != count - 1:
        return None
    if not INT64_MIN <= base_timestamp - _LONGEST_DELTA <= base_timestamp + _LONGEST_DELTA <= INT64_MAX:
        return None
    runs: list[Run] = []
    first = position = time_width = 0
    while first < count:
        try:
            shape = shape_at(data, position, first)
        except (IndexError, CorruptRecords):  # unless its offset is as expected, its parts are elsewhere
            return None
        # A run ends where offsets or timestamps get wider; values of different lengths end it elsewhere.
        if shape is None or (shape.time_width == time_width and first != OFFSETS_IN_BYTE) or len(runs) == _MOST_RUNS:
            return None
        time_width = shape.time_width
        records = _run_length(data, position, first, count, shape)
        stop = position + records * shape.size
        times = _uniform_times(data, position, stop, first, shape, base_timestamp) if records else None
        if times is None:
            return None
        runs.append(Run(position, stop, records, shape, times))
        first += records
        position = stop
    return runs if position == len(data) else None


def _parts(shape: Shape) -> list[tuple[int, int]]:
    """Where key, value and headers are, as far as the records have them: (place, length)."""
    parts = []
    if shape.key_length >= 0:
        parts.append((shape.key, shape.key_length))
    if shape.value_length >= 0:
        parts.append((shape.value, shape.value_length))
    if shape.has_headers:
        parts.append((shape.headers, shape.size - shape.headers))
    return parts


def _slices(source: bytes | memoryview, position: int, stop: int, shape: Shape) -> Iterator[list[Any]]:
    """The columns of a run of records, as slices."""
    for place, length in _parts(shape):
        yield [source[index : index + length] for index in range(position + place, stop, shape.size)]


def _copies(data: bytes | memoryview, position: int, stop: int, shape: Shape) -> Iterator[Sequence[bytes]]:
    """The same as bytes, which `struct` copies faster than slices are made."""
    parts, size = tuple(_parts(shape)), shape.size
    rest = (stop - position) // size % _RECORDS_AT_ONCE
    end = stop - rest * size
    found: Sequence[bytes] = _layout(size, parts, rest).unpack_from(data, end)
    if end > position:
        several = _layout(size, parts, _RECORDS_AT_ONCE).iter_unpack(memoryview(data)[position:end])
        found = [*chain.from_iterable(several), *found]
    return iter([found[index :: len(parts)] for index in range(len(parts))])


@lru_cache(maxsize=256)
def _layout(size: int, parts: tuple[tuple[int, int], ...], records: int) -> Struct:
    """How `struct` finds these parts, (place, length) each, in some records of one size."""
    layout, end = "", 0
    for place, length in parts:
        layout += f"{place - end}x{length}s"
        end = place + length
    return Struct("=" + f"{layout}{size - end}x" * records)


def shape_at(data: bytes | memoryview, position: int, index: int) -> Shape | None:
    """The shape of the record at a position, the batch's record number `index`; None if it is not for this module."""
    length, body = read_varint(data, position)
    time_width = 1 if data[body + 1] < 0x80 else 2
    if time_width == 2 and data[body + 2] >= 0x80:
        return None
    key_prefix = body + 1 + time_width + (1 if index < OFFSETS_IN_BYTE else 2)
    key_length, key = read_varint(data, key_prefix)
    value_prefix = key + max(key_length, 0)
    value_length, value = read_varint(data, value_prefix)
    headers = value + max(value_length, 0)
    if key_length < -1 or value_length < -1 or headers >= body + length:
        return None
    return Shape(
        body - position,
        time_width,
        key_prefix - position,
        key - position,
        key_length,
        value_prefix - position,
        value - position,
        value_length,
        headers - position,
        body + length - position,
    )


def _run_length(data: bytes | memoryview, position: int, first: int, count: int, shape: Shape) -> int:
    """How many records from the position on have the same length, as far as offsets keep their width."""
    last = OFFSETS_IN_BYTE if first < OFFSETS_IN_BYTE < count else count
    most = min(last - first, (len(data) - position) // shape.size)
    lengths = bytes(data[position : position + most * shape.size : shape.size])
    return most - len(lengths.lstrip(lengths[:1]))


def _uniform_times(
    data: bytes | memoryview, position: int, stop: int, first: int, shape: Shape, base: int
) -> list[int] | None:
    """The timestamps of the records between two positions, or None if one of them has another shape."""
    body, time_width, key_prefix, key, _, value_prefix, value, _, headers, size = shape
    records = (stop - position) // size
    # One byte is the count 0, more begin with another count.
    if (size - headers == 1) is not (data[position + headers] == 0):
        return None
    # The first byte of the length is the same in all: it made them a run.
    for place in (*range(1, body), *range(key_prefix, key), *range(value_prefix, value), headers):
        column = bytes(data[position + place : stop : size])
        if column.count(column[0]) != records:
            return None
    offset_at = position + body + 1 + time_width
    longer = int(first >= OFFSETS_IN_BYTE)
    if bytes(data[offset_at:stop:size]) != OFFSET_LOW[longer][first : first + records]:
        return None
    if longer and bytes(data[offset_at + 1 : stop : size]) != OFFSET_HIGH[first : first + records]:
        return None
    low = bytes(data[position + body + 1 : stop : size])
    if time_width == 1:
        if low.count(low[0]) == records:
            return [base + UNZIGZAG[low[0]]] * records if low[0] < 0x80 else None
        return [base + UNZIGZAG[byte] for byte in low] if low.isascii() else None
    high = bytes(data[position + body + 2 : stop : size])
    if min(low) < 0x80 or not high.isascii():
        return None
    return [base + (((one & 0x7F | two << 7) >> 1) ^ -(one & 1)) for one, two in zip(low, high, strict=True)]
