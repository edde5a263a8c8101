"""One replica's log on disk (UnifiedLog, LocalLog). Synchronous, owned by the event loop.

PartitionLog appends, rolls, truncates and deletes. Its parts have the rest: `durability` (write queue, flushes,
recovery point), `history` (leader epochs, producers), `reader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.log.append import (
    AppendResult,
    Examined,
    Origin,
    Prepared,
    check_fits_segment,
    check_replicated,
    check_size,
    check_timestamp,
    control_records,
    place,
    prepare,
    prepare_examined,
    refused,
    up_to_epoch,
)
from odradek.log.config import LogConfig
from odradek.log.durability import LogDurability
from odradek.log.environment import LogEnvironment
from odradek.log.history import LogHistory
from odradek.log.log_state import LogState
from odradek.log.producers.replay import check_producers, prepare_markers, replay_marker
from odradek.log.reader import LogReader
from odradek.log.recovery import LoadedLog, load
from odradek.log.retention import to_delete
from odradek.log.segments.local_log import LocalLog, make_active
from odradek.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from odradek.log.writing.flush_plan import FlushPlan
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_batch,
    parse_header,
    patch_placement,
)
from odradek.records.control import ControlRecord
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.log.cleaner.segment_rewrite import CleanedSegment

NO_TIMESTAMP: Final = -1
_DEMANDING: Final = TIMESTAMP_TYPE_BIT | CONTROL_BIT
# Members of enumerations are found by a slow search in Python 3.11: 50 ns, at every append.
_CLIENT: Final = Origin.CLIENT
_REPLICATION: Final = Origin.REPLICATION
MOST_DELETED: Final = 32
"""Segments that one call deletes: more would hold the event loop for longer than some ms."""


class PartitionLog:
    """The log of `TOPIC-PARTITION` in one directory.

    All methods raise KafkaError only; KAFKA_STORAGE_ERROR when the disk failed, now or earlier.
    """

    __slots__ = (
        "_environment",
        "_jitter_ms",
        "_largest_batch",
        "_local",
        "_released",
        "_seen_end_offset",
        "_state",
        "_target_codec",
        "after_crash",
        "config",
        "directory",
        "durability",
        "history",
        "partition",
        "reader",
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
        """Take what `open` has loaded."""
        name = f"{topic}-{partition}"
        state = LogState(name, directory, environment.owner, loaded.log_start_offset, loaded.end_offset)
        local = LocalLog(directory, config, environment, loaded.segments, loaded.snapshots)
        self.topic = topic
        """The topic's name."""
        self.partition = partition
        """The partition's number in the topic."""
        self.directory = directory
        """Path of the log's directory."""
        self.config = config
        """The topic's settings; `set_config` replaces them."""
        self.after_crash = False
        """Whether the log directory was not closed cleanly before this start: the log may have lost its end."""
        self._environment = environment
        self._state = state
        self._local = local
        self.history = LogHistory(state, local, loaded.leader_epochs, loaded.producers)
        """Leader epochs and producers."""
        self.durability = LogDurability(state, local, self.history, environment, loaded.recovery_point)
        """The write queue, flushes and the recovery point."""
        self.reader = LogReader(state, local)
        """Reads and queries."""
        self._jitter_ms = 0
        self._largest_batch = 0
        self._seen_end_offset = -1
        self._released = False
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
        """Open the log in the directory, or create one there; `clean` states that it was closed cleanly.

        After an unclean stop every batch from the recovery point on is checked and a torn tail cut off.
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
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for."""
        return self._state.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that readers may ask for and that lies in the segments of this directory (KIP-405)."""
        return max(self._state.log_start_offset, self._local.segments[0].base_offset)

    @property
    def end_offset(self) -> int:
        """The end of the written batches: everything below it can be read."""
        return self._state.end_offset

    @property
    def next_offset(self) -> int:
        """The base offset of the next batch: above `end_offset` by the batches in the write queue."""
        return self._state.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._local.size_bytes

    @property
    def segments(self) -> list[Segment]:
        """The segments in the order of their offsets, the active one last."""
        return self._local.segments

    @property
    def active_base_offset(self) -> int:
        """The base offset of the active segment."""
        return self._local.active.base_offset

    @property
    def is_offline(self) -> bool:
        """Whether the log's directory is out of use, or the log is deleted."""
        return self._state.failure is not None

    @property
    def truncations(self) -> int:
        """The number of truncations since the log was opened."""
        return self._state.truncations

    def fail(self, reason: str) -> None:
        """Take the log offline: every later call raises KAFKA_STORAGE_ERROR with the first reason."""
        self._state.fail(reason)

    def set_config(self, config: LogConfig) -> None:
        """Apply other settings."""
        self.config = config
        self._target_codec = config.target_codec
        self._largest_batch = min(config.max_message_bytes, config.segment_bytes)
        self._draw_jitter()
        self._local.set_config(config)
        self.durability.set_config(config)

    def _draw_jitter(self) -> None:
        random = self._environment.random
        limit = min(self.config.segment_jitter_ms, self.config.roll_ms)
        self._jitter_ms = random.randrange(limit) if random is not None and limit > 0 else 0

    # --- append ---

    def append(
        self,
        batches: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        examined: Examined | None = None,
    ) -> AppendResult:
        """Check, give offsets to, and write batches, or queue a copy of them: then `end_offset` follows later.

        `batches` is patched in place; with REPLICATION they have offsets and epochs, and none above `leader_epoch` is
        written unless that is -1. `examined` is their examination, which is repeated if it was by other settings.
        Raises KafkaError before anything is written.
        """
        state = self._state
        if state.failure is not None:
            state.check_online()
        config = self.config
        size = len(batches)
        if examined is not None and examined.original is batches and examined.config == config:
            return self._append_prepared(prepare_examined(examined, now_ms), leader_epoch, origin)
        if origin is _REPLICATION or config.log_append_time or (config.needs_records and origin is _CLIENT):
            return self._append_prepared(prepare(batches, config, now_ms, origin), leader_epoch, origin)
        try:
            header = check_batch(batches) if origin is _CLIENT else parse_header(batches)  # encoded here just now
        except CorruptRecords as error:
            refused(error, batches if origin is _CLIENT else None)
        attributes = header[5]
        if (
            header[1] + LOG_OVERHEAD != size
            or attributes & _DEMANDING
            or (self._target_codec is not None and self._target_codec != attributes & COMPRESSION_MASK)
        ):
            return self._append_prepared(prepare(batches, config, now_ms, origin), leader_epoch, origin)
        if size > self._largest_batch:
            check_size(size, config)
            check_fits_segment(size, config)
        timestamp = header[8]
        if timestamp > now_ms + config.message_timestamp_after_max_ms and origin is _CLIENT:
            check_timestamp(timestamp, config, now_ms)
        history = self.history
        has_producer = header[9] >= 0
        if has_producer:
            original = history.producers.check(header, from_client=origin is _CLIENT)
            if original is not None:
                return AppendResult(
                    original.first_offset, original.last_offset, original.timestamp, state.log_start_offset, True
                )
        base_offset = state.next_offset
        last_offset = base_offset + header[6]
        patch_placement(batches, 0, header, base_offset, leader_epoch)
        if leader_epoch != history.leader_epochs.latest and leader_epoch >= 0:
            history.assign_leader_epoch(leader_epoch)
        segment = self._segment_for(size, base_offset, last_offset, timestamp, now_ms)
        position = segment.size + segment.queued
        write = self.durability.write(segment, batches, last_offset)
        try:
            segment.note_batch(position, last_offset, timestamp, size)
        except OSError as error:
            raise state.storage_error(error, after_write=True) from error
        self._local.tail.add(base_offset, last_offset, position, size)
        if has_producer:
            history.producers.apply(header, base_offset)
        state.next_offset = last_offset + 1
        if write is None:
            state.end_offset = last_offset + 1
        else:
            self.durability.enqueue(write)
        return tuple.__new__(AppendResult, (base_offset, last_offset, NO_TIMESTAMP, state.log_start_offset, False))

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
                self.roll(base_offset, later=self.durability.is_queueing)
                return self._local.active
        elif last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            self.roll(base_offset)
            return self._local.active
        return segment

    def _append_prepared(self, prepared: Prepared, leader_epoch: int, origin: Origin) -> AppendResult:
        data, batches, log_append_time_ms = prepared
        state, history, durability = self._state, self.history, self.durability
        if origin is Origin.REPLICATION:
            # What a former leader has queued ends first. No check against segment.bytes: the leader has accepted the
            # batch, perhaps before the setting was lowered.
            durability.finish_writes()
            if leader_epoch >= 0:
                data, batches = up_to_epoch(data, batches, leader_epoch)
                if not batches:
                    return AppendResult(
                        state.next_offset, state.next_offset - 1, NO_TIMESTAMP, state.log_start_offset, False
                    )
            control = control_records(data, batches)
            placed = check_replicated(batches, state.end_offset, self.directory)
        else:
            check_fits_segment(len(data), self.config)
            control = control_records(data, batches)
            original = check_producers(history.producers, data, batches, control, from_client=origin is Origin.CLIENT)
            if original is not None:
                return AppendResult(
                    original.first_offset, original.last_offset, original.timestamp, state.log_start_offset, True
                )
            placed = place(data, batches, state.next_offset, leader_epoch)
        first, last = placed[0][1], placed[-1][1]
        timestamp = max(header.max_timestamp for _, header in placed)
        now_ms = self._environment.clock.now_ms()
        base_offset = first.base_offset
        if last.last_offset - state.next_offset <= MAX_RELATIVE_OFFSET:
            # A leader's compacted log has gaps. One between two files would look like a loss to recovery.
            base_offset = state.next_offset
        segment = self._segment_for(len(data), base_offset, last.last_offset, timestamp, now_ms)
        for _, header in placed:
            if header.partition_leader_epoch > history.leader_epochs.latest:
                history.assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
        if control:
            self.reader.query(lambda _: prepare_markers(segment, control.values()))
        start = segment.size + segment.queued
        write = durability.write(segment, data, last.last_offset)
        self._note_batches(segment, start, placed, control)
        state.next_offset = last.next_offset
        if write is None:
            state.end_offset = last.next_offset
        else:
            durability.enqueue(write)
        return AppendResult(first.base_offset, last.last_offset, log_append_time_ms, state.log_start_offset, False)

    def _note_batches(
        self,
        segment: Segment,
        start: int,
        placed: list[tuple[int, BatchHeader]],
        control: dict[int, ControlRecord | None],
    ) -> None:
        producers = self.history.producers
        try:
            for position, header in placed:
                self._local.tail.add(header.base_offset, header.last_offset, start + position, header.size)
                segment.note_batch(start + position, header.last_offset, header.max_timestamp, header.size)
                if not header.has_producer_id:
                    continue
                if header.is_control:
                    replay_marker(producers, segment, header, control[position])
                else:
                    producers.apply(header, header.base_offset)
        except OSError as error:
            raise self._state.storage_error(error, after_write=True) from error

    # --- roll, truncate, delete ---

    def roll(self, base_offset: int | None = None, *, later: bool = False) -> None:
        """Begin a new active segment at the offset (the next offset if None).

        `later`: the batch that follows is queued, and its write makes the files.
        """
        state = self._state
        state.check_online()
        offset = state.next_offset if base_offset is None else base_offset
        local = self._local
        was_empty = not local.active.size + local.active.queued
        if was_empty and local.active.base_offset == offset:
            return
        try:
            self.history.roll(offset, later=later)
        except OSError as error:
            # The next sync makes the removal of the new segment durable.
            self.durability.forget_names()
            raise state.storage_error(error) from error
        self._draw_jitter()
        if not was_empty:
            self._environment.owner.segment_closed(self.durability, offset)

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that ends at the offset or later; whether there was one."""
        state = self._state
        self.durability.finish_writes()
        if offset >= state.end_offset:
            return False
        if offset <= self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        # What may fail for want of a descriptor comes before the first change: half a truncation cannot be repeated.
        self.release()
        self.reader.query(lambda segments: segments[0].open_all(), offset)
        state.truncations += 1
        try:
            state.end_offset = state.next_offset = self._local.truncate_to(offset)
            self.durability.lower_recovery_point(state.end_offset)
            state.move_log_start(min(state.log_start_offset, state.end_offset))
            self.history.restore_producers(self._environment)
        except OSError as error:
            raise state.storage_error(error, after_write=True) from error
        self.history.truncate_epochs_from_end()
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove all batches and continue at the offset, as a follower whose leader no longer has its batches."""
        state = self._state
        self.durability.finish_writes()
        self.release()
        self.reader.query(lambda segments: segments[-1].file())
        try:
            segment = self._local.prepare_restart(offset)
        except OSError as error:
            raise state.storage_error(error) from error
        state.truncations += 1
        try:
            self._local.restart_with(segment)
            state.end_offset = state.next_offset = offset
            # The next flush makes the removal of the old segments durable: the recovery point must not cover them.
            self.durability.lower_recovery_point(offset)
            state.move_log_start(offset if log_start_offset is None else log_start_offset)
            self.history.clear_producers()
        except OSError as error:
            raise state.storage_error(error, after_write=True) from error
        self.history.clear_epochs()

    def advance_log_start(self, offset: int) -> bool:
        """Raise the log start offset, as DeleteRecords does; whether it was lower. OFFSET_OUT_OF_RANGE past the end."""
        state = self._state
        state.check_online()
        if offset > state.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{state.name} ends at {state.end_offset}, not {offset}")
        if offset <= state.log_start_offset:
            return False
        state.log_start_offset = offset
        self.history.advance_log_start()
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete segments that retention no longer keeps; their number, 0 when none is left to delete.

        One call deletes MOST_DELETED at most, the oldest ones. Deletes none while writes are queued, and not the active
        one while the disk does not keep up: a new one would have to be begun first.
        """
        state = self._state
        state.check_online()
        if self.durability.has_queued:
            return 0
        try:
            decided = to_delete(
                self._local.ages(),
                self.config,
                now_ms,
                log_start_offset=state.log_start_offset,
                high_watermark=high_watermark,
                end_offset=state.end_offset,
            )
            if decided is None:
                return 0
            count = min(decided[0], MOST_DELETED)
            if count == len(self.segments):
                if self.durability.disk_lags():
                    count -= 1
                else:
                    self.roll()
            if count:
                make_active(self._local)
                self._local.remove_first(count)
                self.advance_log_start(self.local_log_start_offset)
        except OSError as error:
            raise state.storage_error(error) from error
        return count

    def replace_segments(self, cleaned: CleanedSegment) -> bool:
        """Replace the sources of a compacted segment by it; False if the log no longer has these sources."""
        self._state.check_online()
        try:
            return self._local.replace_segments(cleaned)
        except OSError as error:
            raise self._state.storage_error(error) from error

    def take_over(self, other: PartitionLog) -> None:
        """Continue as the other log of the same partition, which has the same end: its producers and leader epochs."""
        self.history.take_over(other.history)
        self.durability.note_cut()

    # --- closing ---

    def prepare_close(self) -> FlushPlan | None:
        """Write out the indexes and the producers' snapshot, as a clean stop does, and return the plan to sync them."""
        self.durability.finish_writes()
        try:
            make_active(self._local)
            if self._local.active.size:
                self._local.active.finish_indexes()
            self.history.take_snapshot()
        except OSError as error:
            raise self._state.storage_error(error) from error
        return self.durability.plan_flush()

    def close(self) -> None:
        """Write out and sync everything, in this thread; the log may then be opened with `clean`."""
        plan = self.prepare_close()
        if plan is not None:
            self.durability.execute(plan)
        self._environment.files.forget_directory(self.directory)

    def release(self) -> None:
        """Return the memory and close the files that an idle log does not need; it stays usable."""
        self._state.check_online()
        try:
            self._local.release()
        except OSError as error:
            raise self._state.storage_error(error) from error

    def release_if_idle(self) -> bool:
        """Release a log without appends since the last call; whether there were none."""
        end_offset = self._state.end_offset
        idle = self._seen_end_offset == end_offset
        self._seen_end_offset = end_offset
        if idle and not self._released and not self.is_offline and not self.durability.has_queued:
            self.release()
            self._released = True
        elif not idle:
            self._released = False
        return idle
