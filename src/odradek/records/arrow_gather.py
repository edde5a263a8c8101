"""Arrow arrays out of slices of one buffer: binary columns and record headers."""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from odradek.records.errors import CorruptRecords
from odradek.records.fields import read_varint
from odradek.records.varints import read_varints

Array: TypeAlias = "np.ndarray[Any, Any]"

PADDING: Final = 16
"""A buffer that is gathered from has at least this many bytes."""

_MAX_BUFFER: Final = (1 << 31) - 1 - PADDING
_INLINE: Final = 12
_EIGHT_BYTE_MASKS: Final = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_FOUR_BYTE_MASKS: Final = np.array([(1 << 8 * n) - 1 for n in range(5)], np.uint32)
_FEW: Final = 16


def check_buffer(size: int) -> None:
    """Raise ValueError for more bytes than Arrow's 32-bit offsets address."""
    if size > _MAX_BUFFER:
        raise ValueError(f"{size} bytes of records are too many for one Arrow batch; pass fewer batches at a time")


def primitive(kind: Any, numbers: Array) -> pa.Array:
    """The numbers as an array of a type of the same width, without a copy; they must not change afterwards.

    pa.array would do, but it imports pandas where that is installed, which takes 0.3 s and 40 MB.
    """
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))], null_count=0)


def binary_scalar(content: bytes) -> pa.Scalar:
    """pa.scalar, without the import of pandas."""
    ends: Array = np.array([0, len(content)], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(content)])[0]


def gather_binary(buffer: Any, data: Array, start: Array, length: Array) -> pa.Array:
    """The slices of `buffer` as a binary array; a length of -1 is null. `data` is the buffer as numpy sees it.

    The slices are written down as a binary_view (16 bytes each: length, then either up to 12 bytes inline or prefix,
    buffer index, offset) and gathered by Arrow's cast. The prefix stays zero, since nothing compares these views.
    """
    count = len(start)
    null = length < 0
    nulls = int(np.count_nonzero(null))
    if nulls == count:
        return pa.nulls(count, pa.binary())
    if nulls:
        length = np.where(null, 0, length)
    views: Array = np.zeros((count, 4), np.int32)
    views[:, 0] = length
    short = length <= _INLINE
    if not short.any():
        views[:, 3] = start
    elif short.all():
        _inline(views, slice(None), data, start, length)
    else:
        views[:, 3] = start
        index = np.flatnonzero(short)
        _inline(views, index, data, start[index], length[index])
    validity = pa.py_buffer(np.packbits(~null, bitorder="little")) if nulls else None
    array = pa.Array.from_buffers(
        pa.binary_view(), count, [validity, pa.py_buffer(views), pa.py_buffer(buffer)], null_count=nulls
    )
    return array.cast(pa.binary())


def _inline(views: Array, rows: Any, data: Array, start: Array, length: Array) -> None:
    """Copy up to 12 bytes per row, in an unaligned load of 8 and one of 4."""
    low = load_words(data, start, np.uint64) & _EIGHT_BYTE_MASKS[np.minimum(length, 8)]
    views[rows, 1] = low.astype(np.uint32).view(np.int32)
    views[rows, 2] = (low >> np.uint64(32)).astype(np.uint32).view(np.int32)
    rest: Array = length - 8
    if int(rest.max()) > 0:
        high = load_words(data, start + 8, np.uint32) & _FOUR_BYTE_MASKS[np.maximum(rest, 0)]
        views[rows, 3] = high.view(np.int32)
    else:
        views[rows, 3] = 0


def load_words(data: Array, position: Array, kind: Any) -> Array:
    """A little-endian word at each position; bytes beyond the end of `data` read as zero."""
    width = np.dtype(kind).itemsize
    last = len(data) - width
    words = np.ndarray((last + 1,), np.dtype(kind).newbyteorder("<"), buffer=data, strides=(1,))
    inside = np.minimum(position, last)
    beyond = position - inside
    loaded: Array = words[inside].astype(kind, copy=False)
    if beyond.any():
        bits = np.minimum(beyond, width) * 8
        # Shifting by the full width is undefined: halve it.
        half = (bits >> 1).astype(kind)
        loaded = loaded >> half >> (bits.astype(kind) - half)
    return loaded


class HeaderEntries(NamedTuple):
    """Slices of all headers of all records, in order."""

    key_start: Array
    key_length: Array
    value_start: Array
    value_length: Array

    def to_arrow(self, buffer: Any, data: Array, counts: Array) -> pa.Array:
        """list<struct<key, value>> with `counts` entries each; null where there are none."""
        raw = gather_binary(buffer, data, self.key_start, self.key_length)
        try:
            keys = raw.cast(pa.string())
        except pa.ArrowInvalid:
            keys = pa.array([key.decode("utf-8", "replace") for key in raw.to_pylist()], pa.string())
        values = gather_binary(buffer, data, self.value_start, self.value_length)
        fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
        entries = pa.StructArray.from_arrays([keys, values], fields=fields)
        offsets: Array = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return pa.ListArray.from_arrays(primitive(pa.int32(), offsets), entries, mask=pa.array(counts == 0))


def list_of_headers(data: Array, position: Array, ends: Array, counts: Array) -> tuple[HeaderEntries, Array]:
    """Find all headers: the first of every record at once, then every second, and so on; a few stragglers one by one.

    Returns the entries in record order and the position after each record's last header.
    """
    if (counts > (ends - position) >> 1).any():
        raise CorruptRecords("a record has more headers than bytes for them")
    position = position.copy()
    first = np.cumsum(counts) - counts
    entries: Array = np.empty((4, int(counts.sum())), np.int64)
    rows = np.flatnonzero(counts)
    number = 0
    while len(rows) > _FEW:
        end = ends[rows]
        key_length, key_start = read_varints(data, position[rows], end)
        after_key = key_start + key_length
        if int(key_length.min()) < 0 or (after_key > end).any():
            raise CorruptRecords("a header's key is null or exceeds its record")
        value_length, value_start = read_varints(data, after_key, end)
        after = value_start + np.maximum(value_length, 0)
        if int(value_length.min()) < -1 or (after > end).any():
            raise CorruptRecords("a header's value exceeds its record")
        slots = first[rows] + number
        for field, column in enumerate((key_start, key_length, value_start, value_length)):
            entries[field, slots] = column
        position[rows] = after
        number += 1
        rows = rows[counts[rows] > number]
    view = data.data
    for row in rows.tolist():
        left = int(counts[row]) - number
        position[row] = _walk_headers(
            view, int(position[row]), int(ends[row]), entries, (int(first[row]) + number, left)
        )
    return HeaderEntries(*entries), position


def _walk_headers(data: memoryview, position: int, end: int, entries: Array, slots: tuple[int, int]) -> int:
    slot, count = slots
    columns: list[tuple[int, int, int, int]] = []
    try:
        for _ in range(count):
            key_length, key_start = read_varint(data, position)
            if key_length < 0 or key_start + key_length > end:
                raise CorruptRecords("a header's key is null or exceeds its record")
            value_length, value_start = read_varint(data, key_start + key_length)
            position = value_start + max(value_length, 0)
            if value_length < -1 or position > end:
                raise CorruptRecords("a header's value exceeds its record")
            columns.append((key_start, key_length, value_start, value_length))
    except IndexError as error:
        raise CorruptRecords("a record's headers are cut off") from error
    entries[:, slot : slot + count] = np.array(columns, np.int64).T
    return position
