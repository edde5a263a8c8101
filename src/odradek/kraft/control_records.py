"""The control records of KRaft: a leader's first record, the frame of a checkpoint, kraft.version and the voters.

A control record's key is its version (0) and its type; the value begins with the version that it is written in.
A LeaderChangeMessage is written in version 0: Apache Kafka 4.3 defines version 1 and reads none.
Source: Kafka's `ControlRecordUtils`, `KRaftVersionRecord` and `VotersRecord` (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final

from odradek.kraft.errors import CorruptMetadata
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import ControlType, decode_control_record, encode_control_key
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record
from odradek.wire.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from odradek.wire.primitives import DecodeError

_VERSION: Final = Struct(">h")

KINDS: Final[Mapping[ControlType, Any]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
"""The generated class of each control record of KRaft."""
_TYPES: Final = {kind: control_type for control_type, kind in KINDS.items()}


def encode_control_batch(records: Iterable[Any], *, base_offset: int, leader_epoch: int, timestamp_ms: int) -> bytes:
    """One control batch of objects of `KINDS`, each written in the version that its field `version` names."""
    rows = []
    for record in records:
        value = bytearray()
        record.encode(value, record.version)
        rows.append((timestamp_ms, encode_control_key(_TYPES[type(record)]), bytes(value), ()))
    return bytes(encode_batch(rows, BatchFields(base_offset, leader_epoch, is_control=True)))


def decode_kraft_control(record: Record) -> Any | None:
    """The control record as an object of `KINDS`; None for a transaction marker or an unknown type.

    Raises CorruptMetadata. A version above the highest known one is read as that one, as in Kafka: later versions only
    add tagged fields.
    """
    try:
        control_type = decode_control_record(record).type
    except CorruptRecords as error:
        raise CorruptMetadata(str(error)) from error
    kind = KINDS.get(control_type)
    if kind is None:
        return None
    value = memoryview(record.value or b"")
    if len(value) < _VERSION.size:
        raise CorruptMetadata(f"the {control_type.name} at offset {record.offset} has no version")
    (version,) = _VERSION.unpack_from(value)
    try:
        message, _ = kind.decode(value, 0, min(version, kind.MAX_VERSION))
    except DecodeError as error:
        raise CorruptMetadata(f"the {control_type.name} at offset {record.offset}: {error}") from error
    return message
