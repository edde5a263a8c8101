"""Which partition's log lies in which of `log.dirs`, which logs are open, and what follows when a directory fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.log.directories.checkpoint_formats import BROKER_EPOCH, LOG_START_OFFSETS, RECOVERY_POINTS
from odradek.log.directories.events import DirectoryEvents
from odradek.log.directories.log_directory import LogDirectory
from odradek.log.directories.offset_checkpoints import OffsetCheckpoints
from odradek.log.directories.pending_work import PendingWork
from odradek.log.disk_errors import is_transient
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import DELETE_DIRECTORY
from odradek.log.writing.flush_plan import RolledLog
from odradek.log.writing.write_queue import WriteQueue, WriteQueues, WriteSettings
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

_MAX_NAME: Final = 255


class DirectorySettings(NamedTuple):
    """The configuration of log directories."""

    writes: WriteSettings = WriteSettings()
    """How large and how long a write may block the event loop."""
    adopts: bool = False
    """Whether a partition's directory that names another topic id is taken over instead of set aside."""
    cordoned: Callable[[], Sequence[str]] = tuple
    """Paths of the directories that get no new replicas; `*` is all of them."""
    joins_quorum: bool = False
    """Whether the directories may be those of a broker of Apache Kafka, which this one continues (KRaft)."""


DEFAULT_SETTINGS: Final = DirectorySettings()


class PlacedLogs:
    """The state that the parts of LogDirectories share, and the owner of its logs (LogOwner)."""

    __slots__ = (
        "_ended",
        "_joins_quorum",
        "checkpoints",
        "clock",
        "directories",
        "disk",
        "environment",
        "events",
        "logs",
        "pending",
        "random",
        "where",
        "writers",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random,
        paths: Sequence[str],
        open_files: int,
        settings: DirectorySettings,
        events: DirectoryEvents,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.random = random
        self.directories = [LogDirectory(path.rstrip("/") or "/") for path in dict.fromkeys(paths)]
        self.where: dict[PartitionKey, LogDirectory] = {}
        """Every partition that has a directory here."""
        self.logs: dict[PartitionKey, PartitionLog] = {}
        """The open logs."""
        self._ended: dict[str, dict[PartitionKey, str]] = {directory.path: {} for directory in self.directories}
        """By log directory: whose directories have other names there (which), though a power loss may undo it."""
        self._joins_quorum = settings.joins_quorum
        self.events = events
        self.pending = PendingWork(disk, clock, events)
        self.checkpoints = OffsetCheckpoints(self.directories, self.where, self.logs, self.failed)
        paths = [each.path for each in self.directories]
        self.writers = WriteQueues(disk, clock, paths, settings.writes, self.report, events.charge)
        self.environment = LogEnvironment(
            disk,
            clock,
            random,
            open_files,
            owner=self,
        )

    # --- LogOwner ---

    def writer_of(self, directory: str) -> WriteQueue:
        """See `LogOwner`."""
        found = self.at(directory)
        assert found is not None
        return self.writers.of(found.path)

    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """See `LogOwner`."""
        self.pending.delete_later(paths, delay_ms)

    def segment_closed(self, log: RolledLog, _end_offset: int) -> None:
        """See `LogOwner`."""
        self.pending.flush_later(log)

    def disk_failed(self, path: str, error: OSError) -> None:
        """See `LogOwner`."""
        self.failed(path, error)

    def recovery_point_lowered(self, directory: str) -> None:
        """See `LogOwner`."""
        self._rewrite(RECOVERY_POINTS, directory)

    def log_start_lowered(self, directory: str) -> None:
        """See `LogOwner`."""
        self._rewrite(LOG_START_OFFSETS, directory)

    def _rewrite(self, checkpoint: str, path: str) -> None:
        directory = self.at(path)
        if directory is not None:
            self.checkpoints.write_of(checkpoint, directory)

    def repaired(self, text: str) -> None:
        """See `LogOwner`."""
        self.report(text)

    # --- shared ---

    def report(self, text: str) -> None:
        """Report in words what was repaired or failed."""
        self.events.report(text)

    def at(self, path: str) -> LogDirectory | None:
        """The log directory that holds the path."""
        for directory in self.directories:
            if path == directory.path or path.startswith(directory.path + "/"):
                return directory
        return None

    def lane(self, path: str) -> str:
        """The lane of `Disk.run` for what lies at the path: one for each log directory."""
        directory = self.at(path)
        return path if directory is None else directory.path

    def failed(self, path: str, error: OSError) -> None:
        """Take the directory out of use: its logs raise KAFKA_STORAGE_ERROR, the other directories stay in use."""
        directory = self.at(path)
        if directory is None or directory.offline is not None or is_transient(error):
            return
        directory.offline = f"log directory {directory.path} is offline: {error}"
        self.report(directory.offline)
        if self._joins_quorum:
            self._forget_epoch()
        for key, log in self.logs.items():
            if self.where.get(key) is directory:
                log.fail(directory.offline)
        self.events.directory_failed(directory.path)

    def _forget_epoch(self) -> None:
        """Have the next start report lost records: writes that the failed disk did not sync may be gone."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                self.disk.remove(f"{directory.path}/{BROKER_EPOCH}")

    def storage_error(self, path: str, error: OSError) -> KafkaError:
        """`failed`, and what to raise for it."""
        self.failed(path, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}")

    def not_made(self, path: str, key: PartitionKey, error: OSError) -> KafkaError:
        """`storage_error`, and take away what is there: a start would mistake it for the partition, which may have
        been made in another log directory since.
        """
        raised = self.storage_error(path, error)
        self.remove_traces(path, key)
        return raised

    def doom(self, path: str, key: PartitionKey, delay_ms: int) -> None:
        """Rename a partition's directory so that no start loads it, and remove it later. Raises OSError."""
        self.pending.delete_later((self.rename_away(path, key, DELETE_DIRECTORY),), delay_ms)

    def remove_traces(self, path: str, key: PartitionKey) -> None:
        """Of a log that is not there: its directory was not made whole, or again by a check of what was given up."""
        try:
            if self.disk.exists(path):
                self.doom(path, key, 0)
        except OSError as error:
            self.failed(path, error)

    def rename_away(self, path: str, key: PartitionKey, ending: str) -> str:
        """Give a partition's directory a name with that ending, which no start loads; the new path. Raises OSError."""
        self.environment.files.forget_directory(path)
        suffix = f".{self.random.uuid().hex()}{ending}"
        renamed = f"{path.rpartition('/')[0]}/{f'{key[0]}-{key[1]}'[: _MAX_NAME - len(suffix)]}{suffix}"
        self.disk.rename(path, renamed)
        directory = self.at(path)
        if directory is not None and path == f"{directory.path}/{key[0]}-{key[1]}":
            self._ended[directory.path][key] = renamed
        return renamed

    def sync_ends(self, key: PartitionKey, stays: LogDirectory) -> None:
        """Before the partition is in `stays` alone: a power loss must not bring it back in another log directory.

        Costs nothing unless it was in one until just now. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        for directory in self.directories:
            ended = self._ended[directory.path]
            if key not in ended or directory is stays or directory.offline is not None:
                continue
            try:
                self.disk.sync_directory(directory.path)
            except OSError as error:
                raise self.storage_error(directory.path, error) from error
            ended.clear()

    async def sync_all_ends(self) -> None:
        """Do `sync_ends` for all partitions, behind the Disk port, so that no later call has to wait for it."""
        for directory in self.directories:
            ended = self._ended[directory.path]
            synced = dict(ended)
            if not synced:
                continue
            if directory.offline is None:
                try:
                    await self.disk.run(directory.path, self.disk.sync_directory, directory.path)
                except OSError as error:
                    self.failed(directory.path, error)
                    if is_transient(error):
                        continue
            for key, renamed in synced.items():
                if ended.get(key) == renamed:
                    del ended[key]
