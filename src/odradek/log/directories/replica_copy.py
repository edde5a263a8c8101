"""Moving replicas between log directories of a broker (AlterReplicaLogDirs, KIP-113).

A future replica in `TOPIC-PARTITION.ID-future` copies the current one batch by batch. Once it has everything, a marker
file in it says that it takes over, the current directory becomes `-delete` and the future one takes its name: a crash
before the marker leaves the current replica in charge, a crash after it lets the next start finish the exchange.
"""

from __future__ import annotations

import re
from typing import Final

from odradek.log.append import Origin
from odradek.log.directories.log_directory import LogDirectory
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import FUTURE_DIRECTORY
from odradek.ports.disk import Disk, FileRange
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

LANE: Final = "replica moves"
"""The lane of `Disk.run` that reads what is copied."""

TAKES_OVER: Final = "odradek-takes-over"
"""Name of the marker file."""

CHUNK_BYTES: Final = 1 << 20

_FUTURE: Final = re.compile(r"^(.+)-(\d+)\.[^.]+-future$")
_MAX_NAME: Final = 255


def future_name(topic: str, partition: int, unique: str) -> str:
    """Of the directory of a future replica, with as much of `unique` as there is room for: a start reads the rest.

    Raises KafkaError KAFKA_STORAGE_ERROR if the topic's name leaves no room. Apache Kafka cannot move such a replica.
    """
    name = f"{topic}-{partition}."
    room = _MAX_NAME - len(name) - len(FUTURE_DIRECTORY)
    if room < 1:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{topic}-{partition} cannot move to another log directory: the name of its directory there, "
            f"{name}ID{FUTURE_DIRECTORY}, would be longer than {_MAX_NAME} characters",
        )
    return f"{name}{unique[:room]}{FUTURE_DIRECTORY}"


def parse_future_name(name: str) -> PartitionKey | None:
    """The partition that a directory is the future replica of; None for other names."""
    match = _FUTURE.match(name)
    return None if match is None else (match[1], int(match[2]))


class Move:
    """A replica on its way to another log directory."""

    __slots__ = ("_truncations", "directory", "log", "path")

    def __init__(self, directory: LogDirectory, path: str, log: PartitionLog | None = None) -> None:
        self.directory = directory
        self.path = path
        self.log = log
        """The future replica; None until it is opened, as after a restart."""
        self._truncations = -1

    def lag(self, source: PartitionLog) -> int:
        """Offsets that are still to be copied."""
        return source.end_offset - (0 if self.log is None else self.log.end_offset)

    def follow(self, source: PartitionLog) -> PartitionLog:
        """Let the future replica begin where the source does; restart it if the source was truncated meanwhile."""
        log = self.log
        assert log is not None
        # The leader epochs show truncations from before this object was created, as at a restart.
        truncated = _departs(log, source) if self._truncations < 0 else self._truncations != source.truncations
        start = source.log_start_offset
        begins_later = log.end_offset <= start and log.end_offset != source.reader.batch_start(start)
        if truncated or begins_later or log.end_offset > source.end_offset:
            # If this fails, the next attempt has to find the truncation again.
            log.truncate_fully_and_start_at(source.reader.batch_start(start), start)
        self._truncations = source.truncations
        return log

    async def copy(self, source: PartitionLog, disk: Disk, now_ms: int) -> int:
        """Copy the next chunk; the number of bytes, 0 when there is no more. Raises KafkaError."""
        log = self.follow(source)
        ranges = self._next(source, log)
        if not ranges:
            return 0
        expected = log.end_offset
        data = await disk.run(LANE, _read, ranges)
        if self._truncations != source.truncations or log.end_offset != expected:
            return len(data)
        self._append(log, data, now_ms)
        return len(data)

    def finish(self, source: PartitionLog, now_ms: int) -> bool:
        """Copy the rest in this thread if it is not much; whether nothing is left. Raises KafkaError."""
        log = self.follow(source)
        if ranges := self._next(source, log):
            self._append(log, _read(ranges), now_ms)
        return log.end_offset == source.end_offset and not source.durability.has_queued

    def _next(self, source: PartitionLog, log: PartitionLog) -> list[FileRange]:
        if log.end_offset >= source.end_offset:
            return []
        limit = min(CHUNK_BYTES, source.config.segment_bytes)
        # Where records were deleted in the middle of a batch, the batch is copied whole.
        offset = max(log.end_offset, source.log_start_offset)
        return source.reader.read(offset, limit, upper_offset=source.end_offset).ranges

    @staticmethod
    def _append(log: PartitionLog, data: bytes, now_ms: int) -> None:
        log.append(memoryview(bytearray(data)), leader_epoch=-1, now_ms=now_ms, origin=Origin.REPLICATION)
        log.durability.finish_writes()


def _departs(log: PartitionLog, source: PartitionLog) -> bool:
    """Whether the copy ends with records that its source no longer has."""
    latest = log.history.leader_epochs.latest
    if latest < 0:
        return False
    epoch, end_offset = source.history.leader_epochs.end_offset_for(latest, source.end_offset)
    return epoch != latest or end_offset < log.end_offset


def _read(ranges: list[FileRange]) -> bytes:
    parts = []
    for part in ranges:
        data = part.file.read(part.position, part.size)
        if len(data) != part.size:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{part.file.path} ends before byte {part.position}")
        parts.append(data)
    return b"".join(parts)
