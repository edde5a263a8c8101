"""One replica's log on disk (UnifiedLog, LocalLog). Synchronous, owned by the event loop."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.log.append import (
    AppendResult,
    Origin,
    Prepared,
    check_replicated,
    check_size,
    check_timestamp,
    control_record,
    place,
    prepare,
    refused,
    up_to_epoch,
)
from odradek.log.config import LogConfig
from odradek.log.disk_errors import is_transient
from odradek.log.environment import LogEnvironment
from odradek.log.producers.replay import check_producers, prepare_markers, replay_marker
from odradek.log.recovery import LoadedLog, load, restore_producers
from odradek.log.retention import to_delete
from odradek.log.segments import queries
from odradek.log.segments.local_log import LocalLog
from odradek.log.segments.reading import LogRead
from odradek.log.segments.segment import MAX_RELATIVE_OFFSET, FoundTimestamp, Segment
from odradek.log.writing.flush_plan import FlushPlan
from odradek.log.writing.write_queue import QueuedWrite
from odradek.log.writing.written_waiters import WrittenWaiters
from odradek.ports.disk import File, FileRange
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_batch,
    patch_placement,
)
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.log.cleaner.segment_rewrite import CleanedSegment

__all__ = ["AppendResult", "FlushPlan", "LogRead", "Origin", "PartitionLog"]

T = TypeVar("T")
NO_TIMESTAMP: Final = -1
_DEMANDING: Final = TIMESTAMP_TYPE_BIT | CONTROL_BIT
_EMPTY: Final[list[FileRange]] = []


class PartitionLog:
    """The log of `TOPIC-PARTITION` in one directory.

    All methods raise KafkaError only; KAFKA_STORAGE_ERROR when the disk failed, now or earlier.
    """

    __slots__ = (
        "_environment",
        "_epochs_written",
        "_failed",
        "_flush_after",
        "_jitter_ms",
        "_largest_batch",
        "_local",
        "_named",
        "_queued",
        "_released",
        "_seen_end_offset",
        "_sync_asked",
        "_target_codec",
        "_truncations",
        "_unsettled",
        "_waiters",
        "_writer",
        "after_crash",
        "config",
        "directory",
        "end_offset",
        "leader_epochs",
        "log_start_offset",
        "next_offset",
        "on_written",
        "partition",
        "producers",
        "recovery_point",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        config: LogConfig,
        environment: LogEnvironment,
        loaded: LoadedLog,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.config = config
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        """Where what is written ends: all below it can be read."""
        self.next_offset = loaded.end_offset
        """What the next batch gets: above the end by what is on its way to the disk."""
        self.on_written: Callable[[int], None] = _nothing
        """Called with the bytes of each append that was queued, when they are written."""
        self.recovery_point = loaded.recovery_point
        self.leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self._local = LocalLog(directory, config, environment, loaded.segments, loaded.snapshots)
        self._environment = environment
        self._failed: str | None = None
        self._jitter_ms = 0
        self._epochs_written = True
        self._largest_batch = 0
        self._truncations = 0
        self._unsettled = False
        self._seen_end_offset = -1
        self._released = False
        self._writer = environment.owner.writer_of(directory)
        self._queued = 0
        self._sync_asked = loaded.recovery_point
        self._named = -1
        self._waiters = WrittenWaiters()
        self.after_crash = False
        """Whether the log directory was not closed cleanly before this start: the log may have lost its end."""
        self.set_config(config)

    @classmethod
    def open(
        cls,
        topic: str,
        partition: int,
        directory: str,
        config: LogConfig,
        environment: LogEnvironment,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
    ) -> PartitionLog:
        """Open the log in the directory, or begin one there; `clean` says that it was closed so.

        After an unclean stop everything from the recovery point on is checked and a torn tail cut off.
        """
        try:
            loaded = load(directory, config, environment, recovery_point, log_start_offset, clean=clean)
        except OSError as error:
            environment.files.forget_directory(directory)  # the next check may be in a thread, with files of its own
            environment.owner.disk_failed(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}") from error
        return cls(topic, partition, directory, config, environment, loaded)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, {self.log_start_offset} to {self.end_offset})"

    # --- state ---

    @property
    def size_bytes(self) -> int:
        return self._local.size_bytes

    @property
    def segments(self) -> list[Segment]:
        """In the order of their offsets, the active one last."""
        return self._local.segments

    @property
    def active_base_offset(self) -> int:
        return self._local.active.base_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of an open transaction. Ended ones whose marker is not replicated: `last_stable_offset`."""
        return self.producers.first_open_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction is decided and its marker is below the high watermark."""
        producers = self.producers
        producers.on_high_watermark(high_watermark)
        unstable = producers.first_unstable_offset
        if unstable is None or unstable > high_watermark:
            return high_watermark
        # DeleteRecords may have taken the beginning of an open transaction.
        return max(unstable, self.log_start_offset)

    def set_config(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        self.config = config
        self._target_codec = config.target_codec
        self._flush_after = config.flush_messages - 1
        self._largest_batch = min(config.max_message_bytes, config.segment_bytes)
        self._draw_jitter()
        self._local.set_config(config)

    def _draw_jitter(self) -> None:
        random = self._environment.random
        limit = min(self.config.segment_jitter_ms, self.config.roll_ms)
        self._jitter_ms = random.randrange(limit) if random is not None and limit > 0 else 0

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """An epoch begins at the offset (the end of the log if None), as when a leader takes over."""
        offset = self.next_offset if start_offset is None else start_offset
        if epoch >= 0 and self.leader_epochs.assign(epoch, offset):
            self._write_epochs()

    def _write_epochs(self, *, after_change: bool = False) -> None:
        # Not synced before the next flush: recovery finds the epochs past the recovery point in the batches themselves.
        self._epochs_written = False
        try:
            self._local.write_epochs(self.leader_epochs.entries())
            self._epochs_written = True
        except OSError as error:
            failure = self._fail(error)
            # A change that is made has not failed: where only a descriptor is lacking, a later flush writes them.
            if self.is_offline or not after_change:
                raise failure from error

    def fail(self, reason: str) -> None:
        """The log directory went offline: every later call raises KAFKA_STORAGE_ERROR with this reason."""
        if self._failed is None:
            self._failed = reason
            self._waiters.release_all()

    def _check_online(self) -> None:
        if self._failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failed)

    def _fail(self, error: OSError, *, after_write: bool = False) -> KafkaError:
        # After a write, or a part of a truncation, the files hold what the log does not know of: it may not go on.
        if is_transient(error) and not after_write:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}")
        if is_transient(error):
            # That passes, but not what is lacking here: the whole directory goes offline, which others hear of.
            error = OSError(errno.EIO, f"a change of the files could not be carried through: {error}")
        reason = f"{self.directory} is offline: {error}"
        self.fail(reason)
        self._environment.owner.disk_failed(self.directory, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failed or reason)

    # --- append ---

    def append(
        self, batches: memoryview, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Check, give offsets to, and write batches, or queue a copy of them: then `end_offset` follows later.

        `batches` is patched in place; with REPLICATION they have offsets and epochs, and none above `leader_epoch` is
        written unless that is -1. Raises KafkaError before anything is written.
        """
        if self._failed is not None:
            self._check_online()
        config = self.config
        size = len(batches)
        if origin is Origin.REPLICATION or config.log_append_time or (config.needs_records and origin is Origin.CLIENT):
            return self._append_prepared(prepare(batches, config, now_ms, origin), leader_epoch, origin)
        try:
            header = check_batch(batches, 0, from_client=origin is Origin.CLIENT)
        except CorruptRecords as error:
            refused(error, batches if origin is Origin.CLIENT else None)
        attributes = header[5]
        if (
            header[1] + LOG_OVERHEAD != size
            or attributes & _DEMANDING
            or (self._target_codec is not None and self._target_codec != attributes & COMPRESSION_MASK)
        ):
            return self._append_prepared(prepare(batches, config, now_ms, origin), leader_epoch, origin)
        if size > self._largest_batch:
            check_size(size, config)
            self._check_fits_segment(size)
        timestamp = header[8]
        if timestamp > now_ms + config.message_timestamp_after_max_ms and origin is Origin.CLIENT:
            check_timestamp(timestamp, config, now_ms)
        has_producer = header[9] >= 0
        if has_producer:
            original = self.producers.check(header, from_client=origin is Origin.CLIENT)
            if original is not None:
                return AppendResult(
                    original.first_offset, original.last_offset, original.timestamp, self.log_start_offset, True
                )
        base_offset = self.next_offset
        last_offset = base_offset + header[6]
        patch_placement(batches, 0, header, base_offset, leader_epoch)
        if leader_epoch != self.leader_epochs.latest and leader_epoch >= 0:
            self.assign_leader_epoch(leader_epoch)
        segment = self._segment_for(size, base_offset, last_offset, timestamp, now_ms)
        position = segment.size + segment.queued
        write = self._write_or_reserve(segment, batches, size, last_offset)
        try:
            segment.note_batch(position, last_offset, timestamp, size)
        except OSError as error:
            raise self._fail(error, after_write=True) from error
        self._local.tail.add(base_offset, last_offset, position, size)
        if has_producer:
            self.producers.apply(header, base_offset)
        self.next_offset = last_offset + 1
        if write is None:
            self.end_offset = last_offset + 1
        else:
            self._put(write)
        return tuple.__new__(AppendResult, (base_offset, last_offset, NO_TIMESTAMP, self.log_start_offset, False))

    def _check_fits_segment(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed segment.bytes={self.config.segment_bytes}"
            )

    def _write_or_reserve(self, segment: Segment, data: memoryview, size: int, last_offset: int) -> QueuedWrite | None:
        """Write what may be written on the event loop; the rest is copied for `_put` and gets its place in the file."""
        writer = self._writer
        if (
            not self._queued
            and not writer.slow
            and size <= writer.inline_bytes
            and last_offset - self._sync_asked < self._flush_after
        ):
            started = writer.now()
            self._write(segment, data)
            finished = writer.now()
            if finished >= writer.look_at or finished - started > writer.stall_s:
                writer.look(started, finished)
            return None
        try:
            file = self._local.warm_file(segment)
            plan = None
            if last_offset - self._sync_asked >= self._flush_after:
                plan = self._plan_sync(file, last_offset + 1)
        except OSError as error:
            raise self._fail(error) from error
        write = QueuedWrite(self, segment, file, bytes(data), last_offset + 1, plan)
        segment.queued += size
        return write

    def _plan_sync(self, file: File, next_offset: int) -> FlushPlan:
        """What `flush.messages` has synced: batches, and the names of new files. All else can be made from these."""
        local = self._local
        files = [file, *(segment.file() for segment in local.segments[local.slot(max(0, self._sync_asked - 1)) : -1])]
        directories = []
        if self._named != local.active.base_offset:
            directories.append(self.directory)
            if self._named < 0:
                directories.append(self.directory.rpartition("/")[0])
                files += local.identity()
            self._named = local.active.base_offset
        self._sync_asked = next_offset
        return FlushPlan(next_offset, files, directories, self._truncations)

    def _put(self, write: QueuedWrite) -> None:
        self._queued += 1
        try:
            self._writer.put(write)
        except OSError as error:
            raise self._fail(error, after_write=True) from error

    def written(self, write: QueuedWrite) -> None:
        """What was queued is in the file, and on the device where that was asked for."""
        self._queued -= 1
        if self._failed is not None:
            return
        size = len(write.data)
        self._local.wrote(write.segment, write.file, size)
        self.end_offset = write.next_offset
        self._waiters.release(self.end_offset)
        self.on_written(size)

    def write_failed(self, error: OSError) -> None:
        """What was queued cannot be written: the log directory is out of use."""
        self._queued = 0
        if self._failed is None:
            self._fail(error, after_write=True)

    def when_written(self, last_offset: int, callback: Callable[[], None]) -> None:
        """Call back once the end is past the offset, or the log has failed (`is_offline`); at once when it is so."""
        if last_offset < self.end_offset or self._failed is not None:
            callback()
        else:
            self._waiters.add(last_offset, callback)

    @property
    def has_queued(self) -> bool:
        """Whether something is on its way to the disk."""
        return self._queued > 0

    def settle(self) -> None:
        """Wait in this thread for what is on its way to the disk. KAFKA_STORAGE_ERROR if that fails."""
        if self._queued:
            self._writer.finish()
        self._check_online()

    def _write(self, segment: Segment, data: memoryview) -> None:
        try:
            self._local.write(segment, data)
        except OSError as error:
            raise self._fail(error) from error

    def _segment_for(self, size: int, base_offset: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, rolled first if it has no room or is too old (LogSegment.shouldRoll)."""
        segment = self._local.active
        config = self.config
        filled = segment.size + segment.queued
        if filled:
            first = segment.first_timestamp
            age = timestamp - first if first >= 0 else now_ms - segment.created_ms
            if (
                filled > config.segment_bytes - size
                or age > config.roll_ms - self._jitter_ms
                or segment.full
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            ):
                self.roll(base_offset)
                return self._local.active
        elif last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            self.roll(base_offset)
            return self._local.active
        return segment

    def _append_prepared(self, prepared: Prepared, leader_epoch: int, origin: Origin) -> AppendResult:
        data, batches, log_append_time_ms = prepared
        if origin is Origin.REPLICATION:
            # A follower tells its leader what it has by its next fetch, so it may not have less. And what the leader
            # has taken is taken here, too, though segment.bytes may be lower now.
            self.settle()
            if leader_epoch >= 0:
                data, batches = up_to_epoch(data, batches, leader_epoch)
                if not batches:
                    return AppendResult(
                        self.next_offset, self.next_offset - 1, NO_TIMESTAMP, self.log_start_offset, False
                    )
            placed = check_replicated(batches, self.end_offset, self.directory)
        else:
            self._check_fits_segment(len(data))
            original = check_producers(self.producers, data, batches, from_client=origin is Origin.CLIENT)
            if original is not None:
                return AppendResult(
                    original.first_offset, original.last_offset, original.timestamp, self.log_start_offset, True
                )
            placed = place(data, batches, self.next_offset, leader_epoch)
        first, last = placed[0][1], placed[-1][1]
        timestamp = max(header.max_timestamp for _, header in placed)
        now_ms = self._environment.clock.now_ms()
        base_offset = first.base_offset
        if last.last_offset - self.next_offset <= MAX_RELATIVE_OFFSET:
            # A leader's compacted log has gaps. One between two files would look like a loss to recovery.
            base_offset = self.next_offset
        segment = self._segment_for(len(data), base_offset, last.last_offset, timestamp, now_ms)
        control = 0
        for _, header in placed:
            control |= header[5] & CONTROL_BIT
            if header.partition_leader_epoch > self.leader_epochs.latest:
                self.assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
        if control:
            self.ask(lambda _: prepare_markers(segment, data, placed))
        start = segment.size + segment.queued
        write = self._write_or_reserve(segment, data, len(data), last.last_offset)
        self._note_batches(segment, start, data, placed)
        self.next_offset = last.next_offset
        if write is None:
            self.end_offset = last.next_offset
        else:
            self._put(write)
            if origin is Origin.REPLICATION:
                self.settle()
        return AppendResult(first.base_offset, last.last_offset, log_append_time_ms, self.log_start_offset, False)

    def _note_batches(
        self, segment: Segment, start: int, data: memoryview, placed: list[tuple[int, BatchHeader]]
    ) -> None:
        try:
            for position, header in placed:
                self._local.tail.add(header.base_offset, header.last_offset, start + position, header.size)
                segment.note_batch(start + position, header.last_offset, header.max_timestamp, header.size)
                if not header.has_producer_id:
                    continue
                if header.is_control:
                    replay_marker(self.producers, segment, header, control_record(data, position, header))
                else:
                    self.producers.apply(header, header.base_offset)
        except OSError as error:
            raise self._fail(error, after_write=True) from error

    # --- read ---

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True) -> LogRead:
        """Whole batches from the one that holds the offset on, none at or past `upper_offset`.

        At most max_bytes, but the first batch whole if `min_one_batch`. Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        if self._failed is not None:
            self._check_online()
        end_offset = self.end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition} has offsets {self.log_start_offset} to {end_offset}, not {offset}",
            )
        upper_offset = min(upper_offset, end_offset)
        if offset >= upper_offset:
            return LogRead(_EMPTY, 0, offset)
        try:
            return self._local.read(offset, max_bytes, upper_offset, min_one_batch, end_offset)
        except OSError as error:
            raise self._fail(error) from error

    def read_batches(self, offset: int, upper_offset: int) -> Iterator[memoryview]:
        """The bytes of each batch from the one that holds the offset up to the upper offset, CRCs checked."""
        self._check_online()
        try:
            yield from queries.batches(
                self._local.segments[self._local.slot(offset) :], offset, min(upper_offset, self.end_offset)
            )
        except OSError as error:
            raise self._fail(error) from error

    def ask(self, question: Callable[[Sequence[Segment]], T], offset: int = 0) -> T:
        """The answer of the segments from the one that holds the offset; KAFKA_STORAGE_ERROR if the disk fails."""
        self._check_online()
        try:
            return question(self._local.segments[self._local.slot(offset) :])
        except OSError as error:
            raise self._fail(error) from error

    def batch_start(self, offset: int) -> int:
        """The base offset of the batch that holds the offset; the offset itself where no batch does."""
        found = self.ask(lambda segments: queries.locate(segments, offset), offset)
        return offset if found is None else min(offset, found.header.base_offset)

    def find_timestamp(self, timestamp_ms: int, upper_offset: int) -> FoundTimestamp | None:
        """The first record with this timestamp or a later one, if it is below the upper offset."""
        start = self.log_start_offset
        found = self.ask(lambda segments: queries.find_timestamp(segments, timestamp_ms, start), start)
        return found if found is not None and found.offset < upper_offset else None

    def max_timestamp(self, upper_offset: int) -> FoundTimestamp | None:
        """The first record that has the largest timestamp below the upper offset."""
        start, end = self.log_start_offset, self.end_offset
        upper = min(upper_offset, end)
        return self.ask(lambda segments: queries.max_timestamp(segments, start, upper, end), start)

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that have records in [start, upper)."""
        return self.ask(lambda segments: queries.aborted(segments, start_offset, upper_offset), start_offset)

    # --- roll, flush, truncate, delete ---

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new active segment at the offset (the end of the log if None)."""
        self._check_online()
        offset = self.next_offset if base_offset is None else base_offset
        local = self._local
        if local.active.base_offset == offset and not local.active.size + local.active.queued:
            return
        try:
            local.roll(offset, self.producers.snapshot())
        except OSError as error:
            # That nothing is left of it is durable with the next sync.
            self._named = -1
            raise self._fail(error) from error
        self._draw_jitter()
        self._environment.owner.flush_later(self)

    def flush(self, offset: int | None = None, *, snapshot: bool = True) -> None:
        """Make all below the offset (the end of the log if None) durable, in this thread."""
        plan = self.plan_flush(offset, snapshot=snapshot)
        if plan is not None:
            self.execute(plan)

    def execute(self, plan: FlushPlan) -> None:
        try:
            plan.sync(self._environment.disk)
        except OSError as error:
            raise self._fail(error) from error
        self.finish_flush(plan)

    def plan_flush(self, offset: int | None = None, *, snapshot: bool = True) -> FlushPlan | None:
        """Write out what is in memory and name the files to sync; None if nothing is to be done."""
        self._check_online()
        target = self.end_offset if offset is None else min(offset, self.end_offset)
        if target <= self.recovery_point and not (self._unsettled and target == self.recovery_point):
            return None
        if not self._epochs_written:
            # There was no descriptor for it then.
            self._write_epochs()
        try:
            files = self._local.write_out_indexes(self.recovery_point, target)
            if target == self.next_offset and snapshot:
                self._take_snapshot()
            files += self._local.other_files(self.recovery_point, target, inclusive=self._unsettled)
        except OSError as error:
            raise self._fail(error) from error
        directories = [self.directory]
        if not self.recovery_point:
            directories.append(self.directory.rpartition("/")[0])
        return FlushPlan(target, files, directories, self._truncations)

    def _take_snapshot(self) -> None:
        if not self._local.has_snapshot(self.end_offset):
            self._local.take_snapshot(self.end_offset, self.producers.snapshot())

    def finish_flush(self, plan: FlushPlan) -> None:
        """The plan is synced: move the recovery point."""
        if plan.generation == self._truncations:
            self.recovery_point = max(self.recovery_point, plan.offset)
            self._sync_asked = max(self._sync_asked, plan.offset)
            self._unsettled = False

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from the offset on (a batch that holds it goes whole); whether anything went."""
        self.settle()
        if offset >= self.end_offset:
            return False
        if offset <= self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        # What may fail for want of a descriptor comes before the first change: half a cut cannot be tried again.
        self.release()
        self.ask(lambda segments: segments[0].open_all(), offset)
        self._truncations += 1
        try:
            self.end_offset = self.next_offset = self._local.truncate_to(offset)
            self._lower_recovery_point(self.end_offset)
            self._set_log_start(min(self.log_start_offset, self.end_offset))
            self._local.snapshots = restore_producers(
                self.directory,
                self._local.segments,
                self.producers,
                self._environment,
                self._local.snapshots,
                self.end_offset,
                self.log_start_offset,
            )
        except OSError as error:
            raise self._fail(error, after_write=True) from error
        if self.leader_epochs.truncate_from_end(self.end_offset):
            self._write_epochs(after_change=True)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove all and go on at the offset, as a follower whose leader no longer has what it has."""
        self.settle()
        self.release()
        self.ask(lambda segments: segments[-1].file())
        self._truncations += 1
        try:
            self._local.start_anew(offset)
            self.end_offset = self.next_offset = offset
            # That the old segments are gone is durable with the next flush: until then nothing more counts as that.
            self._lower_recovery_point(offset)
            self._set_log_start(offset if log_start_offset is None else log_start_offset)
            self.producers.clear()
        except OSError as error:
            raise self._fail(error, after_write=True) from error
        self.leader_epochs.clear()
        self._write_epochs(after_change=True)

    def _lower_recovery_point(self, offset: int) -> None:
        # The log may end at its recovery point now. If a clean stop had nothing to sync, a power loss after it would
        # bring back, in a log that is marked as clean, what was cut off.
        self._unsettled = True
        self._sync_asked = min(self._sync_asked, offset)
        self._named = -1
        if self.recovery_point > offset:
            self.recovery_point = offset
            self._environment.owner.recovery_point_lowered(self.directory)

    def _set_log_start(self, offset: int) -> None:
        old, self.log_start_offset = self.log_start_offset, offset
        if offset < old:
            self._environment.owner.log_start_lowered(self.directory)

    def advance_log_start(self, offset: int) -> bool:
        """Forget what lies below the offset, as DeleteRecords does; OFFSET_OUT_OF_RANGE past the end."""
        self._check_online()
        if offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic}-{self.partition} ends at {self.end_offset}, not {offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.leader_epochs.truncate_from_start(offset):
            self._write_epochs(after_change=True)
        self.producers.on_log_start(offset)
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what retention no longer keeps; the number of segments that went. Not while writes are queued."""
        self._check_online()
        if self._queued:
            return 0
        try:
            decided = to_delete(
                self._local.ages(),
                self.config,
                now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=high_watermark,
                end_offset=self.end_offset,
            )
            if decided is None:
                return 0
            count, _ = decided
            if count == len(self.segments):
                self.roll()
            self._local.remove_first(count)
            self.advance_log_start(max(self.log_start_offset, self.segments[0].base_offset))
        except OSError as error:
            raise self._fail(error) from error
        return count

    def replace_segments(self, cleaned: CleanedSegment) -> bool:
        """Put a compacted segment in the place of its sources; False when they are not there any more."""
        self._check_online()
        try:
            return self._local.replace_segments(cleaned)
        except OSError as error:
            raise self._fail(error) from error

    def take_over(self, other: PartitionLog) -> None:
        """Go on as the other log of the same partition, which has the same end: its producers, its leader epochs."""
        self.producers = other.producers
        self.leader_epochs = other.leader_epochs
        self._write_epochs()
        try:
            # What a flush has written is what the copied batches say: some producers have none left.
            self._local.remove_snapshots(self.end_offset)
        except OSError as error:
            raise self._fail(error) from error
        self._unsettled = True

    def remove_expired_producers(self, now_ms: int) -> list[int]:
        return self.producers.remove_expired(now_ms)

    # --- closing ---

    def prepare_close(self) -> FlushPlan | None:
        """Write out indexes and the producers' snapshot, as a clean stop does, and say what to sync."""
        self.settle()
        try:
            if self._local.active.size:
                self._local.active.finish_indexes()
            self._take_snapshot()
        except OSError as error:
            raise self._fail(error) from error
        return self.plan_flush()

    def close(self) -> None:
        """Write out and sync everything, in this thread; the log may be opened as clean after it."""
        plan = self.prepare_close()
        if plan is not None:
            self.execute(plan)
        self._environment.files.forget_directory(self.directory)

    def release(self) -> None:
        """Give back memory and files that an idle log does not need; it stays usable."""
        self._check_online()
        try:
            self._local.release()
        except OSError as error:
            raise self._fail(error) from error

    def release_if_idle(self) -> bool:
        """Release what was not appended to since the last call; whether that was so."""
        idle = self._seen_end_offset == self.end_offset
        self._seen_end_offset = self.end_offset
        if idle and not self._released and self._failed is None and not self._queued:
            self.release()
            self._released = True
        elif not idle:
            self._released = False
        return idle

    @property
    def is_offline(self) -> bool:
        return self._failed is not None

    @property
    def truncations(self) -> int:
        """How often something was cut off since the log was opened."""
        return self._truncations

    @property
    def is_dirty(self) -> bool:
        return self._unsettled or self.recovery_point < self.end_offset


def _nothing(_: int) -> None:
    """By default nobody waits for what is queued."""
