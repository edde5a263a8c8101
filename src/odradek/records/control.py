"""Control records: transaction markers, and the KRaft types that only have to be recognised.

Format as in Kafka's ControlRecordType and EndTransactionMarker: the key is (version int16, type int16), a marker's
value (version int16, coordinator epoch int32).
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from odradek.records.batch import COMPRESSION_MASK, HEADER_SIZE, LOG_OVERHEAD, NO_LEADER_EPOCH, BatchHeader
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record

_KEY: Final = Struct(">hh")
_MARKER: Final = Struct(">hi")
_MARKER_RECORD: Final = Struct(">HBHhhBhiB")
"""Length and attributes, a timestamp's delta, an offset's and the key's length, key, value's length, value, headers."""
_MARKER_FRAME: Final = (16 << 9, 4 << 1, 6 << 1, 0)
"""A record of 16 bytes, the first of its batch, with a key of 4 and a value of 6; lengths are varints."""
_MARKER_BYTES: Final = HEADER_SIZE - LOG_OVERHEAD + 17
_LONG_VARINT: Final = 0x80


class ControlType(IntEnum):
    """The type in a control record's key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES: Final[dict[int, ControlType]] = {int(control_type): control_type for control_type in ControlType}
_END_TYPES: Final = frozenset((int(ControlType.ABORT), int(ControlType.COMMIT)))


class ControlRecord(NamedTuple):
    """A decoded control record; `coordinator_epoch` is -1 for all but transaction markers."""

    type: ControlType
    coordinator_epoch: int = -1

    @property
    def is_end_transaction(self) -> bool:
        """Whether the marker commits or aborts a transaction."""
        return self.type is ControlType.ABORT or self.type is ControlType.COMMIT


def decode_control_record(record: Record) -> ControlRecord:
    """What a record of a control batch says. Unknown types are UNKNOWN; raises CorruptRecords for broken ones."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise CorruptRecords(f"control record at offset {record.offset}: its key is too short")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecords(f"control record at offset {record.offset}: key version {version}")
    control_type = _TYPES.get(type_id, ControlType.UNKNOWN)
    if control_type is not ControlType.ABORT and control_type is not ControlType.COMMIT:
        return ControlRecord(control_type)
    if value is None or len(value) < _MARKER.size:
        raise CorruptRecords(f"transaction marker at offset {record.offset}: its value is too short")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptRecords(f"transaction marker at offset {record.offset}: value version {version}")
    return ControlRecord(control_type, coordinator_epoch)


def decode_marker(view: memoryview, position: int, header: BatchHeader) -> ControlRecord | None:
    """What the batch at `position` says if it is a transaction marker as brokers write them, else None.

    Each transaction has one in each of its partitions, and to decode it as any batch takes five times as long.
    """
    if header[1] != _MARKER_BYTES or header[5] & COMPRESSION_MASK or header[12] != 1:
        return None
    found = _MARKER_RECORD.unpack_from(view, position + HEADER_SIZE)
    head, time, offset_and_key, version, type_id, value_length, value_version, epoch, headers = found
    if (head, offset_and_key, value_length, headers) != _MARKER_FRAME or time >= _LONG_VARINT:
        return None
    if version < 0 or value_version < 0 or type_id not in _END_TYPES:
        return None
    return ControlRecord(_TYPES[type_id], epoch)


def encode_control_key(control_type: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, control_type)


def encode_end_transaction(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The one-record batch that ends a producer's transaction in a partition."""
    key = encode_control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    value = _MARKER.pack(0, coordinator_epoch)
    fields = BatchFields(
        base_offset,
        leader_epoch,
        producer_id,
        producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return encode_batch([(timestamp_ms, key, value, ())], fields)
