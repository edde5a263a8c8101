"""Checks every file of a partition's directory, changes none, and says what is wrong and what can be saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.log.directories.checkpoint_formats import (
    META_PROPERTIES,
    CorruptCheckpoint,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from odradek.log.directories.log_directory import OFFSET_CHECKPOINTS
from odradek.log.producers.state import CorruptSnapshot, decode_snapshot
from odradek.log.segments.files import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
)
from odradek.log.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.segments.transaction_index import ENTRY_SIZE, decode, sound
from odradek.ports.disk import Disk
from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION, BatchHeader, check_batch
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records

_INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
_PARTITION: Final = re.compile(r"^.+-\d+(\.[^.]+-future)?$")
_REBUILT: Final = "rebuilt when the log is opened"


class Finding(NamedTuple):
    """A defect: the file, the byte and the offset where it begins (-1 if unknown)."""

    path: str
    position: int
    offset: int
    problem: str
    remedy: str
    """What can be saved, and how."""


class Batches(NamedTuple):
    """The whole batches of a segment: position, header."""

    found: list[tuple[int, BatchHeader]]
    findings: list[Finding]


def log_directories(disk: Disk, path: str) -> list[str]:
    """The log directories at the path: the path itself, or those in it, as a cluster of one machine has them.

    A partition's directory stands for itself. The list is empty where there is no log. Raises OSError.
    """
    if META_PROPERTIES in disk.list(path) or list(partition_directories(disk, path)):
        return [path]
    below = [f"{path.rstrip('/')}/{name}" for name in disk.list(path)]
    return [each for each in below if disk.is_directory(each) and disk.exists(f"{each}/{META_PROPERTIES}")]


def partition_directories(disk: Disk, path: str) -> Iterator[str]:
    """Those of a log directory, or the directory itself if it is a partition's. Raises OSError."""
    names = disk.list(path)
    if _holds_partition(names):
        yield path
        return
    for name in names:
        directory = f"{path}/{name}"
        if _PARTITION.match(name) and disk.is_directory(directory) and _holds_partition(disk.list(directory)):
            yield directory


def _holds_partition(names: list[str]) -> bool:
    """Whether a directory with these names is a partition's. A name like `broker-1` alone says nothing."""
    return PARTITION_METADATA in names or any(base_offset_of(name) is not None for name in names)


def verify_checkpoints(disk: Disk, path: str) -> Iterator[Finding]:
    """Every finding in the small files of a log directory. Raises OSError."""
    for name in disk.list(path):
        try:
            if name in OFFSET_CHECKPOINTS:
                parse_offsets(disk.read_file(f"{path}/{name}"))
            elif name == META_PROPERTIES:
                parse_meta_properties(disk.read_file(f"{path}/{name}"))
        except CorruptCheckpoint as error:
            remedy = (
                "the broker does not start"
                if name == META_PROPERTIES
                else "ignored at the next start, which reads more"
            )
            yield Finding(f"{path}/{name}", 0, -1, str(error), remedy)


def verify_partition(disk: Disk, directory: str) -> Iterator[Finding]:
    """Every finding in the files of one partition. Raises OSError."""
    names = disk.list(directory)
    logs = sorted((base, name) for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None)
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith((CLEANED, SWAP, DELETED)):
            yield Finding(
                path, 0, -1, "left over from a compaction or deletion", "removed or completed when the log is opened"
            )
        elif name.endswith(SNAPSHOT):
            yield from _snapshot(disk, path)
        elif name == LEADER_EPOCHS:
            yield from _checked(path, disk.read_file(path), parse_leader_epochs)
        elif name == PARTITION_METADATA:
            yield from _checked(path, disk.read_file(path), parse_partition_metadata)
        elif name.endswith(_INDEXES) and name.partition(".")[0] + LOG not in names:
            yield Finding(path, 0, -1, "an index without its segment", "removed when the log is opened")
    expected = 0
    for number, (base, name) in enumerate(logs):
        is_last = number + 1 == len(logs)
        end = None if is_last else logs[number + 1][0]
        data = memoryview(disk.read_file(f"{directory}/{name}"))
        batches = read_batches(f"{directory}/{name}", data, max(base, expected), end, is_last=is_last)
        yield from batches.findings
        if batches.found:
            expected = batches.found[-1][1].next_offset
        yield from _indexes(disk, f"{directory}/{name.removesuffix(LOG)}", names, base, batches.found, is_last=is_last)


def read_batches(path: str, data: memoryview, expected: int, end_offset: int | None, *, is_last: bool) -> Batches:
    """All whole batches of a segment, those behind damage too; records are decoded as well."""
    found: list[tuple[int, BatchHeader]] = []
    findings: list[Finding] = []
    position = 0
    while position < len(data):
        try:
            header = check_batch(data, position, from_client=False)
            if header.base_offset < expected or (end_offset is not None and header.last_offset >= end_offset):
                raise CorruptRecords(
                    f"offsets {header.base_offset} to {header.last_offset} where {expected} or a later one is due"
                )
            decode_records(data, header, position)
        except CorruptRecords as error:
            after = _next_whole(data, position + 1, expected)
            findings.append(_damage(path, position, expected, str(error), after, len(data), is_last=is_last))
            if after is None:
                break
            position = after[0]
            expected = after[1]
            continue
        found.append((position, header))
        expected = header.next_offset
        position += header.size
    return Batches(found, findings)


def _damage(
    path: str, position: int, offset: int, problem: str, after: tuple[int, int] | None, size: int, *, is_last: bool
) -> Finding:
    if after is None:
        remedy = f"offsets below {offset} are whole; the last {size - position} bytes are lost"
        if is_last:
            remedy += " and are cut off when the log is opened after an unclean stop"
    else:
        remedy = (
            f"offsets below {offset} are whole, and so is what follows from offset {after[1]} at byte {after[0]}; "
            f"{after[0] - position} bytes in between are lost"
        )
    return Finding(path, position, offset, problem, remedy)


def _next_whole(data: memoryview, position: int, expected: int) -> tuple[int, int] | None:
    """(position, offset) of the next batch whose CRC is right: found by its magic byte."""
    raw = bytes(data[position:])
    at = raw.find(MAGIC, MAGIC_POSITION)
    while at >= 0:
        start = position + at - MAGIC_POSITION
        size = int.from_bytes(data[start + 8 : start + 12], "big", signed=True) + LOG_OVERHEAD
        if HEADER_SIZE <= size <= len(data) - start:
            try:
                header = check_batch(data, start, from_client=False)
            except CorruptRecords:
                pass
            else:
                if header.base_offset >= expected:
                    return start, header.base_offset
        at = raw.find(MAGIC, at + 1)
    return None


def _checked(path: str, data: bytes, parse: Callable[[bytes], object]) -> Iterator[Finding]:
    try:
        parse(data)
    except CorruptCheckpoint as error:
        yield Finding(path, 0, -1, str(error), _REBUILT)


def _snapshot(disk: Disk, path: str) -> Iterator[Finding]:
    try:
        decode_snapshot(disk.read_file(path))
    except CorruptSnapshot as error:
        yield Finding(path, 0, -1, str(error), "an older snapshot and the log take its place")


def _indexes(
    disk: Disk, stem: str, names: list[str], base: int, batches: list[tuple[int, BatchHeader]], *, is_last: bool
) -> Iterator[Finding]:
    short = stem.rpartition("/")[2]
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        path = stem + suffix
        if short + suffix not in names:
            if batches:
                yield Finding(path, 0, -1, "missing", _REBUILT)
            continue
        check = _offset_index if suffix == OFFSET_INDEX else _time_index
        problem = check(disk.read_file(path), base, batches)
        if problem is not None:
            yield Finding(path, problem[0], -1, problem[1], _REBUILT)
        elif suffix == TIME_INDEX and batches and not is_last and not disk.size(path):
            yield Finding(path, 0, -1, "empty, though the segment is not", _REBUILT)
    path = stem + TRANSACTION_INDEX
    if short + TRANSACTION_INDEX in names:
        data = disk.read_file(path)
        remedy = "rebuilt from the markers after an unclean stop"
        try:
            found = decode(data, base)
        except ValueError as error:
            yield Finding(path, 0, -1, str(error), remedy)
        else:
            if (right := len(sound(data, base))) < len(found):
                yield Finding(path, right * ENTRY_SIZE, -1, "no aborted transaction", remedy)
        if len(data) % ENTRY_SIZE:
            yield Finding(path, len(data) // ENTRY_SIZE * ENTRY_SIZE, -1, "the last entry is cut off", "ignored")


def _offset_index(data: bytes, base: int, batches: list[tuple[int, BatchHeader]]) -> tuple[int, str] | None:
    if len(data) % OFFSET_ENTRY.size:
        return len(data), f"{len(data)} bytes are no multiple of {OFFSET_ENTRY.size}"
    # Apache Kafka fills the file of an active segment with zeros.
    data = data.rstrip(b"\0")
    data += b"\0" * (-len(data) % OFFSET_ENTRY.size)
    known = dict(batches)
    end = batches[-1][1].last_offset if batches else -1
    previous = -1
    for at in range(0, len(data), OFFSET_ENTRY.size):
        relative, position = OFFSET_ENTRY.unpack_from(data, at)
        header = known.get(position)
        if relative <= previous:
            return at, f"offset {base + relative} after {base + previous}"
        # Not the last offset of that batch: before 4.1 Apache Kafka wrote one entry for several batches of a follower.
        if header is None or not header.base_offset <= base + relative <= end:
            return at, f"offset {base + relative} is said to be at byte {position}, and is not"
        previous = relative
    return None


def _time_index(data: bytes, base: int, batches: list[tuple[int, BatchHeader]]) -> tuple[int, str] | None:
    if len(data) % TIME_ENTRY.size:
        return len(data), f"{len(data)} bytes are no multiple of {TIME_ENTRY.size}"
    data = data.rstrip(b"\0")
    data += b"\0" * (-len(data) % TIME_ENTRY.size)
    largest = {header.last_offset: header.max_timestamp for _, header in batches}
    previous = -1
    for at in range(0, len(data), TIME_ENTRY.size):
        timestamp, relative = TIME_ENTRY.unpack_from(data, at)
        if timestamp < previous:
            return at, f"timestamp {timestamp} after {previous}"
        if largest.get(base + relative, timestamp) != timestamp:
            return at, f"timestamp {timestamp} is said to be that of offset {base + relative}, and is not"
        previous = timestamp
    return None
