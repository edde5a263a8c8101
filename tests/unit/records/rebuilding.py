"""Records encoded one by one, and batches as compaction leaves them."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.records.batch import NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, BatchHeader
from odradek.records.builder import BatchFields, finish_batch
from odradek.records.record import Record
from odradek.records.section import Data, encode_headers, varint


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
