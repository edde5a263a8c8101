"""A look at records of varied lengths, column by column: a record costs some slices, and no branches in Python.

A walk from length to length finds where records begin. The first bytes of all of them, joined, are a table with a row
for each record, so that a stride of it is a column: what columns must hold is compared or counted at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import unpack
from typing import Final, NamedTuple

from odradek.records.batch import BatchHeader
from odradek.records.errors import CorruptRecords
from odradek.records.fields import UNZIGZAG
from odradek.records.uniform import FEW_RECORDS, OFFSET_HIGH, OFFSET_LOW, OFFSETS_IN_BYTE, SHORT_OFFSETS, shape_at

_ROW: Final = 6
"""Bytes of a record in a row, behind its attributes: a timestamp of up to 2, an offset of up to 3, a key's length."""
_OFFSETS_END: Final = (OFFSETS_IN_BYTE, SHORT_OFFSETS, SHORT_OFFSETS << 7)
"""Offset deltas below these take one byte, two and three."""
_MOST_PARTS: Final = 8
"""Parts of a batch in which timestamps and offsets have the same width; with more, a walk costs less."""
_ONE_BYTE: Final = bytes(range(0x80))
_MORE_BYTES: Final = bytes(range(0x80, 0x100))
_EVEN: Final = bytes(range(0, 0x100, 2))
_NULL: Final = b"\x01"
"""The length -1."""
_KEY_LENGTH: Final = bytes(0 if byte == _NULL[0] else byte >> 1 for byte in range(0x100))
_CONTINUED: Final = OFFSET_HIGH.translate(bytes(byte | 0x80 for byte in range(0x100)))
_HALF: Final = [0] * 0x80 + [-(1 << 40) if byte & 1 else byte - 0x80 >> 1 for byte in range(0x80, 0x100)]
"""What the first of two bytes adds to a length. A negative length leads out of the data."""
_NEVER: Final = 0xFFFF


def _lengths_to_ends() -> array[int]:
    """By a value's length of one or two bytes, little-endian: the bytes from there to the end of its record.

    The record has no headers. `_NEVER` where that is no length.
    """
    found = array("H", [_NEVER]) * 0x10000
    for low in range(0, 0x80, 2):
        found[low::0x100] = array("H", [(low >> 1) + 2]) * 0x100
    found[_NULL[0] :: 0x100] = array("H", [2]) * 0x100
    for high in range(0x80):
        row = high << 8
        found[row + 0x80 : row + 0x100 : 2] = array("H", range((high << 6) + 3, (high << 6) + 67))
    return found


_TO_END: Final = _lengths_to_ends()


class VariedFacts(NamedTuple):
    """About records without gaps and headers."""

    has_null_key: bool
    deltas: set[int]
    """Those of timestamps, in ms, each once."""


def varied_facts(data: bytes, header: BatchHeader) -> VariedFacts | None:
    """The facts about a batch's records. None where a walk must judge.

    That is where one has headers or a field of a length that is rare (a key of 64 bytes, a value of 8 KB), where
    offsets have gaps, and where a record is corrupt.
    """
    count = header.records_count
    if count < FEW_RECORDS or count > _OFFSETS_END[-1] or header.last_offset_delta != count - 1:
        return None
    try:
        shape = shape_at(data, 0, 0)
        if shape is None or shape.has_headers:
            return None
        bodies, ends = _places(data, count)
        # Without headers, a record ends with their count.
        if ends[-1] != len(data) or any(bytes([data[end - 1] for end in ends])):
            return None
    except (IndexError, CorruptRecords):
        return None
    padded = data + bytes(_ROW)
    has_null_key, deltas, first, parts = False, set[int](), 0, 0
    while first < count:
        parts += 1
        width = bisect_right(_OFFSETS_END, first) + 1
        part = _part(padded, bodies, ends, first, min(count, _OFFSETS_END[width - 1]), width)
        if part is None or parts > _MOST_PARTS:
            return None
        first += part.records
        has_null_key = has_null_key or part.has_null_key
        deltas |= part.deltas
    return VariedFacts(has_null_key, deltas)


def _places(data: bytes, count: int) -> tuple[list[int], list[int]]:
    """Where the records begin behind their lengths, and where they end. Raises IndexError."""
    unzigzag, half = UNZIGZAG, _HALF
    bodies: list[int] = []
    ends: list[int] = []
    position = 0
    for _ in range(count):
        byte = data[position]
        if byte < 0x80:
            position += 1
            bodies.append(position)
            position += unzigzag[byte]
        else:
            second = data[position + 1]
            if second >= 0x80:
                raise IndexError("a record of 8 KB and more")
            position += 2
            bodies.append(position)
            position += half[byte] + (second << 6)
        ends.append(position)
    return bodies, ends


class _Part(NamedTuple):
    records: int
    has_null_key: bool
    deltas: set[int]


def _part(padded: bytes, bodies: list[int], ends: list[int], first: int, last: int, width: int) -> _Part | None:
    """The records from `first` on whose timestamps take as many bytes, up to `last`; offsets take `width` bytes."""
    places = bodies[first:last]
    rows = b"".join([padded[place + 1 : place + 1 + _ROW] for place in places])
    if len(rows) != len(places) * _ROW:
        return None
    times = rows[::_ROW]
    time_width = 1 if times[0] < 0x80 else 2
    records = len(times) - len(times.lstrip(_ONE_BYTE if time_width == 1 else _MORE_BYTES))
    if records < len(times):
        del places[records:]
        rows, times, last = rows[: records * _ROW], times[:records], first + records
    deltas = _deltas(times, rows, time_width)
    if deltas is None or not _is_without_gaps(rows, time_width, first, last, width):
        return None
    keys = rows[time_width + width :: _ROW]
    odd = keys.translate(None, _EVEN)
    if not keys.isascii() or odd.count(_NULL) != len(odd):
        return None
    before = 2 + time_width + width
    values = [place + length + before for place, length in zip(places, keys.translate(_KEY_LENGTH), strict=True)]
    lengths = b"".join([padded[value : value + 2] for value in values])
    if len(lengths) != 2 * records:
        return None
    rest = [end - value for end, value in zip(ends[first:last], values, strict=True)]
    if list(map(_TO_END.__getitem__, unpack(f"<{records}H", lengths))) != rest:
        return None
    return _Part(records, bool(odd), deltas)


def _deltas(times: bytes, rows: bytes, width: int) -> set[int] | None:
    if width == 1:
        return {UNZIGZAG[byte] for byte in set(times)}
    highs = rows[1::_ROW]
    if not highs.isascii():
        return None
    return {((one & 0x7F | two << 7) >> 1) ^ -(one & 1) for one, two in set(zip(times, highs, strict=True))}


def _is_without_gaps(rows: bytes, column: int, first: int, last: int, width: int) -> bool:
    """Whether the offset deltas from that column on are `first` to `last`, in `width` bytes each."""
    if width < 3:
        return rows[column::_ROW] == OFFSET_LOW[width - 1][first:last] and (
            width == 1 or rows[column + 1 :: _ROW] == OFFSET_HIGH[first:last]
        )
    # The first two bytes repeat with every 8,192 offsets, and count in the third.
    rounds = range(first // SHORT_OFFSETS, -(-last // SHORT_OFFSETS))
    skipped = first - rounds[0] * SHORT_OFFSETS
    kept = slice(skipped, skipped + last - first)
    return (
        rows[column::_ROW] == (OFFSET_LOW[1] * len(rounds))[kept]
        and rows[column + 1 :: _ROW] == (_CONTINUED * len(rounds))[kept]
        and rows[column + 2 :: _ROW] == b"".join([bytes([each]) * SHORT_OFFSETS for each in rounds])[kept]
    )
