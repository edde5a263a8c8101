"""Encoding the records of a batch from columns: at once, when the batch is complete.

Records of one shape (keys of one length, values of one length, no headers) are joined by their constant bytes; what
differs, the deltas of timestamps and offsets, is then written column by column. `record.py` decodes them the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_DELTA_BYTES: Final = bytes((delta << 1 if delta >= 0 else ~(delta << 1)) for delta in range(-64, 64))
"""Varints of the deltas that take one byte, by delta + 64."""


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
) -> bytearray:
    """The encoded records, uncompressed; timestamps in ms are relative to the first.

    `keys` is None when all are null. `headers` has those of the records that have some, by index, encoded with their
    count (`encode_headers`).
    """
    if not headers and FEW_RECORDS <= len(values) <= SHORT_OFFSETS:
        section = _encode_uniform(timestamps, keys, values)
        if section is not None:
            return section
    return _encode(timestamps, keys or (None,) * len(values), values, headers)


def _encode(
    timestamps: Sequence[int], keys: Sequence[Data | None], values: Sequence[Data | None], headers: Mapping[int, bytes]
) -> bytearray:
    base = timestamps[0]
    short, join, no_headers = _VARINTS, b"".join, b"\0"
    parts: list[Data] = []
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
    timestamps: Sequence[int], keys: Sequence[Data | None] | None, values: Sequence[Data | None]
) -> bytearray | None:
    """Records of one shape whose timestamps take a byte each; None for others."""
    base = timestamps[0]
    if max(timestamps) - base > 63 or min(timestamps) - base < -64:
        return None
    try:
        value_lengths = set(map(len, values))  # type: ignore[arg-type]
        key_lengths = set(map(len, keys)) if keys is not None else {-1}  # type: ignore[arg-type]
    except TypeError:  # a null among them
        return None
    if len(value_lengths) > 1 or len(key_lengths) > 1:
        return None
    (value_length,), (key_length,) = value_lengths, key_lengths
    value_prefix, key_prefix = varint(value_length), varint(key_length)
    shift = 64 - base
    deltas = bytes([_DELTA_BYTES[timestamp + shift] for timestamp in timestamps])
    section = bytearray()
    count = len(values)
    for first, last, longer in ((0, min(count, OFFSETS_IN_BYTE), 0), (OFFSETS_IN_BYTE, count, 1)):
        records = last - first
        if records <= 0:
            break
        # attributes, deltas of timestamp and offset, lengths and contents, the count of headers
        length = 3 + longer + len(key_prefix) + max(key_length, 0) + len(value_prefix) + value_length + 1
        prefix = varint(length)
        head = prefix + bytes(3 + longer) + key_prefix
        at = len(section) + len(prefix)
        section += head
        if keys is None:
            section += value_prefix
            section += (b"\0" + head + value_prefix).join(values[first:last])  # type: ignore[arg-type]
        else:
            pieces: list[Data | None] = [None, value_prefix, None, b"\0" + head] * records
            pieces[0::4] = keys[first:last]
            pieces[2::4] = values[first:last]
            section += b"".join(pieces[:-1])  # type: ignore[arg-type]
        section += b"\0"
        size = len(prefix) + length
        section[at + 1 :: size] = deltas[first:last]
        section[at + 2 :: size] = OFFSET_LOW[longer][first:last]
        if longer:
            section[at + 3 :: size] = OFFSET_HIGH[first:last]
    return section
