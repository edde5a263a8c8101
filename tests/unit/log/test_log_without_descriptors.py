"""Each call that takes a descriptor finds none in turn: what is acknowledged stays, what is to be done is done."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.directories import replica_moves
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import TRANSACTION_INDEX
from odradek.log.writing.write_queue import DirectWrites, Writer
from odradek.ports.disk import SystemDisk, SystemFile
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.flushing import flush_all
from tests.unit.log.support import (
    NOW,
    LackingDisk,
    StandingClock,
    UnflushedOwner,
    fetched,
    marker,
    open_log,
    produced,
    put,
)

T = TypeVar("T")
TOPIC = b"t" * 16
NEXT = b"n" * 16
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=0, file_delete_delay_ms=0)
PRIME = 29
"""Of all calls each run of the test takes every so manieth."""


class SkippingDisk(LackingDisk):
    """Some calls, by their number, find no descriptor; threads do their work at once."""

    def __init__(self, lacking: range) -> None:
        super().__init__()
        self.lacking = lacking
        self.calls = 0

    def _take(self, path: str) -> None:
        self.calls += 1
        if self.calls - 1 in self.lacking:
            raise OSError(errno.EMFILE, "too many open files", path)

    async def run(self, lane: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


def start(root: Path, disk: LackingDisk) -> LogDirectories:
    made = LogDirectories(disk, StandingClock(), SeededRandom("any"), [str(root / name) for name in "ab"])
    made.startup.load(cluster_id="c", node_id=1)
    return made


class HalfMade(Exception):
    """A change stopped half-way: a directory is offline."""


class Story:
    """What happens to two partitions, each step tried until it is done."""

    def __init__(self, root: Path, lacking: range) -> None:
        self.disk = SkippingDisk(range(0))
        self.directories = start(root, self.disk)
        self.disk.calls, self.disk.lacking = 0, lacking
        self.ends = [0, 0]
        self.ids = [TOPIC, TOPIC]

    def until_done(self, step: Callable[[], T]) -> T:
        for _ in range(len(self.disk.lacking) + 1):
            try:
                return step()
            except KafkaError:
                if any(each.offline for each in self.directories.directories):
                    raise HalfMade from None
        pytest.fail("it is not possible later")

    def log(self, partition: int) -> PartitionLog:
        return self.directories.open("t", partition, self.ids[partition], CONFIG)

    def append(self, partition: int, data: memoryview, origin: Origin = Origin.CLIENT) -> None:
        sent = bytes(data)
        result = self.until_done(lambda: put(self.log(partition), memoryview(bytearray(sent)), origin=origin))
        assert (result.first_offset, result.duplicate) == (self.ends[partition], False)
        self.ends[partition] += 1

    def run(self) -> None:
        directories = self.directories
        for sequence in range(6):
            for partition in range(2):
                self.append(partition, produced(1, sequence))
        self.append(0, produced(2, 0, transactional=True))
        self.append(0, marker(2, commit=False), Origin.COORDINATOR)
        asyncio.run(directories.flusher.work(NOW))
        asyncio.run(flush_all(directories))
        asyncio.run(directories.checkpoints.persist_all())
        for log in directories.opened():
            self.until_done(log.release)
        starts = directories.checkpoints.advance_starts
        self.until_done(lambda: asyncio.run(starts({("t", 0): 3}, lambda: None)))
        self.until_done(lambda: self.log(0).advance_log_start(3))
        self.until_done(lambda: self.log(0).delete_old_segments(NOW, self.ends[0]))
        self.append(0, produced(3, 0, transactional=True))
        self.until_done(lambda: directories.moves.begin(self.log(0), directories.directories[1], TOPIC))
        self.until_done(lambda: asyncio.run(self._move()))
        self.append(0, marker(3, commit=False), Origin.COORDINATOR)
        self.ids[1], self.ends[1] = NEXT, 0
        self.until_done(lambda: directories.delete("t", 1, 0))
        asyncio.run(directories.flusher.work(NOW + 1_000_000))
        self.append(1, produced(1, 0))

    async def _move(self) -> None:
        moves = self.directories.moves
        while ("t", 0) in moves.under_way:
            if not await moves.copy(self.log(0)):
                await moves.exchange(self.log(0))

    def check(self) -> None:
        log, other = self.log(0), self.log(1)
        assert (log.log_start_offset, log.end_offset, other.end_offset) == (3, self.ends[0], self.ends[1])
        assert fetched(log, 3)[-1] == self.ends[0] - 1
        assert log.reader.aborted_transactions(3, log.end_offset) == [(2, 6), (3, 8)]
        assert log.history.first_unstable_offset is None
        assert put(log, produced(1, 5)).duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lacking", [1, 2])
def test_nothing_is_lost_whichever_call_finds_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool, lacking: int
) -> None:
    monkeypatch.setattr(replica_moves, "RETRY_SECONDS", 0)
    first = lacking
    while True:
        root = tmp_path / str(first)
        root.mkdir()
        story = Story(root, range(first, first + lacking))
        try:
            story.run()
        except HalfMade:
            asyncio.run(story.directories.close(clean=False))
            story.disk.lacking = range(0)
            story.directories = start(root, story.disk)
            assert [story.log(partition).end_offset for partition in range(2)] == story.ends
            asyncio.run(story.directories.close())
            first += PRIME
            continue
        calls = story.disk.calls
        story.disk.lacking = range(0)
        for _ in range(3):
            asyncio.run(story.directories.flusher.work(NOW + 1_000_000))
        assert not [each.offline for each in story.directories.directories if each.offline], first
        story.check()
        assert not [path for path in root.glob("*/*") if path.name.endswith(("-delete", "-future"))], first
        asyncio.run(story.directories.close(clean=clean))
        story.directories = start(root, story.disk)
        story.check()
        asyncio.run(story.directories.close())
        if first >= calls:
            break
        first += PRIME
    assert first > 100


class SlowOwner(UnflushedOwner):
    """Queues all writes, as while the disk does not keep up: the first write to a segment makes its files."""

    def writer_of(self, _directory: str) -> Writer:
        writer = DirectWrites(self._disk)
        writer.slow = True
        return writer


def rolled_without_a_write(path: Path) -> PartitionLog:
    """The marker begins a segment, and lacks a descriptor for the index of transactions before it is queued."""

    class ShortDisk(SystemDisk):
        is_short = False

        def open(self, path: str, *, create: bool = False) -> SystemFile:
            if self.is_short and path.endswith(TRANSACTION_INDEX):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().open(path, create=create)

    disk = ShortDisk()
    config = LogConfig(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=0)
    log = open_log(path, config, LogEnvironment(disk, StandingClock(), owner=SlowOwner(disk)), clean=True)
    put(log, produced(1, 0, transactional=True))
    disk.is_short = True
    with pytest.raises(KafkaError) as rejected:
        put(log, marker(1, commit=False), origin=Origin.COORDINATOR)
    assert rejected.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    disk.is_short = False
    return log


def test_transaction_stays_open_over_a_stop_after_a_roll_without_a_write(tmp_path: Path) -> None:
    rolled_without_a_write(tmp_path).close()
    again = open_log(tmp_path, clean=True)
    assert again.history.first_unstable_offset == 0
    assert put(again, marker(1, commit=False), origin=Origin.COORDINATOR).first_offset == 1


def test_idle_log_is_appended_to_after_a_roll_without_a_write(tmp_path: Path) -> None:
    log = rolled_without_a_write(tmp_path)
    log.release()
    assert put(log, marker(1, commit=False), origin=Origin.COORDINATOR).first_offset == 1
    assert not log.is_offline


def test_offsets_continue_where_retention_follows_a_roll_without_a_write(tmp_path: Path) -> None:
    """The process dies before another checkpoint of log starts."""
    assert rolled_without_a_write(tmp_path).delete_old_segments(NOW, 1) == 1
    assert open_log(tmp_path).end_offset == 1
