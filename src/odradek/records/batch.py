"""Record batch v2 (magic 2): the 61-byte header, its checks, and the fields that a broker patches in place.

Format as in KIP-98 and Kafka's DefaultRecordBatch. Nothing here looks at a record: see `record`, `builder` and `arrow`.

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32 | attributes int16
    last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 | producer_id int64 | producer_epoch int16
    base_sequence int32 | records_count int32 | records...

`batch_length` counts from partition_leader_epoch on; the CRC-32C covers everything from attributes on, so base offset
and leader epoch can be assigned without touching it.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from odradek.records.errors import CorruptRecords, InvalidRecords, UnsupportedMagic

LOG_OVERHEAD: Final = 12
HEADER_SIZE: Final = 61
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21
"""Where the CRC's coverage begins: the attributes."""

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
LAST_CODEC: Final = 4
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
MAX_SEQUENCE: Final = 0x7FFFFFFF
_MAX_OFFSET: Final = (1 << 63) - 1

HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_EPOCH_MAGIC: Final = Struct(">8xiib")
_PLACEMENT: Final = Struct(">qii")
_CRC: Final = Struct(">I")
_CRC_ATTRIBUTES: Final = Struct(">Ih")
_TIMESTAMP: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER_POSITION: Final = 43
_MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD

_unpack_header = HEADER.unpack_from


class BatchHeader(NamedTuple):
    """The header's fields in wire order; offsets and lengths in bytes, timestamps in ms since the epoch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Codec id, 0 to 4 when valid: see `compression.Codec`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return 1 if self.attributes & TIMESTAMP_TYPE_BIT else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of data."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Set by compaction (KIP-534); base_timestamp is then the delete horizon, and still the base of the deltas."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer sent the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, wrapping after 2^31 - 1 as in Kafka; -1 where there is no sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def parse_header(view: memoryview | bytes | bytearray, position: int = 0) -> BatchHeader:
    """The header at `position`, of a batch that is wholly in `view`.

    Raises CorruptRecords when the batch does not fit, UnsupportedMagic for another format.
    """
    available = len(view) - position
    if position < 0 or available < HEADER_SIZE:
        raise _short(view, position)
    header = tuple.__new__(BatchHeader, _unpack_header(view, position))
    if header[3] != MAGIC:
        raise UnsupportedMagic(f"record batch at byte {position} has magic {header[3]}, only 2 is supported")
    length = header[1]
    if not _MIN_BATCH_LENGTH <= length <= available - LOG_OVERHEAD:
        raise CorruptRecords(
            f"record batch at byte {position} says it has {length} bytes after its length field, "
            f"where {_MIN_BATCH_LENGTH} to {available - LOG_OVERHEAD} are possible"
        )
    return header


def peek_header(view: memoryview) -> BatchHeader:
    """The header of the batch with which `view` begins, before its content is checked."""
    return BatchHeader._make(_unpack_header(view))


def _short(view: memoryview | bytes | bytearray, position: int) -> CorruptRecords:
    available = len(view) - position
    if position >= 0 and available > MAGIC_POSITION and view[position + MAGIC_POSITION] != MAGIC:
        magic = view[position + MAGIC_POSITION]
        return UnsupportedMagic(f"record batch at byte {position} has magic {magic}, only 2 is supported")
    return CorruptRecords(f"record batch at byte {position} has {available} bytes, less than a header ({HEADER_SIZE})")


def split_batches(
    view: memoryview | bytes | bytearray, position: int = 0, *, allow_partial_tail: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's (position, header), back to back from `position` to the end of `view`.

    With `allow_partial_tail`, a last batch that is cut off (as at the end of a fetch answer, or a torn log) ends the
    iteration; without it, it raises CorruptRecords. CRCs are not checked here.
    """
    end = len(view)
    while position < end:
        if allow_partial_tail and _is_cut_off(view, position, end):
            return
        header = parse_header(view, position)
        yield position, header
        position += header[1] + LOG_OVERHEAD


def _is_cut_off(view: memoryview | bytes | bytearray, position: int, end: int) -> bool:
    if end - position <= MAGIC_POSITION:
        return True
    length, _, magic = _LENGTH_EPOCH_MAGIC.unpack_from(view, position)
    return bool(magic == MAGIC and length >= _MIN_BATCH_LENGTH and position + LOG_OVERHEAD + length > end)


def compute_crc(view: memoryview, position: int, batch_length: int) -> int:
    """CRC-32C of the batch at `position`, over attributes and all that follows."""
    return crc32c(view[position + CRC_START : position + LOG_OVERHEAD + batch_length])


def verify_crc(view: memoryview, position: int, header: BatchHeader) -> None:
    """Raise CorruptRecords unless the stored CRC-32C is the computed one."""
    crc = crc32c(view[position + CRC_START : position + LOG_OVERHEAD + header[1]])
    if crc != header[4]:
        raise CorruptRecords(
            f"record batch at byte {position} (base offset {header.base_offset}) has CRC {header.crc:#010x} "
            f"but its content has {crc:#010x}"
        )


def check_batch(view: memoryview, position: int = 0, *, from_client: bool = True) -> BatchHeader:
    """Parse and validate one batch as a broker does before appending it, and return its header.

    Raises CorruptRecords for broken bytes, UnsupportedMagic for another format, and, when `from_client`,
    InvalidRecords for what only a broker may write or what contradicts itself (Kafka's LogValidator and
    ProducerAppendInfo). Followers and the broker's own appends pass `from_client=False`.
    """
    header = parse_header(view, position)
    verify_crc(view, position, header)
    attributes = header[5]
    last_offset_delta = header[6]
    count = header[12]
    if attributes & COMPRESSION_MASK > LAST_CODEC:
        raise InvalidRecords(f"record batch at byte {position}: unknown compression codec {attributes & 7}")
    if header[0] < 0 or header[0] > _MAX_OFFSET - last_offset_delta:
        raise InvalidRecords(f"record batch at byte {position}: its offsets start at {header[0]}")
    if count < 0 or last_offset_delta < 0 or count > last_offset_delta + 1:
        raise InvalidRecords(
            f"record batch at byte {position}: {count} records in {last_offset_delta + 1} offsets are impossible"
        )
    if from_client:
        if count != last_offset_delta + 1:
            raise InvalidRecords(
                f"record batch at byte {position}: {count} records but offset deltas up to {last_offset_delta}"
            )
        if header[0] != 0:
            raise InvalidRecords(f"record batch at byte {position}: base offset is {header[0]}, a client must send 0")
        if attributes & CONTROL_BIT:
            raise InvalidRecords(f"record batch at byte {position}: clients may not write control records")
        if header[9] >= 0 or attributes & TRANSACTIONAL_BIT:
            _check_producer(position, header)
    return header


def _check_producer(position: int, header: BatchHeader) -> None:
    producer_id, producer_epoch, base_sequence = header[9], header[10], header[11]
    if producer_id >= 0:
        if base_sequence < 0:
            raise InvalidRecords(f"record batch at byte {position}: producer {producer_id} without a sequence number")
        if producer_epoch < 0:
            raise InvalidRecords(f"record batch at byte {position}: producer {producer_id} without an epoch")
    elif header[5] & TRANSACTIONAL_BIT:
        raise InvalidRecords(f"record batch at byte {position}: transactional but without a producer id")


def patch_placement(
    view: memoryview | bytearray, position: int, header: BatchHeader, base_offset: int, leader_epoch: int
) -> None:
    """Assign base offset and leader epoch at once: what an append does to every batch."""
    _PLACEMENT.pack_into(view, position, base_offset, header[1], leader_epoch)


def set_log_append_time(view: memoryview, position: int, header: BatchHeader, timestamp_ms: int) -> None:
    """Make the batch LogAppendTime at `timestamp_ms` in place (max timestamp, type bit, CRC).

    `header` supplies length and attributes; base_timestamp stays as it was, as in DefaultRecordBatch.setMaxTimestamp.
    """
    _rewrite_timestamp(view, position, header, header.attributes | TIMESTAMP_TYPE_BIT, timestamp_ms)


def set_max_timestamp(view: memoryview, position: int, header: BatchHeader, timestamp_ms: int) -> None:
    """Make the batch CreateTime with this max timestamp in place (max timestamp, type bit, CRC)."""
    _rewrite_timestamp(view, position, header, header.attributes & ~TIMESTAMP_TYPE_BIT, timestamp_ms)


def _rewrite_timestamp(
    view: memoryview, position: int, header: BatchHeader, attributes: int, timestamp_ms: int
) -> None:
    _TIMESTAMP.pack_into(view, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC_ATTRIBUTES.pack_into(view, position + CRC_POSITION, 0, attributes)
    patch_crc(view, position, header.batch_length)


def patch_producer(view: memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Assign the producer's fields in place (CRC too): a client does so when it drains or re-sends a batch."""
    _PRODUCER.pack_into(view, position + _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    patch_crc(view, position, _LENGTH_EPOCH_MAGIC.unpack_from(view, position)[0])


def patch_crc(view: memoryview, position: int, batch_length: int) -> None:
    """Recompute and store the CRC after a change to anything that it covers."""
    _CRC.pack_into(view, position + CRC_POSITION, compute_crc(view, position, batch_length))
