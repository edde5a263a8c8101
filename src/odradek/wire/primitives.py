"""Primitive types: readers take `(view, position)` and return `(value, next position)`, writers append to a bytearray.

Readers check every length against the bytes that are left before they allocate. They may let `struct.error`,
`IndexError` and `UnicodeDecodeError` (together `DECODE_FAULTS`) out for truncated input: each message's `decode` turns
them into `DecodeError`, so that the check costs nothing where input is sound.
Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types and tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final = bytes(16)
NEVER_FLEXIBLE: Final = 0x7FFF
# Default of every array parameter of a message: the constructor puts a fresh list in its place, so None can be null.
EMPTY: Final[list[Any]] = []
# Default of a nullable struct parameter whose default is not null.
UNSET: Final[Any] = object()

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_pack_int16 = _INT16.pack
_pack_int32 = _INT32.pack
_unpack_int16 = _INT16.unpack_from
_unpack_int32 = _INT32.unpack_from

_MAX_INT16 = 0x7FFF


class DecodeError(ValueError):
    """The bytes are not a valid message of this type and version."""


class EncodeError(ValueError):
    """A message cannot be written in this version: it has no place for a field, or a field is null or out of range."""


DECODE_FAULTS: Final = (struct.error, IndexError, UnicodeDecodeError)
ENCODE_FAULTS: Final = (struct.error, UnicodeEncodeError)


# --- how much one message may hold ---

COUNTED_FROM_BYTES: Final = 65_536
"""What is smaller than that is decoded within some milliseconds, whatever it holds."""
_is_limited = False
_elements_left = 0


@contextmanager
def elements_at_most(most: int) -> Iterator[None]:
    """Messages decoded within raise DecodeError once their arrays and tag sections have more elements than that.

    Each count is checked before anything is made of the elements: the size of a frame alone bounds neither time nor
    memory, since a few bytes become an object of a hundred. For the one thread that decodes; it does not nest.
    """
    global _is_limited, _elements_left  # noqa: PLW0603 - in place of a parameter of every decoder
    _is_limited, _elements_left = True, most
    try:
        yield
    finally:
        _is_limited = False


def spend_elements(count: int) -> None:
    """Count elements of an array that a decoder by hand is about to read. Raises DecodeError beyond the limit."""
    global _elements_left  # noqa: PLW0603
    _elements_left -= count
    if _is_limited and _elements_left < 0:
        raise DecodeError("more elements in arrays and tag sections than one request may have")


# --- readers ---


def read_unsigned_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Unsigned 32-bit LEB128 of at most five bytes."""
    byte = view[position]
    if byte < 128:
        return byte, position + 1
    value = byte & 127
    for shift in (7, 14, 21, 28):
        position += 1
        byte = view[position]
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position + 1
    raise DecodeError("varint is longer than 32 bits")


def _slice_end(view: memoryview, start: int, length: int) -> int:
    end = start + length
    if length < 0 or end > len(view):
        raise DecodeError(f"length {length} with {len(view) - start} bytes left")
    return end


def read_string(view: memoryview, position: int) -> tuple[str, int]:
    """An INT16 length and UTF-8. Raises DecodeError for null."""
    (length,) = _unpack_int16(view, position)
    start = position + 2
    end = start + length
    if length < 0 or end > len(view):
        raise DecodeError(f"string length {length} with {len(view) - start} bytes left")
    return str(view[start:end], "utf-8"), end


def read_nullable_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """An INT16 length, -1 for null, and UTF-8."""
    (length,) = _unpack_int16(view, position)
    start = position + 2
    if length == -1:
        return None, start
    end = _slice_end(view, start, length)
    return str(view[start:end], "utf-8"), end


def read_compact_string(view: memoryview, position: int) -> tuple[str, int]:
    """An unsigned varint (length + 1) and UTF-8. Raises DecodeError for null."""
    length = view[position]
    start = position + 1
    if length > 127:
        length, start = read_unsigned_varint(view, position)
    end = start + length - 1
    if length == 0 or end > len(view):
        raise DecodeError(f"string length {length - 1} with {len(view) - start} bytes left")
    return str(view[start:end], "utf-8"), end


def read_compact_nullable_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """An unsigned varint (length + 1, 0 for null) and UTF-8."""
    length, start = read_unsigned_varint(view, position)
    if length == 0:
        return None, start
    end = _slice_end(view, start, length - 1)
    return str(view[start:end], "utf-8"), end


def read_records(view: memoryview, position: int) -> tuple[memoryview, int]:
    """Bytes with a 32-bit length, as a slice of `view`."""
    (length,) = _unpack_int32(view, position)
    start = position + 4
    end = _slice_end(view, start, length)
    return view[start:end], end


def read_nullable_records(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Record batches with an INT32 length, -1 for null, as a view of the frame."""
    (length,) = _unpack_int32(view, position)
    start = position + 4
    if length == -1:
        return None, start
    end = _slice_end(view, start, length)
    return view[start:end], end


def read_compact_records(view: memoryview, position: int) -> tuple[memoryview, int]:
    """Record batches with an unsigned varint (length + 1), as a view. Raises DecodeError for null."""
    length, start = read_unsigned_varint(view, position)
    end = _slice_end(view, start, length - 1)
    return view[start:end], end


def read_compact_nullable_records(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Record batches with an unsigned varint (length + 1, 0 for null), as a view."""
    length, start = read_unsigned_varint(view, position)
    if length == 0:
        return None, start
    end = _slice_end(view, start, length - 1)
    return view[start:end], end


def read_bytes(view: memoryview, position: int) -> tuple[bytes, int]:
    """Bytes with an INT32 length, copied. Raises DecodeError for null."""
    value, end = read_records(view, position)
    return bytes(value), end


def read_nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    """Bytes with an INT32 length, -1 for null, copied."""
    value, end = read_nullable_records(view, position)
    return None if value is None else bytes(value), end


def read_compact_bytes(view: memoryview, position: int) -> tuple[bytes, int]:
    """Bytes with an unsigned varint (length + 1), copied. Raises DecodeError for null."""
    value, end = read_compact_records(view, position)
    return bytes(value), end


def read_compact_nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    """Bytes with an unsigned varint (length + 1, 0 for null), copied."""
    value, end = read_compact_nullable_records(view, position)
    return None if value is None else bytes(value), end


def read_count(view: memoryview, position: int, minimum: int) -> tuple[int, int]:
    """Length of an array whose elements take at least `minimum` bytes each."""
    (count,) = _unpack_int32(view, position)
    position += 4
    if count < 0 or count * minimum > len(view) - position:
        raise DecodeError(f"array of {count} elements with {len(view) - position} bytes left")
    if _is_limited:
        spend_elements(count)
    return count, position


def read_nullable_count(view: memoryview, position: int, minimum: int) -> tuple[int, int]:
    """As `read_count`; -1 is null."""
    (count,) = _unpack_int32(view, position)
    position += 4
    if count < -1 or count * minimum > len(view) - position:
        raise DecodeError(f"array of {count} elements with {len(view) - position} bytes left")
    if _is_limited and count > 0:
        spend_elements(count)
    return count, position


def read_compact_count(view: memoryview, position: int, minimum: int) -> tuple[int, int]:
    """Length of a compact array whose elements take at least `minimum` bytes each."""
    count, position = read_unsigned_varint(view, position)
    count -= 1
    if count < 0 or count * minimum > len(view) - position:
        raise DecodeError(f"array of {count} elements with {len(view) - position} bytes left")
    if _is_limited:
        spend_elements(count)
    return count, position


def read_compact_nullable_count(view: memoryview, position: int, minimum: int) -> tuple[int, int]:
    """As `read_compact_count`; -1 is null."""
    count, position = read_unsigned_varint(view, position)
    count -= 1
    if count * minimum > len(view) - position:
        raise DecodeError(f"array of {count} elements with {len(view) - position} bytes left")
    if _is_limited and count > 0:
        spend_elements(count)
    return count, position


def read_uuids(view: memoryview, position: int, count: int) -> tuple[list[bytes], int]:
    """`count` 16-byte ids; the caller has checked that they are there."""
    end = position + 16 * count
    return [bytes(view[start : start + 16]) for start in range(position, end, 16)], end


def read_tag(view: memoryview, position: int) -> tuple[int, int, int]:
    """Head of one tagged field: (tag, position of its value, position behind it)."""
    if _is_limited:
        spend_elements(1)
    tag, position = read_unsigned_varint(view, position)
    size, position = read_unsigned_varint(view, position)
    return tag, position, _slice_end(view, position, size)


def skip_tags(view: memoryview, position: int) -> int:
    """Position behind a tag section of which no field is known."""
    count = view[position]
    if count == 0:
        return position + 1
    count, position = read_unsigned_varint(view, position)
    if count * 2 > len(view) - position:
        raise DecodeError(f"{count} tagged fields with {len(view) - position} bytes left")
    for _ in range(count):
        _, _, position = read_tag(view, position)
    return position


def tag_mismatch(tag: int, position: int, end: int) -> DecodeError:
    """The error for a tagged field whose content does not have the announced size."""
    return DecodeError(f"tagged field {tag} ends at {position}, its size says {end}")


def unsupported(message: str, version: int) -> DecodeError:
    """The error for a version outside the range of the message."""
    return DecodeError(f"{message} has no version {version}")


# --- writers ---


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Seven bits per byte, the lowest first; the value is not negative."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _null() -> EncodeError:
    return EncodeError("null in a field that may not be null in this version")


def write_string(out: bytearray, value: str | None) -> None:
    """An INT16 length and UTF-8. Raises EncodeError for null or more than 32,767 bytes."""
    if value is None:
        raise _null()
    encoded = value.encode()
    if len(encoded) > _MAX_INT16:
        raise EncodeError(f"string of {len(encoded)} bytes is longer than {_MAX_INT16}")
    out += _pack_int16(len(encoded))
    out += encoded


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """An INT16 length, -1 for null, and UTF-8. Raises EncodeError above 32,767 bytes."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str | None) -> None:
    """An unsigned varint (length + 1) and UTF-8. Raises EncodeError for null."""
    if value is None:
        raise _null()
    encoded = value.encode()
    size = len(encoded) + 1
    if size < 128:
        out.append(size)
    elif size > _MAX_INT16 + 1:
        raise EncodeError(f"string of {size - 1} bytes is longer than {_MAX_INT16}")
    else:
        write_unsigned_varint(out, size)
    out += encoded


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    """An unsigned varint (length + 1, 0 for null) and UTF-8."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_bytes(out: bytearray, value: Buffer | None) -> None:
    """An INT32 length and bytes. Raises EncodeError for null."""
    if value is None:
        raise _null()
    out += _pack_int32(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    """An INT32 length, -1 for null, and bytes."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _pack_int32(len(value))
        out += value


def write_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    """An unsigned varint (length + 1) and bytes. Raises EncodeError for null."""
    if value is None:
        raise _null()
    write_unsigned_varint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    """An unsigned varint (length + 1, 0 for null) and bytes."""
    if value is None:
        out.append(0)
    else:
        write_unsigned_varint(out, len(value) + 1)
        out += value


def write_count(out: bytearray, items: list[Any] | None) -> None:
    """The INT32 length of an array. Raises EncodeError for null."""
    if items is None:
        raise _null()
    out += _pack_int32(len(items))


def write_compact_count(out: bytearray, items: list[Any] | None) -> None:
    """The length + 1 of an array as an unsigned varint. Raises EncodeError for null."""
    if items is None:
        raise _null()
    count = len(items) + 1
    if count < 128:
        out.append(count)
    else:
        write_unsigned_varint(out, count)


def write_tag(out: bytearray, tag: int, value: bytearray) -> None:
    """One tagged field: tag, size, value."""
    write_unsigned_varint(out, tag)
    write_unsigned_varint(out, len(value))
    out += value


def lacking(message: str, field: str, version: int) -> EncodeError:
    """A field holds more than its default but version `version` has no place for it."""
    return EncodeError(f"{message} version {version} cannot carry {field}")
