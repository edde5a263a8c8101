"""Replicas that move between log directories: content, crashes at every step, what can come in between."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.log.config import LogConfig
from odradek.log.directories import replica_moves
from odradek.log.directories.checkpoint_formats import LOG_START_OFFSETS
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.placed_logs import DirectorySettings
from odradek.log.directories.replica_copy import TAKES_OVER, future_name, parse_future_name
from odradek.log.partition_log import PartitionLog
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.flushing import flush_all
from tests.unit.log.support import NOW, ForgetfulDisk, LackingDisk, StandingClock, batch, produced, put

TOPIC = b"t" * 16
CONFIG = LogConfig(segment_bytes=1500, file_delete_delay_ms=0)


class Crash(Exception):
    """The process ends here."""


class CrashingDisk(SystemDisk):
    """Ends the process before its n-th change of names or files as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.changes: list[str] = []

    def _step(self, what: str) -> None:
        self.changes.append(what)
        if self.left == 0:
            raise Crash(what)
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self._step(f"rename {source} {target}")
        super().rename(source, target)

    def write_atomic(self, path: str, data: Any, *, sync: bool = True) -> None:
        self._step(f"write {path}")
        super().write_atomic(path, data, sync=sync)

    def remove(self, path: str) -> None:
        self._step(f"remove {path}")
        super().remove(path)


def start(
    root: Path, disk: SystemDisk | None = None, names: str = "ab", cordoned: Sequence[str] = ()
) -> LogDirectories:
    """`cordoned` may change later."""
    made = LogDirectories(
        disk or SystemDisk(),
        StandingClock(),
        SeededRandom(str(root)),
        [str(root / name) for name in names],
        settings=DirectorySettings(cordoned=lambda: cordoned),
    )
    made.startup.load(cluster_id="c", node_id=1)
    return made


def open_partition(directories: LogDirectories) -> PartitionLog:
    return directories.open("a-topic", 0, TOPIC, CONFIG)


def content(log: PartitionLog) -> list[bytes]:
    return [bytes(found) for found in log.reader.read_batches(log.log_start_offset, log.end_offset)]


def fill(log: PartitionLog, count: int = 40) -> None:
    for sequence in range(count):
        put(log, produced(7, sequence), epoch=sequence // 15)


def copy_all(directories: LogDirectories, log: PartitionLog) -> None:
    """Begin to move the log, and copy it until nothing is left."""
    directories.moves.begin(log, other(directories), TOPIC)
    while asyncio.run(directories.moves.copy(log)):
        pass


async def move(directories: LogDirectories, source: PartitionLog) -> PartitionLog:
    while True:
        while await directories.moves.copy(source):
            pass
        moved = await directories.moves.exchange(source)
        if moved is not None:
            return moved


def other(directories: LogDirectories) -> Any:
    held = directories.directory_of("a-topic", 0)
    return next(directory for directory in directories.directories if directory is not held)


def close(directories: LogDirectories, *, clean: bool = True) -> None:
    asyncio.run(directories.close(clean=clean))


@pytest.mark.parametrize("length", [7, 212, 213, 214, 243])
def test_start_finds_the_partition_in_the_name_of_a_copy(length: int) -> None:
    name = future_name("t" * length, 12, "0" * 32)
    assert len(name) <= 255
    assert parse_future_name(name) == ("t" * length, 12)
    assert parse_future_name("a-topic-3") is None


def test_move_is_rejected_when_the_name_of_the_topic_leaves_no_room(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = directories.open("t" * 249, 11, TOPIC, CONFIG)
    (there,) = [each for each in directories.directories if each is not directories.directory_of("t" * 249, 11)]
    with pytest.raises(KafkaError, match="cannot move to another log directory"):
        directories.moves.begin(log, there, TOPIC)
    assert not directories.moves.under_way
    assert not [each.offline for each in directories.directories if each.offline]
    close(directories)


def test_a_move_keeps_everything(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    log.advance_log_start(5)
    before, target = content(log), other(directories)
    directories.moves.begin(log, target, TOPIC)

    async def with_appends() -> PartitionLog:
        await directories.moves.copy(log)
        put(log, produced(7, 40), epoch=2)
        return await move(directories, log)

    moved = asyncio.run(with_appends())
    assert content(moved)[: len(before)] == before
    assert (moved.log_start_offset, moved.end_offset) == (5, 41)
    assert directories.directory_of("a-topic", 0) is target
    assert moved.history.leader_epochs.entries() == [(0, 5), (1, 15), (2, 30)]
    assert put(moved, produced(7, 40)).duplicate, "the producers came along"
    with pytest.raises(KafkaError):
        put(log, batch())
    assert directories.moves.under_way == {}
    asyncio.run(directories.flusher.work(NOW + 1))
    close(directories)
    again = start(tmp_path)
    assert content(open_partition(again)) == content(moved)
    assert open_partition(again).log_start_offset == 5
    close(again)


def test_batches_without_leader_epochs_are_not_copied_again(tmp_path: Path) -> None:
    first = start(tmp_path)
    log = open_partition(first)
    for sequence in range(40):
        put(log, produced(7, sequence), epoch=-1)
    before = content(log)
    copy_all(first, log)
    close(first)
    second = start(tmp_path)
    log = open_partition(second)
    assert asyncio.run(second.moves.copy(log)) == 0
    assert content(asyncio.run(move(second, log))) == before
    close(second)


def test_what_happens_to_the_source_meanwhile(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, other(directories), TOPIC)

    async def scenario() -> PartitionLog:
        await directories.moves.copy(log)
        log.truncate_to(20)
        put(log, batch(3, value=b"other"), epoch=9)
        await directories.moves.copy(log)
        log.advance_log_start(log.active_base_offset)
        assert log.delete_old_segments(NOW, log.end_offset)
        return await move(directories, log)

    moved = asyncio.run(scenario())
    assert moved.end_offset == 23
    assert moved.log_start_offset == log.log_start_offset
    assert b"other" in content(moved)[-1]
    close(directories)


def test_records_deleted_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    for _ in range(4):
        put(log, batch(3))
    log.advance_log_start(4)
    directories.moves.begin(log, other(directories), TOPIC)
    before = content(log)
    moved = asyncio.run(move(directories, log))
    assert (moved.log_start_offset, moved.end_offset) == (4, 12)
    assert content(moved) == before
    assert moved.reader.batch_start(4) == 3
    close(directories)


def test_directories_that_cannot_be_moved_to(tmp_path: Path) -> None:
    directories = start(tmp_path)
    with pytest.raises(KafkaError) as caught:
        directories.placement.named("/nowhere")
    assert caught.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    directories.directories[1].offline = "broken"
    with pytest.raises(KafkaError) as caught:
        directories.placement.named(str(tmp_path / "b"))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    close(directories, clean=False)


def test_cordoned_directories_get_no_new_replica(tmp_path: Path) -> None:
    cordoned = [str(tmp_path / "a")]
    directories = start(tmp_path, cordoned=cordoned)
    for partition in range(3):
        directories.create("t", partition, TOPIC)
        assert directories.directory_of("t", partition) is directories.directories[1]
    cordoned[:] = ["*"]
    directories.create("t", 3, TOPIC)
    directories.placement.prefer("t", 4, directories.directories[1])
    directories.create("t", 4, TOPIC)
    assert directories.directory_of("t", 4) is directories.directories[1]
    close(directories)


def test_a_deleted_topic_moves_nowhere(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, other(directories), TOPIC)
    asyncio.run(directories.moves.copy(log))
    directories.delete("a-topic", 0, 0)
    asyncio.run(directories.flusher.work(NOW + 1))
    assert not list(tmp_path.glob("*/a-topic*"))
    close(directories)


def test_move_continues_after_a_restart(tmp_path: Path) -> None:
    first = start(tmp_path)
    log = open_partition(first)
    fill(log)
    before = content(log)
    first.moves.begin(log, other(first), TOPIC)
    asyncio.run(first.moves.copy(log))
    close(first, clean=False)
    second = start(tmp_path)
    assert list(second.moves.under_way) == [("a-topic", 0)]
    moved = asyncio.run(move(second, open_partition(second)))
    assert content(moved) == before
    close(second)


@pytest.mark.parametrize("is_source_unreadable", [False, True])
def test_unfinished_copy_is_removed_once_its_source_is_gone(tmp_path: Path, is_source_unreadable: bool) -> None:
    """A directory that cannot be read at this start may have the source, which the copy continues to follow."""
    first = start(tmp_path)
    log = open_partition(first)
    fill(log)
    source, target = Path(log.directory), Path(other(first).path)
    first.moves.begin(log, other(first), TOPIC)
    asyncio.run(first.moves.copy(log))
    close(first, clean=False)
    shutil.rmtree(source.parent if is_source_unreadable else source)
    if is_source_unreadable:
        source.parent.write_text("not a directory")
    second = start(tmp_path)
    asyncio.run(second.flusher.work(NOW + 1))
    assert len(list(target.glob("a-topic-0*"))) == is_source_unreadable
    close(second, clean=False)


def test_what_the_source_has_lost_before_a_restart_is_not_taken_over(tmp_path: Path) -> None:
    """As a follower that is truncated, and continues in another epoch, before the move does."""

    first = start(tmp_path)
    log = open_partition(first)
    fill(log)
    copy_all(first, log)
    close(first)
    second = start(tmp_path)
    log = open_partition(second)
    log.truncate_to(20)
    for _ in range(30):
        put(log, batch(value=b"another"), epoch=9)
    expected = content(log)
    assert content(asyncio.run(move(second, log))) == expected
    close(second)


def test_a_crash_at_every_step_loses_nothing(tmp_path: Path) -> None:
    step, crashes = 0, 0
    while True:
        root = tmp_path / str(step)
        disk = CrashingDisk()
        first = start(root, disk)
        log = open_partition(first)
        put(log, batch(10))
        fill(log)
        log.advance_log_start(5)  # in the middle of a batch
        asyncio.run(first.checkpoints.persist(LOG_START_OFFSETS))
        before = content(log)
        target = other(first).path
        copy_all(first, log)
        disk.left = step
        try:
            asyncio.run(first.moves.exchange(log))
        except Crash:
            crashes += 1
        else:
            break
        finally:
            disk.left = -1
            close(first, clean=False)
        second = start(root)
        found = open_partition(second)
        assert content(found) == before, disk.changes[-1]
        assert found.log_start_offset == 5, disk.changes[-1]
        if second.moves.under_way:
            assert content(asyncio.run(move(second, found))) == before
        asyncio.run(second.flusher.work(NOW + 1))
        assert (Path(target) / "a-topic-0").is_dir(), "the replica is where it was to go"
        assert len(list(root.glob("*/a-topic-0"))) == 1
        close(second)
        step += 1
    assert crashes >= 5
    assert any(TAKES_OVER in change for change in disk.changes)


def test_a_copy_takes_over_only_when_all_of_it_is_synced(tmp_path: Path) -> None:
    """What is in the source may be, and the source is deleted soon."""
    disk = FailingOnceDisk(errno.EMFILE)
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    disk.left = 0
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.exchange(log))
    assert not log.is_offline
    put(log, batch(), epoch=9)
    moved = asyncio.run(directories.moves.exchange(log))
    assert moved is not None
    assert not moved.durability.is_dirty
    close(directories)


class FailingOnceDisk(CrashingDisk):
    """Its n-th change of names or files as a whole fails, as does the sync of a directory after it."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self.error = error

    def _step(self, what: str) -> None:
        self.changes.append(what)
        self.left -= 1
        if self.left == -1:
            raise OSError(self.error, what)

    def sync_directory(self, path: str) -> None:
        self._step(f"sync {path}")
        super().sync_directory(path)


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_what_is_written_after_an_exchange_has_failed_is_not_lost(tmp_path: Path, error: int) -> None:
    """The copy must not take over at the next start while its source continues."""
    step = failures = 0
    while True:
        root = tmp_path / str(step)
        disk = FailingOnceDisk(error)
        first = start(root, disk)
        log = open_partition(first)
        fill(log)
        copy_all(first, log)
        disk.left = step
        try:
            moved = asyncio.run(first.moves.exchange(log))
        except KafkaError:
            failures += 1
        else:
            log = moved or log
        expected = content(log) if not log.is_offline else None
        with contextlib.suppress(KafkaError):
            put(log, batch(value=b"after"), epoch=9)
            expected = content(log)
        was_reached = disk.left < 0
        disk.left = -2
        with contextlib.suppress(KafkaError):
            asyncio.run(first.close(clean=False))
        second = start(root)
        found = content(open_partition(second))
        assert len(found) >= 40, disk.changes[-1]
        assert expected is None or found == expected, (step, disk.changes)
        close(second)
        if not was_reached:
            break
        step += 1
    assert failures >= 5


class BrokenFile:
    """Cannot be read while its disk says so."""

    def __init__(self, file: Any, disk: BrokenDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, position: int, size: int) -> Any:
        if self._file.path.startswith(self._disk.unreadable):
            raise OSError(errno.EIO, "failed", self._file.path)
        return self._file.read(position, size)


class BrokenDisk(SystemDisk):
    """What lies below a path cannot be read, or not be renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable = self.unmovable = "nothing"

    def open(self, path: str, *, create: bool = False) -> Any:
        return BrokenFile(super().open(path, create=create), self)

    def rename(self, source: str, target: str) -> None:
        if source.startswith(self.unmovable):
            raise OSError(errno.EIO, "failed", source)
        super().rename(source, target)


def test_unreadable_source_fails_its_directory_and_not_the_mover(tmp_path: Path) -> None:
    disk = BrokenDisk()
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    put(log, produced(7, 40))
    disk.unreadable = log.directory
    with pytest.raises(KafkaError) as caught:
        asyncio.run(directories.moves.copy(log))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.is_offline
    assert other(directories).offline is None
    close(directories, clean=False)


def test_a_move_that_is_given_up_before_its_check_begins_leaves_nothing(tmp_path: Path) -> None:
    class BusyDisk(SystemDisk):
        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            if lane.startswith("recovery"):
                directories.moves.cancel("a-topic", 0)
            return await super().run(lane, function, *args, **kwargs)

    directories = start(tmp_path, BusyDisk())
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, other(directories), TOPIC)
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.copy(log))
    assert not list(tmp_path.glob("*/*-future"))
    close(directories)


def test_move_cancelled_during_its_check_keeps_its_directory_in_use(tmp_path: Path) -> None:
    class MeddlingDisk(SystemDisk):
        def list(self, path: str) -> list[str]:
            names = super().list(path)
            if path.endswith("-future"):
                directories.moves.cancel("a-topic", 0)
            return names

    directories = start(tmp_path, MeddlingDisk())
    log = open_partition(directories)
    fill(log)
    target = other(directories)
    directories.moves.begin(log, target, TOPIC)
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.copy(log))
    assert target.offline is None
    close(directories)


def test_source_that_fails_after_the_copy_does_not_block_the_mover(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    log.fail("its device is broken")
    assert asyncio.run(directories.moves.exchange(log)) is None
    with pytest.raises(KafkaError) as caught:
        asyncio.run(directories.moves.copy(log))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    close(directories, clean=False)


def test_a_replica_does_not_move_to_a_directory_that_has_failed(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    held, target = directories.directory_of("a-topic", 0), other(directories)
    copy_all(directories, log)
    target.offline = "its device is broken"
    assert asyncio.run(directories.moves.exchange(log)) is None
    with pytest.raises(KafkaError, match="its device is broken"):
        asyncio.run(directories.moves.copy(log))
    assert directories.moves.under_way == {}
    assert directories.directory_of("a-topic", 0) is held
    assert put(log, produced(7, 40)).first_offset == 40
    close(directories)


def test_a_copy_that_cannot_be_checked_after_a_restart_fails_its_directory(tmp_path: Path) -> None:
    first = start(tmp_path)
    log = open_partition(first)
    fill(log)
    first.moves.begin(log, other(first), TOPIC)
    asyncio.run(first.moves.copy(log))
    close(first)
    disk = BrokenDisk()
    second = start(tmp_path, disk)
    log = open_partition(second)
    disk.unreadable = other(second).path
    for _ in range(2):
        with pytest.raises(KafkaError):
            asyncio.run(second.moves.copy(log))
    assert other(second).offline is not None
    assert second.moves.under_way == {}
    assert not log.is_offline
    close(second)


@pytest.mark.parametrize("broken", ["source", "copy"])
def test_interrupted_exchange_keeps_writes_to_both_logs(tmp_path: Path, broken: str) -> None:
    """At the next start the copy takes over: its source may not continue, nor an empty log take its place."""
    first = start(tmp_path)
    log = open_partition(first)
    fill(log)
    before = content(log)
    held, target = first.directory_of("a-topic", 0), other(first)
    assert held is not None
    copy_all(first, log)
    (Path(first.moves.under_way["a-topic", 0].path) / TAKES_OVER).write_bytes(b"")
    close(first)
    disk = BrokenDisk()
    disk.unmovable = (held if broken == "source" else target).path
    second = start(tmp_path, disk)
    with pytest.raises(KafkaError) as caught:
        open_partition(second)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    close(second, clean=False)
    third = start(tmp_path)
    assert content(open_partition(third)) == before
    assert other(third).path == held.path
    close(third)


def test_a_log_that_was_replaced_is_answered_at_once(tmp_path: Path) -> None:
    """Whoever still has the one before it is refused: nothing may be waited for in between."""
    waited: list[bool] = []

    class WatchedDisk(SystemDisk):
        async def run(self, *args: Any, **kwargs: Any) -> Any:
            waited.append(log.is_offline)
            return await super().run(*args, **kwargs)

    directories = start(tmp_path, WatchedDisk())
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, other(directories), TOPIC)
    asyncio.run(move(directories, log))
    assert log.is_offline
    assert waited
    assert not any(waited)
    close(directories)


def test_exchange_of_source_and_target_is_atomic_to_other_tasks(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, other(directories), TOPIC)

    async def move_watched() -> PartitionLog | None:
        while await directories.moves.copy(log):
            pass
        exchange = asyncio.ensure_future(directories.moves.exchange(log))
        while not exchange.done():
            assert not log.is_offline
            await asyncio.sleep(0)
        return await exchange

    moved = asyncio.run(move_watched())
    assert moved is not None
    assert log.is_offline
    close(directories)


def test_source_truncated_below_its_start_during_an_exchange_loses_nothing(tmp_path: Path) -> None:
    """As after an unclean election, of a replica that has deleted more than its leader had."""

    class WatchedDisk(SystemDisk):
        async def run(self, *args: Any, **kwargs: Any) -> Any:
            result = await super().run(*args, **kwargs)
            if LOG_START_OFFSETS in str(args) and log.truncations == 0:
                log.truncate_to(5)
                for _ in range(10):
                    put(log, batch(value=b"another"), epoch=9)
            return result

    directories = start(tmp_path, WatchedDisk())
    log = open_partition(directories)
    for _ in range(12):
        put(log, batch())
    log.advance_log_start(10)
    directories.moves.begin(log, other(directories), TOPIC)
    moved = asyncio.run(move(directories, log))
    assert log.truncations == 1
    assert (moved.log_start_offset, moved.end_offset) == (5, 15)
    assert len(content(moved)) == 10
    close(directories)


def test_copy_that_ends_inside_a_batch_of_its_source_begins_again(tmp_path: Path) -> None:
    """The source was truncated before a restart, and then its first records were deleted."""
    first = start(tmp_path)
    log = open_partition(first)
    for _ in range(4):
        put(log, batch())
    copy_all(first, log)
    close(first)
    second = start(tmp_path)
    log = open_partition(second)
    log.truncate_to(2)
    put(log, batch(4), epoch=9)
    log.advance_log_start(4)
    moved = asyncio.run(move(second, log))
    assert (moved.log_start_offset, moved.end_offset) == (4, 6)
    close(second)


def test_producers_come_along_whose_batches_are_deleted(tmp_path: Path) -> None:
    """The copy has a snapshot of its own, of what it was given."""
    directories = start(tmp_path)
    log = open_partition(directories)
    put(log, produced(7, 0, epoch=3))
    log.roll()
    put(log, batch())
    log.advance_log_start(1)
    assert log.delete_old_segments(NOW, log.end_offset) == 1
    copy_all(directories, log)
    moved = asyncio.run(move(directories, log))
    assert moved.log_start_offset == 1
    assert put(moved, produced(7, 0, epoch=3)).duplicate
    with pytest.raises(KafkaError) as refused:
        put(moved, produced(7, 0, epoch=2))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    close(directories)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_power_loss_after_two_moves_leaves_one_that_is_in_charge(tmp_path: Path, restarts: bool) -> None:
    """The second one removes the marker of the first one's end, once that end is on the disk."""
    disk = ForgetfulDisk()
    directories = start(tmp_path, disk, "abc")
    log = open_partition(directories)
    fill(log)
    for number in (1, 2):
        directories.moves.begin(log, directories.directories[number], TOPIC)
        log = asyncio.run(move(directories, log))
        if restarts and number == 1:
            close(directories, clean=False)
            directories = start(tmp_path, disk, "abc")
            log = open_partition(directories)
    expected = content(log)
    close(directories, clean=False)
    disk.lose_power()
    again = start(tmp_path, names="abc")
    assert again.directory_of("a-topic", 0) is again.directories[2]
    assert content(open_partition(again)) == expected
    close(again)


class NoDescriptors(SystemDisk):
    """Opens no file below a path, so many times."""

    def __init__(self) -> None:
        super().__init__()
        self.below = "nothing"
        self.left = 0
        self.error = errno.EMFILE

    def open(self, path: str, *, create: bool = False) -> Any:
        if self.left and path.startswith(self.below):
            self.left -= 1
            raise OSError(self.error, "failed", path)
        return super().open(path, create=create)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_moved_replica_without_descriptors_is_opened_a_second_later(
    tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    disk = NoDescriptors()
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    before = content(log)
    copy_all(directories, log)
    target = other(directories)
    disk.below, disk.left, disk.error = f"{target.path}/a-topic-0/", 3, error
    if error == errno.EIO:
        with pytest.raises(KafkaError):
            asyncio.run(directories.moves.exchange(log))
        assert target.offline is not None
    else:
        moved = asyncio.run(directories.moves.exchange(log))
        assert moved is not None
        assert directories.log("a-topic", 0) is moved
        assert content(moved) == before
        assert put(moved, produced(7, 40)).first_offset == 40
    assert set(pauses) == ({1.0} if error == errno.EMFILE else set())
    close(directories, clean=False)


def test_moved_replica_deleted_before_it_opens_is_not_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_moves, "RETRY_SECONDS", 0.0)
    disk = NoDescriptors()
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    target = other(directories)
    disk.below, disk.left = f"{target.path}/a-topic-0/", 1_000_000

    async def scenario() -> PartitionLog | None:
        exchange = asyncio.ensure_future(directories.moves.exchange(log))
        while directories.directory_of("a-topic", 0) is not target:
            await asyncio.sleep(0)
        directories.delete("a-topic", 0, 0)
        disk.left = 0
        return await exchange

    assert asyncio.run(scenario()) is None
    asyncio.run(directories.flusher.work(NOW + 1))
    assert not list(tmp_path.glob("*/a-topic*"))
    close(directories)


def test_that_a_log_may_have_lost_its_end_is_still_said_of_it_elsewhere(tmp_path: Path) -> None:
    """Its coordinator asks when it has loaded it: what it does not find there it may have promised."""
    first = start(tmp_path)
    fill(open_partition(first))
    close(first, clean=False)
    second = start(tmp_path)
    log = open_partition(second)
    assert log.after_crash
    second.moves.begin(log, other(second), TOPIC)
    assert asyncio.run(move(second, log)).after_crash
    close(second)
    third = start(tmp_path)
    log = open_partition(third)
    third.moves.begin(log, other(third), TOPIC)
    assert not asyncio.run(move(third, log)).after_crash
    close(third)


def checkpoint_all(directories: LogDirectories) -> None:
    directories.checkpoints.note_watermarks({("a-topic", 0): 40})
    asyncio.run(directories.checkpoints.persist_all())
    asyncio.run(directories.note_cleaned("a-topic", 0, 40))


def test_moved_replica_ignores_state_of_an_earlier_one_at_its_target(tmp_path: Path) -> None:
    """Records of it would count as compacted, or synced, that are not."""
    directories = start(tmp_path)
    log = open_partition(directories)
    fill(log)
    asyncio.run(flush_all(directories))
    checkpoint_all(directories)
    directories.delete("a-topic", 0, 0)
    directories.placement.prefer("a-topic", 0, directories.directories[1])
    log = directories.open("a-topic", 0, b"n" * 16, CONFIG)
    put(log, batch())
    directories.moves.begin(log, directories.directories[0], b"n" * 16)
    asyncio.run(move(directories, log))
    close(directories, clean=False)
    again = start(tmp_path)
    held = again.directory_of("a-topic", 0)
    assert held is again.directories[0]
    assert held.recovery_points.get(("a-topic", 0), 0) <= 1
    assert again.cleaned_to("a-topic", 0) is None
    assert again.high_watermark("a-topic", 0) is None
    close(again)


def test_of_a_replica_on_its_way_a_start_believes_only_where_it_begins(tmp_path: Path) -> None:
    first = start(tmp_path)
    log = open_partition(first)
    fill(log)
    log.advance_log_start(5)
    asyncio.run(flush_all(first))
    checkpoint_all(first)
    copy_all(first, log)
    close(first)
    for file in (tmp_path / "a").glob("*-checkpoint"):
        (tmp_path / "b" / file.name).write_bytes(file.read_bytes())
    second = start(tmp_path)
    key = ("a-topic", 0)
    here, target = second.directory_of(*key), other(second)
    assert here is not None
    assert list(second.moves.under_way) == [key]
    assert [here.recovery_points[key], here.log_starts[key], here.cleaner_offsets[key]] == [40, 5, 40]
    assert target.log_starts == {key: 5}
    assert [target.recovery_points, target.watermarks, target.cleaner_offsets] == [{}, {}, {}]
    close(second)


def test_a_move_that_is_given_up_leaves_nothing_though_its_check_fails(tmp_path: Path) -> None:
    """The check recreates the directory that was just removed, and fails for want of descriptors."""

    class BusyDisk(NoDescriptors):
        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            if lane.startswith("recovery"):
                directories.moves.cancel("a-topic", 0)
                self.below, self.left = str(tmp_path), 1_000_000
            return await super().run(lane, function, *args, **kwargs)

    disk = BusyDisk()
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, other(directories), TOPIC)
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.copy(log))
    disk.left = 0
    assert not list(tmp_path.glob("*/*-future"))
    assert [each.offline for each in directories.directories] == [None, None]
    close(directories)


def test_source_continues_without_a_descriptor_for_the_marker(tmp_path: Path) -> None:
    """Nor one to sync its absence, which is not necessary."""

    class NoMarker(SystemDisk):
        armed = refused = False

        def write_atomic(self, path: str, data: Any, *, sync: bool = True) -> None:
            if self.armed and path.endswith(TAKES_OVER):
                self.refused = True
                raise OSError(errno.EMFILE, "failed", path)
            super().write_atomic(path, data, sync=sync)

        def sync_directory(self, path: str) -> None:
            if self.refused:
                raise OSError(errno.EMFILE, "failed", path)
            super().sync_directory(path)

    disk = NoMarker()
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    disk.armed = True
    with pytest.raises(KafkaError, match=TAKES_OVER):
        asyncio.run(directories.moves.exchange(log))
    assert not log.is_offline
    put(log, produced(7, 40))
    disk.armed = disk.refused = False
    expected = content(log)
    assert content(asyncio.run(move(directories, log))) == expected
    close(directories)


class NoDescriptorToSync(SystemDisk):
    """Has no descriptor for a directory; if set, for one to which a marker was written."""

    def __init__(self) -> None:
        super().__init__()
        self.path: str | None = None
        self.is_marked = False
        self.synced: list[str] = []

    def write_atomic(self, path: str, data: Any, *, sync: bool = True) -> None:
        if self.is_marked and path.endswith(TAKES_OVER):
            self.path = path.rpartition("/")[0]
        super().write_atomic(path, data, sync=sync)

    def sync_directory(self, path: str) -> None:
        if path == self.path:
            raise OSError(errno.EMFILE, "too many open files", path)
        super().sync_directory(path)
        self.synced.append(path)


def test_listeners_learn_of_a_source_blocked_by_exhausted_descriptors(tmp_path: Path) -> None:
    """That the copy does not take over at the next start could not be synced, and would not have been tried again."""
    directories = start(tmp_path, disk := NoDescriptorToSync())
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    expected = content(log)
    disk.is_marked = True
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.exchange(log))
    assert log.is_offline
    source = directories.directory_of("a-topic", 0)
    assert source is not None
    assert source.offline is not None
    close(directories)
    again = start(tmp_path)
    assert content(open_partition(again)) == expected
    close(again)


def test_takeover_of_a_moved_replica_is_synced_once_descriptors_are_free(tmp_path: Path) -> None:
    directories = start(tmp_path, disk := NoDescriptorToSync())
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    log = asyncio.run(move(directories, log))
    copy_all(directories, log)
    disk.path = log.directory
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.exchange(log))
    assert not log.is_offline
    disk.path = None
    disk.synced.clear()
    where = log.directory
    while asyncio.run(directories.moves.copy(log)):
        pass
    assert asyncio.run(directories.moves.exchange(log)) is not None
    assert where in disk.synced
    close(directories)


@pytest.mark.parametrize("left", [0, 1])
def test_move_that_fails_to_start_for_lack_of_files_keeps_the_earlier_one(tmp_path: Path, left: int) -> None:
    directories = start(tmp_path, disk := LackingDisk(), names="abc")
    log = open_partition(directories)
    fill(log)
    directories.moves.begin(log, directories.directories[1], TOPIC)
    earlier = directories.moves.under_way["a-topic", 0]
    directories.directories[2].checkpoints[LOG_START_OFFSETS].named.add(("a-topic", 0))
    disk.left = left
    with pytest.raises(KafkaError):
        directories.moves.begin(log, directories.directories[2], TOPIC)
    disk.left = None
    assert directories.moves.under_way["a-topic", 0] is earlier
    assert Path(asyncio.run(move(directories, log)).directory).parent.name == "b"
    close(directories)


@pytest.mark.parametrize("begins", [0, 5])
def test_future_replica_restarts_later_when_descriptors_are_missing(tmp_path: Path, begins: int) -> None:
    """The source was truncated: the copy starts again, in the same segment or in a new one."""
    disk = NoDescriptors()
    directories = start(tmp_path, disk)
    log = open_partition(directories)
    fill(log)
    copy_all(directories, log)
    move = directories.moves.under_way["a-topic", 0]
    assert move.log is not None
    log.truncate_to(30)
    log.advance_log_start(begins)
    list(directories.files.sweep())
    list(directories.files.sweep())
    disk.below, disk.left = f"{move.path}/{begins:020d}", 100
    with pytest.raises(KafkaError):
        asyncio.run(directories.moves.copy(log))
    assert move.directory.offline is None
    disk.left = 0
    copy_all(directories, log)
    assert content(move.log) == content(log)
    close(directories, clean=False)
