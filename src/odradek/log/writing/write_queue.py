"""The way to the disk for what the event loop must not wait for: one queue and one thread for each log directory.

While the disk keeps up, small appends are written on the loop, which is cheapest. Large ones, those that have to be
synced before they are answered (`flush.messages`), and all while the disk does not keep up, are copied and queued here.
Their offsets are fixed when they are queued; they can be read, and are acknowledged, when they are written.
A thread takes all that has gathered: one write for each file, then one sync for each file that needs one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from odradek.log.disk_errors import is_transient
from odradek.log.segments.segment import Segment
from odradek.log.writing.flush_plan import FlushPlan
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk, File

_CERTAIN_STALLS: Final = 10
"""A write that takes this many times `odradek.write.stall.ms` is no accident of scheduling."""
DEFAULT_INLINE_BYTES: Final = 1024 * 1024
_LOOK_SECONDS: Final = 0.05
_AGAIN_SECONDS: Final = 0.05
_TURN_BYTES: Final = 8 * 1024 * 1024
_FAIR_BYTES_PER_SECOND: Final = 200 * 1024 * 1024
"""What a thread that writes into the page cache does easily: a longer write has waited for the device."""


class WriteSettings:
    """When writes leave the event loop; shared by all log directories and read at each use."""

    __slots__ = ("inline_bytes", "probation_s", "stall_s")

    def __init__(
        self, inline_bytes: int = DEFAULT_INLINE_BYTES, stall_s: float = 0.01, probation_s: float = 1.0
    ) -> None:
        self.inline_bytes = inline_bytes
        """Larger appends are queued (`odradek.write.inline.max.bytes`)."""
        self.stall_s = stall_s
        """A write on the loop that takes longer shows that the disk does not keep up (`odradek.write.stall.ms`)."""
        self.probation_s = probation_s
        """How long all writes are queued after the last such sign (`odradek.write.probation.ms`)."""


class WriteTarget(Protocol):
    """The log that a queued write belongs to."""

    @property
    def is_offline(self) -> bool:
        """Whether the log no longer accepts writes: its directory failed, or the log is deleted."""
        ...

    def written(self, write: QueuedWrite) -> None:
        """Advance the log's end: the write is in its file, and synced where its plan asks for that."""
        ...

    def write_failed(self, error: OSError) -> None:
        """Give up all queued writes of the log."""
        ...


class QueuedWrite:
    """Bytes that have their place in a log and are on their way to its file."""

    __slots__ = ("data", "file", "log", "next_offset", "plan", "position", "segment")

    def __init__(
        self, log: WriteTarget, segment: Segment, file: File, data: bytes, next_offset: int, plan: FlushPlan | None
    ) -> None:
        self.log = log
        self.segment = segment
        self.file = file
        self.position = segment.size + segment.queued
        self.data = data
        self.next_offset = next_offset
        """The log's end once this is written."""
        self.plan = plan
        """What to sync after it."""


class Writer(Protocol):
    """What a log writes through."""

    slow: bool
    """Whether nothing may be written on the event loop for now."""
    inline_bytes: int
    stall_s: float
    look_at: float
    """When, on the clock of `now`, `look` is to be called after a write on the loop that was no stall."""
    now: Callable[[], float]

    def look(self, started: float, finished: float) -> None:
        """A write on the loop took that long, or `look_at` has come: is the disk keeping up?"""
        ...

    def is_lagging(self) -> bool:
        """Whether the disk does not keep up at this moment: `slow` stays where no write ends it."""
        ...

    def put(self, write: QueuedWrite) -> None:
        """Write it after all that was put before, then call `log.written`, or `log.write_failed`. May raise OSError."""
        ...

    def finish(self) -> None:
        """Wait in this thread for all that was put.

        Raises OSError if a write lacks a descriptor: the writes stay queued, and the queue's thread repeats them.
        """
        ...


class DirectWrites:
    """Writes at once: for logs that no event loop waits for, as in tools and recovery."""

    __slots__ = ("_disk", "inline_bytes", "look_at", "now", "slow", "stall_s")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.slow = False
        self.inline_bytes = 1 << 62
        self.stall_s = self.look_at = 1e9
        self.now: Callable[[], float] = _zero

    def look(self, started: float, finished: float) -> None:
        """See `Writer`."""

    def is_lagging(self) -> bool:
        """See `Writer`."""
        return False

    def put(self, write: QueuedWrite) -> None:
        """See `Writer`."""
        execute(self._disk, (write,))
        write.log.written(write)

    def finish(self) -> None:
        """See `Writer`."""


class WriteQueue:
    """The writes of one log directory. Owned by the event loop; only `execute` runs in the thread."""

    __slots__ = (
        "_calm_at",
        "_charge",
        "_disk",
        "_lane",
        "_path",
        "_pending",
        "_report",
        "_settings",
        "_task",
        "_turn",
        "inline_bytes",
        "lags",
        "longest_s",
        "look_at",
        "now",
        "queued",
        "slow",
        "stall_s",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        path: str,
        settings: WriteSettings,
        report: Callable[[str], None],
        charge: Callable[[int], None],
    ) -> None:
        """`report` is called with a line for operators when the disk begins to lag, and when it has caught up.

        `charge` is called with the bytes that enter the queue, and with their negative when they leave it.
        """
        self._disk = disk
        self._path = path
        self._lane = f"{path} writes"
        self._settings = settings
        self._pending: deque[QueuedWrite] = deque()
        self._turn: _Turn | None = None
        self._task: asyncio.Task[None] | None = None
        self._calm_at = 0.0
        self.now = clock.monotonic
        self.slow = False
        self.look_at = 0.0
        self.inline_bytes = settings.inline_bytes
        self.stall_s = settings.stall_s
        self.queued = 0
        """Writes that were queued since the start."""
        self.lags = 0
        """How often the disk began to lag."""
        self.longest_s = 0.0
        """The longest write that the event loop had to wait for."""
        self._report = report
        self._charge = charge

    # --- is the disk keeping up? ---

    def look(self, started: float, finished: float) -> None:
        """See `Writer`."""
        took = finished - started
        self.longest_s = max(self.longest_s, took)
        settings = self._settings
        self.inline_bytes, self.stall_s = settings.inline_bytes, settings.stall_s
        if took > settings.stall_s and self._is_disks_fault(took):
            self._lag(finished, f"a write took {took * 1000:.0f} ms")
        elif finished >= self.look_at:
            self.look_at = finished + _LOOK_SECONDS
            if not self._disk.keeps_up():
                self._lag(finished, "too much waits to be written back")

    def _is_disks_fault(self, took: float) -> bool:
        """A write may be long since another program had the processor: only a very long one speaks for itself."""
        return took > _CERTAIN_STALLS * self._settings.stall_s or not self._disk.keeps_up()

    def _lag(self, now: float, why: str = "") -> None:
        if not self.slow:
            self.slow = True
            self.lags += 1
            self._report(f"{self._path}: the disk does not keep up ({why}); appends are queued until it does")
        self._calm_at = now + self._settings.probation_s

    def _look_after(self, turn: _Turn) -> None:
        now = self.now()
        over = turn.took_s - turn.size / _FAIR_BYTES_PER_SECOND
        if over > self._settings.stall_s and self._is_disks_fault(over):
            if self.slow:
                self._lag(now)
        elif self.slow:
            self._end_probation(now)

    def _end_probation(self, now: float) -> None:
        if now < self._calm_at:
            return
        if self._disk.keeps_up():
            self.slow = False
            self._report(f"{self._path}: the disk keeps up again; small appends are no longer queued")
        else:
            self._lag(now)

    def is_lagging(self) -> bool:
        """See `Writer`."""
        if self.slow:
            self._end_probation(self.now())
        return self.slow

    # --- the queue ---

    @property
    def depth_bytes(self) -> int:
        """Bytes that wait to be written, or are being written."""
        turn = self._turn
        return sum(len(write.data) for write in self._pending) + (0 if turn is None else turn.size)

    def put(self, write: QueuedWrite) -> None:
        """See `Writer`."""
        self._pending.append(write)
        self.queued += 1
        self._charge(len(write.data))
        if self._task is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                # Before the event loop runs and after it has ended, blocking delays no client.
                self.finish()
                return
            self._task = loop.create_task(self._work(), name=self._lane)

    async def _work(self) -> None:
        try:
            while self._pending:
                turn = self._turn = _Turn(self._take(), self.now)
                await self._disk.run(self._lane, turn.execute, self._disk)
                if turn.is_complete:
                    continue
                if is_transient(turn.failure):
                    # The files of a new segment had no descriptor.
                    self._take_back(turn)
                    await asyncio.sleep(_AGAIN_SECONDS)
                else:
                    self._complete(turn)
        finally:
            self._task = None

    def _take(self) -> list[QueuedWrite]:
        taken = []
        size = 0
        pending = self._pending
        while pending and size < _TURN_BYTES:
            taken.append(pending.popleft())
            size += len(taken[-1].data)
        return taken

    def _take_back(self, turn: _Turn) -> None:
        """Let the next turn write this one's batches."""
        turn.is_complete = True
        self._turn = None
        self._pending.extendleft(reversed(turn.writes))

    def _complete(self, turn: _Turn) -> None:
        turn.is_complete = True
        self._turn = None
        self._charge(-turn.size)
        if turn.failure is not None:
            self._fail(turn, turn.failure)
            return
        self._look_after(turn)
        for write in turn.writes:
            write.log.written(write)

    def _fail(self, turn: _Turn, failure: OSError) -> None:
        """Give up the turn and all later writes: the log directory is out of use.

        If a log of the turn was deleted meanwhile, its renamed directory may be the only failure. Then the
        others are written again.
        """
        failed = [*turn.writes, *self._pending]
        self._charge(-sum(len(write.data) for write in self._pending))
        self._pending.clear()
        if any(write.log.is_offline for write in turn.writes):
            again = [write for write in failed if not write.log.is_offline]
            self._pending.extend(again)
            self._charge(sum(len(write.data) for write in again))
            failed = [write for write in failed if write.log.is_offline]
        for log in {id(write.log): write.log for write in failed}.values():
            log.write_failed(failure)

    def finish(self) -> None:
        """See `Writer`."""
        turn = self._turn
        if turn is not None and not turn.is_complete:
            self._disk.wait(self._lane)
            self._complete_or_raise(turn)
        while self._pending:
            turn = _Turn(self._take(), self.now)
            turn.execute(self._disk)
            self._complete_or_raise(turn)

    def _complete_or_raise(self, turn: _Turn) -> None:
        failure = turn.failure
        if failure is not None and self._task is not None and is_transient(failure):
            # The event loop waits: it must not repeat the write until another task returns a descriptor.
            self._take_back(turn)
            raise failure
        self._complete(turn)

    async def drained(self) -> None:
        """Everything that was put before is written, or has failed."""
        task = self._task
        if task is not None:
            await asyncio.wait({task})


class WriteQueues:
    """The write queue of every log directory of a broker."""

    __slots__ = ("_queues",)

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        paths: Iterable[str],
        settings: WriteSettings,
        report: Callable[[str], None],
        charge: Callable[[int], None],
    ) -> None:
        self._queues = {path: WriteQueue(disk, clock, path, settings, report, charge) for path in paths}

    def by_path(self) -> dict[str, WriteQueue]:
        """The queues by the path of their log directory."""
        return dict(self._queues)

    def of(self, path: str) -> WriteQueue:
        """Return the queue of the log directory with that path."""
        return self._queues[path]

    @property
    def longest_write_s(self) -> float:
        """The longest write so far for which the event loop had to wait, in seconds."""
        return max(queue.longest_s for queue in self._queues.values())

    async def wait_until_drained(self) -> None:
        """Wait until everything in the queues is in its file, or has failed."""
        for queue in self._queues.values():
            await queue.drained()


class _Turn:
    """What the thread writes at one time."""

    __slots__ = ("_now", "failure", "is_complete", "size", "took_s", "writes")

    def __init__(self, writes: list[QueuedWrite], now: Callable[[], float]) -> None:
        self.writes = writes
        self.size = sum(len(write.data) for write in writes)
        self.took_s = 0.0
        self.failure: OSError | None = None
        self.is_complete = False
        self._now = now

    def execute(self, disk: Disk) -> None:
        started = self._now()
        self.failure = None
        try:
            execute(disk, self.writes)
        except OSError as error:
            self.failure = error
        self.took_s = self._now() - started


def execute(disk: Disk, writes: Iterable[QueuedWrite]) -> None:
    """Write, then sync what has to be; in any thread. Raises OSError, and then nothing of it may count."""
    files: dict[int, tuple[File, int, list[bytes]]] = {}
    plans: list[FlushPlan] = []
    for write in writes:
        found = files.get(id(write.file))
        if found is None:
            files[id(write.file)] = (write.file, write.position, [write.data])
        else:
            found[2].append(write.data)
        if write.plan is not None:
            plans.append(write.plan)
    for file, position, parts in files.values():
        try:
            file.write_at(position, parts[0] if len(parts) == 1 else b"".join(parts))
        except OSError:
            # The next start would mistake a torn batch at the end for a crash.
            file.truncate(position)
            raise
    if plans:
        all_files = {id(file): file for plan in plans for file in plan.files}
        directories = dict.fromkeys(directory for plan in plans for directory in plan.directories)
        FlushPlan(0, list(all_files.values()), list(directories), 0).sync(disk)


def _zero() -> float:
    return 0.0
