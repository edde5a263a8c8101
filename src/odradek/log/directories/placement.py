"""In which of `log.dirs` a new replica is created (LogManager.nextLogDirs, KIP-1066 for cordoned directories)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.log.directories.log_directory import LogDirectory
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError


class ReplicaPlacement:
    """Chooses the log directories of new replicas, and finds directories by their configured path."""

    __slots__ = ("_cordoned", "_directories", "_disk", "_preferred")

    def __init__(self, disk: Disk, directories: Sequence[LogDirectory], cordoned: Callable[[], Sequence[str]]) -> None:
        """`cordoned` returns the paths of the directories that get no new replicas; `*` is all of them."""
        self._disk = disk
        self._directories = directories
        self._preferred: dict[PartitionKey, LogDirectory] = {}
        self._cordoned = cordoned

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Create the partition in that directory once it is created here."""
        self._preferred[topic, partition] = directory

    def created(self, key: PartitionKey) -> None:
        """Forget the preference: the partition is created."""
        self._preferred.pop(key, None)

    def choose(self, key: PartitionKey) -> LogDirectory:
        """Return the preferred directory, else the one with the fewest partitions; cordoned ones only if all are.

        Raises KafkaError KAFKA_STORAGE_ERROR if all directories are offline.
        """
        online = [directory for directory in self._directories if directory.offline is None]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        preferred = self._preferred.get(key)
        if preferred in online:
            return preferred
        candidates = [each for each in online if not self.is_cordoned(each)] or online
        return min(candidates, key=lambda each: each.known)

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Whether the directory gets no new replicas."""
        cordoned = self._cordoned()
        return "*" in cordoned or any(self._is_at(directory, path) for path in cordoned)

    def named(self, path: str) -> LogDirectory:
        """Return the log directory with that path. KafkaError LOG_DIR_NOT_FOUND or KAFKA_STORAGE_ERROR."""
        for directory in self._directories:
            if self._is_at(directory, path):
                if directory.offline is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.offline)
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among log.dirs")

    def _is_at(self, directory: LogDirectory, path: str) -> bool:
        return path.rstrip("/") in (directory.path, self._disk.absolute(directory.path))
