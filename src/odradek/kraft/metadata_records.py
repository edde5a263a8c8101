"""The values of the metadata log: each is a frame version (1), the type and the version of the record, and the record.

The three numbers are unsigned varints. Source: Kafka's `MetadataRecordSerde`, `MetadataRecordType`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.kraft.errors import CorruptMetadata
from odradek.wire.messages import cluster_metadata as md
from odradek.wire.primitives import DecodeError, read_unsigned_varint, write_unsigned_varint

FRAME_VERSION: Final = 1

RECORDS: Final[Mapping[int, Any]] = {
    kind.RECORD_TYPE: kind for kind in vars(md).values() if isinstance(kind, type) and hasattr(kind, "RECORD_TYPE")
}
"""The generated classes of all metadata records by their type."""


class VersionedRecord(NamedTuple):
    """A metadata record, an object of one of `RECORDS`, and the version that it is written in."""

    record: Any
    version: int


class RecordFrame(NamedTuple):
    """What stands before a metadata record; the record begins at `position` of the value."""

    type: int
    version: int
    position: int


def type_name(record_type: int) -> str:
    """The name of a record's type as Apache's tools print it, `PARTITION_RECORD`. Raises KeyError."""
    return re.sub(r"(?<=.)(?=[A-Z])", "_", RECORDS[record_type].__name__).upper()


def encode_metadata_record(record: Any, version: int) -> bytes:
    """The value of a metadata record. Raises EncodeError for fields that the version cannot carry."""
    value = bytearray()
    for number in (FRAME_VERSION, record.RECORD_TYPE, version):
        write_unsigned_varint(value, number)
    record.encode(value, version)
    return bytes(value)


def parse_frame(value: memoryview) -> RecordFrame:
    """The type and the version of a metadata record. Raises CorruptMetadata."""
    try:
        frame, position = read_unsigned_varint(value, 0)
        if frame != FRAME_VERSION:
            raise CorruptMetadata(f"frame version {frame}")
        record_type, position = read_unsigned_varint(value, position)
        version, position = read_unsigned_varint(value, position)
    except (DecodeError, IndexError) as error:
        raise CorruptMetadata(str(error)) from error
    return RecordFrame(record_type, version, position)


def decode_metadata_record(value: memoryview) -> VersionedRecord:
    """Decode a value of the metadata log. Raises CorruptMetadata, also for types and versions that are unknown."""
    frame = parse_frame(value)
    kind = RECORDS.get(frame.type)
    if kind is None:
        raise CorruptMetadata(f"unknown record type {frame.type}")
    try:
        record, end = kind.decode(value, frame.position, frame.version)
    except DecodeError as error:
        raise CorruptMetadata(str(error)) from error
    if end != len(value):
        raise CorruptMetadata(f"{len(value) - end} bytes follow the {kind.__name__}")
    return VersionedRecord(record, frame.version)
