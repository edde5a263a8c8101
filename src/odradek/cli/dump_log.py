"""`odradek dump-log --files F,…`: what is in a log's files, in the form of Apache's DumpLogSegments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from odradek.cli.errors import CommandError
from odradek.cli.stored_records import decode_offsets_record, decode_transaction_record
from odradek.log.files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, base_offset_of
from odradek.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.producer_state import CorruptSnapshot, decode_snapshot
from odradek.log.transaction_index import VERSION, decode
from odradek.log.verification import verify_partition
from odradek.ports.disk import SystemDisk
from odradek.records.batch import BatchHeader, check_batch, parse_header, split_batches
from odradek.records.compression import Codec
from odradek.records.control import ControlType, decode_control_record
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record, decode_records

Decoder = Callable[[Record], tuple[str | None, str | None]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", required=True, metavar="F,…", help="files to dump, separated by commas")
    parser.add_argument("--print-data-log", action="store_true", help="keys and values, too")
    parser.add_argument("--deep-iteration", action="store_true", help="single records, without their content")
    parser.add_argument("--offsets-decoder", action="store_true", help="show records of __consumer_offsets as JSON")
    parser.add_argument(
        "--transaction-log-decoder", action="store_true", help="show records of __transaction_state as JSON"
    )
    parser.add_argument("--skip-record-metadata", action="store_true", help="only keys and values of records")
    parser.add_argument("--index-sanity-check", action="store_true", help="check indexes instead of printing them")
    parser.add_argument("--verify-index-only", action="store_true", help="the same")
    parser.add_argument("--max-bytes", type=int, default=sys.maxsize, metavar="N", help="read so much of a segment")
    parser.add_argument("--max-message-size", type=int, help="accepted, and not needed")


def run(arguments: argparse.Namespace) -> int:
    status = 0
    for path in arguments.files.split(","):
        print(f"Dumping {path}")
        try:
            lines = _dump(path.strip(), arguments)
            for line in lines:
                print(line)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
        except (CorruptRecords, CorruptSnapshot, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
    return status


def _dump(path: str, arguments: argparse.Namespace) -> Iterator[str]:
    disk = SystemDisk()
    name = path.rpartition("/")[2]
    base = base_offset_of(name)
    if base is None:
        raise CommandError(f"{path} is no file of a log")
    if name.endswith((OFFSET_INDEX, TIME_INDEX)) and (arguments.index_sanity_check or arguments.verify_index_only):
        return _sanity(disk, path)
    if name.endswith(LOG):
        file = disk.open(path)
        return _segment(file.read(0, min(arguments.max_bytes, file.size())), base, arguments)
    data = disk.read_file(path)
    if name.endswith(OFFSET_INDEX):
        return _offset_index(data, base) if any(data) else iter([f"{path} is empty."])
    if name.endswith(TIME_INDEX):
        return _time_index(data, base)
    if name.endswith(TRANSACTION_INDEX):
        return _transaction_index(data, base)
    if name.endswith(SNAPSHOT):
        return _snapshot(data)
    raise CommandError(f"{path} is no file of a log")


def _sanity(disk: SystemDisk, path: str) -> Iterator[str]:
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


def _segment(data: bytes, base: int, arguments: argparse.Namespace) -> Iterator[str]:
    yield f"Log starting offset: {base}"
    view = memoryview(data)
    with_data = arguments.print_data_log or arguments.offsets_decoder or arguments.transaction_log_decoder
    decoder: Decoder = _plain
    if arguments.offsets_decoder:
        decoder = decode_offsets_record
    elif arguments.transaction_log_decoder:
        decoder = decode_transaction_record
    end = 0
    for position, header in split_batches(view, allow_partial_tail=True):
        end = position + header.size
        valid = _is_valid(view, position)
        yield _batch(header, position, valid)
        if valid and (with_data or arguments.deep_iteration):
            batch = view[position:end]
            for record in decode_records(batch, parse_header(batch)):
                yield _record(record, header, arguments, decoder if with_data else None)
    if end < len(data) and len(data) < arguments.max_bytes:
        raise CorruptRecords(f"{len(data) - end} bytes at byte {end} are no batch")


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


def _record(record: Record, header: BatchHeader, arguments: argparse.Namespace, decoder: Decoder | None) -> str:
    line = "|"
    if not arguments.skip_record_metadata:
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
        return f"{line} controlType: {marker.type.name}({int(marker.type)})"
    if decoder is not None:
        key, value = decoder(record)
        line += f" key: {key}" if key is not None else ""
        line += f" payload: {value}" if value is not None else ""
    return line


def _size(data: memoryview | bytes | None) -> int:
    return -1 if data is None else len(data)


def _plain(record: Record) -> tuple[str | None, str | None]:
    return _text(record.key), _text(record.value)


def _text(data: memoryview | bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "replace")
