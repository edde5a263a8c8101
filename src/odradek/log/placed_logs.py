"""Which partition's log lies in which of `log.dirs`, which logs are open, and what follows when a directory fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from odradek.log.checkpoints import TopicPartition
from odradek.log.environment import LogEnvironment, passes
from odradek.log.files import DELETE_DIRECTORY
from odradek.log.log_directory import LogDirectory
from odradek.log.partition_log import PartitionLog
from odradek.log.pending_work import PendingWork
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError

_MAX_NAME: Final = 255


class PlacedLogs:
    """What the parts of LogDirectories share. `on_offline` is called with the path of a directory that failed."""

    __slots__ = (
        "_ended",
        "clock",
        "directories",
        "disk",
        "environment",
        "logs",
        "on_offline",
        "pending",
        "random",
        "where",
    )

    def __init__(self, disk: Disk, clock: Clock, random: Random, paths: Sequence[str], open_files: int) -> None:
        self.disk = disk
        self.clock = clock
        self.random = random
        self.directories = [LogDirectory(path.rstrip("/") or "/") for path in dict.fromkeys(paths)]
        self.where: dict[TopicPartition, LogDirectory] = {}
        """Every partition that has a directory here."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """The open ones."""
        self._ended: dict[str, dict[TopicPartition, str]] = {directory.path: {} for directory in self.directories}
        """By log directory: whose directories have other names there (which), though a power loss may undo it."""
        self.pending = PendingWork(disk, clock)
        self.on_offline: Callable[[str], None] = _nothing_with
        environment = LogEnvironment(disk, clock, random, open_files)
        environment.delete_later = self.pending.delete_later
        environment.flush_later = self.pending.flush_later
        environment.failed = self.failed
        environment.recovered = self.report
        self.environment = environment

    def report(self, text: str) -> None:
        """Tell in words of what was repaired or failed."""
        self.pending.report(text)

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
        """Take the directory out of use: its logs raise KAFKA_STORAGE_ERROR, the others go on."""
        directory = self.at(path)
        if directory is None or directory.offline is not None or passes(error):
            return
        directory.offline = f"log directory {directory.path} is offline: {error}"
        self.report(directory.offline)
        for key, log in self.logs.items():
            if self.where.get(key) is directory:
                log.fail(directory.offline)
        self.on_offline(directory.path)

    def storage_error(self, path: str, error: OSError) -> KafkaError:
        """`failed`, and what to raise for it."""
        self.failed(path, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}")

    def not_made(self, path: str, key: TopicPartition, error: OSError) -> KafkaError:
        """`storage_error`, and take away what is there: the next start would take it for the partition, which may have
        been made in another log directory since.
        """
        raised = self.storage_error(path, error)
        self.remove_traces(path, key)
        return raised

    def doom(self, path: str, key: TopicPartition, delay_ms: int) -> None:
        """Rename a partition's directory so that nobody takes it for one, and remove it later. Raises OSError."""
        self.pending.delete_later((self.rename_away(path, key, DELETE_DIRECTORY),), delay_ms)

    def remove_traces(self, path: str, key: TopicPartition) -> None:
        """Of a log that is not there: its directory was not made whole, or again by a check of what was given up."""
        try:
            if self.disk.exists(path):
                self.doom(path, key, 0)
        except OSError as error:
            self.failed(path, error)

    def rename_away(self, path: str, key: TopicPartition, ending: str) -> str:
        """Give a partition's directory a name with that ending, by which it is none; the new path. Raises OSError."""
        self.environment.files.forget_directory(path)
        suffix = f".{self.random.uuid().hex()}{ending}"
        renamed = f"{path.rpartition('/')[0]}/{f'{key[0]}-{key[1]}'[: _MAX_NAME - len(suffix)]}{suffix}"
        self.disk.rename(path, renamed)
        directory = self.at(path)
        if directory is not None and path == f"{directory.path}/{key[0]}-{key[1]}":
            self._ended[directory.path][key] = renamed
        return renamed

    def sync_ends(self, key: TopicPartition, stays: LogDirectory) -> None:
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

    async def settle_ends(self) -> None:
        """As `sync_ends` of all partitions, behind the Disk port: nobody has to wait for it later."""
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
                    if passes(error):
                        continue
            for key, renamed in synced.items():
                if ended.get(key) == renamed:
                    del ended[key]


def _nothing_with(text: str) -> None:
    """By default nobody listens."""
