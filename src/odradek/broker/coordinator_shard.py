"""What the shards of both coordinators need: a clock that does not jump, one timer, and replaying a partition's log."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from odradek.ports.clock import Clock
from odradek.records.batch import BatchHeader, parse_header
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record, decode_records
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import DecodeError

_REFUSED_SECONDS = 0.1
RELOAD_SECONDS = 5.0
"""After which a shard whose log could not be read is loaded anew: there may have been no descriptor left."""
_LOAD_SLICE_RECORDS = 500
"""How many records are replayed before other work of the loop gets its turn: a few milliseconds' worth."""


class ShardClock:
    """Milliseconds since the epoch that never jump: the wall clock at start, carried on by the monotonic one.

    A wall clock that is set must not end all sessions and transactions at once.
    """

    __slots__ = ("_clock", "_offset")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now_ms() / 1000 - clock.monotonic()

    def now_ms(self) -> int:
        return int((self._clock.monotonic() + self._offset) * 1000)


class RefusedWrites:
    """Tells of writes that a shard's log refuses: in one line when it begins, and in one when it is over.

    For too few in-sync replicas whoever asked is answered after a pause: clients that ask again at once, and
    rebalances that begin anew, would keep the broker busy for as long as that lasts.
    """

    __slots__ = ("_code", "_log", "_who", "is_refusing")

    def __init__(self, log: logging.Logger, who: str) -> None:
        self._log = log
        self._who = who
        self._code: ErrorCode | None = None
        self.is_refusing = False
        """Whether the last write was refused: then the next one that is not has to be told of."""

    def refused(self, name: str, error: Exception) -> float:
        """The log of the shard refuses a write; seconds after which that is answered."""
        code = error.code if isinstance(error, KafkaError) else None
        if code is None or code is not self._code:
            self._log.warning("%s: the %s coordinator cannot write: %s", name, self._who, error)
        self._code = code
        self.is_refusing = True
        return _REFUSED_SECONDS if code is ErrorCode.NOT_ENOUGH_REPLICAS else 0.0

    def written(self, name: str) -> None:
        if self._code is ErrorCode.NOT_ENOUGH_REPLICAS:
            self._log.info("%s: the %s coordinator writes again", name, self._who)
        self._code = None
        self.is_refusing = False


class ShardTimer:
    """Calls back no later than the first of a shard's deadlines."""

    __slots__ = ("_armed_ms", "_callback", "_clock", "_handle", "_loop")

    def __init__(self, clock: ShardClock, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._loop = loop
        self._callback = callback
        self._armed_ms: int | None = None
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, deadline_ms: int | None) -> None:
        if deadline_ms is None or (self._armed_ms is not None and self._armed_ms <= deadline_ms):
            return
        self.cancel()
        self._armed_ms = deadline_ms
        self._handle = self._loop.call_later(max(deadline_ms - self._clock.now_ms(), 1) / 1000, self._fire)

    def _fire(self) -> None:
        self._handle = self._armed_ms = None
        self._callback()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._armed_ms = None


class LogReplay:
    """Reads a partition's log from its start to where it ended at first, some of it per turn of the loop.

    `replay(header, records)` gets each batch, then `done(None)` is called, or `done(error)` if the log cannot be read.
    """

    __slots__ = ("_cancelled", "_done", "_end_offset", "_loop", "_offset", "_parts", "_replay")

    def __init__(
        self,
        replay: Callable[[BatchHeader, list[Record]], None],
        done: Callable[[Exception | None], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._replay = replay
        self._done = done
        self._loop = loop
        self._offset = self._end_offset = 0
        self._parts: deque[tuple[BatchHeader, list[Record]]] = deque()
        """What is left of the batches up to `_offset`."""
        self._cancelled = False

    def start(self, partition: Partition) -> None:
        log = partition.log
        # What is on its way to the disk belongs to it.
        log.when_written(log.next_offset - 1, partial(self._begin, partition))

    def _begin(self, partition: Partition) -> None:
        log = partition.log
        self._offset, self._end_offset = log.log_start_offset, log.end_offset
        self._some(partition)

    def cancel(self) -> None:
        self._cancelled = True

    def _some(self, partition: Partition) -> None:
        if self._cancelled:
            return
        budget = _LOAD_SLICE_RECORDS
        parts = self._parts
        # Anew in each turn: compaction may have put other segments in the place of those that were read last.
        views = partition.log.read_batches(self._offset, self._end_offset)
        try:
            while budget > 0:
                while not parts:
                    view = next(views, None)
                    if view is None:
                        self._done(None)
                        return
                    self._take(view)
                header, records = parts.popleft()
                self._replay(header, records)
                budget -= len(records) + 1
        except (DecodeError, CorruptRecords, KafkaError) as error:
            self._done(error)
            return
        self._loop.call_soon(self._some, partition)

    def _take(self, view: memoryview) -> None:
        """The records of each batch, of a large one in several parts."""
        position = 0
        while position < len(view):
            header = parse_header(view, position)
            records = decode_records(view, header, position, copy=True)
            for start in range(0, max(len(records), 1), _LOAD_SLICE_RECORDS):
                self._parts.append((header, records[start : start + _LOAD_SLICE_RECORDS]))
            self._offset = header.last_offset + 1
            position += header.size
