"""How the batches of a log reach the disk: written at once or queued, then synced up to the recovery point."""

from __future__ import annotations

from collections.abc import Callable

from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.history import LogHistory
from odradek.log.log_state import LogState
from odradek.log.segments.local_log import LocalLog
from odradek.log.segments.segment import Segment
from odradek.log.writing.flush_plan import FlushPlan
from odradek.log.writing.write_queue import QueuedWrite
from odradek.ports.disk import File


class LogDurability:
    """The write queue, the flush plans and the recovery point of one log.

    Methods raise KafkaError KAFKA_STORAGE_ERROR if the disk fails where nothing else is stated.
    """

    __slots__ = (
        "_environment",
        "_flush_after",
        "_has_unsynced_cut",
        "_history",
        "_local",
        "_named_segment",
        "_queued",
        "_state",
        "_sync_planned",
        "_write_listener",
        "_writer",
        "recovery_point",
    )

    def __init__(
        self,
        state: LogState,
        local: LocalLog,
        history: LogHistory,
        environment: LogEnvironment,
        recovery_point: int,
    ) -> None:
        self._state = state
        self._local = local
        self._history = history
        self._environment = environment
        self._writer = environment.owner.writer_of(state.directory)
        self._flush_after = 0
        self._queued = 0
        # Everything below it is synced, or a plan to sync it is in the write queue.
        self._sync_planned = recovery_point
        # Base offset of the newest segment whose name in the directory is synced; -1 if any name may not be.
        self._named_segment = -1
        self._has_unsynced_cut = False
        self.recovery_point = recovery_point
        """All batches below it are synced; a start after a crash checks the batches from it on."""
        self._write_listener: Callable[[int], None] = _nothing

    def set_config(self, config: LogConfig) -> None:
        """Apply other settings."""
        self._flush_after = config.flush_messages - 1

    # --- writing ---

    def watch_writes(self, listener: Callable[[int], None]) -> None:
        """Call the listener, instead of an earlier one, with the size in bytes of each queued append once written."""
        self._write_listener = listener

    def write(self, segment: Segment, data: memoryview, last_offset: int) -> QueuedWrite | None:
        """Write what the event loop may write. Otherwise copy it, reserve its place and return it for `enqueue`."""
        writer = self._writer
        size = len(data)
        if (
            not self._queued
            and not writer.slow
            and size <= writer.inline_bytes
            and last_offset - self._sync_planned < self._flush_after
        ):
            started = writer.now()
            try:
                self._local.write(segment, data)
            except OSError as error:
                raise self._state.storage_error(error) from error
            finished = writer.now()
            if finished >= writer.look_at or finished - started > writer.stall_s:
                writer.look(started, finished)
            return None
        try:
            file = self._local.warm_file(segment)
            plan = None
            if last_offset - self._sync_planned >= self._flush_after:
                plan = self._plan_sync(file, last_offset + 1)
        except OSError as error:
            raise self._state.storage_error(error) from error
        write = QueuedWrite(self, segment, file, bytes(data), last_offset + 1, plan)
        segment.queued += size
        return write

    def _plan_sync(self, file: File, next_offset: int) -> FlushPlan:
        """Plan the sync of `flush.messages`: batches and the names of new files. All else can be made from these."""
        local = self._local
        first = local.slot(max(0, self._sync_planned - 1))
        files = [file, *(segment.file() for segment in local.segments[first:-1])]
        directories = []
        if self._named_segment != local.active.base_offset:
            directories.append(self.directory)
            if self._named_segment < 0:
                directories.append(self.directory.rpartition("/")[0])
                files += local.identity()
            self._named_segment = local.active.base_offset
        self._sync_planned = next_offset
        return FlushPlan(next_offset, files, directories, self._state.truncations)

    def enqueue(self, write: QueuedWrite) -> None:
        """Pass to the writer what `write` returned; the log's end follows once it is written."""
        self._queued += 1
        try:
            self._writer.put(write)
        except OSError as error:
            raise self._state.storage_error(error, after_write=True) from error

    def written(self, write: QueuedWrite) -> None:
        """See `WriteTarget`."""
        self._queued -= 1
        state = self._state
        if state.failure is not None:
            return
        size = len(write.data)
        self._local.wrote(write.segment, write.file, size)
        state.end_offset = write.next_offset
        state.waiters.release(write.next_offset)
        self._write_listener(size)

    def write_failed(self, error: OSError) -> None:
        """See `WriteTarget`: the log directory goes offline."""
        self._queued = 0
        if self._state.failure is None:
            self._state.storage_error(error, after_write=True)

    def when_written(self, last_offset: int, callback: Callable[[], None]) -> None:
        """Call back once the log's end is past the offset, or the log is offline; at once if that holds already."""
        state = self._state
        if last_offset < state.end_offset or state.failure is not None:
            callback()
        else:
            state.waiters.add(last_offset, callback)

    def finish_writes(self) -> None:
        """Wait in this thread until the queued writes are in their files.

        If they lack a descriptor, they stay queued: the error is retriable, and the log stays online.
        """
        if self._queued:
            try:
                self._writer.finish()
            except OSError as error:
                raise self._state.storage_error(error) from error
        self._state.check_online()

    # --- flushing ---

    def flush(self, offset: int | None = None, *, snapshot: bool = True) -> None:
        """Make everything below the offset (the end of the log if None) durable, in this thread."""
        plan = self.plan_flush(offset, snapshot=snapshot)
        if plan is not None:
            self.execute(plan)

    def execute(self, plan: FlushPlan) -> None:
        """Carry the plan out in this thread."""
        try:
            plan.sync(self._environment.disk)
        except OSError as error:
            raise self._state.storage_error(error) from error
        self.finish_flush(plan)

    def plan_flush(
        self, offset: int | None = None, *, snapshot: bool = True, most_segments: int = 0
    ) -> FlushPlan | None:
        """Write out what is in memory and name the files to sync; None if everything below the offset is durable.

        With `most_segments` the plan ends with that segment, where another one follows it: then there is more to flush.
        """
        state = self._state
        state.check_online()
        target = state.end_offset if offset is None else min(offset, state.end_offset)
        if most_segments:
            target = min(target, self._local.offset_after(self.recovery_point, most_segments, target))
        if target <= self.recovery_point and not (self._has_unsynced_cut and target == self.recovery_point):
            return None
        self._history.write_pending_epochs()
        try:
            files = self._local.write_out_indexes(self.recovery_point, target)
            self._history.complete_snapshot()
            if target == state.next_offset and snapshot:
                self._history.take_snapshot()
            files += self._local.other_files(self.recovery_point, target, inclusive=self._has_unsynced_cut)
        except OSError as error:
            raise state.storage_error(error) from error
        directories = [self.directory]
        if not self.recovery_point:
            directories.append(self.directory.rpartition("/")[0])
        return FlushPlan(target, files, directories, state.truncations)

    def encode_snapshot(self) -> bool:
        """Do a piece of the work that the next plan would have to do at once; whether there is more."""
        return self._history.encode_snapshot()

    def finish_flush(self, plan: FlushPlan) -> None:
        """Advance the recovery point after the plan is synced. A truncation since it was made voids the plan."""
        if plan.generation == self._state.truncations:
            self.recovery_point = max(self.recovery_point, plan.offset)
            self._sync_planned = max(self._sync_planned, plan.offset)
            self._has_unsynced_cut = False

    def note_cut(self) -> None:
        """Let the next flush sync the end of the log, though it is not above the recovery point."""
        self._has_unsynced_cut = True

    def forget_names(self) -> None:
        """Let the next sync include the directory: names in it have changed."""
        self._named_segment = -1

    def lower_recovery_point(self, offset: int) -> None:
        """Follow a truncation to the offset. Raises OSError."""
        # The log may end at its recovery point now. If a clean stop had nothing to sync, a power loss after it could
        # restore the removed batches in a log that is marked as clean.
        self.note_cut()
        self.forget_names()
        self._sync_planned = min(self._sync_planned, offset)
        if self.recovery_point > offset:
            self.recovery_point = offset
            self._environment.owner.recovery_point_lowered(self.directory)

    # --- state ---

    @property
    def directory(self) -> str:
        """Path of the log's directory."""
        return self._state.directory

    @property
    def active_base_offset(self) -> int:
        """The base offset of the active segment: the segments that end there are closed."""
        return self._local.active.base_offset

    @property
    def is_offline(self) -> bool:
        """Whether the log's directory is out of use, or the log is deleted."""
        return self._state.failure is not None

    @property
    def has_queued(self) -> bool:
        """Whether appended batches are still on their way to the file."""
        return self._queued > 0

    @property
    def is_queueing(self) -> bool:
        """Whether the next batch is queued, whatever its size."""
        return self._queued > 0 or self._writer.slow

    def disk_lags(self) -> bool:
        """Whether the disk does not keep up at this moment."""
        return self._writer.is_lagging()

    @property
    def is_dirty(self) -> bool:
        """Whether a part of the log is not synced."""
        return self._has_unsynced_cut or self.recovery_point < self._state.end_offset


def _nothing(_: int) -> None:
    """Ignore the size: no reader waits for queued writes."""
