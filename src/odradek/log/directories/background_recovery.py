"""Repairing logs after an unclean stop in the Disk's thread, so that neither a start nor a request waits for it.

The thread works on objects of its own and leaves the log on the disk as a clean stop would have; the event loop then
opens it as clean.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.log.config import LogConfig
from odradek.log.directories.checkpoint_formats import RECOVERY_POINTS
from odradek.log.directories.log_directory import LogDirectory
from odradek.log.directories.placed_logs import PlacedLogs
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import LOG, base_offset_of
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

LANE: Final = "recovery"
"""Lanes of `Disk.run` that begin with this recover logs, `num.recovery.threads.per.data.dir` of each log directory."""

INLINE_BYTES: Final = 1 << 20
"""A log with no more than this to check is recovered when it is touched, without waiting for its turn."""

_OPEN_FILES: Final = 64


class Recovered(NamedTuple):
    """What became of a log; `repairs` says in words what had to be done."""

    end_offset: int
    repairs: list[str]


def recover(
    disk: Disk,
    clock: Clock,
    place: tuple[str, int, str],
    config: LogConfig,
    recovery_point: int,
    log_start_offset: int,
) -> Recovered:
    """Check and repair the log of `place` (topic, partition, directory) and sync it; blocks.

    Raises KafkaError KAFKA_STORAGE_ERROR when the disk fails.
    """
    repairs: list[str] = []
    environment = LogEnvironment(
        disk,
        clock,
        open_files=_OPEN_FILES,
        owner=StandaloneOwner(disk, repairs.append),
    )
    topic, partition, directory = place
    log = PartitionLog.open(
        topic,
        partition,
        directory,
        config,
        environment,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=False,
    )
    log.close()
    return Recovered(log.end_offset, repairs)


def unchecked_bytes(disk: Disk, directory: str, recovery_point: int) -> int:
    """At most how many bytes recovery would read: the segments that reach past the recovery point."""
    bases = []
    for name in disk.list(directory):
        base = base_offset_of(name)
        if base is not None and name.endswith(LOG):
            bases.append((base, name))
    first = max([base for base, _ in bases if base <= recovery_point], default=0)
    return sum(disk.size(f"{directory}/{name}") for base, name in bases if base >= first)


class BackgroundRecovery:
    """The logs that an unclean stop left unchecked. Owned by the event loop; only `recover` above runs in a thread."""

    __slots__ = ("_places", "_under_way")

    def __init__(self, places: PlacedLogs) -> None:
        self._places = places
        self._under_way: set[PartitionKey] = set()

    def is_under_way(self, key: PartitionKey) -> bool:
        """Whether a thread checks the partition's directory, even if the partition has been deleted since."""
        return key in self._under_way

    def unrecovered(self) -> list[PartitionKey]:
        """Partitions whose logs have not been checked since an unclean stop, and can be."""
        return [
            key
            for directory in self._places.directories
            if directory.offline is None
            for key in directory.unrecovered
            if key not in directory.beyond_recovery
        ]

    def check_openable(self, key: PartitionKey, path: str, directory: LogDirectory) -> None:
        """Raise KafkaError NOT_LEADER_OR_FOLLOWER while the log has too much unchecked data to open it at once.

        KAFKA_STORAGE_ERROR if recovery has failed; OSError.
        """
        if key not in directory.unrecovered and key not in self._under_way:
            return
        if key in directory.beyond_recovery:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.beyond_recovery[key])
        recovery_point = directory.recovery_points.get(key, 0)
        if key in self._under_way or unchecked_bytes(self._places.disk, path, recovery_point) > INLINE_BYTES:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{key[0]}-{key[1]} is checked after an unclean stop; try again"
            )

    def lower_recovery_point(self, key: PartitionKey, directory: LogDirectory, offset: int) -> None:
        """Rewrite the checkpoint if a check has cut the log off below the recovery point in it.

        Otherwise another crash would leave the batches that are appended from there on unchecked. Raises OSError, and
        then the log still has to be checked.
        """
        before = directory.recovery_points.get(key, 0)
        if offset >= before:
            return
        directory.recovery_points[key] = offset
        try:
            self._places.checkpoints.write_of(RECOVERY_POINTS, directory)
        except OSError:
            directory.recovery_points[key] = before
            raise

    async def recover(self, topic: str, partition: int, config: LogConfig, lane: int = 0) -> bool:
        """Recover the log behind the Disk port, unless it is open or under way; whether that was done."""
        key = (topic, partition)
        places = self._places
        directory = places.where.get(key)
        if directory is None or directory.offline or key in self._under_way or key not in directory.unrecovered:
            return False
        self._under_way.add(key)
        path = f"{directory.path}/{topic}-{partition}"
        try:
            recovered = await places.disk.run(
                f"{LANE} {directory.path} {lane}",
                recover,
                places.disk,
                places.clock,
                (topic, partition, path),
                config,
                directory.recovery_points.get(key, 0),
                directory.log_starts.get(key, 0),
            )
        except KafkaError as error:
            places.report(f"{path}: recovery failed: {error.message}")
            cause = error.__cause__
            if places.where.get(key) is directory and key in directory.unrecovered:
                if isinstance(cause, OSError):
                    places.failed(path, cause)
                else:
                    directory.beyond_recovery[key] = error.message
            return False
        finally:
            self._under_way.discard(key)
            if key not in places.where:
                places.remove_traces(path, key)
        if places.where.get(key) is directory and key in directory.unrecovered:
            for text in recovered.repairs:
                places.report(text)
            try:
                self.lower_recovery_point(key, directory, recovered.end_offset)
            except OSError as error:
                places.failed(path, error)
                return False
            directory.unrecovered.discard(key)
            directory.recovery_points[key] = recovered.end_offset
        return True
