"""What is in a log's files, line by line in the form of Apache's DumpLogSegments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.kraft.checkpoints import SUFFIX as CHECKPOINT
from odradek.kraft.checkpoints import parse_file_name
from odradek.kraft.control_records import decode_kraft_control
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_records import decode_metadata_record, type_name
from odradek.log.directories.ownership import BOOTSTRAP
from odradek.log.inspection.verification import verify_partition
from odradek.log.producers.state import decode_snapshot
from odradek.log.segments.files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, base_offset_of
from odradek.log.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.segments.transaction_index import VERSION, decode
from odradek.ports.disk import Disk
from odradek.records.batch import BatchHeader, check_batch, parse_header, split_batches
from odradek.records.compression import Codec
from odradek.records.control import ControlType, decode_control_record
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record, decode_records
from odradek.wire.json_form import as_json_text, to_json

_CONTROL_TITLES: Final = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}
"""What Apache's tool prints before the content of a control record."""

Decoder = Callable[[Record], tuple[str | None, str | None]]
"""What to show of a record's key and value."""


class UnknownFile(Exception):
    """The name is not that of a log's file."""


class DumpOptions(NamedTuple):
    """How much to show; `max_bytes` of each segment are read."""

    records: bool
    """Single records, not only batches."""
    decoder: Decoder | None
    """Shows records with their content."""
    skip_record_metadata: bool
    check_indexes: bool
    """Check indexes instead of printing them."""
    max_bytes: int


def dump(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    """The lines for one file. Raises OSError, CorruptRecords, CorruptSnapshot, ValueError for what it cannot read, and
    UnknownFile.
    """
    name = path.rpartition("/")[2]
    if name.endswith(CHECKPOINT):
        return _checkpoint(disk, path, options)
    base = base_offset_of(name)
    if base is None:
        raise UnknownFile(f"{path} is no file of a log")
    if name.endswith((OFFSET_INDEX, TIME_INDEX)) and (options.check_indexes):
        return _sanity(disk, path)
    if name.endswith(LOG):
        return _segment(disk.read_file(path, options.max_bytes), f"Log starting offset: {base}", options)
    data = disk.read_file(path)
    if name.endswith(OFFSET_INDEX):
        return _offset_index(data, base) if any(data) else iter([f"{path} is empty."])
    if name.endswith(TIME_INDEX):
        return _time_index(data, base)
    if name.endswith(TRANSACTION_INDEX):
        return _transaction_index(data, base)
    if name.endswith(SNAPSHOT):
        return _snapshot(data)
    raise UnknownFile(f"{path} is no file of a log")


def _checkpoint(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    """A snapshot of the metadata log: record batches, as in a segment."""
    name = path.rpartition("/")[2]
    found = parse_file_name(name)
    if found is None and name != BOOTSTRAP:
        raise UnknownFile(f"{path} is no snapshot of a metadata log: its name is not OFFSET-EPOCH{CHECKPOINT}")
    title = "KRaft bootstrap snapshot"
    if found is not None:
        title = f"Snapshot end offset: {found.end_offset}, epoch: {found.epoch}"
    return _segment(disk.read_file(path, options.max_bytes), title, options)


def _sanity(disk: Disk, path: str) -> Iterator[str]:
    directory = path.rpartition("/")[0] or "."
    wrong = [found for found in verify_partition(disk, directory) if found.path.rpartition("/")[2] in path]
    if wrong:
        raise ValueError("; ".join(f"byte {found.position}: {found.problem}" for found in wrong))
    yield f"{path} passed sanity check."


def _offset_index(data: bytes, base: int) -> Iterator[str]:
    for at in range(0, len(data) - OFFSET_ENTRY.size + 1, OFFSET_ENTRY.size):
        relative, position = OFFSET_ENTRY.unpack_from(data, at)
        if not relative and at:
            return
        yield f"offset: {base + relative} position: {position}"


def _time_index(data: bytes, base: int) -> Iterator[str]:
    for at in range(0, len(data) - TIME_ENTRY.size + 1, TIME_ENTRY.size):
        timestamp, relative = TIME_ENTRY.unpack_from(data, at)
        if not timestamp and at:
            return
        yield f"timestamp: {timestamp} offset: {base + relative}"


def _transaction_index(data: bytes, base: int) -> Iterator[str]:
    for found in decode(data, base):
        yield (
            f"version: {VERSION} producerId: {found.producer_id} firstOffset: {found.first_offset} "
            f"lastOffset: {found.last_offset} lastStableOffset: {found.last_stable_offset}"
        )


def _snapshot(data: bytes) -> Iterator[str]:
    for entry in decode_snapshot(data):
        first = entry.transaction_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {_optional(first if first >= 0 else None)} lastTimestamp: {entry.last_timestamp} "
        )
        if entry.batches:
            last = entry.batches[-1]
            line += (
                f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
            )
        yield line


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _segment(data: bytes, title: str, options: DumpOptions) -> Iterator[str]:
    yield title
    view = memoryview(data)
    end = 0
    damaged: list[int] = []
    for position, header in split_batches(view, allow_partial_tail=True):
        end = position + header.size
        valid = _is_valid(view, position)
        yield _batch(header, position, valid)
        if not valid:
            damaged.append(position)
        if valid and (options.decoder is not None or options.records):
            batch = view[position:end]
            for record in decode_records(batch, parse_header(batch)):
                yield _record(record, header, options)
    if end < len(data) and len(data) < options.max_bytes:
        raise CorruptRecords(f"{len(data) - end} bytes at byte {end} are no batch")
    if damaged:
        raise CorruptRecords(f"{len(damaged)} batches are damaged, the first one at byte {damaged[0]}")


def _is_valid(view: memoryview, position: int) -> bool:
    try:
        check_batch(view, position, from_client=False)
    except CorruptRecords:
        return False
    return True


def _batch(header: BatchHeader, position: int, valid: bool) -> str:
    time = "LogAppendTime" if header.timestamp_type else "CreateTime"
    horizon = header.base_timestamp if header.has_delete_horizon else None
    codec = Codec(header.compression).name.lower() if header.compression <= max(Codec) else str(header.compression)
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_word(header.is_transactional)} isControl: {_word(header.is_control)} "
        f"deleteHorizonMs: {_optional(horizon)} position: {position} {time}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {codec} crc: {header.crc} isvalid: {_word(valid)}"
    )


def _word(value: bool) -> str:
    return "true" if value else "false"


def _record(record: Record, header: BatchHeader, options: DumpOptions) -> str:
    line = "|"
    if not options.skip_record_metadata:
        time = "LogAppendTime" if header.timestamp_type else "CreateTime"
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
        line += (
            f" offset: {record.offset} {time}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {sequence} "
            f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
        )
    if header.is_control:
        marker = decode_control_record(record)
        if marker.type in (ControlType.ABORT, ControlType.COMMIT):
            return f"{line} endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
        message = decode_kraft_control(record)
        if message is None:
            return f"{line} controlType: {marker.type.name}({int(marker.type)})"
        return f"{line} {_CONTROL_TITLES[marker.type]} {as_json_text(to_json(message, message.version))}"
    if options.decoder is not None:
        key, value = options.decoder(record)
        line += f" key: {key}" if key is not None else ""
        line += f" payload: {value}" if value is not None else ""
    return line


def as_metadata(record: Record) -> tuple[str | None, str | None]:
    """The value as a metadata record of KRaft in JSON; the key is not shown, since such records have none."""
    if record.value is None:
        return None, f"Error at {record.offset}, skipping. The record has no value."
    try:
        found, version = decode_metadata_record(memoryview(record.value))
    except CorruptMetadata as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    shown = {"type": type_name(found.RECORD_TYPE), "version": version, "data": to_json(found, version)}
    return None, as_json_text(shown)


def _size(data: memoryview | bytes | None) -> int:
    return -1 if data is None else len(data)


def as_text(record: Record) -> tuple[str | None, str | None]:
    """Key and value as UTF-8."""
    return _text(record.key), _text(record.value)


def _text(data: memoryview | bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "replace")
