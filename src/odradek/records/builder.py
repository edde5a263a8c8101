"""Writing record batches: `BatchBuilder` grows record by record, `encode_batch` and `rebuild_batch` do it at once."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    patch_crc,
)
from odradek.records.compression import Codec, check_level, compress
from odradek.records.record import Headers, Record

Data: TypeAlias = bytes | bytearray | memoryview

_SHORT: Final = 1 << 14
_VARINTS: Final[tuple[bytes, ...]] = tuple(
    [bytes((z,)) for z in range(0x80)] + [bytes((z & 0x7F | 0x80, z >> 7)) for z in range(0x80, _SHORT)]
)
"""All unsigned varints of one and two bytes: a look-up is four times as fast as the arithmetic."""

MAX_RECORDS: Final = (1 << 31) - 1


class BatchFields(NamedTuple):
    """The header fields that a writer chooses; the rest follows from the records."""

    base_offset: int = 0
    partition_leader_epoch: int = NO_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False


DEFAULT_FIELDS: Final = BatchFields()


def varint(value: int) -> bytes:
    """`value` as a zigzag varint; of 64 bits at most."""
    unsigned = (value << 1) ^ (value >> 63)
    if unsigned < _SHORT:
        return _VARINTS[unsigned]
    output = bytearray()
    while unsigned >= 0x80:
        output.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    output.append(unsigned)
    return bytes(output)


def encode_record(
    timestamp_delta: int, offset_delta: int, key: Data | None, value: Data | None, headers: bytes
) -> bytes:
    """One record with its length prefix; `headers` already encoded, count included."""
    parts = (
        b"\0",
        varint(timestamp_delta),
        varint(offset_delta),
        b"\1" if key is None else varint(len(key)),
        b"" if key is None else key,
        b"\1" if value is None else varint(len(value)),
        b"" if value is None else value,
        headers,
    )
    body = b"".join(parts)
    return varint(len(body)) + body


def encode_headers(headers: Headers) -> bytes:
    """Record headers with their count. Raises TypeError for a name that is not a str."""
    parts: list[Data] = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts.append(varint(len(encoded)))
        parts.append(encoded)
        if value is None:
            parts.append(b"\1")
        else:
            parts.append(varint(len(value)))
            parts.append(value)
    return b"".join(parts)


def finish_batch(
    section: Data,
    codec: int,
    level: int | None,
    shape: tuple[int, int, int, int],
    fields: BatchFields = DEFAULT_FIELDS,
    flags: int = 0,
) -> bytearray:
    """A whole batch around an encoded record section.

    `shape` is (records count, last offset delta, base timestamp, max timestamp); `flags` are further attribute bits.
    The section is compressed by `codec`, and left as it is where that does not make it smaller (as librdkafka does).
    """
    count, last_offset_delta, base_timestamp, max_timestamp = shape
    attributes = flags
    if fields.is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if fields.is_control:
        attributes |= CONTROL_BIT
    if codec:
        compressed = compress(codec, section, level)
        if len(compressed) < len(section):
            section = compressed
            attributes |= codec
    batch = bytearray(HEADER_SIZE)
    batch += section
    length = len(batch) - LOG_OVERHEAD
    base_offset, leader_epoch, producer_id, producer_epoch, base_sequence = fields[:5]
    HEADER.pack_into(
        batch, 0, base_offset, length, leader_epoch, MAGIC, 0, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    patch_crc(memoryview(batch), 0, length)
    return batch


class BatchBuilder:
    """A batch that grows by `append` until it is full, then `build`s.

    `max_bytes` limits the whole batch before compression; the first record is always taken, however large, because a
    batch cannot be split any further (whether it may be sent is for `max.request.size` to say).
    """

    __slots__ = ("_base_timestamp", "_codec", "_count", "_level", "_max_bytes", "_max_timestamp", "_section")

    def __init__(self, compression: int = Codec.NONE, max_bytes: int = 16384, level: int | None = None) -> None:
        """Raises ValueError for an unknown codec or a level that it does not have."""
        self._codec = Codec(compression)
        self._level = check_level(self._codec, level)
        self._max_bytes = max_bytes
        self._section = bytearray()
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    def __len__(self) -> int:
        return self._count

    @property
    def size_in_bytes(self) -> int:
        """What `build` would give without compression."""
        return HEADER_SIZE + len(self._section)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far, in ms; -1 without records."""
        return self._max_timestamp

    def append(self, timestamp_ms: int, key: Data | None, value: Data | None, headers: Headers = ()) -> bool:
        """Add a record; False, and nothing changed, when the batch would exceed `max_bytes`."""
        count = self._count
        delta = timestamp_ms - self._base_timestamp if count else 0
        unsigned = delta << 1 if delta >= 0 else ~(delta << 1)
        encoded_headers = encode_headers(headers) if headers else b"\0"
        short = _VARINTS
        key_length = 0 if key is None else len(key)
        value_length = 0 if value is None else len(value)
        body = b"".join(
            (
                b"\0",
                short[unsigned] if unsigned < 16384 else varint(delta),
                short[count << 1] if count < 8192 else varint(count),
                b"\1" if key is None else short[key_length << 1] if key_length < 8192 else varint(key_length),
                key or b"",
                b"\1" if value is None else short[value_length << 1] if value_length < 8192 else varint(value_length),
                value or b"",
                encoded_headers,
            )
        )
        size = len(body)
        prefix = short[size << 1] if size < 8192 else varint(size)
        section = self._section
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif len(section) + size + len(prefix) + HEADER_SIZE > self._max_bytes:
            return False
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        section += prefix
        section += body
        self._count = count + 1
        return True

    def build(
        self,
        base_offset: int = 0,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> bytearray:
        """Encode the batch; callable repeatedly, and appending may continue. Raises ValueError when it is empty."""
        if not self._count:
            raise ValueError("a batch needs at least one record")
        fields = BatchFields(
            base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, transactional, control
        )
        shape = (self._count, self._count - 1, self._base_timestamp, self._max_timestamp)
        return finish_batch(self._section, self._codec, self._level, shape, fields)


def encode_batch(
    records: Iterable[tuple[int, Data | None, Data | None, Headers]],
    fields: BatchFields = DEFAULT_FIELDS,
    *,
    compression: int = Codec.NONE,
    level: int | None = None,
) -> bytearray:
    """One batch of all `records`, each (timestamp ms, key, value, headers). Raises ValueError when there are none."""
    builder = BatchBuilder(compression, MAX_RECORDS, level)
    append = builder.append
    for timestamp_ms, key, value, headers in records:
        append(timestamp_ms, key, value, headers)
    base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, transactional, control = fields
    return builder.build(
        base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        leader_epoch=leader_epoch,
    )


def rebuild_batch(header: BatchHeader, records: Sequence[Record], *, level: int | None = None) -> bytearray:
    """A batch like `header`'s with only these of its records: what compaction leaves.

    Offsets, producer fields, leader epoch, codec and last offset delta stay (so that the last sequence stays known); no
    records give Kafka's empty batch. For LogAppendTime the records' timestamps are the header's.
    """
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    if not header.attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
        if records and not header.has_delete_horizon:
            base_timestamp = records[0].timestamp
    section = b"".join(
        encode_record(
            record.timestamp - base_timestamp if not header.attributes & TIMESTAMP_TYPE_BIT else 0,
            record.offset - header.base_offset,
            record.key,
            record.value,
            encode_headers(record.headers),
        )
        for record in records
    )
    fields = BatchFields(
        header.base_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    shape = (len(records), header.last_offset_delta, base_timestamp, max_timestamp)
    return finish_batch(section, header.compression, level, shape, fields, header.attributes & ~0x07)
