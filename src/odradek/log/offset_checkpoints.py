"""The offsets that survive a restart beside the logs: recovery points, log starts, high watermarks, cleaner offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
    format_offsets,
)
from odradek.log.log_directory import LogDirectory
from odradek.log.partition_log import PartitionLog


class OffsetCheckpoints:
    """Writes the checkpoint files of every log directory. `failed` is told of a directory that cannot be written."""

    __slots__ = ("_directories", "_failed", "_logs", "_where")

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        where: Mapping[TopicPartition, LogDirectory],
        logs: Mapping[TopicPartition, PartitionLog],
        failed: Callable[[str, OSError], None],
    ) -> None:
        self._directories = directories
        self._where = where
        self._logs = logs
        self._failed = failed

    async def persist(self, name: str) -> None:
        """Write one checkpoint of every directory behind the Disk port."""
        self._collect(name)
        for directory in self._directories:
            if directory.offline is None:
                try:
                    await directory.checkpoints[name].write(format_offsets(directory.offsets(name)))
                except OSError as error:
                    self._failed(directory.path, error)

    def write_now(self, name: str) -> None:
        """Write one checkpoint of every directory in this thread."""
        self._collect(name)
        for directory in self._directories:
            if directory.offline is None:
                try:
                    directory.checkpoints[name].write_now(format_offsets(directory.offsets(name)))
                except OSError as error:
                    self._failed(directory.path, error)

    def note_watermarks(self, watermarks: Mapping[TopicPartition, int]) -> None:
        """Partitions that are not named keep their last value."""
        for key, offset in watermarks.items():
            directory = self._where.get(key)
            if directory is not None:
                directory.watermarks[key] = offset

    async def persist_all(self, watermarks: Mapping[TopicPartition, int]) -> None:
        """Recovery points, log starts and high watermarks."""
        self.note_watermarks(watermarks)
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            await self.persist(name)

    def _collect(self, name: str) -> None:
        """Note what the open logs say. Of starts only those inside of the first segment are written, as Kafka does."""
        for key, log in self._logs.items():
            directory = self._where[key]
            if name == RECOVERY_POINTS:
                directory.recovery_points[key] = log.recovery_point
            elif name == LOG_START_OFFSETS:
                if log.log_start_offset > log.segments[0].base_offset:
                    directory.log_starts[key] = log.log_start_offset
                else:
                    directory.log_starts.pop(key, None)
