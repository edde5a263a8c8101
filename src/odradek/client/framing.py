"""Confluent's wire format: a zero byte, the schema's id as four bytes, big-endian; Protobuf adds which message it is.

Which schema has an id, a `Schemas` knows, such as a client of a schema registry; the format alone needs none.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

MAGIC: Final = 0
HEADER: Final = struct.Struct(">bI")
"""The magic byte and the schema's id."""


class FramingError(ValueError):
    """The value does not begin as its framing says."""


class Schemas(Protocol):
    """Looks schemas up. With Spark it goes to executors, so it has to pickle there; an id's schema never changes."""

    def schema(self, schema_id: int) -> str:
        """The text of a schema. Raises LookupError. It may block: the client calls it in a thread, once for each id."""
        ...


class ReferencedSchemas(Schemas, Protocol):
    """Knows schemas and those that they refer to, such as `RegistrySchemas`."""

    def referenced(self, schema_id: int) -> dict[str, str]:
        """The schemas that a schema refers to, directly and through others, by the names of the references.

        A schema comes after those that it refers to itself. Raises LookupError; it may block.
        """
        ...


class FixedSchemas:
    """Schemas that are known beforehand: {id: text}.

    Example:

        print(FixedSchemas({7: '{"type": "string"}'}).schema(7))
    """

    __slots__ = ("_texts",)

    def __init__(self, texts: dict[int, str]) -> None:
        """`texts` are schemas by id."""
        self._texts = texts

    def schema(self, schema_id: int) -> str:
        """The schema with that id. Raises KeyError."""
        return self._texts[schema_id]

    def referenced(self, schema_id: int) -> dict[str, str]:
        """Always empty, because these schemas are complete in themselves. Raises KeyError for an unknown id."""
        self.schema(schema_id)
        return {}


def framed(schema_id: int, payload: bytes, indexes: tuple[int, ...] | None = None) -> bytes:
    """Confluent's wire format; `indexes` is the path to a Protobuf message in its file, None for other formats."""
    path = b"" if indexes is None else _write_indexes(indexes)
    return HEADER.pack(MAGIC, schema_id) + path + payload


def unframed(value: bytes, *, indexes: bool = False) -> tuple[int, tuple[int, ...], bytes]:
    """(schema id, path to the message, payload). Raises FramingError."""
    if len(value) < HEADER.size or value[0] != MAGIC:
        raise FramingError(f"a value of {len(value)} bytes that begins with {value[:5].hex() or 'nothing'} has no id")
    schema_id = HEADER.unpack_from(value)[1]
    if not indexes:
        return schema_id, (), value[HEADER.size :]
    path, position = _read_indexes(value, HEADER.size)
    return schema_id, path, value[position:]


def _write_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\x00"  # the first message of the file is so usual that it is one byte
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def _read_indexes(value: bytes, position: int) -> tuple[tuple[int, ...], int]:
    count, position = _read_zigzag(value, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= len(value):
        raise FramingError(f"{count} message indexes cannot be")
    found = []
    for _ in range(count):
        index, position = _read_zigzag(value, position)
        found.append(index)
    return tuple(found), position


def _zigzag(number: int) -> bytes:
    rest = number << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_zigzag(value: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(value) or shift > 28:
            raise FramingError("the message indexes end too early or are no numbers")
        byte = value[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
