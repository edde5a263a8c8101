"""Encoding and decoding the records of all kinds of groups, as `kinds.RECORD_TYPES` lists them."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from odradek.groups.kinds import RECORD_TYPES
from odradek.groups.records import GroupRecord
from odradek.wire.primitives import DecodeError

_INT16 = Struct(">h")

_ENCODERS: dict[type, Callable[[Any], tuple[bytes, bytes | None]]] = {
    found.record: found.encode for found in RECORD_TYPES if found.encode is not None
}
_DECODERS = {found.number: found.decode for found in RECORD_TYPES}


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as they are in the log. Raises EncodeError when a string or number is out of range."""
    return _ENCODERS[type(record)](record)


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> GroupRecord | None:
    """The record, or None for a type that no kind of group here has. Raises DecodeError for other bytes."""
    key = memoryview(key)
    if len(key) < 2:
        raise DecodeError("a group record's key has no type")
    (number,) = _INT16.unpack_from(key)
    body = None if value is None else memoryview(value)
    if body is not None and len(body) < 2:
        raise DecodeError("a group record's value has no version")
    decode = _DECODERS.get(number)
    found: GroupRecord | None = None if decode is None else decode(key, body)
    return found
