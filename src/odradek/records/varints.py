"""Zigzag varints of many records at once, with numpy."""

from typing import Any, TypeAlias

import numpy as np

from odradek.records.errors import CorruptRecords

Array: TypeAlias = "np.ndarray[Any, Any]"

_LOGICAL = (1 << 63) - 1


def read_varints(data: Array, position: Array, ends: Array, bits: int = 32) -> tuple[Array, Array]:
    """The zigzag varint at each `position` of the bytes `data`, and the positions after them.

    Raises CorruptRecords where one is longer than `bits` allows or reaches its record's end (`ends`) unfinished.
    """
    if (position >= ends).any():
        raise CorruptRecords("a record is cut off")
    byte = data[position]
    more = byte >= 0x80
    value: Array = byte.astype(np.int64)
    position = position + 1
    if not more.any():
        return (value >> 1) ^ -(value & 1), position
    value &= 0x7F
    index = np.flatnonzero(more)
    shift = 7
    while len(index):
        if len(index) == len(position):
            if (position >= ends).any():
                raise CorruptRecords("a record is cut off")
            byte = data[position]
            value |= (byte & 0x7F).astype(np.int64) << shift
            position += 1
        else:
            at = position[index]
            if (at >= ends[index]).any():
                raise CorruptRecords("a record is cut off")
            byte = data[at]
            value[index] |= (byte & 0x7F).astype(np.int64) << shift
            position[index] = at + 1
        # The last byte that may come holds only what is left of the bits.
        if shift + 7 >= bits and (byte >> (bits - shift)).any():
            raise CorruptRecords(f"a varint has more than {bits} bits")
        more = byte >= 0x80
        index = index[more]
        shift += 7
    return ((value >> 1) & _LOGICAL) ^ -(value & 1), position


def zigzag(values: Any) -> Any:
    """Signed int64, or one integer, to the unsigned form that varints carry (as int64, so of 63 bits at most)."""
    return (values << 1) ^ (values >> 63)


def varint_size(unsigned: int) -> int:
    """Bytes that a varint takes."""
    return max(1, (unsigned.bit_length() + 6) // 7)


def varint_sizes(unsigned: Array) -> Array:
    """Bytes that each varint takes."""
    sizes: Array = np.ones(len(unsigned), np.int64)
    rest = unsigned >> 7
    while rest.any():
        sizes += rest > 0
        rest >>= 7
    return sizes


def write_varints(output: Array, position: Array, unsigned: Array) -> None:
    """Write each varint into the bytes `output` at its `position`."""
    byte = (unsigned & 0x7F).astype(np.uint8)
    rest = unsigned >> 7
    more = rest > 0
    if not more.any():
        output[position] = byte
        return
    byte |= more.astype(np.uint8) << 7
    output[position] = byte
    index = np.flatnonzero(more)
    while len(index):
        position = position[index] + 1 if len(index) < len(position) else position + 1
        rest = rest[index] if len(index) < len(rest) else rest
        byte = (rest & 0x7F).astype(np.uint8)
        rest >>= 7
        more = rest > 0
        byte |= more.astype(np.uint8) << 7
        output[position] = byte
        index = np.flatnonzero(more)


def write_constant(output: Array, position: Array, unsigned: int) -> None:
    """Write the same varint into the bytes `output` at every `position`."""
    while True:
        rest = unsigned >> 7
        output[position] = unsigned & 0x7F | (0x80 if rest else 0)
        if not rest:
            return
        position, unsigned = position + 1, rest
