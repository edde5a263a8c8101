"""All logs of a broker: finding, creating, opening, checkpointing, deleting, closing them in `log.dirs` (LogManager).

Starting reads the names in each directory and four small files, however many partitions there are. A partition that
nobody touches is an entry in a dict; it is opened, and after a crash recovered, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from odradek.log.config import LogConfig
from odradek.log.directories.background_recovery import INLINE_BYTES, recover, unchecked_bytes
from odradek.log.directories.background_recovery import LANE as RECOVERY_LANE
from odradek.log.directories.checkpoint_formats import (
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
from odradek.log.directories.flusher import LogFlusher
from odradek.log.directories.log_directory import LogDirectory, LogDirectoryError
from odradek.log.directories.ownership import refuse_foreign
from odradek.log.directories.placed_logs import PlacedLogs
from odradek.log.directories.replica_copy import TAKES_OVER
from odradek.log.directories.replica_moves import ReplicaMoves
from odradek.log.directories.scan import may_have_lost_records, note_boots, note_losses, scan
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import LOG, PARTITION_METADATA, STRAY_DIRECTORY, segment_path
from odradek.log.writing.write_queue import WriteSettings
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError


class LogDirectories:
    """The logs of all `log.dirs`, owned by the event loop.

    `on_work` is called when something became due (a flush after a roll, a deletion): then await `flusher.work`, which
    returns when to call it again. `on_offline` is called with the path of a directory that failed.
    """

    __slots__ = (
        "_clock",
        "_directories",
        "_disk",
        "_environment",
        "_logs",
        "_pending",
        "_places",
        "_preferred",
        "_random",
        "_recovering",
        "_topic_id_of",
        "_unsettled",
        "_where",
        "adopts",
        "checkpoints",
        "cordoned",
        "files",
        "flusher",
        "moves",
        "records_may_be_lost",
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
        write_settings: WriteSettings | None = None,
    ) -> None:
        places = self._places = PlacedLogs(disk, clock, random, paths, open_files, write_settings or WriteSettings())
        self._disk = disk
        self._clock = clock
        self._random = random
        self._directories = places.directories
        self._where = places.where
        self._logs = places.logs
        self._pending = places.pending
        self._environment = places.environment
        self.flusher = LogFlusher(places)
        """Syncs logs and does what they left for later."""
        self.checkpoints = places.checkpoints
        self.writers = places.writers
        self.files = places.environment.files
        """The open files of all logs."""
        self.moves = ReplicaMoves(places, self.flusher, self.checkpoints)
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._recovering: set[TopicPartition] = set()
        self._unsettled: set[TopicPartition] = set()
        """Made by this process; that they are which topic's is not synced yet."""
        self._topic_id_of: Callable[[str], bytes | None] | None = None
        self.adopts = False
        """Whether a partition's directory that names another topic id is taken over instead of deleted."""
        self.records_may_be_lost = False
        """After `load`: the machine went down with records that were not synced; after `expect`: a disk is another."""
        self.cordoned: Callable[[], Sequence[str]] = tuple
        """Paths of the directories that get no new replicas; `*` is all of them."""

    @property
    def on_work(self) -> Callable[[], None]:
        """Called when `flusher.work` has something to do."""
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

    @property
    def on_offline(self) -> Callable[[str], None]:
        """Called with the path of a directory that failed."""
        return self._places.on_offline

    @on_offline.setter
    def on_offline(self, callback: Callable[[str], None]) -> None:
        self._places.on_offline = callback

    # --- start ---

    def lock(self) -> None:
        """Make the directories and keep other processes out of them.

        Raises LogDirectoryError when one is in use, or was written by another product or a newer version.
        """
        for directory in self._directories:
            refuse_foreign(self._disk, directory.path, adopts=self.adopts)
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

    def load(
        self,
        *,
        cluster_id: str,
        node_id: int,
        producer_id_expiration_ms: int | None = None,
        topic_id_of: Callable[[str], bytes | None] | None = None,
    ) -> None:
        """Take the directories into use, locked if they are not yet. LogDirectoryError if one is another node's or all
        fail. `topic_id_of` tells a deleted topic, whose removal was lost with the power, from the next of its name.
        """
        self._topic_id_of = topic_id_of
        if all(directory.lock is None for directory in self._directories):
            self.lock()
        if producer_id_expiration_ms is not None:
            self._environment.producer_id_expiration_ms = producer_id_expiration_ms
        try:
            self._load_directories(cluster_id, node_id)
        except LogDirectoryError:
            self._unlock()
            raise
        finally:
            self._topic_id_of = None  # it has hold of all that the cluster was at the start

    def _load_directories(self, cluster_id: str, node_id: int) -> None:
        for directory in self._directories:
            if directory.offline is None:
                try:
                    self._load_directory(directory, cluster_id, node_id)
                except OSError as error:
                    directory.offline = f"{directory.path}: {error}"
            if directory.offline is not None:
                self.report(f"log directory {directory.offline}")
        self.moves.settle()
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
            if self._is_of_earlier_topic(path, key[0]):
                self._places.doom(path, key, 0)
            else:
                self.moves.found(key, directory, path)
        for key in found.partitions:
            directory.known += 1
            if key in self._where and not self._resolve(key, directory, f"{key[0]}-{key[1]}"):
                continue
            self._where[key] = directory
            if not found.clean:
                directory.unrecovered.add(key)
        directory.was_read = True

    def _resolve(self, key: TopicPartition, directory: LogDirectory, name: str) -> bool:
        """Two directories hold the partition, as an exchange cut short leaves it, or a deletion whose renaming was lost
        with the power, or a disk that failed while it was made: whether the new one takes over.
        """
        other = self._where[key]
        pairs = (directory, other), (other, directory)
        stale = (pair for pair in pairs if self._is_of_earlier_topic(f"{pair[1].path}/{name}", key[0]))
        exchanged = (pair for pair in pairs if self._disk.exists(f"{pair[0].path}/{name}/{TAKES_OVER}"))
        decided = next(chain(stale, exchanged), None)
        if decided is None:
            if self._topic_id_of is not None and self._topic_id_of(key[0]) is None and not self.adopts:
                other.forget(key)
                self._set_aside(key, other)
                return True
            decided = next((pair for pair in pairs if self._never_written(f"{pair[1].path}/{name}")), None)
        if decided is None:
            raise LogDirectoryError(f"{name} is in two log directories, {other.path} and {directory.path}: remove one")
        stays, goes = decided
        self._places.doom(f"{goes.path}/{name}", key, 0)
        goes.forget(key)
        return stays is directory

    def _never_written(self, path: str) -> bool:
        """Whether the partition's directory holds no record, nor did so since it was made."""
        first = segment_path(path, 0, LOG)
        segments = [f"{path}/{name}" for name in self._disk.list(path) if name.endswith(LOG)]
        return not segments or (segments == [first] and self._disk.size(first) == 0)

    def _is_of_earlier_topic(self, path: str, topic: str) -> bool:
        """Whether the directory says that it is of another topic than the one that has the name now."""
        topic_id = None if self._topic_id_of is None or self.adopts else self._topic_id_of(topic)
        if topic_id is None:
            return False
        try:
            return parse_partition_metadata(self._disk.read_file(f"{path}/{PARTITION_METADATA}")) != topic_id
        except (FileNotFoundError, CorruptCheckpoint):
            return False

    def expect(self, counted_on: Iterable[TopicPartition]) -> None:
        """These the cluster takes for complete here: one without a directory went with its disk.

        Not said while a directory could not be read: it may be there, and is offline then. LogDirectoryError if there
        is no descriptor to write it down.
        """
        if self.records_may_be_lost or self.has_unread:
            return
        missing = [key for key in counted_on if key not in self._where]
        if missing:
            self.records_may_be_lost = True
            self.report(f"{len(missing)} partitions that should be here are not, {missing[0][0]}-{missing[0][1]} first")
            try:
                note_losses(self._disk, self._directories, self._places.failed)
            except LogDirectoryError:
                self._unlock()
                raise

    def losses_are_judged(self) -> None:
        """The cluster relies on none of the records any more that may be lost: later starts need not tell of them."""
        if self.records_may_be_lost:
            self.records_may_be_lost = False
            note_boots(self._disk, self._directories, self._places.failed)

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
                self._set_aside(key, directory)
            except OSError as error:
                self._places.failed(directory.path, error)
        return len(strays)

    def _set_aside(self, key: TopicPartition, directory: LogDirectory) -> None:
        stray = self._places.rename_away(f"{directory.path}/{key[0]}-{key[1]}", key, STRAY_DIRECTORY)
        self.report(f"{key[0]}-{key[1]} is no partition of this broker; its directory is {stray} now")

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
            await self.checkpoints.persist(CLEANER_OFFSETS)

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
        if key in self._recovering:
            # That of an earlier topic of the name is, and would leave its traces in the directory of this one.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is deleted while it is checked; try again"
            )
        directory = self._choose(key)
        self._places.sync_ends(key, directory)
        path = f"{directory.path}/{topic}-{partition}"
        try:
            self.checkpoints.clear(directory, key)
            self._disk.make_directories(path)
            data = format_partition_metadata(topic_id)
            self._disk.write_atomic(f"{path}/{PARTITION_METADATA}", data, sync=False)
        except OSError as error:
            raise self._places.not_made(path, key, error) from error
        self._unsettled.add(key)
        self._preferred.pop(key, None)
        directory.known += 1
        self._where[key] = directory

    def _choose(self, key: TopicPartition) -> LogDirectory:
        """Where a new replica goes: as it was asked for, else where the fewest are, cordoned ones only if all are."""
        online = [directory for directory in self._directories if directory.offline is None]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        preferred = self._preferred.get(key)
        if preferred in online:
            return preferred
        candidates = [each for each in online if not self.is_cordoned(each)] or online
        return min(candidates, key=lambda each: each.known)

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
            self._lower_recovery_point(key, directory, log.durability.recovery_point)
        except OSError as error:
            self._environment.files.forget_directory(path)
            raise self._places.storage_error(path, error) from error
        log.after_crash = directory.after_crash
        directory.unrecovered.discard(key)
        self._logs[key] = log
        if key in self._unsettled:
            # An fsync for each partition of a large topic would be dear; for those that are used it is not.
            self._unsettled.discard(key)
            self._pending.settle_later(path)
        return log

    def _lower_recovery_point(self, key: TopicPartition, directory: LogDirectory, offset: int) -> None:
        """If a check has cut the log off below it: after another crash what is written from there on would not be
        checked. Raises OSError, and then the log is yet to be checked.
        """
        before = directory.recovery_points.get(key, 0)
        if offset >= before:
            return
        directory.recovery_points[key] = offset
        try:
            self.checkpoints.write_of(RECOVERY_POINTS, directory)
        except OSError:
            directory.recovery_points[key] = before
            raise

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
                    self._places.failed(path, cause)
                else:
                    directory.beyond_recovery[key] = error.message
            return False
        finally:
            self._recovering.discard(key)
            if key not in self._where:
                self._places.remove_traces(path, key)
        if self._where.get(key) is directory and key in directory.unrecovered:
            for text in recovered.repairs:
                self.report(text)
            try:
                self._lower_recovery_point(key, directory, recovered.end_offset)
            except OSError as error:
                self._places.failed(path, error)
                return False
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
        self.checkpoints.deleted(key)
        self._unsettled.discard(key)
        self.moves.cancel(topic, partition)
        path = f"{directory.path}/{topic}-{partition}"
        if log is not None:
            self._pending.forget(log.durability)
            log.fail(f"{topic}-{partition} is deleted")
        try:
            self._places.doom(path, key, delay_ms)
        except OSError as error:
            raise self._places.storage_error(path, error) from error

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Create the partition there, when it comes to that."""
        self._preferred[topic, partition] = directory

    # --- closing ---

    async def close(
        self,
        *,
        clean: bool = True,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        broker_epoch: int = -1,
        threads: int = 1,
    ) -> None:
        """Sync all logs, with so many threads for each directory, write the checkpoints and, if everything went well,
        mark the directories as clean.
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
        self._unlock()
        for log in self._logs.values():
            self._environment.files.forget_directory(log.directory)

    def _unlock(self) -> None:
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None

    def _mark_clean(self, directory: LogDirectory, broker_epoch: int) -> None:
        if directory.offline is not None:
            return
        if directory.unrecovered:
            # Nobody has looked at what the last crash left in these: the next start must.
            return
        if any(log.durability.is_dirty for key, log in self._logs.items() if self._where[key] is directory):
            return
        try:
            self._disk.write_atomic(f"{directory.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch))
        except OSError as error:
            self._places.failed(directory.path, error)
