"""The offsets that survive a restart beside the logs: recovery points, log starts, high watermarks, cleaner offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from odradek.log.directories.checkpoint_formats import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from odradek.log.directories.log_directory import OFFSET_CHECKPOINTS, LogDirectory
from odradek.log.disk_errors import is_transient
from odradek.log.partition_log import PartitionLog
from odradek.log.turns import in_turns
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

_OF_LOGS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS)
"""The checkpoints of what open logs say themselves."""


class OffsetCheckpoints:
    """Writes the checkpoint files of every log directory. Calls `failed` with a directory that cannot be written."""

    __slots__ = ("_coming", "_directories", "_failed", "_logs", "_where")

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        where: Mapping[PartitionKey, LogDirectory],
        logs: Mapping[PartitionKey, PartitionLog],
        failed: Callable[[str, OSError], None],
    ) -> None:
        self._directories = directories
        self._where = where
        self._logs = logs
        self._failed = failed
        self._coming: list[dict[PartitionKey, int]] = []
        """Log starts that are being written; readers see them once they are on the disk."""

    async def advance_starts(self, starts: Mapping[PartitionKey, int], advance: Callable[[], None]) -> None:
        """Write the log starts that logs are about to have, then call `advance`, which gives them to the logs.

        So a reader of such a start finds no lower one after a crash or a loss of power. What a log does not take, as
        when it is no longer led, is taken back. KafkaError if a file cannot be written for want of descriptors.
        """
        coming = dict(starts)
        self._coming.append(coming)
        try:
            written_to = None
            # A replica that moves to another directory meanwhile has its start in that one's file.
            while written_to != (directories := [self._where.get(key) for key in starts]):
                written_to = directories
                failure = await self.persist(LOG_START_OFFSETS)
                if failure is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
            advance()
        finally:
            self._coming = [each for each in self._coming if each is not coming]
            if any(map(self._is_ahead, starts)):
                await self.persist(LOG_START_OFFSETS)

    def _is_ahead(self, key: PartitionKey) -> bool:
        """Whether the noted log start is above that of the log, and no such start is coming."""
        directory, log = self._where.get(key), self._logs.get(key)
        if directory is None or log is None:
            return False
        return directory.log_starts.get(key, 0) > max(log.log_start_offset, self._coming_start(key))

    def deleted(self, key: PartitionKey) -> None:
        """A log start that is being written is not that of the next partition of its name."""
        for starts in self._coming:
            starts.pop(key, None)

    async def persist(self, name: str) -> OSError | None:
        """Write one checkpoint of every directory behind the Disk port.

        Answers why one that stays in use could not be written.
        """
        if name in _OF_LOGS:
            # Others are served meanwhile. What lowers an offset notes the lower one at once (write_of, clear), and the
            # offsets are taken for the file once all are noted: no later truncation is overlooked.
            async for several in in_turns(list(self._logs)):
                self._note(name, several)
        failure = None
        for directory in self._directories:
            if directory.offline is None:
                try:
                    await directory.checkpoints[name].write(directory.offsets(name))
                except OSError as error:
                    self._failed(directory.path, error)
                    if is_transient(error):
                        failure = error
        return failure

    def write_now(self, name: str) -> None:
        """Write one checkpoint of every directory in this thread."""
        self._note(name, self._logs)
        for directory in self._directories:
            if directory.offline is None:
                try:
                    directory.checkpoints[name].write_now(directory.offsets(name))
                except OSError as error:
                    self._failed(directory.path, error)

    def write_of(self, name: str, directory: LogDirectory) -> None:
        """Write one checkpoint of one directory in this thread. Raises OSError."""
        self._note(name, self._logs)
        if directory.offline is None:
            if name == RECOVERY_POINTS:
                # First: the lower recovery points would no longer show which logs have lost compacted records.
                self._lower_cleaned(directory)
            directory.checkpoints[name].write_now(directory.offsets(name))

    def _lower_cleaned(self, directory: LogDirectory) -> None:
        """Let compaction begin again where logs were cut off below the end of the last one. Raises OSError.

        Only what is synced is compacted, so a log with a lower recovery point was truncated. Otherwise the records that
        come in the place of the others would count as compacted, and tombstones among them would go before the values
        that they delete (LogCleanerManager.maybeTruncateCheckpoint).
        """
        cleaned, points = directory.cleaner_offsets, directory.recovery_points
        lower = {key: points[key] for key, offset in cleaned.items() if points.get(key, offset) < offset}
        if lower:
            cleaned.update(lower)
            directory.checkpoints[CLEANER_OFFSETS].write_now(cleaned)

    def clear(self, directory: LogDirectory, key: PartitionKey) -> None:
        """See to it that no start finds anything of an earlier partition of that name. Raises OSError.

        It would be believed of the new one: that it begins where that one's records were deleted, for one.
        """
        for name in OFFSET_CHECKPOINTS:
            offsets = directory.offsets(name)
            offsets.pop(key, None)
            file = directory.checkpoints[name]
            if key in file.named:
                file.write_now(offsets)

    def note_watermarks(self, watermarks: Mapping[PartitionKey, int]) -> None:
        """Partitions that are not named keep their last value."""
        for key, offset in watermarks.items():
            directory = self._where.get(key)
            if directory is not None:
                directory.watermarks[key] = offset

    async def persist_all(self) -> None:
        """Recovery points, log starts and the high watermarks that were noted."""
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            await self.persist(name)

    def _note(self, name: str, keys: Iterable[PartitionKey]) -> None:
        """Note what those of the logs say that are still open.

        Log starts are noted inside of the first segment, as in Kafka, and wherever one was noted before or is about to
        be published: the removal of the segments below is not synced, and a power loss that restores them must not
        restore deleted records.
        """
        where, logs = self._where, self._logs
        if name == RECOVERY_POINTS:
            for key in keys:
                if (log := logs.get(key)) is not None:
                    where[key].recovery_points[key] = log.durability.recovery_point
        elif name == LOG_START_OFFSETS:
            for key in keys:
                if (log := logs.get(key)) is None:
                    continue
                starts, start = where[key].log_starts, log.log_start_offset
                coming = self._coming_start(key) if self._coming else 0
                if coming:
                    start = max(start, min(coming, log.end_offset))
                if coming or key in starts or start > log.segments[0].base_offset:
                    starts[key] = start

    def _coming_start(self, key: PartitionKey) -> int:
        return max((starts.get(key, 0) for starts in self._coming), default=0)
