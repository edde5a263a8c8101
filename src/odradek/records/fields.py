"""Varints and byte fields of single records, as Kafka encodes them."""

from __future__ import annotations

from typing import Final, TypeAlias

from odradek.records.errors import CorruptRecords

Field: TypeAlias = memoryview | bytes | None
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UNZIGZAG: Final = [(byte >> 1) ^ -(byte & 1) for byte in range(0x80)]
"""The values of varints of one byte, by that byte."""


def read_varint(data: bytes | memoryview, position: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag varint of at most `bits` bits and the position after it.

    Raises CorruptRecords when it is longer, IndexError at the end of `data`.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise CorruptRecords(f"varint of more than {bits} bits before byte {position}")
    if value >> bits:
        raise CorruptRecords(f"varint of more than {bits} bits before byte {position}")
    return (value >> 1) ^ -(value & 1), position


def read_field(
    data: bytes | memoryview, source: bytes | memoryview, position: int, end: int
) -> tuple[bytes | memoryview | None, int]:
    """The field whose length is at `position` of `data`, as a slice of `source`, and the position after it.

    Raises CorruptRecords when it reaches beyond `end`, IndexError at the end of `data`.
    """
    byte = data[position]
    position += 1
    if byte < 0x80:
        if byte == 1:
            return None, position
        length = (byte >> 1) ^ -(byte & 1)
    elif (second := data[position]) < 0x80:
        length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position - 1)
    stop = position + length
    if length < 0 or stop > end:
        if length == -1:
            return None, position
        raise CorruptRecords(f"field of {length} bytes at byte {position}, the record ends at {end}")
    return source[position:stop], stop
