"""Turns of a write queue: their order, what a failure leaves, and when a disk counts as one that lags."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.log.writing.write_queue import WriteQueue, WriteSettings
from tests.unit.log.support import StandingClock

MIB = 1 << 20


class Log:
    """Notes which of its writes are in its file, and whether they failed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_offline = False
        self.done: list[int] = []
        self.failures: list[OSError] = []

    def written(self, write: Any) -> None:
        self.done.append(write.next_offset)

    def write_failed(self, error: OSError) -> None:
        self.failures.append(error)
        self.is_offline = True


class File:
    """The file of a log; fails while the disk does."""

    def __init__(self, queue: Queue, log: Log) -> None:
        self._queue = queue
        self._log = log
        self.path = log.name

    def write_at(self, _position: int, data: bytes) -> None:
        queue = self._queue
        queue.seconds += queue.write_seconds
        if queue.failing is self._log or queue.failing is True:
            queue.failed_writes += 1
            raise OSError(queue.error, "failed")
        queue.appended.append((self._log.name, len(data)))

    def truncate(self, position: int) -> None:
        self._queue.truncated.append((self._log.name, position))


class Queue:
    """A queue on a disk and a clock of the test."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.write_seconds = 0.0
        self.keeps_up_now = True
        self.looks = 0
        self.failing: Log | bool = False
        self.error = errno.EIO
        self.failed_writes = 0
        self.appended: list[tuple[str, int]] = []
        self.truncated: list[tuple[str, int]] = []
        self.files: dict[str, File] = {}
        self.turns = 0
        self.reports: list[str] = []
        self.charged: list[int] = []
        clock = StandingClock()
        clock.monotonic = lambda: self.seconds  # type: ignore[method-assign]
        disk: Any = SimpleNamespace(run=self._run, keeps_up=self._keeps_up, wait=lambda _lane: None)
        settings = WriteSettings(1000, 0.01, 1.0)
        self.queue = WriteQueue(disk, clock, "/d", settings, self.reports.append, self.charged.append)

    def _keeps_up(self) -> bool:
        self.looks += 1
        return self.keeps_up_now

    async def _run(self, _lane: str, work: Any, *args: Any) -> None:
        self.turns += 1
        work(*args)

    def put(self, log: Log, size: int, offset: int) -> None:
        file = self.files.setdefault(log.name, File(self, log))
        write: Any = SimpleNamespace(
            log=log, file=file, position=offset, data=bytes(size), next_offset=offset, plan=None
        )
        self.queue.put(write)


def test_writes_of_many_logs_share_turns_of_a_size() -> None:
    queue, a, b = Queue(), Log("a"), Log("b")

    async def scenario() -> None:
        for offset in range(1, 5):
            queue.put(a, 3 * MIB, offset)
        queue.put(b, 10, 1)
        assert queue.queue.depth_bytes == 12 * MIB + 10
        await queue.queue.drained()

    asyncio.run(scenario())
    assert (a.done, b.done) == ([1, 2, 3, 4], [1])
    assert queue.turns == 2, "a turn ends with the write that passes eight MiB"
    assert (queue.queue.queued, queue.queue.depth_bytes) == (5, 0)
    assert (sum(queue.charged), queue.charged[0]) == (0, 3 * MIB)


def test_failed_turn_gives_up_all_later_writes() -> None:
    queue, a, b = Queue(), Log("a"), Log("b")
    queue.failing = True

    async def scenario() -> None:
        queue.put(a, 9 * MIB, 1)
        queue.put(a, 10, 2)
        queue.put(b, 10, 1)
        await queue.queue.drained()

    asyncio.run(scenario())
    assert (a.done, b.done, queue.appended, queue.truncated) == ([], [], [], [("a", 1)])
    assert (len(a.failures), len(b.failures)) == (1, 1)
    assert (sum(queue.charged), queue.queue.depth_bytes, queue.turns) == (0, 0, 1)


def test_writes_of_other_logs_are_repeated_if_a_deleted_log_failed() -> None:
    queue, gone, a = Queue(), Log("gone"), Log("a")
    queue.failing = gone

    async def scenario() -> None:
        queue.put(gone, 10, 1)
        queue.put(a, 20, 1)
        queue.put(gone, 9 * MIB, 2)
        queue.put(a, 30, 2)
        gone.is_offline = True
        await queue.queue.drained()

    asyncio.run(scenario())
    assert (a.done, a.failures) == ([1, 2], [])
    assert (gone.done, len(gone.failures)) == ([], 1)
    assert (queue.appended, queue.truncated) == ([("a", 50)], [("gone", 1)])
    assert (sum(queue.charged), queue.queue.depth_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("took", "keeps_up", "is_slow"),
    [
        (0.009, False, True),  # the look that is due finds it
        (0.0101, False, True),
        (0.0101, True, False),  # another program had the processor
        (0.1, True, False),
        (0.11, True, True),  # too long for that
    ],
)
def test_disk_lags_after_a_long_write(took: float, keeps_up: bool, is_slow: bool) -> None:
    queue = Queue()
    queue.keeps_up_now = keeps_up
    queue.queue.look(100.0, 100.0 + took)
    assert queue.queue.slow is is_slow
    assert (queue.queue.lags, len(queue.reports)) == (is_slow, is_slow)
    assert queue.queue.longest_s == pytest.approx(took)


def test_disk_is_asked_twenty_times_a_second_at_most() -> None:
    queue = Queue()
    for at, looks in ((100.0, 1), (100.04, 1), (100.05, 2), (100.06, 2), (100.11, 3)):
        queue.queue.look(at, at)
        assert queue.looks == looks, at


def test_lag_is_counted_once_until_the_disk_recovers() -> None:
    queue = Queue()
    for _ in range(3):
        queue.queue.look(queue.seconds, queue.seconds + 1)
        queue.seconds += 1
    assert (queue.queue.slow, queue.queue.lags, len(queue.reports)) == (True, 1, 1)


def turn(queue: Queue, *, seconds: float = 0.0, size: int = 10) -> bool:
    """One queued write that takes this long; whether the disk counts as slow after it."""
    queue.write_seconds = seconds

    async def scenario() -> None:
        queue.put(Log("a"), size, 1)
        await queue.queue.drained()

    asyncio.run(scenario())
    return queue.queue.slow


def test_disk_recovers_after_its_probation() -> None:
    queue = Queue()
    queue.queue.look(99.0, 100.0)
    assert queue.queue.slow
    queue.seconds = 100.99
    assert turn(queue)
    queue.seconds = 101.0
    assert not turn(queue)
    assert (queue.queue.lags, len(queue.reports)) == (1, 2)


@pytest.mark.parametrize("sign", ["a long write", "too much to write back"])
def test_new_sign_of_a_lag_extends_the_probation(sign: str) -> None:
    queue = Queue()
    queue.queue.look(99.0, 100.0)
    queue.seconds = 101.0
    if sign == "a long write":
        assert turn(queue, seconds=0.2)
    else:
        queue.keeps_up_now = False
        assert turn(queue)
        queue.keeps_up_now = True
    queue.seconds += 0.99
    assert turn(queue)
    queue.seconds += 0.02
    assert not turn(queue)
    assert queue.queue.lags == 1


def test_large_write_may_take_the_time_of_its_bytes() -> None:
    queue = Queue()
    queue.queue.look(99.0, 100.0)
    queue.seconds = 101.0
    assert not turn(queue, seconds=0.1, size=20 * MIB), "200 MiB a second are a cache's speed"


def test_queue_without_a_loop_writes_at_once() -> None:
    queue, a = Queue(), Log("a")
    queue.put(a, 10, 1)
    queue.put(a, 20, 2)
    assert (a.done, queue.turns, sum(queue.charged)) == ([1, 2], 0, 0)


def test_finish_raises_a_lack_of_descriptors_and_the_thread_repeats() -> None:
    queue, a, b = Queue(), Log("a"), Log("b")
    queue.failing, queue.error = True, errno.EMFILE

    async def scenario() -> None:
        queue.put(a, 10, 1)
        queue.put(b, 20, 1)
        with pytest.raises(OSError, match="failed") as caught:
            queue.queue.finish()
        assert (caught.value.errno, queue.failed_writes) == (errno.EMFILE, 1), "the event loop waits for one attempt"
        assert (queue.queue.depth_bytes, a.failures, b.failures) == (30, [], [])
        queue.failing = False
        await queue.queue.drained()

    asyncio.run(scenario())
    assert (a.done, b.done, sum(queue.charged)) == ([1], [1], 0)
    assert queue.appended == [("a", 10), ("b", 20)], "each batch is written once, in its place in the order"


def test_finish_writes_what_was_put_before_and_after_a_lack_in_order() -> None:
    queue, a = Queue(), Log("a")
    queue.failing, queue.error = True, errno.ENFILE

    async def scenario() -> None:
        queue.put(a, 10, 1)
        with pytest.raises(OSError, match="failed"):
            queue.queue.finish()
        queue.put(a, 20, 2)
        queue.failing = False
        queue.queue.finish()
        assert (a.done, queue.queue.depth_bytes) == ([1, 2], 0)
        await queue.queue.drained()

    asyncio.run(scenario())
    assert (queue.appended, queue.turns) == ([("a", 30)], 0)


def test_lack_of_a_descriptor_without_a_loop_is_final() -> None:
    """No thread would repeat the write."""
    queue, a = Queue(), Log("a")
    queue.failing, queue.error = True, errno.EMFILE
    queue.put(a, 10, 1)
    assert (queue.failed_writes, len(a.failures), queue.queue.depth_bytes) == (1, 1, 0)
