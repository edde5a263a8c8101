"""All logs of a broker: finding, creating, opening, checkpointing, deleting, closing them in `log.dirs` (LogManager).

Starting reads the names in each directory and four small files, however many partitions there are. An
unused partition is an entry in a dict; its log is opened, and after a crash recovered, on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from odradek.log.config import LogConfig
from odradek.log.directories.background_recovery import BackgroundRecovery
from odradek.log.directories.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    format_clean_shutdown,
    format_partition_metadata,
    parse_partition_metadata,
)
from odradek.log.directories.events import DirectoryEvents
from odradek.log.directories.flusher import LogFlusher
from odradek.log.directories.log_directory import LogDirectory
from odradek.log.directories.placed_logs import DEFAULT_SETTINGS, DirectorySettings, PlacedLogs
from odradek.log.directories.placement import ReplicaPlacement
from odradek.log.directories.replica_moves import ReplicaMoves
from odradek.log.directories.startup import DirectoriesStartup
from odradek.log.durability import LogDurability
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import PARTITION_METADATA
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError


class LogDirectories:
    """The logs of all `log.dirs`, owned by the event loop.

    They report to `events`: when work became due, await `flusher.work`, which returns when to call it again. After a
    start: `startup`, then the rest.
    """

    __slots__ = (
        "_directories",
        "_disk",
        "_environment",
        "_late",
        "_logs",
        "_pending",
        "_places",
        "_unsynced_ids",
        "_where",
        "checkpoints",
        "events",
        "files",
        "flusher",
        "moves",
        "placement",
        "recovery",
        "startup",
        "writers",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random,
        paths: Sequence[str],
        *,
        open_files: int = 1024,
        settings: DirectorySettings = DEFAULT_SETTINGS,
        events: DirectoryEvents | None = None,
    ) -> None:
        events = self.events = events or DirectoryEvents()
        """What the directories report."""
        places = self._places = PlacedLogs(disk, clock, random, paths, open_files, settings, events)
        self._disk = disk
        self._directories = places.directories
        self._where = places.where
        self._logs = places.logs
        self._pending = places.pending
        self._environment = places.environment
        self.flusher = LogFlusher(places)
        """Syncs logs and does what they left for later."""
        self.checkpoints = places.checkpoints
        """The files of recovery points, log starts and high watermarks."""
        self.writers = places.writers
        """The write queues."""
        self.files = places.environment.files
        """The open files of all logs."""
        self.moves = ReplicaMoves(places, self.flusher, self.checkpoints)
        """Replicas that move to another directory."""
        self.startup = DirectoriesStartup(
            places, self.moves, adopts=settings.adopts, joins_quorum=settings.joins_quorum
        )
        """Locks the directories and reads what they hold; to be done first."""
        self.recovery = BackgroundRecovery(places)
        """Checks logs after an unclean stop."""
        self.placement = ReplicaPlacement(disk, places.directories, settings.cordoned)
        """Chooses the directories of new replicas."""
        # Paths of deleted logs that had files to be made by their queued writes.
        self._late: dict[str, LogDurability] = {}
        # Partitions created by this process whose topic id is not synced yet.
        self._unsynced_ids: set[PartitionKey] = set()

    def now(self) -> float:
        """The monotonic clock in seconds."""
        return self._environment.clock.monotonic()

    # --- what there is ---

    @property
    def directories(self) -> list[LogDirectory]:
        """The log directories in the order of `log.dirs`."""
        return self._directories

    def partitions(self) -> list[PartitionKey]:
        """Every partition that has a directory here."""
        return list(self._where)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Return the log directory that has the partition; None if none has."""
        return self._where.get((topic, partition))

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log if it is open."""
        return self._logs.get((topic, partition))

    @property
    def open_count(self) -> int:
        """The number of open logs."""
        return len(self._logs)

    def opened(self) -> list[PartitionLog]:
        """Return the open logs."""
        return list(self._logs.values())

    def unopened(self) -> Iterator[tuple[str, int, str, int | None]]:
        """(topic, partition, path, where its last compaction ended) of the logs that are not open.

        Logs may be opened, made and deleted between two of them; new ones may be missing.
        """
        for key, directory in list(self._where.items()):
            if key in self._logs or directory.offline is not None or self._where.get(key) is not directory:
                continue
            topic, partition = key
            yield topic, partition, f"{directory.path}/{topic}-{partition}", directory.cleaner_offsets.get(key)

    def size_bytes(self, topic: str, partition: int) -> int:
        """Bytes of the log's segments, without opening it."""
        log = self._logs.get((topic, partition))
        if log is not None:
            return log.size_bytes
        directory = self._where.get((topic, partition))
        if directory is None:
            return 0
        path = f"{directory.path}/{topic}-{partition}"
        return sum(self._disk.size(f"{path}/{name}") for name in self._disk.list(path) if name.endswith(".log"))

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """As last checkpointed; None if it was not."""
        directory = self._where.get((topic, partition))
        return None if directory is None else directory.watermarks.get((topic, partition))

    def cleaned_to(self, topic: str, partition: int) -> int | None:
        """Where the last compaction of the partition ended."""
        directory = self._where.get((topic, partition))
        return None if directory is None else directory.cleaner_offsets.get((topic, partition))

    async def note_cleaned(self, topic: str, partition: int, offset: int) -> None:
        """A compaction ended at the offset."""
        directory = self._where.get((topic, partition))
        if directory is not None:
            directory.cleaner_offsets[topic, partition] = offset
            await self.checkpoints.persist(CLEANER_OFFSETS)

    # --- create, open, delete ---

    def create(self, topic: str, partition: int, topic_id: bytes, *, is_new: bool = True) -> None:
        """Create the partition's directory, unless it has one. Raises KafkaError KAFKA_STORAGE_ERROR.

        Also for a partition that is not new, while it may be in a directory that could not be read at the start.
        """
        key = (topic, partition)
        if key in self._where:
            return
        if not is_new and self.startup.has_unread:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} may be in a log directory that could not be read"
            )
        if self.recovery.is_under_way(key):
            # A thread checks the directory of an earlier topic of this name, and may create files in it.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is deleted while it is checked; try again"
            )
        directory = self.placement.choose(key)
        path = f"{directory.path}/{topic}-{partition}"
        late = self._late.get(path)
        if late is not None and late.has_queued:
            # The thread of the write queue knows them by their paths, and would make them in the next directory.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the deleted log at {path} has files that are still to be made; try again",
            )
        self._late.pop(path, None)
        self._places.sync_ends(key, directory)
        try:
            self.checkpoints.clear(directory, key)
            self._disk.make_directories(path)
            data = format_partition_metadata(topic_id)
            self._disk.write_atomic(f"{path}/{PARTITION_METADATA}", data, sync=False)
        except OSError as error:
            raise self._places.not_made(path, key, error) from error
        self._unsynced_ids.add(key)
        self.placement.created(key)
        directory.known += 1
        self._where[key] = directory

    def open(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> PartitionLog:
        """The partition's log, created if it does not exist.

        What another topic of the same name left behind is set aside. Raises KafkaError KAFKA_STORAGE_ERROR, or
        NOT_LEADER_OR_FOLLOWER until `recovery` has checked the log.
        """
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            return log
        self.create(topic, partition, topic_id, is_new=is_new)
        directory = self._where[key]
        if directory.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.offline)
        path = f"{directory.path}/{topic}-{partition}"
        try:
            if not self._is_of_topic(path, topic_id):
                self._take_out(key)
                self.startup.set_aside(key, directory, "is of another topic of that name")
                self.create(topic, partition, topic_id, is_new=is_new)
                directory = self._where[key]
                path = f"{directory.path}/{topic}-{partition}"
            self.recovery.check_openable(key, path, directory)
        except OSError as error:
            raise self._places.storage_error(path, error) from error
        log = PartitionLog.open(
            topic,
            partition,
            path,
            config,
            self._environment,
            recovery_point=directory.recovery_points.get(key, 0),
            log_start_offset=directory.log_starts.get(key, 0),
            clean=key not in directory.unrecovered,
        )
        try:
            self.recovery.lower_recovery_point(key, directory, log.durability.recovery_point)
        except OSError as error:
            self._environment.files.forget_directory(path)
            raise self._places.storage_error(path, error) from error
        log.after_crash = directory.after_crash
        directory.unrecovered.discard(key)
        self._logs[key] = log
        if key in self._unsynced_ids:
            # An fsync for each partition of a large topic would be dear; for those that are used it is not.
            self._unsynced_ids.discard(key)
            self._pending.sync_id_later(path)
        return log

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the partition's log is known to lie in a directory that failed."""
        directory = self._where.get((topic, partition))
        return directory is not None and directory.offline is not None

    def _is_of_topic(self, path: str, topic_id: bytes) -> bool:
        """Whether the directory holds that topic's partition; one that does not say is taken over."""
        metadata = f"{path}/{PARTITION_METADATA}"
        try:
            found = parse_partition_metadata(self._disk.read_file(metadata))
            if found == topic_id:
                return True
            if not self.startup.adopts:
                return False
            self.events.report(f"{path} belongs to another topic of that name: adopted")
        except FileNotFoundError:
            pass
        except CorruptCheckpoint as error:
            self.events.report(f"{metadata} is damaged: {error}; it is rewritten")
        self._disk.make_directories(path)
        self._disk.write_atomic(metadata, format_partition_metadata(topic_id), sync=False)
        return True

    def delete(self, topic: str, partition: int, delay_ms: int = 60_000) -> None:
        """Rename the partition's directory now and remove it after the delay; `load` makes good a crash in between."""
        key = (topic, partition)
        log = self._logs.pop(key, None)
        directory = self._take_out(key)
        if directory is None:
            return
        path = f"{directory.path}/{topic}-{partition}"
        if log is not None:
            if log.durability.has_queued and self.files.has_late(path):
                self._late = {each: late for each, late in self._late.items() if late.has_queued}
                self._late[path] = log.durability
            self._pending.forget(log.durability)
            log.fail(f"{topic}-{partition} is deleted")
        try:
            self._places.doom(path, key, delay_ms)
        except OSError as error:
            raise self._places.storage_error(path, error) from error

    def _take_out(self, key: PartitionKey) -> LogDirectory | None:
        """Forget the partition; the directory that it was in."""
        directory = self._where.pop(key, None)
        if directory is not None:
            directory.forget(key)
            self.checkpoints.deleted(key)
            self._unsynced_ids.discard(key)
            self.moves.cancel(*key)
        return directory

    # --- closing ---

    async def close(
        self,
        *,
        clean: bool = True,
        high_watermarks: Mapping[PartitionKey, int] | None = None,
        broker_epoch: int = -1,
        threads: int = 1,
    ) -> None:
        """Sync all logs, with `threads` threads for each directory, write the checkpoints and, if nothing failed, mark
        the directories as clean.
        """
        await self.writers.wait_until_drained()
        if clean:
            await self.flusher.close(self.opened(), threads)
            self.checkpoints.write_now(RECOVERY_POINTS)
            self.checkpoints.write_now(LOG_START_OFFSETS)
            if high_watermarks is not None:
                self.checkpoints.note_watermarks(high_watermarks)
                self.checkpoints.write_now(HIGH_WATERMARKS)
            for directory in self._directories:
                self._mark_clean(directory, broker_epoch)
        self.startup.unlock()
        for log in self._logs.values():
            self._environment.files.forget_directory(log.directory)

    def _mark_clean(self, directory: LogDirectory, broker_epoch: int) -> None:
        if directory.offline is not None:
            return
        if directory.unrecovered:
            # These logs have not been checked since the last crash: the next start must check them.
            return
        if any(log.durability.is_dirty for key, log in self._logs.items() if self._where[key] is directory):
            return
        try:
            self._disk.write_atomic(f"{directory.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch))
        except OSError as error:
            self._places.failed(directory.path, error)
