"""Writing record batches: `finish_batch` puts the header before encoded records, `encode_batch` does both."""

from collections.abc import Iterable
from typing import Final, NamedTuple

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
    TRANSACTIONAL_BIT,
    patch_crc,
)
from odradek.records.compression import Codec, check_level, compress
from odradek.records.headers import Headers
from odradek.records.section import Data, encode_headers, encode_one, encode_section


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
    batch = bytearray(HEADER_SIZE)
    batch += section
    return finish_batch_in_place(batch, codec, level, shape, fields, flags)


def finish_batch_in_place(
    batch: bytearray,
    codec: int,
    level: int | None,
    shape: tuple[int, int, int, int],
    fields: BatchFields = DEFAULT_FIELDS,
    flags: int = 0,
) -> bytearray:
    """As `finish_batch`, for a section behind HEADER_SIZE bytes that it fills; another batch if it compresses."""
    count, last_offset_delta, base_timestamp, max_timestamp = shape
    attributes = flags
    if fields.is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if fields.is_control:
        attributes |= CONTROL_BIT
    if codec:
        compressed = compress(codec, memoryview(batch)[HEADER_SIZE:], level)
        if len(compressed) < len(batch) - HEADER_SIZE:
            batch = bytearray(HEADER_SIZE)
            batch += compressed
            attributes |= codec
    length = len(batch) - LOG_OVERHEAD
    base_offset, leader_epoch, producer_id, producer_epoch, base_sequence = fields[:5]
    HEADER.pack_into(
        batch, 0, base_offset, length, leader_epoch, MAGIC, 0, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    patch_crc(memoryview(batch), 0, length)
    return batch


def encode_batch(
    records: Iterable[tuple[int, Data | None, Data | None, Headers]],
    fields: BatchFields = DEFAULT_FIELDS,
    *,
    compression: int = Codec.NONE,
    level: int | None = None,
) -> bytearray:
    """One batch of all `records`, each (timestamp ms, key, value, headers).

    Raises ValueError when there are none, for an unknown codec, and for a level that it does not have.
    """
    codec = Codec(compression)
    check_level(codec, level)
    rows = list(records)
    if not rows:
        raise ValueError("a batch needs at least one record")
    if len(rows) == 1:
        timestamp, key, value, headers = rows[0]
        batch = encode_one(key, value, encode_headers(headers) if headers else b"\0", HEADER_SIZE)
        return finish_batch_in_place(batch, codec, level, (1, 0, timestamp, timestamp), fields)
    timestamps, keys, values, _ = zip(*rows, strict=True)
    encoded_headers = {index: encode_headers(row[3]) for index, row in enumerate(rows) if row[3]}
    section = encode_section(timestamps, keys, values, encoded_headers)
    shape = (len(rows), len(rows) - 1, timestamps[0], max(timestamps))
    return finish_batch(section, codec, level, shape, fields)
