"""Segments of the metadata log as bytes: batches of metadata records, and between them control batches.

Source: Kafka's `RecordsBatchReader`, `BatchAccumulator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from odradek.kraft.control_records import decode_kraft_control
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_records import VersionedRecord, encode_metadata_record
from odradek.records.batch import check_batch, parse_header, split_batches
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_columns, decode_records


class MetadataEntry(NamedTuple):
    """The encoded value of a metadata record."""

    offset: int
    leader_epoch: int
    value: memoryview


class ControlEntry(NamedTuple):
    """A control record, an object of `control_records.KINDS`; None for a type that this version does not know."""

    offset: int
    leader_epoch: int
    message: Any | None


def read_entries(data: bytes, *, whole: bool) -> Iterator[MetadataEntry | ControlEntry]:
    """All records of a segment or a checkpoint. Raises CorruptMetadata.

    Unless the file must be `whole`, a last batch that was cut off, as a crash leaves it, is ignored.
    """
    view = memoryview(data)
    try:
        for position, _ in split_batches(view, allow_partial_tail=not whole):
            header = check_batch(view, position, from_client=False)
            epoch = header.partition_leader_epoch
            if header.is_control:
                for record in decode_records(view, header, position):
                    yield ControlEntry(record.offset, epoch, decode_kraft_control(record))
                continue
            columns = decode_columns(view, header, position)
            for offset, value in zip(columns.offsets, columns.values, strict=True):
                if value is None:
                    raise CorruptMetadata(f"the metadata record at offset {offset} has no value")
                yield MetadataEntry(offset, epoch, memoryview(value))
    except CorruptRecords as error:
        raise CorruptMetadata(str(error)) from error


def checked_end(data: bytes) -> int:
    """The offset after the last of these batches, whose checksums are right. Raises CorruptMetadata.

    Their records are not decoded: that is for whoever replays them.
    """
    view, end = memoryview(data), 0
    try:
        for position, _ in split_batches(view):
            end = check_batch(view, position, from_client=False).next_offset
    except CorruptRecords as error:
        raise CorruptMetadata(str(error)) from error
    return end


def read_outline(data: bytes) -> Iterator[ControlEntry | None]:
    """The control records of a complete segment or checkpoint, and None for each batch of metadata records.

    Raises CorruptMetadata for a damaged batch of either kind; it does not look into those of metadata records.
    """
    view = memoryview(data)
    try:
        for position, _ in split_batches(view, allow_partial_tail=False):
            header = check_batch(view, position, from_client=False)
            if header.is_control:
                for record in decode_records(view, header, position):
                    yield ControlEntry(record.offset, header.partition_leader_epoch, decode_kraft_control(record))
            else:
                yield None
    except CorruptRecords as error:
        raise CorruptMetadata(str(error)) from error


def read_controls(batch: memoryview, position: int = 0) -> tuple[Any | None, ...]:
    """The records of the batch at this position; empty unless it is a control batch.

    Raises CorruptMetadata and CorruptRecords.
    """
    header = parse_header(batch, position)
    if not header.is_control:
        return ()
    return tuple(decode_kraft_control(each) for each in decode_records(batch, header, position))


def encode_metadata_batch(
    records: Iterable[VersionedRecord], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """One batch of metadata records. Raises EncodeError, and ValueError where there are none."""
    rows = [(timestamp_ms, None, encode_metadata_record(*each), ()) for each in records]
    return bytes(encode_batch(rows, BatchFields(base_offset, leader_epoch)))
