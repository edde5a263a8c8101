"""Encoding the records of a batch from columns: at once, when the batch is complete.

Records of one shape (keys of one length, values of one length, headers of one length) are joined by their constant
bytes; the deltas of timestamps and offsets are then written column by column. `uniform.py` decodes them the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from odradek.records.headers import Headers
from odradek.records.uniform import FEW_RECORDS, OFFSET_HIGH, OFFSET_LOW, OFFSETS_IN_BYTE, SHORT_OFFSETS

Data: TypeAlias = bytes | bytearray | memoryview

_TABLE_SIZE: Final = 1 << 14
_VARINTS: Final[tuple[bytes, ...]] = tuple(
    [bytes((z,)) for z in range(0x80)] + [bytes((z & 0x7F | 0x80, z >> 7)) for z in range(0x80, _TABLE_SIZE)]
)
"""All unsigned varints of one and two bytes: a look-up is four times as fast as the arithmetic."""

_SHORT: Final = 8192
"""Lengths and deltas below this have their varint in the table."""
_LENGTHS: Final = _VARINTS[::2]
"""The varints of lengths below that."""
_DELTA_BYTES: Final = bytes((delta << 1 if delta >= 0 else ~(delta << 1)) for delta in range(-64, 64))
"""Varints of the deltas that take one byte, by delta + 64."""


_LARGEST_SHORT: Final = 63
"""The largest delta that takes one byte."""
_MOST_NAMES: Final = 1_024
_LONGEST_NAME: Final = 256
_header_names: dict[str, bytes] = {}
"""The encoded names of headers that were seen first; no more than these, as a program may make up names."""


def varint(value: int) -> bytes:
    """`value` as a zigzag varint; of 64 bits at most."""
    unsigned = (value << 1) ^ (value >> 63)
    if unsigned < _TABLE_SIZE:
        return _VARINTS[unsigned]
    output = bytearray()
    while unsigned >= 0x80:
        output.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    output.append(unsigned)
    return bytes(output)


def encode_headers(headers: Headers) -> bytes:
    """Record headers with their count. Raises TypeError for a name that is not a str."""
    parts: list[Data] = [varint(len(headers))]
    for name, value in headers:
        parts.append(_header_names.get(name) or _encode_name(name))
        if value is None:
            parts.append(b"\1")
        else:
            length = len(value)
            parts.append(_VARINTS[length << 1] if length < _SHORT else varint(length))
            parts.append(value)
    return b"".join(parts)


def encode_usual_headers(headers: list[tuple[str, bytes]]) -> bytes | None:
    """As `encode_headers`, of pairs that are not checked yet: None where one is not of a str and a few bytes."""
    parts: list[bytes] = [varint(len(headers))]
    known, lengths = _header_names.get, _LENGTHS
    try:
        for name, value in headers:
            if value.__class__ is not bytes:
                return None
            encoded = known(name)
            if encoded is None:
                if name.__class__ is not str:
                    return None
                encoded = _encode_name(name)
            parts += (encoded, lengths[len(value)], value)
    except (TypeError, ValueError, IndexError):
        return None
    return b"".join(parts)


def _encode_name(name: str) -> bytes:
    """A header's name with its length. Records of a program share few names, so that they are remembered."""
    encoded = name.encode()
    found = varint(len(encoded)) + encoded
    if len(_header_names) < _MOST_NAMES and len(found) <= _LONGEST_NAME:
        _header_names[name] = found
    return found


def encode_section(
    timestamps: Sequence[int],
    keys: Sequence[Data | None] | None,
    values: Sequence[Data | None],
    headers: Mapping[int, bytes],
    room: int = 0,
) -> bytearray:
    """The encoded records, uncompressed, behind `room` zero bytes; timestamps in ms are relative to the first.

    `keys` is None when all are null. `headers` has those of the records that have some, by ascending index, encoded
    with their count (`encode_headers`).
    """
    if len(values) == 1:
        return encode_one(None if keys is None else keys[0], values[0], headers.get(0, b"\0"), room)
    if FEW_RECORDS <= len(values) <= SHORT_OFFSETS:
        section = _encode_uniform(timestamps, keys, values, headers, room)
        if section is not None:
            return section
    return _encode(timestamps, keys or (None,) * len(values), values, headers, room)


def encode_one(key: Data | None, value: Data | None, headers: bytes, room: int) -> bytearray:
    """A record alone, as programs send it that wait for each; its deltas are zero."""
    key_prefix = b"\1" if key is None else varint(len(key))
    value_prefix = b"\1" if value is None else varint(len(value))
    key, value = key or b"", value or b""
    size = 3 + len(key_prefix) + len(key) + len(value_prefix) + len(value) + len(headers)
    section = bytearray(room)
    section += _VARINTS[size << 1] if size < _SHORT else varint(size)
    section += b"\0\0\0"
    section += key_prefix
    section += key
    section += value_prefix
    section += value
    section += headers
    return section


def _encode(
    timestamps: Sequence[int],
    keys: Sequence[Data | None],
    values: Sequence[Data | None],
    headers: Mapping[int, bytes],
    room: int,
) -> bytearray:
    base = timestamps[0]
    short, join, no_headers = _VARINTS, b"".join, b"\0"
    parts: list[Data] = [bytes(room)]
    append = parts.append
    for index, (timestamp, key, value) in enumerate(zip(timestamps, keys, values, strict=True)):
        delta = timestamp - base
        unsigned = delta << 1 if delta >= 0 else ~(delta << 1)
        key_length = 0 if key is None else len(key)
        value_length = 0 if value is None else len(value)
        body = join(
            (
                b"\0",
                short[unsigned] if unsigned < 16384 else varint(delta),
                short[index << 1] if index < _SHORT else varint(index),
                b"\1" if key is None else short[key_length << 1] if key_length < _SHORT else varint(key_length),
                key or b"",
                b"\1" if value is None else short[value_length << 1] if value_length < _SHORT else varint(value_length),
                value or b"",
                headers.get(index, no_headers) if headers else no_headers,
            )
        )
        size = len(body)
        append(short[size << 1] if size < _SHORT else varint(size))
        append(body)
    return bytearray().join(parts)


def _encode_uniform(
    timestamps: Sequence[int],
    keys: Sequence[Data | None] | None,
    values: Sequence[Data | None],
    headers: Mapping[int, bytes],
    room: int,
) -> bytearray | None:
    """Records of one shape whose timestamps take one byte each, or two from some record on; None for others."""
    longer_from = _longer_times(timestamps)
    columns: list[Sequence[Data]] = [values]  # type: ignore[list-item]  # a null among them is found below
    if keys is not None:
        columns.insert(0, keys)  # type: ignore[arg-type]
    if headers:
        columns.append(tuple(headers.values()))
    try:
        lengths = [set(map(len, column)) for column in columns]
    except TypeError:  # a null
        return None
    count = len(values)
    if longer_from is None or any(len(each) > 1 for each in lengths) or (headers and len(headers) < count):
        return None
    key_length = -1 if keys is None else lengths[0].pop()
    value_length = lengths[keys is not None].pop()
    key_prefix, value_prefix = varint(key_length), varint(value_length)
    tail_length = lengths[-1].pop() if headers else 1
    size_but_varints = 1 + len(key_prefix) + max(key_length, 0) + len(value_prefix) + value_length + tail_length
    section = bytearray()
    cuts = sorted({0, min(OFFSETS_IN_BYTE, count), longer_from, count})
    for first, last in pairwise(cuts):
        time_width, offset_width = 1 + (first >= longer_from), 1 + (first >= OFFSETS_IN_BYTE)
        prefix = varint(size_but_varints + time_width + offset_width)
        head = prefix + bytes(1 + time_width + offset_width) + key_prefix
        size = len(prefix) + size_but_varints + time_width + offset_width
        slices = [column[first:last] for column in columns]
        run = _run(b"" if first else bytes(room), head, value_prefix, slices, keys is not None, bool(headers))
        at = len(run) - (last - first) * size + len(prefix) + 1
        for place, column in enumerate(_timestamp_bytes(timestamps, first, last, time_width)):
            run[at + place :: size] = column
        run[at + time_width :: size] = OFFSET_LOW[offset_width - 1][first:last]
        if offset_width > 1:
            run[at + time_width + 1 :: size] = OFFSET_HIGH[first:last]
        if first:
            section += run
        else:
            section = run
    return section


def _longer_times(timestamps: Sequence[int]) -> int | None:
    """The index from which on timestamps take two bytes, their count if none does; None if widths are mixed."""
    base, count = timestamps[0], len(timestamps)
    largest = max(timestamps)
    if largest - base <= _LARGEST_SHORT and min(timestamps) - base >= -_LARGEST_SHORT - 1:
        return count
    if largest - base >= _SHORT or list(timestamps) != sorted(timestamps):
        return None
    return bisect_right(timestamps, base + _LARGEST_SHORT)


def _run(
    start: bytes, head: bytes, value_prefix: bytes, columns: list[Sequence[Data]], has_keys: bool, has_headers: bool
) -> bytearray:
    """Records of one size with zeros for their deltas, behind `start`: columns between what all records have."""
    records = len(columns[0])
    if not has_keys and not has_headers:
        values = list(columns[0])
        values[0] = b"".join((start, head, value_prefix, values[0]))
        values[-1] = b"".join((values[-1], b"\0"))
        return bytearray(b"\0" + head + value_prefix).join(values)
    template: list[Data | None] = [head, None, value_prefix, None] if has_keys else [head + value_prefix, None]
    template.append(None if has_headers else b"\0")
    width = len(template)
    pieces = template * records
    for place, column in zip([index for index, each in enumerate(template) if each is None], columns, strict=True):
        pieces[place::width] = column
    pieces.insert(0, start)
    return bytearray().join(pieces)  # type: ignore[arg-type]  # no None is left


def _timestamp_bytes(timestamps: Sequence[int], first: int, last: int, width: int) -> tuple[bytes, ...]:
    """The bytes of the timestamp deltas of some records, byte by byte."""
    if width == 1:
        shift = 64 - timestamps[0]
        return (bytes([_DELTA_BYTES[timestamp + shift] for timestamp in timestamps[first:last]]),)
    base = timestamps[0]
    varints = b"".join([_VARINTS[timestamp - base << 1] for timestamp in timestamps[first:last]])
    return varints[::2], varints[1::2]
