"""Writes that do not happen on the event loop: their order, when they count, and what waits for them."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.directories.events import DirectoryEvents
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.placed_logs import DirectorySettings
from odradek.log.partition_log import PartitionLog
from odradek.log.writing.write_queue import WriteSettings
from odradek.ports.disk import Bytes, SystemDisk, SystemFile
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, StandingClock, batch, fetched, open_log, produced, put

TOPIC = b"t" * 16
LARGE = 2000
CONFIG = LogConfig(file_delete_delay_ms=0)


class MovingClock(StandingClock):
    """A clock whose monotonic time is set."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class StallingDisk(SystemDisk):
    """Writes of threads wait while `gate` is closed; those of the event loop take `inline_seconds` on the clock,
    those of threads `queued_seconds`."""

    def __init__(self, clock: MovingClock) -> None:
        super().__init__()
        self.clock = clock
        self.gate = threading.Event()
        self.gate.set()
        self.inline_seconds = 0.0
        self.queued_seconds = 0.0
        self.failure = 0
        self.lags = False
        self.lacks = False
        self.threads_without_descriptors: set[int] = set()
        self.syncs: list[str] = []
        self.queued_writes = 0

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        if self.lacks:
            self.threads_without_descriptors.add(threading.get_ident())
            raise OSError(errno.EMFILE, "too many open files", path)
        return StallingFile(self, path, create)

    def keeps_up(self) -> bool:
        return not self.lags


class StallingFile(SystemFile):
    def __init__(self, disk: StallingDisk, path: str, create: bool) -> None:
        plain = SystemDisk.open(disk, path, create=create)
        self._fd, plain._fd = plain._fd, -1
        self._size = plain._size
        self.path = path
        self.disk = disk

    def append(self, parts: Any) -> int:
        self.disk.clock.seconds += self.disk.inline_seconds
        return super().append(parts)

    def write_at(self, position: int, data: Bytes) -> None:
        if not self.path.endswith(".log"):
            super().write_at(position, data)
            return
        self.disk.queued_writes += 1
        self.disk.clock.seconds += self.disk.queued_seconds
        assert self.disk.gate.wait(30)
        if self.disk.failure:
            raise OSError(self.disk.failure, "failed", self.path)
        super().write_at(position, data)

    def sync(self) -> None:
        self.disk.syncs.append(self.path)
        super().sync()


class World:
    """Logs in one directory, of which appends above LARGE bytes are queued."""

    def __init__(self, path: Path, config: LogConfig = CONFIG) -> None:
        self.clock = MovingClock()
        self.disk = StallingDisk(self.clock)
        self.config = config
        self.path = path
        self.charged: list[int] = []
        """Bytes that entered the queue, and the negative of those that left it."""
        self.directories = self._start()
        self.log = self.directories.open("topic", 0, TOPIC, config)
        self.offline: list[str] = []
        self.directories.events.subscribe_failures(self.offline.append)

    def _start(self) -> LogDirectories:
        made = LogDirectories(
            self.disk,
            self.clock,
            SeededRandom("queue"),
            [str(self.path)],
            settings=DirectorySettings(WriteSettings(LARGE, 0.01, 1.0)),
            events=DirectoryEvents(charge=self.charged.append),
        )
        made.startup.load(cluster_id="c", node_id=1)
        return made

    async def restart(self, *, clean: bool = True) -> PartitionLog:
        await self.directories.close(clean=clean)
        self.directories = self._start()
        self.log = self.directories.open("topic", 0, TOPIC, self.config)
        return self.log

    async def written(self) -> None:
        """Until nothing is on its way."""
        done = asyncio.get_running_loop().create_future()
        self.log.durability.when_written(self.log.next_offset - 1, lambda: done.set_result(None))
        await done


def running(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


def large(**kwargs: Any) -> memoryview:
    return batch(value=b"x" * LARGE, **kwargs)


@running
async def test_a_large_append_counts_once_it_is_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = world.log
    calls: list[int] = []
    log.durability.watch_writes(calls.append)
    put(log, batch())
    assert log.end_offset == 1, "a small one is written at once"
    world.disk.gate.clear()
    data = large()
    result = put(log, data)
    assert (result.first_offset, log.next_offset, log.end_offset) == (1, 2, 1)
    assert fetched(log, 1, upper=2) == [], "no reader gets unwritten records"
    assert log.size_bytes == len(batch())
    size = len(data)
    data[:] = bytes(size)  # the receive buffer is used again
    world.disk.gate.set()
    await world.written()
    assert (log.end_offset, calls) == (2, [size])
    assert fetched(log, 0) == [0, 1]
    assert (await world.restart()).end_offset == 2


@running
async def test_large_append_of_a_follower_counts_once_it_is_written(tmp_path: Path) -> None:
    """A follower asks for the offset after its end in the next fetch: the leader counts that as written."""
    world = World(tmp_path)
    world.disk.gate.clear()
    put(world.log, large(), origin=Origin.REPLICATION)
    assert (world.log.next_offset, world.log.end_offset) == (1, 0)
    world.disk.gate.set()
    await world.written()
    assert world.log.end_offset == 1


def segments_on_disk(world: World) -> list[str]:
    return [name for name in world.disk.list(world.log.directory) if name.endswith(".log")]


ROLLING = LogConfig(file_delete_delay_ms=0, segment_bytes=2 * len(batch()))


async def roll_on_a_slow_disk(world: World) -> None:
    """Two batches are in the first segment, a third begins the second one; its write waits for the gate."""
    world.disk.gate.clear()
    world.disk.inline_seconds = 0.2
    put(world.log, batch())
    world.disk.inline_seconds = 0.0
    put(world.log, batch())
    put(world.log, batch())


@running
async def test_files_of_a_new_segment_are_made_by_the_queued_write(tmp_path: Path) -> None:
    world = World(tmp_path, ROLLING)
    await roll_on_a_slow_disk(world)
    assert [each.base_offset for each in world.log.segments] == [0, 2]
    assert segments_on_disk(world) == [f"{0:020d}.log"], "the event loop has made no file"
    assert not [name for name in world.disk.list(world.log.directory) if name.startswith(f"{2:020d}")]
    world.disk.gate.set()
    await world.written()
    made = [name for name in world.disk.list(world.log.directory) if name.startswith(f"{2:020d}")]
    assert made == [f"{2:020d}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")]
    assert fetched(world.log, 0) == [0, 1, 2]
    assert (await world.restart()).end_offset == 3
    assert fetched(world.log, 0) == [0, 1, 2]


@running
async def test_log_ends_before_a_segment_whose_files_were_not_made(tmp_path: Path) -> None:
    """The process dies between the roll and the write that makes the files."""
    world = World(tmp_path, ROLLING)
    await roll_on_a_slow_disk(world)
    shutil.copytree(world.log.directory, tmp_path / "copy" / "topic-0")
    found = open_log(tmp_path / "copy", ROLLING)
    assert (found.end_offset, [each.base_offset for each in found.segments]) == (1, [0])
    world.disk.gate.set()
    await world.written()


@running
async def test_segments_that_follow_each_other_are_made_late_in_order(tmp_path: Path) -> None:
    world = World(tmp_path, ROLLING)
    await roll_on_a_slow_disk(world)
    for _ in range(6):
        put(world.log, batch())
    assert segments_on_disk(world) == [f"{0:020d}.log"]
    world.disk.gate.set()
    await world.written()
    assert segments_on_disk(world) == [f"{offset:020d}.log" for offset in (0, 2, 4, 6, 8)]
    assert fetched(world.log, 0) == list(range(9))


@running
async def test_files_of_a_new_segment_wait_for_descriptors(tmp_path: Path) -> None:
    world = World(tmp_path, ROLLING)
    await roll_on_a_slow_disk(world)
    world.disk.lacks = True
    world.disk.gate.set()
    while world.directories.files.get(world.log.segments[0].path).size() < 2 * len(batch()):
        await asyncio.sleep(0.001)
    assert (world.log.end_offset, world.offline) == (1, []), "the turn has failed as a whole, for want of a descriptor"
    world.disk.lacks = False
    await world.written()
    assert fetched(world.log, 0) == [0, 1, 2]
    assert world.offline == []


@running
async def test_roll_on_a_slow_disk_empties_what_lies_under_its_names(tmp_path: Path) -> None:
    world = World(tmp_path, ROLLING)
    left = Path(world.log.directory) / f"{2:020d}.timeindex"
    left.write_bytes(b"left over")
    await roll_on_a_slow_disk(world)
    assert left.read_bytes() == b""
    world.disk.gate.set()
    await world.written()
    assert fetched(world.log, 0) == [0, 1, 2]


@running
async def test_retention_keeps_the_active_segment_while_the_disk_lags(tmp_path: Path) -> None:
    """It would have to begin another one, on the event loop."""
    world = World(tmp_path, LogConfig(file_delete_delay_ms=0, segment_bytes=2 * len(batch()), retention_ms=0))
    for _ in range(3):
        put(world.log, batch())
    world.disk.lags = True
    world.clock.seconds += 1
    put(world.log, batch())
    later = NOW + 1000
    assert world.log.delete_old_segments(later, 4) == 1
    assert [each.base_offset for each in world.log.segments] == [2]
    assert world.log.delete_old_segments(later, 4) == 0
    world.clock.seconds += 10
    await world.written()
    assert world.log.delete_old_segments(later, 4) == 0
    world.disk.lags = False
    assert world.log.delete_old_segments(later, 4) == 0, "on probation since the look before"
    world.clock.seconds += 10
    assert world.log.delete_old_segments(later, 4) > 0, "no write has to say that the disk keeps up"
    assert world.log.log_start_offset == 4


@running
async def test_truncation_waits_for_the_files_of_a_new_segment(tmp_path: Path) -> None:
    world = World(tmp_path, ROLLING)
    await roll_on_a_slow_disk(world)
    world.disk.gate.set()
    assert world.log.truncate_to(2)
    assert (world.log.end_offset, fetched(world.log, 0)) == (2, [0, 1])
    put(world.log, batch())
    await world.written()
    assert fetched(world.log, 0) == [0, 1, 2]


@running
async def test_truncation_is_rejected_at_the_first_lack_of_descriptors(tmp_path: Path) -> None:
    world = World(tmp_path, ROLLING)
    await roll_on_a_slow_disk(world)
    await asyncio.sleep(0)  # the turn is in the thread
    world.disk.lacks = True
    threading.Timer(0.01, world.disk.gate.set).start()
    with pytest.raises(KafkaError) as caught:
        world.log.truncate_to(2)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(world.disk.threads_without_descriptors) == 1
    assert threading.get_ident() not in world.disk.threads_without_descriptors, "the event loop repeated the write"
    assert (world.log.is_offline, world.offline, world.log.next_offset) == (False, [], 3)
    world.disk.lacks = False
    await world.written()
    assert fetched(world.log, 0) == [0, 1, 2]
    assert world.log.truncate_to(2)
    assert (world.log.end_offset, fetched(world.log, 0)) == (2, [0, 1])


@running
async def test_what_follows_waits_for_its_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = world.log
    world.disk.gate.clear()
    put(log, large())
    for number in range(1, 50):
        assert put(log, batch()).first_offset == number
    order: list[int] = []
    for offset in (30, 10, 49):
        log.durability.when_written(offset, lambda offset=offset: order.append(offset))  # type: ignore[misc]
    assert (log.end_offset, order) == (0, [])
    world.disk.gate.set()
    await world.written()
    assert order == [10, 30, 49]
    assert fetched(log, 0) == list(range(50))
    assert world.disk.queued_writes <= 2, "what has gathered is written together"
    put(log, batch())
    assert log.end_offset == 51, "and the next one at once"
    assert (await world.restart(clean=False)).end_offset == 51


@running
async def test_another_log_does_not_wait(tmp_path: Path) -> None:
    world = World(tmp_path)
    other = world.directories.open("topic", 1, TOPIC, CONFIG)
    world.disk.gate.clear()
    put(world.log, large())
    put(other, batch())
    assert other.end_offset == 1
    world.disk.gate.set()
    await world.written()


@running
async def test_stall_sends_writes_to_the_thread_until_the_disk_recovers(tmp_path: Path) -> None:
    world = World(tmp_path)
    log, disk, clock = world.log, world.disk, world.clock
    reports: list[str] = []
    world.directories.events.report = reports.append
    disk.inline_seconds = 0.2
    put(log, batch())
    assert log.end_offset == 1
    assert world.directories.writers.longest_write_s == pytest.approx(0.2)
    put(log, batch())
    assert log.end_offset == 1, "this one is queued"
    await world.written()
    clock.seconds += 0.5
    put(log, batch())
    await world.written()
    assert disk.queued_writes == 2
    clock.seconds += 0.6
    put(log, batch())
    await world.written()
    assert disk.queued_writes == 3, "the last one on probation"
    disk.inline_seconds = 0.0
    put(log, batch())
    assert log.end_offset == 5
    assert disk.queued_writes == 3
    assert [text.partition(": ")[2] for text in reports] == [
        "the disk does not keep up (a write took 200 ms); appends are queued until it does",
        "the disk keeps up again; small appends are no longer queued",
    ]


@running
async def test_a_write_that_only_waited_for_the_processor_is_not_the_disks_fault(tmp_path: Path) -> None:
    world = World(tmp_path)
    log, disk = world.log, world.disk
    disk.inline_seconds = 0.02
    put(log, batch())
    put(log, batch())
    assert log.end_offset == 2
    disk.lags = True
    put(log, batch())
    put(log, batch())
    assert log.end_offset == 3, "the last one is queued"
    await world.written()


async def is_queued_after(world: World, seconds: float) -> bool:
    """Whether an append is queued after probation has ended with a queued write that took that long."""
    world.disk.inline_seconds = 0.2
    put(world.log, batch())
    world.disk.inline_seconds, world.disk.queued_seconds = 0.0, seconds
    world.clock.seconds += 1.1
    put(world.log, batch())
    await world.written()
    put(world.log, batch())
    queued = world.log.end_offset == 2
    await world.written()
    return queued


@running
async def test_probation_ends_with_a_queued_write_that_waited_for_the_processor(tmp_path: Path) -> None:
    assert not await is_queued_after(World(tmp_path), 0.02)


@running
async def test_probation_is_extended_by_a_long_queued_write(tmp_path: Path) -> None:
    assert await is_queued_after(World(tmp_path), 0.2)


@running
async def test_kernel_is_asked_after_the_first_write(tmp_path: Path) -> None:
    """The clock may begin with the machine: a broker that starts with it waits for no second to pass."""
    world = World(tmp_path)
    world.disk.lags = True
    put(world.log, batch())
    put(world.log, batch())
    assert world.log.end_offset == 1, "the second one is queued"
    await world.written()


@running
async def test_write_of_exactly_the_stall_time_is_no_stall(tmp_path: Path) -> None:
    world = World(tmp_path)
    put(world.log, batch())
    world.disk.inline_seconds = 0.01
    put(world.log, batch())
    assert world.directories.writers.longest_write_s == 0.0
    world.disk.inline_seconds = 0.02
    put(world.log, batch())
    assert world.directories.writers.longest_write_s == pytest.approx(0.02)


@running
async def test_the_kernel_says_that_it_lags(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.disk.lags = True
    world.clock.seconds += 1
    put(world.log, batch())
    assert world.log.end_offset == 1, "it is asked after a write"
    put(world.log, batch())
    await world.written()
    world.clock.seconds += 2
    put(world.log, batch())
    await world.written()
    assert world.disk.queued_writes == 2
    world.disk.lags = False
    world.clock.seconds += 2
    put(world.log, batch())
    await world.written()
    put(world.log, batch())
    assert world.disk.queued_writes == 3


@running
async def test_a_write_that_fails_takes_the_directory_out_of_use(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = world.log
    put(log, batch())
    other = world.directories.open("topic", 1, TOPIC, CONFIG)
    world.disk.failure = errno.ENOSPC
    world.disk.gate.clear()
    put(log, large())
    put(log, batch())
    put(other, large())
    calls: list[bool] = []
    log.durability.when_written(2, lambda: calls.append(log.is_offline))
    other.durability.when_written(0, lambda: calls.append(other.is_offline))
    world.disk.gate.set()
    while len(calls) < 2:
        await asyncio.sleep(0)
    assert calls == [True, True]
    assert world.offline == [str(tmp_path)]
    assert log.end_offset == 1
    with pytest.raises(KafkaError) as refused:
        put(log, batch())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.failure = 0
    assert (await world.restart(clean=False)).end_offset == 1, "nothing torn is left"


@running
async def test_a_roll_in_between(tmp_path: Path) -> None:
    world = World(tmp_path, LogConfig(segment_bytes=3 * LARGE, index_interval_bytes=100, file_delete_delay_ms=0))
    log = world.log
    world.disk.gate.clear()
    for number in range(9):
        put(log, large(timestamps=[NOW + number]))
        log.release_if_idle()
    assert len(log.segments) == 5
    world.disk.gate.set()
    await world.written()
    assert fetched(log, 0) == list(range(9))
    for number in range(9):
        found = log.reader.find_timestamp(NOW + number, 9)
        assert found is not None
        assert found.offset == number
    await world.directories.flusher.work(NOW)
    assert log.durability.recovery_point == 8, "the old files are synced once they are whole"
    log = await world.restart(clean=False)
    assert fetched(log, 0) == list(range(9))


@running
async def test_flush_messages_syncs_in_the_thread_and_groups(tmp_path: Path) -> None:
    world = World(tmp_path, LogConfig(flush_messages=1, file_delete_delay_ms=0))
    log = world.log
    world.disk.gate.clear()
    for _ in range(20):
        put(log, batch())
    assert (log.end_offset, world.disk.syncs) == (0, [])
    world.disk.gate.set()
    await world.written()
    assert log.end_offset == 20
    assert world.disk.syncs.count(log.segments[0].path) <= 2
    assert f"{log.directory}/partition.metadata" in world.disk.syncs


@running
async def test_who_changes_the_files_waits(tmp_path: Path) -> None:
    world = World(tmp_path, LogConfig(retention_ms=0, file_delete_delay_ms=0))
    log = world.log
    world.disk.gate.clear()
    for _ in range(4):
        put(log, large())
    assert log.delete_old_segments(NOW + 10**6, 4) == 0
    assert log.durability.plan_flush() is None
    threading.Timer(0.01, world.disk.gate.set).start()
    assert log.truncate_to(2)
    assert (log.end_offset, log.next_offset) == (2, 2)
    assert fetched(log, 0) == [0, 1]
    world.disk.gate.clear()
    put(log, large())
    threading.Timer(0.01, world.disk.gate.set).start()
    log.append(batch(base_offset=7), leader_epoch=-1, now_ms=NOW, origin=Origin.REPLICATION)
    assert fetched(log, 0) == [0, 1, 2, 7], "a follower answers for what it has at once"
    world.disk.gate.clear()
    put(log, large())
    threading.Timer(0.01, world.disk.gate.set).start()
    assert (await world.restart()).end_offset == 9


@running
async def test_producers_are_not_written_down_ahead_of_their_batches(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = world.log
    put(log, produced(7, 0))
    world.disk.gate.clear()
    put(log, large())
    put(log, produced(7, 1))
    assert put(log, produced(7, 1)).duplicate
    await world.directories.flusher.flush(log.durability, log.end_offset)
    assert log.durability.recovery_point == 1
    assert not [name for name in world.disk.list(log.directory) if name.endswith(".snapshot")]
    world.disk.gate.set()
    await world.written()
    assert (await world.restart(clean=False)).history.producers.producers[7].last_sequence == 1


@running
async def test_a_deleted_log_lets_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.disk.gate.clear()
    put(world.log, large())
    put(world.log, large())
    calls: list[bool] = []
    world.log.durability.when_written(1, lambda: calls.append(world.log.is_offline))
    world.directories.delete("topic", 0)
    assert calls == [True]
    again = world.directories.open("topic", 0, TOPIC, CONFIG)
    world.disk.gate.set()
    put(again, large())
    world.log = again
    await world.written()
    assert fetched(again, 0) == [0]


@pytest.mark.parametrize("is_being_written", [False, True])
def test_no_file_of_a_deleted_log_is_made_in_the_directory_of_the_next_one(
    tmp_path: Path, is_being_written: bool
) -> None:
    """A start would take the segment for one of that topic, with the records of the deleted one."""

    async def scenario() -> None:
        world = World(tmp_path, ROLLING)
        await roll_on_a_slow_disk(world)
        if is_being_written:
            while not world.disk.queued_writes:
                await asyncio.sleep(0)
        world.directories.delete("topic", 0)
        with pytest.raises(KafkaError, match="has files that are still to be made; try again"):
            world.directories.open("topic", 0, b"u" * 16, ROLLING)
        world.disk.gate.set()
        await world.directories.writers.wait_until_drained()
        world.log = world.directories.open("topic", 0, b"u" * 16, ROLLING)
        put(world.log, batch())
        await world.written()
        names = [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
        assert [name for name in world.disk.list(world.log.directory) if name[0] == "0"] == names
        assert world.offline == []

    asyncio.run(scenario())


@running
async def test_a_log_that_is_deleted_while_it_is_synced_costs_the_others_nothing(tmp_path: Path) -> None:
    """The thread syncs the directory by its name, which is another one by then."""
    world = World(tmp_path, LogConfig(flush_messages=1, file_delete_delay_ms=0))
    other = world.directories.open("topic", 1, TOPIC, world.config)
    world.disk.gate.clear()
    put(other, large())
    put(other, large())
    put(world.log, large())
    world.directories.delete("topic", 0)
    world.disk.gate.set()
    world.log = other
    await world.written()
    assert (world.offline, other.end_offset, sum(world.charged)) == ([], 2, 0)
    assert fetched(other, 0) == [0, 1]


@running
async def test_queued_bytes_are_accounted_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.disk.gate.clear()
    for _ in range(3):
        put(world.log, large())
    assert world.charged == [len(large())] * 3
    world.disk.gate.set()
    await world.written()
    assert sum(world.charged) == 0


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.sampled_from([1, 50, LARGE, 2 * LARGE]), max_size=25), pauses=st.sets(st.integers(0, 25)))
def test_files_are_as_if_all_had_been_written_at_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], pauses: set[int]
) -> None:
    config = LogConfig(segment_bytes=4 * LARGE, index_interval_bytes=500)
    plain = open_log(tmp_path_factory.mktemp("plain"), config)
    path = tmp_path_factory.mktemp("queued")

    async def scenario() -> None:
        world = World(path, config)
        for number, size in enumerate(sizes):
            for log in (plain, world.log):
                put(log, batch(value=b"x" * size, timestamps=[NOW + number]))
            if number in pauses:
                await world.written()
        await world.directories.close()

    asyncio.run(scenario())
    plain.close()
    names = {name.name for name in Path(plain.directory).iterdir()}
    for name in names:
        assert (path / "topic-0" / name).read_bytes() == (Path(plain.directory) / name).read_bytes(), name


@running
async def test_what_is_written_needs_no_descriptor_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.disk.gate.clear()
    put(world.log, batch(value=b"x" * LARGE))
    await asyncio.sleep(0)
    for _ in range(2):
        world.directories.files.sweep()
    world.disk.lacks = True
    world.disk.gate.set()
    await world.written()
    world.disk.lacks = False
    assert not world.log.is_offline, "nothing was left half done"
    assert fetched(world.log, 0) == [0]
    assert put(world.log, batch()).first_offset == 1
    assert fetched(await world.restart(), 0) == [0, 1]
    await world.directories.close()
