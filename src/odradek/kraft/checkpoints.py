"""Snapshots of the metadata log: files `OFFSET-EPOCH.checkpoint` with a header, the records of an image, and a footer.

Source: KIP-630; Kafka's `Snapshots`, `RecordsSnapshotWriter`, `RecordsSnapshotReader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from odradek.kraft.control_records import encode_control_batch
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import ControlEntry, MetadataEntry, encode_metadata_batch, read_entries, read_outline
from odradek.kraft.metadata_records import VersionedRecord
from odradek.wire.messages.control_records import SnapshotFooterRecord, SnapshotHeaderRecord

SUFFIX: Final = ".checkpoint"
RECORDS_IN_BATCH: Final = 1024
_OFFSET_DIGITS, _EPOCH_DIGITS = 20, 10


class CheckpointId(NamedTuple):
    """A snapshot holds all records below `end_offset`; `epoch` is that of the last of them."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """`00000000000000000042-0000000003.checkpoint`."""
        return f"{self.end_offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


class Checkpoint(NamedTuple):
    """A snapshot's content. `last_timestamp_ms` is that of the last record of the log that it holds."""

    last_timestamp_ms: int
    controls: Sequence[Any]
    """Control records between header and footer: KRaftVersionRecord and VotersRecord since kraft.version 1."""
    data: bytes
    """The file, whose batches are undamaged."""

    @property
    def entries(self) -> Iterator[MetadataEntry]:
        """The records, decoded as they are asked for: those of a large cluster need much memory.

        Raises CorruptMetadata.
        """
        return (each for each in read_entries(self.data, whole=True) if isinstance(each, MetadataEntry))


def parse_file_name(name: str) -> CheckpointId | None:
    """The id in a snapshot's file name; None for another name."""
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    known = name.endswith(SUFFIX) and bool(dash) and offset.isdecimal() and epoch.isdecimal()
    if not known or len(offset) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    return CheckpointId(int(offset), int(epoch))


def encode_checkpoint(
    found: CheckpointId,
    records: Iterable[VersionedRecord],
    *,
    controls: Sequence[Any] = (),
    timestamp_ms: int,
    last_timestamp_ms: int,
) -> bytes:
    """The bytes of a snapshot; its own offsets count from 0. Raises EncodeError."""
    parts = checkpoint_parts(
        found, records, controls=controls, timestamp_ms=timestamp_ms, last_timestamp_ms=last_timestamp_ms
    )
    return b"".join(parts)


def checkpoint_parts(
    found: CheckpointId,
    records: Iterable[VersionedRecord],
    *,
    controls: Sequence[Any],
    timestamp_ms: int,
    last_timestamp_ms: int,
) -> Iterator[bytes]:
    """As `encode_checkpoint`, batch by batch: a part is some milliseconds of work. Raises EncodeError."""
    epoch, offset = found.epoch, 0
    first = (SnapshotHeaderRecord(0, last_timestamp_ms), *controls)
    yield encode_control_batch(first, base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms)
    offset += len(first)
    for some in _batched(records, RECORDS_IN_BATCH):
        yield encode_metadata_batch(some, base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms)
        offset += len(some)
    footer = SnapshotFooterRecord(0)
    yield encode_control_batch([footer], base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms)


def read_checkpoint(data: bytes) -> Checkpoint:
    """Raises CorruptMetadata where the header or the footer is missing, or anything lies outside them."""
    outline = list(read_outline(data))
    first, last = outline[:1], outline[-1:]
    if not any(_is(each, SnapshotHeaderRecord) for each in first):
        raise CorruptMetadata("the snapshot does not begin with a header")
    if not any(_is(each, SnapshotFooterRecord) for each in last):
        raise CorruptMetadata("the snapshot does not end with a footer")
    controls = [each.message for each in outline[1:-1] if each is not None and each.message is not None]
    if any(isinstance(each, SnapshotHeaderRecord | SnapshotFooterRecord) for each in controls):
        raise CorruptMetadata("the snapshot has a second header or footer")
    (header,) = first
    assert header is not None
    assert header.message is not None
    return Checkpoint(header.message.last_contained_log_timestamp, controls, data)


def _is(entry: ControlEntry | None, kind: type) -> bool:
    return entry is not None and isinstance(entry.message, kind)


def _batched(records: Iterable[VersionedRecord], size: int) -> Iterator[list[VersionedRecord]]:
    remaining = iter(records)
    while some := list(islice(remaining, size)):
        yield some
