"""All logs of a broker: finding, creating, opening, checkpointing, deleting, closing them in `log.dirs` (LogManager).

Starting reads the names in each directory and four small files, however many partitions there are. A partition that
nobody touches is an entry in a dict; it is opened, and after a crash recovered, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from odradek.log.background_recovery import INLINE_BYTES, recover, unchecked_bytes
from odradek.log.background_recovery import LANE as RECOVERY_LANE
from odradek.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    MetaProperties,
    TopicPartition,
    format_clean_shutdown,
    format_partition_metadata,
    parse_partition_metadata,
)
from odradek.log.config import LogConfig
from odradek.log.directory_scan import may_have_lost_records, note_boots, note_losses, scan
from odradek.log.environment import TRANSIENT, LogEnvironment
from odradek.log.files import DELETE_DIRECTORY, PARTITION_METADATA, STRAY_DIRECTORY
from odradek.log.flushing import FlushPlan
from odradek.log.log_directory import LogDirectory, LogDirectoryError
from odradek.log.moves import TAKES_OVER, Move, future_name
from odradek.log.offset_checkpoints import OffsetCheckpoints
from odradek.log.partition_log import PartitionLog
from odradek.log.pending_work import PendingWork
from odradek.log.write_queue import WriteQueue, WriteSettings
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError

_MAX_NAME: Final = 255


class LogDirectories:
    """The logs of all `log.dirs`, owned by the event loop.

    `on_work` is called when something became due (a flush after a roll, a deletion): then await `work`, which says when
    to come again. `on_offline` is called with the path of a directory that failed.
    """

    __slots__ = (
        "_clock",
        "_directories",
        "_disk",
        "_environment",
        "_logs",
        "_pending",
        "_preferred",
        "_queues",
        "_random",
        "_recovering",
        "_unsettled",
        "_where",
        "adopts",
        "checkpoints",
        "cordoned",
        "moves",
        "on_offline",
        "records_may_be_lost",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random,
        paths: Sequence[str],
        *,
        open_files: int = 1024,
        write_settings: WriteSettings | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._random = random
        self._directories = [LogDirectory(path.rstrip("/") or "/") for path in dict.fromkeys(paths)]
        self._where: dict[TopicPartition, LogDirectory] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._pending = PendingWork(disk, clock)
        self.checkpoints = OffsetCheckpoints(self._directories, self._where, self._logs, self._failed)
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._recovering: set[TopicPartition] = set()
        self._unsettled: set[TopicPartition] = set()
        """Made by this process; that they are which topic's is not synced yet."""
        self.moves: dict[TopicPartition, Move] = {}
        """Replicas on their way to another directory."""
        self.adopts = False
        self.records_may_be_lost = False
        """After `load`: the machine went down with records that were not synced; after `expect`: a disk is another."""
        """Whether a partition's directory that names another topic id is taken over instead of deleted."""
        self.cordoned: Callable[[], Sequence[str]] = tuple
        """Paths of the directories that get no new replicas; `*` is all of them."""
        self.on_offline: Callable[[str], None] = _nothing_with
        settings = write_settings or WriteSettings()
        self._queues = {
            directory.path: WriteQueue(disk, clock, directory.path, settings) for directory in self._directories
        }
        environment = LogEnvironment(disk, clock, random, open_files)
        environment.writer_of = self._writer_of
        environment.delete_later = self._pending.delete_later
        environment.flush_later = self._pending.flush_later
        environment.failed = self._failed
        environment.recovered = self._recovered
        environment.recovery_point_lowered = self.checkpoint_recovery_points
        self._environment = environment

    @property
    def on_work(self) -> Callable[[], None]:
        """Called when `work` has something to do."""
        return self._pending.on_work

    @on_work.setter
    def on_work(self, callback: Callable[[], None]) -> None:
        self._pending.on_work = callback

    @property
    def report(self) -> Callable[[str], None]:
        """Told in words of everything that was repaired or failed."""
        return self._pending.report

    @report.setter
    def report(self, callback: Callable[[str], None]) -> None:
        self._pending.report = callback
        for queue in self._queues.values():
            queue.report = callback

    # --- start ---

    def lock(self) -> None:
        """Make the directories and keep other processes out of them. Raises LogDirectoryError when one is in use."""
        for directory in self._directories:
            try:
                self._disk.make_directories(directory.path)
                directory.lock = self._disk.lock(f"{directory.path}/{LOCK}")
            except BlockingIOError as error:
                self._unlock()
                raise LogDirectoryError(
                    f"{directory.path}: another process uses this log directory (it holds {LOCK})"
                ) from error
            except OSError as error:
                directory.offline = f"{directory.path}: {error}"
        self._check_any_online()

    def _check_any_online(self) -> None:
        if all(directory.offline for directory in self._directories):
            self._unlock()
            reasons = "; ".join(directory.offline or "" for directory in self._directories)
            raise LogDirectoryError(f"no log directory can be used: {reasons}")

    def load(self, *, cluster_id: str, node_id: int, producer_id_expiration_ms: int | None = None) -> None:
        """Take the directories into use, locked if they are not yet. LogDirectoryError if one is another node's or all
        fail.
        """
        if all(directory.lock is None for directory in self._directories):
            self.lock()
        if producer_id_expiration_ms is not None:
            self._environment.producer_id_expiration_ms = producer_id_expiration_ms
        try:
            self._load_directories(cluster_id, node_id)
        except LogDirectoryError:
            self._unlock()
            raise

    def _load_directories(self, cluster_id: str, node_id: int) -> None:
        for directory in self._directories:
            if directory.offline is None:
                try:
                    self._load_directory(directory, cluster_id, node_id)
                except OSError as error:
                    directory.offline = f"{directory.path}: {error}"
            if directory.offline is not None:
                self.report(f"log directory {directory.offline}")
        for key, move in list(self.moves.items()):
            try:
                self._settle_move(key, move)
            except OSError as error:
                self._failed(move.path, error)
        self._check_any_online()

    def _load_directory(self, directory: LogDirectory, cluster_id: str, node_id: int) -> None:
        own = MetaProperties(cluster_id, node_id, None)
        found = scan(self._disk, directory, own, self._random, self.report)
        directory.after_crash = not found.clean
        if may_have_lost_records(self._disk, found, directory.path):
            self.records_may_be_lost = True
        for path in found.doomed:
            self._pending.delete_later((path,), 0)
        for key, path in found.futures:
            self.moves.setdefault(key, Move(directory, path))
        for key in found.partitions:
            if key in self._where and not self._resolve(key, directory, f"{key[0]}-{key[1]}"):
                continue
            self._where[key] = directory
            directory.known += 1
            if not found.clean:
                directory.unrecovered.add(key)
        directory.was_read = True

    def _resolve(self, key: TopicPartition, directory: LogDirectory, name: str) -> bool:
        """Two directories hold the partition, as an exchange cut short leaves it: whether the new one takes over."""
        other = self._where[key]
        for stays, goes in ((directory, other), (other, directory)):
            if self._disk.exists(f"{stays.path}/{name}/{TAKES_OVER}"):
                self._doom(f"{goes.path}/{name}", key, 0)
                if goes is other:
                    other.forget(key)
                return stays is directory
        raise LogDirectoryError(f"{name} is in two log directories, {other.path} and {directory.path}: remove one")

    def _settle_move(self, key: TopicPartition, move: Move) -> None:
        """Finish the exchange of a replica that was complete; any other goes on if what it copies is there."""
        source = self._where.get(key)
        if self._disk.exists(f"{move.path}/{TAKES_OVER}"):
            del self.moves[key]
            path = f"{move.directory.path}/{key[0]}-{key[1]}"
            if source is not None:
                start = source.log_starts.get(key)
                self._doom(f"{source.path}/{key[0]}-{key[1]}", key, 0)
                source.forget(key)
                if start is not None:
                    move.directory.log_starts[key] = start
            self._disk.rename(move.path, path)
            self._where[key] = move.directory
            move.directory.known += 1
            move.directory.unrecovered.add(key)
        elif source is None and not any(directory.offline for directory in self._directories):
            del self.moves[key]
            self._doom(move.path, key, 0)

    def expect(self, counted_on: Iterable[TopicPartition]) -> None:
        """These the cluster takes for complete here: one without a directory went with its disk.

        Not said while a directory could not be read: it may be there, and is offline then.
        """
        if self.records_may_be_lost or self.has_unread:
            return
        missing = [key for key in counted_on if key not in self._where]
        if missing:
            self.records_may_be_lost = True
            self.report(f"{len(missing)} partitions that should be here are not, {missing[0][0]}-{missing[0][1]} first")
            note_losses(self._disk, self._directories, self._failed)

    def losses_are_judged(self) -> None:
        """The cluster relies on none of the records any more that may be lost: later starts need not tell of them."""
        if self.records_may_be_lost:
            self.records_may_be_lost = False
            note_boots(self._disk, self._directories, self._failed)

    def set_aside_strays(self, is_known: Callable[[str, int], bool]) -> int:
        """Rename the directories of partitions that the cluster does not know (here) to `-stray`; how many.

        As when the broker stopped between the deletion of a topic and that of its files. They are kept, as in Kafka:
        what nobody knows may as well be what the metadata lost. Not with `adopts`: they may be to be adopted.
        """
        if self.adopts:
            return 0
        strays = [key for key, directory in self._where.items() if directory.offline is None and not is_known(*key)]
        for key in strays:
            directory = self._where.pop(key)
            directory.forget(key)
            try:
                stray = self._rename_away(f"{directory.path}/{key[0]}-{key[1]}", key, STRAY_DIRECTORY)
            except OSError as error:
                self._failed(directory.path, error)
                continue
            self.report(f"{key[0]}-{key[1]} is no partition of this broker; its directory is {stray} now")
        return len(strays)

    # --- what there is ---

    @property
    def has_unread(self) -> bool:
        """Whether a directory could not be read at the start, so that nobody knows what it holds."""
        return not all(directory.was_read for directory in self._directories)

    @property
    def directories(self) -> list[LogDirectory]:
        return self._directories

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a directory here."""
        return list(self._where)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        return self._where.get((topic, partition))

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log if it is open."""
        return self._logs.get((topic, partition))

    def opened(self) -> list[PartitionLog]:
        return list(self._logs.values())

    def unopened(self) -> list[tuple[str, int, str, int | None]]:
        """(topic, partition, path, where its last compaction ended) of the logs that nobody has opened."""
        return [
            (
                topic,
                partition,
                f"{directory.path}/{topic}-{partition}",
                directory.cleaner_offsets.get((topic, partition)),
            )
            for (topic, partition), directory in self._where.items()
            if (topic, partition) not in self._logs and directory.offline is None
        ]

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
            await self.persist(CLEANER_OFFSETS)

    # --- create, open, delete ---

    def create(self, topic: str, partition: int, topic_id: bytes, *, is_new: bool = True) -> None:
        """Make the partition's directory where the fewest are, unless it has one. KafkaError KAFKA_STORAGE_ERROR.

        So for one that is not new, too, while a directory that could not be read since the start may hold it.
        """
        key = (topic, partition)
        if key in self._where:
            return
        if not is_new and self.has_unread:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its log may be in a log directory that cannot be read")
        directory = self._choose(key)
        path = f"{directory.path}/{topic}-{partition}"
        try:
            self._disk.make_directories(path)
            data = format_partition_metadata(topic_id)
            self._disk.write_atomic(f"{path}/{PARTITION_METADATA}", data, sync=False)
        except OSError as error:
            raise self._storage_error(path, error) from error
        self._unsettled.add(key)
        directory.log_starts.pop(key, None)
        directory.known += 1
        self._where[key] = directory

    def _choose(self, key: TopicPartition) -> LogDirectory:
        """Where a new replica goes: as it was asked for, else where the fewest are, cordoned ones only if all are."""
        online = [directory for directory in self._directories if directory.offline is None]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        preferred = self._preferred.pop(key, None)
        if preferred in online:
            return preferred
        return min([each for each in online if not self.is_cordoned(each)] or online, key=LogDirectory.load)

    def is_cordoned(self, directory: LogDirectory) -> bool:
        cordoned = self.cordoned()
        return "*" in cordoned or any(self._same(directory, path) for path in cordoned)

    def _same(self, directory: LogDirectory, path: str) -> bool:
        return path.rstrip("/") in (directory.path, self._disk.absolute(directory.path))

    def named(self, path: str) -> LogDirectory:
        """The log directory with that path. KafkaError LOG_DIR_NOT_FOUND or KAFKA_STORAGE_ERROR."""
        for directory in self._directories:
            if self._same(directory, path):
                if directory.offline is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.offline)
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among log.dirs")

    def open(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> PartitionLog:
        """The partition's log, created if there is none.

        What an earlier topic of the same name left behind is deleted. Raises KafkaError KAFKA_STORAGE_ERROR, or
        NOT_LEADER_OR_FOLLOWER while the log is yet to be recovered by `recover`.
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
                self.delete(topic, partition, config.file_delete_delay_ms)
                self.create(topic, partition, topic_id, is_new=is_new)
                directory = self._where[key]
                path = f"{directory.path}/{topic}-{partition}"
            if key in directory.unrecovered or key in self._recovering:
                self._check_recovery(key, path, directory)
        except OSError as error:
            raise self._storage_error(path, error) from error
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
        log.after_crash = directory.after_crash
        directory.unrecovered.discard(key)
        self._logs[key] = log
        if key in self._unsettled:
            # An fsync for each partition of a large topic would be dear; for those that are used it is not.
            self._unsettled.discard(key)
            self._pending.settle_later(path)
        if log.recovery_point < directory.recovery_points.get(key, 0):
            self.checkpoint_recovery_points()
        return log

    def _check_recovery(self, key: TopicPartition, path: str, directory: LogDirectory) -> None:
        if key in directory.beyond_recovery:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.beyond_recovery[key])
        recovery_point = directory.recovery_points.get(key, 0)
        if key in self._recovering or unchecked_bytes(self._disk, path, recovery_point) > INLINE_BYTES:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{key[0]}-{key[1]} is checked after an unclean stop; try again"
            )

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the partition's log is known to lie in a directory that failed."""
        directory = self._where.get((topic, partition))
        return directory is not None and directory.offline is not None

    def unrecovered(self) -> list[TopicPartition]:
        """Partitions whose logs have not been checked since an unclean stop, and can be."""
        return [
            key
            for directory in self._directories
            if directory.offline is None
            for key in directory.unrecovered
            if key not in directory.beyond_recovery
        ]

    async def recover(self, topic: str, partition: int, config: LogConfig, lane: int = 0) -> bool:
        """Recover the log behind the Disk port, unless it is open or under way; whether that was done."""
        key = (topic, partition)
        directory = self._where.get(key)
        if directory is None or directory.offline or key in self._recovering or key not in directory.unrecovered:
            return False
        self._recovering.add(key)
        path = f"{directory.path}/{topic}-{partition}"
        try:
            recovered = await self._disk.run(
                f"{RECOVERY_LANE} {directory.path} {lane}",
                recover,
                self._disk,
                self._clock,
                (topic, partition, path),
                config,
                directory.recovery_points.get(key, 0),
                directory.log_starts.get(key, 0),
                self._environment.producer_id_expiration_ms,
            )
        except KafkaError as error:
            self.report(f"{path}: recovery failed: {error.message}")
            cause = error.__cause__
            if self._where.get(key) is directory and key in directory.unrecovered:
                if isinstance(cause, OSError):
                    self._failed(path, cause)
                else:
                    directory.beyond_recovery[key] = error.message
            return False
        finally:
            self._recovering.discard(key)
        if self._where.get(key) is directory and key in directory.unrecovered:
            for text in recovered.repairs:
                self.report(text)
            directory.unrecovered.discard(key)
            directory.recovery_points[key] = recovered.end_offset
        return True

    def _is_of_topic(self, path: str, topic_id: bytes) -> bool:
        """Whether the directory holds that topic's partition; one that does not say is taken over."""
        metadata = f"{path}/{PARTITION_METADATA}"
        try:
            found = parse_partition_metadata(self._disk.read_file(metadata))
            if found == topic_id:
                return True
            self.report(f"{path} is of another topic of that name: {'taken over' if self.adopts else 'deleted'}")
            if not self.adopts:
                return False
        except FileNotFoundError:
            pass
        except CorruptCheckpoint as error:
            self.report(f"{metadata}: {error}; written anew")
        self._disk.make_directories(path)
        self._disk.write_atomic(metadata, format_partition_metadata(topic_id), sync=False)
        return True

    def delete(self, topic: str, partition: int, delay_ms: int = 60_000) -> None:
        """Rename the partition's directory now and remove it after the delay; `load` makes good a crash in between."""
        key = (topic, partition)
        directory = self._where.pop(key, None)
        log = self._logs.pop(key, None)
        if directory is None:
            return
        directory.forget(key)
        self._unsettled.discard(key)
        self.cancel_move(topic, partition)
        path = f"{directory.path}/{topic}-{partition}"
        if log is not None:
            self._pending.forget(log)
            log.fail(f"{topic}-{partition} is deleted")
        try:
            self._doom(path, key, delay_ms)
        except OSError as error:
            raise self._storage_error(path, error) from error

    def _doom(self, path: str, key: TopicPartition, delay_ms: int) -> None:
        """Rename a partition's directory so that nobody takes it for one, and remove it later. Raises OSError."""
        self._pending.delete_later((self._rename_away(path, key, DELETE_DIRECTORY),), delay_ms)

    def _rename_away(self, path: str, key: TopicPartition, ending: str) -> str:
        self._environment.files.forget_directory(path)
        suffix = f".{self._random.uuid().hex()}{ending}"
        renamed = f"{path.rpartition('/')[0]}/{f'{key[0]}-{key[1]}'[: _MAX_NAME - len(suffix)]}{suffix}"
        self._disk.rename(path, renamed)
        return renamed

    # --- moves between directories ---

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Create the partition there, when it comes to that."""
        self._preferred[topic, partition] = directory

    def move(self, log: PartitionLog, directory: LogDirectory, topic_id: bytes) -> None:
        """Begin to copy the log to the directory; what was on its way elsewhere is dropped. KafkaError."""
        key = (log.topic, log.partition)
        under_way = self.moves.get(key)
        if under_way is not None and under_way.directory is directory:
            return
        self.cancel_move(*key)
        if self._where.get(key) is directory:
            return
        path = f"{directory.path}/{future_name(*key, self._random.uuid().hex())}"
        try:
            self._disk.make_directories(path)
            self._disk.write_atomic(f"{path}/{PARTITION_METADATA}", format_partition_metadata(topic_id), sync=False)
        except OSError as error:
            raise self._storage_error(path, error) from error
        self.moves[key] = Move(directory, path)
        self.on_work()

    def cancel_move(self, topic: str, partition: int) -> None:
        move = self.moves.pop((topic, partition), None)
        if move is None or move.directory.offline is not None:
            return
        if move.log is not None:
            move.log.fail(f"{move.path} is given up")
        try:
            self._doom(move.path, (topic, partition), 0)
        except OSError as error:
            self._failed(move.path, error)

    async def copy(self, source: PartitionLog) -> int:
        """Copy the next chunk of a log that moves; the number of bytes. KafkaError if a disk fails."""
        move = self.moves[source.topic, source.partition]
        if move.log is None:
            # After a restart there may be much to check.
            await self._disk.run(
                f"{RECOVERY_LANE} {move.directory.path} moves",
                recover,
                self._disk,
                self._clock,
                (source.topic, source.partition, move.path),
                source.config,
                0,
                0,
                self._environment.producer_id_expiration_ms,
            )
            if self.moves.get((source.topic, source.partition)) is not move:
                return 0
            move.log = PartitionLog.open(
                source.topic, source.partition, move.path, source.config, self._environment, clean=True
            )
        return await move.copy(source, self._disk, self._clock.now_ms())

    async def exchange(self, source: PartitionLog) -> PartitionLog | None:
        """Let the copied replica take over: the partition's log from now on; None if it has fallen behind again.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        key = (source.topic, source.partition)
        move = self.moves[key]
        log = move.log
        assert log is not None
        if source.has_queued:
            await self._writer_of(source.directory).drained()
        await self._flush(log, log.end_offset)
        log_start_offset = move.directory.log_starts[key] = source.log_start_offset
        failure = await self.persist(LOG_START_OFFSETS)
        if failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        stays = self.moves.get(key) is not move or source.is_offline or source.log_start_offset > log_start_offset
        if stays or not move.finish(source, self._clock.now_ms()):
            return None
        directory = self._where[key]
        path = f"{move.directory.path}/{key[0]}-{key[1]}"
        recovery_point = log.recovery_point
        try:
            log.take_over(source)
            log.park()
            if self._disk.exists(marker := f"{source.directory}/{TAKES_OVER}"):
                self._disk.remove(marker)
                self._disk.sync_directory(source.directory)
            self._disk.write_atomic(f"{move.path}/{TAKES_OVER}", b"")
            self._doom(source.directory, key, source.config.file_delete_delay_ms)
            self._disk.rename(move.path, path)
        except OSError as error:
            raise self._storage_error(move.path, error) from error
        del self.moves[key]
        self._pending.forget(source)
        self._pending.forget(log)
        source.fail(f"{source.directory} was moved to {path}")
        log.fail(f"{move.path} is {path} now")
        directory.forget(key)
        move.directory.known += 1
        self._where[key] = move.directory
        moved = PartitionLog.open(
            *key, path, source.config, self._environment, log_start_offset=log_start_offset, clean=True
        )
        moved.recovery_point = recovery_point
        self._logs[key] = moved
        await self.persist(RECOVERY_POINTS)
        return moved

    # --- later work ---

    async def work(self, now_ms: int) -> int | None:
        """Do what is due: sync rolled segments, remove what was deleted. When to come again, in ms; None for not before
        `on_work`.
        """
        for log in self._pending.take_flushes():
            if log.has_queued:
                await self._writer_of(log.directory).drained()
            await self._flush(log, log.active_base_offset)
        for path in self._pending.take_unsettled():
            try:
                await self._disk.run(self._lane(path), self._pending.settle, path)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                self._failed(path, error)
        while (paths := self._pending.due(now_ms)) is not None:
            await self._disk.run(self._lane(paths[0]), self._pending.remove, paths)
        return self._pending.next_ms

    async def flush(self) -> None:
        """Sync every log that has something new: a crash of the machine then loses nothing, a restart reads little."""
        for queue in self._queues.values():
            await queue.drained()
        for log in self.opened():
            if log.is_dirty:
                await self._flush(log, log.end_offset)

    def sweep_files(self) -> None:
        """Close the files that nobody used since the last call."""
        self._environment.files.sweep()

    async def flush_log(self, log: PartitionLog) -> None:
        """Sync all of one log."""
        await self._flush(log, log.end_offset)

    def release_idle(self) -> int:
        """Let logs that nobody appended to since the last call give back memory and files; how many are idle."""
        self.sweep_files()
        return sum(log.release_if_idle() for log in self._logs.values())

    # --- what the event loop does not write itself ---

    def _writer_of(self, path: str) -> WriteQueue:
        directory = self._directory_at(path)
        assert directory is not None
        return self._queues[directory.path]

    def charge_queued(self, charge: Callable[[int], None]) -> None:
        """Tell how many bytes of requests wait to be written more, or less."""
        for queue in self._queues.values():
            queue.charge = charge

    @property
    def longest_write_s(self) -> float:
        """The longest write that the event loop had to wait for so far."""
        return max(queue.longest_s for queue in self._queues.values())

    async def _flush(self, log: PartitionLog, offset: int) -> None:
        if log.is_offline:
            return
        try:
            plan = log.plan_flush(offset)
        except KafkaError as error:
            self.report(f"{log.directory} is not flushed: {error.message}")
            return
        if plan is not None:
            await self._sync(log, plan)

    async def _sync(self, log: PartitionLog, plan: FlushPlan) -> None:
        try:
            await self._disk.run(self._lane(log.directory), plan.sync, self._disk)
        except OSError as error:
            if not log.is_offline:
                self._failed(log.directory, error)
            return
        log.finish_flush(plan)

    def _lane(self, path: str) -> str:
        directory = self._directory_at(path)
        return path if directory is None else directory.path

    def _directory_at(self, path: str) -> LogDirectory | None:
        for directory in self._directories:
            if path == directory.path or path.startswith(directory.path + "/"):
                return directory
        return None

    # --- failures ---

    def _recovered(self, text: str) -> None:
        self.report(text)

    def _failed(self, path: str, error: OSError) -> None:
        """Take the directory out of use: its logs raise KAFKA_STORAGE_ERROR, the others go on."""
        directory = self._directory_at(path)
        if directory is None or directory.offline is not None or error.errno in TRANSIENT:
            return
        directory.offline = f"log directory {directory.path} is offline: {error}"
        self.report(directory.offline)
        for key, log in self._logs.items():
            if self._where.get(key) is directory:
                log.fail(directory.offline)
        self.on_offline(directory.path)

    def _storage_error(self, path: str, error: OSError) -> KafkaError:
        self._failed(path, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}")

    # --- checkpoints and closing ---

    def checkpoint_recovery_points(self) -> None:
        """Write `recovery-point-offset-checkpoint` of every directory, in this thread."""
        self.checkpoints.write_now(RECOVERY_POINTS)

    def checkpoint_high_watermarks(self, watermarks: Mapping[TopicPartition, int]) -> None:
        """Write `replication-offset-checkpoint`; partitions that are not named keep their last value."""
        self.checkpoints.note_watermarks(watermarks)
        self.checkpoints.write_now(HIGH_WATERMARKS)

    async def checkpoint(self, watermarks: Mapping[TopicPartition, int]) -> None:
        """Write recovery points, log starts and high watermarks behind the Disk port."""
        await self.checkpoints.persist_all(watermarks)

    async def persist(self, name: str) -> OSError | None:
        """Write one checkpoint of every directory behind the Disk port; see OffsetCheckpoints."""
        return await self.checkpoints.persist(name)

    async def close(
        self, *, clean: bool = True, high_watermarks: Mapping[TopicPartition, int] | None = None, broker_epoch: int = -1
    ) -> None:
        """Sync all logs, write the checkpoints and, if everything went well, mark the directories as clean."""
        for queue in self._queues.values():
            await queue.drained()
        if clean:
            for log in self.opened():
                if not log.is_offline:
                    await self._close_log(log)
            self.checkpoint_recovery_points()
            self.checkpoints.write_now(LOG_START_OFFSETS)
            if high_watermarks is not None:
                self.checkpoint_high_watermarks(high_watermarks)
            for directory in self._directories:
                self._mark_clean(directory, broker_epoch)
        self._unlock()
        for log in self._logs.values():
            self._environment.files.forget_directory(log.directory)

    def _unlock(self) -> None:
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None

    async def _close_log(self, log: PartitionLog) -> None:
        try:
            plan = log.prepare_close()
        except KafkaError as error:
            self.report(f"{log.directory}: {error.message}")
            return
        if plan is not None:
            await self._sync(log, plan)

    def _mark_clean(self, directory: LogDirectory, broker_epoch: int) -> None:
        if directory.offline is not None:
            return
        if directory.unrecovered:
            # Nobody has looked at what the last crash left in these: the next start must.
            return
        if any(log.is_dirty for key, log in self._logs.items() if self._where[key] is directory):
            return
        try:
            self._disk.write_atomic(f"{directory.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch))
        except OSError as error:
            self._failed(directory.path, error)


def _nothing_with(text: str) -> None:
    """By default nobody listens."""
