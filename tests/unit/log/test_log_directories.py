"""Several log directories: starting, placing, deleting, failing, closing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.directories import background_recovery
from odradek.log.directories.checkpoint_formats import MetaProperties, format_partition_metadata, parse_offsets
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.log.directories.placed_logs import DirectorySettings
from odradek.log.directories.scan import stored_identity
from odradek.log.partition_log import PartitionLog
from odradek.ports.disk import Bytes, SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.flushing import flush_all
from tests.unit.log.support import (
    NOW,
    ForgetfulDisk,
    LackingDisk,
    StandingClock,
    batch,
    fetched,
    marker,
    parse_header,
    produced,
    put,
)

TOPIC = b"t" * 16
OTHER = b"o" * 16
CONFIG = LogConfig(segment_bytes=500, file_delete_delay_ms=1000)


class FailingDisk(SystemDisk):
    """Fails writes below a path, as a broken device does."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: str | None = None
        self.errno = errno.EIO
        self.suffix = ""

    def open(self, path: str, *, create: bool = False) -> Any:
        if self.broken and path.startswith(self.broken) and path.endswith(self.suffix):
            raise OSError(self.errno, "failed", path)
        return super().open(path, create=create)

    def write_atomic(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        if self.broken and path.startswith(self.broken) and self.suffix and path.endswith(self.suffix):
            raise OSError(self.errno, "failed", path)
        super().write_atomic(path, data, sync=sync)


def make_partition(directory: Path, name: str) -> None:
    """A partition's directory as an earlier start left it, in a log directory that Odradek wrote."""
    (directory / name).mkdir(parents=True)
    (directory / "meta.properties").write_text("version=1\nodradek.format=1\n")


def start(
    *paths: Path,
    disk: SystemDisk | None = None,
    node: int = 1,
    cluster: str = "c",
    topic_id_of: Callable[[str], bytes | None] | None = None,
    adopts: bool = False,
) -> LogDirectories:
    made = LogDirectories(
        disk or SystemDisk(),
        StandingClock(),
        SeededRandom(str(paths)),
        [str(path) for path in paths],
        settings=DirectorySettings(adopts=adopts),
    )
    made.startup.load(cluster_id=cluster, node_id=node, topic_id_of=topic_id_of)
    return made


def stop(directories: LogDirectories, **kwargs: Any) -> None:
    asyncio.run(directories.close(**kwargs))


def disk_names(path: Path) -> list[str]:
    return [each.name for each in path.iterdir()]


def topic(directories: LogDirectories, partition: int = 0, topic_id: bytes = TOPIC) -> PartitionLog:
    return directories.open("a-topic", partition, topic_id, CONFIG)


def test_a_clean_stop_and_start(tmp_path: Path) -> None:
    first = start(tmp_path)
    log = topic(first)
    for sequence in range(10):
        put(log, produced(1, sequence))
    log.advance_log_start(1)
    stop(first, high_watermarks={("a-topic", 0): 9}, broker_epoch=5)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":5}'
    assert parse_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes()) == {("a-topic", 0): 10}
    assert parse_offsets((tmp_path / "log-start-offset-checkpoint").read_bytes()) == {("a-topic", 0): 1}
    second = start(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert second.high_watermark("a-topic", 0) == 9
    assert second.partitions() == [("a-topic", 0)]
    assert second.size_bytes("a-topic", 0) == log.size_bytes
    assert second.opened() == []
    again = topic(second)
    assert topic(second) is again
    assert (again.log_start_offset, again.end_offset, again.durability.recovery_point) == (1, 10, 10)
    assert put(again, produced(1, 9)).duplicate
    stop(second, clean=False)


def test_a_crash_and_start(tmp_path: Path) -> None:
    first = start(tmp_path)
    for partition in range(3):
        put(topic(first, partition), batch(3))
    first.checkpoints.write_now("recovery-point-offset-checkpoint")
    stop(first, clean=False)
    second = start(tmp_path)
    assert len(second.directories[0].unrecovered) == 3
    assert topic(second, 0).end_offset == 3
    stop(second)
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "two partitions were never looked at after the crash"
    third = start(tmp_path)
    for partition in range(3):
        assert topic(third, partition).end_offset == 3
    stop(third)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    fourth = start(tmp_path)
    stop(fourth)
    assert (tmp_path / ".kafka_cleanshutdown").exists(), "untouched, and clean before"


def test_flushing_spares_the_next_start_the_reading(tmp_path: Path) -> None:
    first = start(tmp_path)
    put(topic(first), batch(3))
    asyncio.run(flush_all(first))
    first.checkpoints.write_now("recovery-point-offset-checkpoint")
    stop(first, clean=False)
    second = start(tmp_path)
    assert topic(second).durability.recovery_point == 3
    stop(second)


def test_rolled_segments_are_synced_by_work(tmp_path: Path) -> None:
    directories = start(tmp_path)
    called: list[int] = []
    directories.events.subscribe_work(lambda: called.append(1))
    log = topic(directories)
    while len(log.segments) < 3:
        put(log, batch(value=b"x" * 200))
    assert called
    assert log.durability.recovery_point == 0
    asyncio.run(directories.flusher.work(NOW))
    assert log.durability.recovery_point == log.active_base_offset
    stop(directories)


def test_placement_is_balanced(tmp_path: Path) -> None:
    directories = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for partition in range(7):
        directories.create("t", partition, TOPIC)
    assert sorted(directory.known for directory in directories.directories) == [2, 2, 3]
    directories.create("t", 0, TOPIC)
    assert len(directories.partitions()) == 7
    stop(directories)
    again = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert sorted(again.partitions()) == [("t", partition) for partition in range(7)]
    stop(again)


def test_deletion_is_at_once_and_finished_later(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = topic(directories)
    put(log, batch())
    read = log.reader.read(0, 1000, upper_offset=1)
    directories.delete("a-topic", 0, 1000)
    assert directories.partitions() == []
    (doomed,) = tmp_path.glob("a-topic-0.*-delete")
    with pytest.raises(KafkaError) as caught:
        put(log, batch())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert asyncio.run(directories.flusher.work(NOW)) == NOW + 1000
    assert doomed.exists()
    assert asyncio.run(directories.flusher.work(NOW + 1000)) is None
    assert not doomed.exists()
    part = read.ranges[0]
    assert len(part.file.read(part.position, part.size)) == part.size, "what is being sent stays readable"
    assert topic(directories, topic_id=OTHER).end_offset == 0
    stop(directories)


def test_what_cannot_be_removed_for_want_of_descriptors_is_removed_later(tmp_path: Path) -> None:
    directories = start(tmp_path, disk=(disk := LackingDisk()))
    put(topic(directories), batch())
    directories.delete("a-topic", 0, 1000)
    disk.left = 0
    assert asyncio.run(directories.flusher.work(NOW + 1000)) == NOW + 1000, "again in a second"
    assert [name for name in disk_names(tmp_path) if name.endswith("-delete")]
    disk.left = None
    assert asyncio.run(directories.flusher.work(NOW + 1000)) is None
    assert not [name for name in disk_names(tmp_path) if name.endswith("-delete")]
    stop(directories)


def test_a_deletion_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    first = start(tmp_path)
    topic(first)
    first.delete("a-topic", 0, 1_000_000)
    stop(first, clean=False)
    second = start(tmp_path)
    assert second.partitions() == []
    asyncio.run(second.flusher.work(NOW))
    assert not list(tmp_path.glob("*-delete"))
    stop(second)


def test_a_topic_recreated_meanwhile_begins_empty(tmp_path: Path) -> None:
    first = start(tmp_path)
    put(topic(first), batch(4))
    stop(first)
    second = start(tmp_path)
    assert topic(second, topic_id=OTHER).end_offset == 0
    (former,) = tmp_path.glob("a-topic-0.*-stray")
    assert (former / "00000000000000000000.log").stat().st_size, "the metadata may be those of another moment"
    stop(second)


def test_a_partition_of_another_cluster_is_adopted_if_asked_for(tmp_path: Path) -> None:
    first = start(tmp_path)
    put(topic(first), batch(4))
    stop(first)
    second = start(tmp_path, adopts=True)
    assert topic(second, topic_id=OTHER).end_offset == 4
    stop(second)
    third = start(tmp_path)
    assert topic(third, topic_id=OTHER).end_offset == 4
    stop(third)


def test_directories_that_the_cluster_does_not_know_are_set_aside_and_kept(tmp_path: Path) -> None:
    first = start(tmp_path)
    put(topic(first), batch(3))
    topic(first, 1)
    stop(first)
    again = start(tmp_path)
    reports: list[str] = []
    again.events.report = reports.append
    assert again.startup.set_aside_strays(lambda name, index: index == 1) == 1
    assert again.partitions() == [("a-topic", 1)]
    (stray,) = [path for path in tmp_path.iterdir() if path.name.endswith("-stray")]
    assert stray.name.startswith("a-topic-0.")
    assert (stray / "00000000000000000000.log").stat().st_size
    assert str(stray) in reports[0]
    asyncio.run(again.flusher.work(NOW + 10**9))
    assert stray.exists(), "unknown files are never removed"
    stop(again)
    third = start(tmp_path)
    assert third.partitions() == [("a-topic", 1)]
    assert topic(third).end_offset == 0
    stop(third)


def test_files_of_the_operator_are_not_mistaken_for_partitions(tmp_path: Path) -> None:
    """A copy with a date, one that somebody named `-delete`, and a file that ends with a number."""
    stop(start(tmp_path))
    make_partition(tmp_path, "a-topic-0")
    for name in ("copy-2026-01-01", "a-topic-01", "orders-before-delete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("mine")
    (tmp_path / "heap-1").write_text("mine")
    directories = start(tmp_path)
    assert directories.startup.set_aside_strays(lambda name, _: name == "a-topic") == 0
    asyncio.run(directories.flusher.work(NOW + 10**9))
    assert directories.partitions() == [("a-topic", 0)]
    assert not directories.directories[0].offline
    for name in ("copy-2026-01-01/notes", "a-topic-01/notes", "orders-before-delete/notes", "heap-1"):
        assert (tmp_path / name).read_text() == "mine"
    stop(directories)


def test_nothing_is_set_aside_where_it_may_be_adopted(tmp_path: Path) -> None:
    first = start(tmp_path)
    topic(first)
    stop(first)
    again = start(tmp_path, adopts=True)
    assert again.startup.set_aside_strays(lambda *_: False) == 0
    assert again.partitions() == [("a-topic", 0)]
    stop(again)


class SyncedPaths(SystemDisk):
    """Notes which directories were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def test_which_topic_a_new_directory_is_of_is_synced_once_it_is_used(tmp_path: Path) -> None:
    disk = SyncedPaths()
    directories = start(tmp_path, disk=disk)
    directories.create("a-topic", 1, TOPIC)
    wanted: list[bool] = []
    directories.events.subscribe_work(lambda: wanted.append(True))
    topic(directories)
    assert wanted, "the work is announced"
    asyncio.run(directories.flusher.work(NOW))
    assert f"{tmp_path}/a-topic-0" in disk.synced
    assert f"{tmp_path}/a-topic-1" not in disk.synced, "no log used it"
    disk.synced.clear()
    asyncio.run(directories.flusher.work(NOW))
    assert disk.synced == [], "once is enough"
    stop(directories)


def test_identity_of_a_directory_is_synced_behind_one_that_was_deleted(tmp_path: Path) -> None:
    disk = SyncedPaths()
    directories = start(tmp_path, disk=disk)
    for partition in range(2):
        topic(directories, partition)
    directories.delete("a-topic", 0, 60_000)
    asyncio.run(directories.flusher.work(NOW))
    assert f"{tmp_path}/a-topic-1" in disk.synced
    stop(directories)


class BusyPaths(SyncedPaths):
    """Syncs no directory below a path for now, or for good."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: str | None = None
        self.errno = errno.EMFILE

    def sync_directory(self, path: str) -> None:
        if self.busy is not None and path.startswith(self.busy):
            raise OSError(self.errno, "failed", path)
        super().sync_directory(path)


def test_what_could_not_be_synced_for_want_of_descriptors_is_synced_later(tmp_path: Path) -> None:
    disk = BusyPaths()
    directories = start(tmp_path, disk=disk)
    asked: list[int] = []
    directories.events.subscribe_work(lambda: asked.append(1))
    log = topic(directories)
    while len(log.segments) < 3:
        put(log, batch(value=b"x" * 200))
    disk.busy = log.directory
    asked.clear()
    for _ in range(2):
        assert asyncio.run(directories.flusher.work(NOW)) == NOW + 1000
    assert asked == [], "not at once: it would fail again and again"
    disk.busy = None
    assert asyncio.run(directories.flusher.work(NOW + 1000)) is None
    assert log.durability.recovery_point == log.active_base_offset
    assert log.directory in disk.synced
    stop(directories)


@pytest.mark.parametrize("what", ["plan", "identity"])
def test_what_could_not_be_opened_to_be_synced_is_synced_later(tmp_path: Path, what: str) -> None:
    disk = FailingDisk()
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    if what == "plan":
        asyncio.run(directories.flusher.work(NOW))
        while len(log.segments) < 3:
            put(log, batch(value=b"x" * 200))
        list(directories.files.sweep())
        list(directories.files.sweep())
    disk.broken, disk.errno = log.directory, errno.EMFILE
    assert asyncio.run(directories.flusher.work(NOW)) == NOW + 1000
    assert not log.is_offline
    disk.broken = None
    assert asyncio.run(directories.flusher.work(NOW + 1000)) is None
    assert log.durability.recovery_point == log.active_base_offset
    stop(directories)


def test_what_has_failed_or_is_deleted_is_not_synced_again(tmp_path: Path) -> None:
    disk = BusyPaths()
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    disk.busy = log.directory
    assert asyncio.run(directories.flusher.work(NOW)) == NOW + 1000
    directories.delete("a-topic", 0, 5000)
    assert asyncio.run(directories.flusher.work(NOW + 1000)) == NOW + 5000
    log = topic(directories)
    disk.busy, disk.errno = log.directory, errno.EIO
    assert asyncio.run(directories.flusher.work(NOW + 2000)) == NOW + 5000
    assert log.is_offline
    stop(directories, clean=False)


def test_segments_deleted_by_retention_go_after_the_delay(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = topic(directories)
    while len(log.segments) < 3:
        put(log, batch(value=b"x" * 200))
    log.advance_log_start(log.active_base_offset)
    assert log.delete_old_segments(NOW, log.end_offset) == 2
    assert len(list((tmp_path / "a-topic-0").glob("*.log.deleted"))) == 2
    asyncio.run(directories.flusher.work(NOW + 1000))
    assert not list((tmp_path / "a-topic-0").glob("*.deleted"))
    assert fetched(log, log.log_start_offset) == [log.log_start_offset]
    stop(directories)


def test_other_peoples_directories_are_rejected(tmp_path: Path) -> None:
    first = start(tmp_path)
    with pytest.raises(LogDirectoryError, match=r"another process uses.*\.lock"):
        start(tmp_path)
    stop(first)
    with pytest.raises(LogDirectoryError, match="belongs to cluster c, and this broker to d"):
        start(tmp_path, cluster="d")
    with pytest.raises(LogDirectoryError, match="belongs to node 1, and this broker is configured as 2"):
        start(tmp_path, node=2)
    found = stored_identity(SystemDisk(), [str(tmp_path / "missing"), str(tmp_path)])
    assert found[:2] == MetaProperties("c", 1, None)[:2]
    assert found.directory_id is not None
    (tmp_path / "meta.properties").write_text("version=9\n")
    with pytest.raises(LogDirectoryError, match="unknown version 9"):
        stored_identity(SystemDisk(), [str(tmp_path)])


def test_the_same_partition_twice_is_rejected(tmp_path: Path) -> None:
    for name in "ab":
        make_partition(tmp_path / name, "t-0")
        (tmp_path / name / "t-0" / f"{0:020d}.log").write_bytes(bytes(batch()))
    with pytest.raises(LogDirectoryError, match="t-0 is in two log directories"):
        start(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("written", ["a", "b", ""])
@pytest.mark.parametrize("opened", [False, True])
def test_of_the_same_partition_twice_the_one_that_was_never_written_goes(
    tmp_path: Path, written: str, opened: bool
) -> None:
    for name in "ab":
        make_partition(tmp_path / name, "t-0")
        if opened or name == written:
            (tmp_path / name / "t-0" / f"{0:020d}.log").write_bytes(bytes(batch()) if name == written else b"")
    directories = start(tmp_path / "a", tmp_path / "b", topic_id_of=lambda _: TOPIC)
    place = directories.directory_of("t", 0)
    assert place is not None
    assert place.path == str(tmp_path / (written or "b"))
    assert [str(each.parent) for each in tmp_path.glob("*/t-0")] == [place.path]
    assert sum(each.known for each in directories.directories) == 1
    stop(directories)


def test_reopened_partition_is_not_reported_as_unwritten(tmp_path: Path) -> None:
    for name, begins, size in (("a", 0, 100), ("b", 7, 0)):
        make_partition(tmp_path / name, "t-0")
        (tmp_path / name / "t-0" / f"{begins:020d}.log").write_bytes(bytes(size))
    with pytest.raises(LogDirectoryError, match="t-0 is in two log directories"):
        start(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_partition_is_created_in_another_directory_when_the_first_fails(tmp_path: Path, error: int) -> None:
    """Found by the simulator (all-1100029): the next start found it in both, and refused."""
    disk = FailingDisk()
    first = start(tmp_path / "a", tmp_path / "b", disk=disk)
    disk.broken, disk.errno, disk.suffix = str(tmp_path), error, "partition.metadata"
    for _ in "ab":
        with pytest.raises(KafkaError) as refused:
            topic(first)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not list(tmp_path.glob("*/a-topic-0"))
    disk.broken = None
    if error == errno.EMFILE:
        put(topic(first), produced(1, 0))
    stop(first)
    again = start(tmp_path / "a", tmp_path / "b", disk=SystemDisk())
    assert topic(again).end_offset == (1 if error == errno.EMFILE else 0)
    stop(again)


def test_partition_is_created_in_the_asked_directory_after_a_lack_of_files(
    tmp_path: Path,
) -> None:
    directories = start(tmp_path / "a", tmp_path / "b", disk=(disk := LackingDisk()))
    directories.placement.prefer("a-topic", 0, directories.directories[1])
    disk.left = 0
    with pytest.raises(KafkaError):
        topic(directories)
    disk.left = None
    assert Path(topic(directories).directory).parent.name == "b"
    assert Path(topic(directories, 1).directory).parent.name == "a"
    stop(directories)


@pytest.mark.parametrize("now", "ab")
def test_topic_restored_by_a_power_loss_makes_room_for_its_successor(tmp_path: Path, now: str) -> None:
    """Found by the simulator (blackout-600004): the broker refused to start."""
    for name, topic_id in (("a", TOPIC), ("b", OTHER)):
        make_partition(tmp_path / name, "t-0")
        (tmp_path / name / "t-0" / "partition.metadata").write_bytes(format_partition_metadata(topic_id))
    wanted = {"a": TOPIC, "b": OTHER}[now]
    directories = start(tmp_path / "a", tmp_path / "b", topic_id_of=lambda _: wanted)
    place = directories.directory_of("t", 0)
    assert place is not None
    assert place.path == str(tmp_path / now)
    assert [each.name for each in tmp_path.glob("*/t-0")] == ["t-0"]
    stop(directories)


def test_a_topic_deleted_twice_that_a_power_loss_brought_back_is_set_aside(tmp_path: Path) -> None:
    for name in "ab":
        make_partition(tmp_path / name, "t-0")
    directories = start(tmp_path / "a", tmp_path / "b", topic_id_of=lambda _: None)
    assert directories.startup.set_aside_strays(lambda *_: False) == 1
    assert len(list(tmp_path.glob("*/*-stray"))) == 2
    stop(directories)


def test_move_restored_by_a_power_loss_does_not_affect_the_next_topic(
    tmp_path: Path,
) -> None:
    """It would be copied on to from where the old records end."""
    first = start(tmp_path / "a", tmp_path / "b")
    log = topic(first)
    put(log, batch(3))
    goal = next(each for each in first.directories if each is not first.directory_of("a-topic", 0))
    first.moves.begin(log, goal, TOPIC)
    stop(first)
    for present, moves in ((TOPIC, 1), (OTHER, 0)):
        again = start(tmp_path / "a", tmp_path / "b", topic_id_of={"a-topic": present}.get)
        assert len(again.moves.under_way) == moves
        stop(again)


def test_broken_checkpoints_cost_only_time(tmp_path: Path) -> None:
    first = start(tmp_path)
    put(topic(first), batch(4))
    stop(first)
    for name in ("recovery-point", "replication", "log-start"):
        (tmp_path / f"{name}-offset-checkpoint").write_bytes(b"0\n7\n")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "a-topic-0" / "partition.metadata").write_bytes(b"")
    second = start(tmp_path)
    assert topic(second).end_offset == 4
    stop(second)


def test_a_failed_directory_goes_offline_and_the_other_serves(tmp_path: Path) -> None:
    disk = FailingDisk()
    directories = start(tmp_path / "a", tmp_path / "b", disk=disk)
    offline: list[str] = []
    directories.events.subscribe_failures(offline.append)
    for partition in range(4):
        put(topic(directories, partition), batch())
    disk.broken = str(tmp_path / "a")
    for log in directories.opened():
        log.release()
    victims = [p for p in range(4) if directories.directory_of("a-topic", p) is directories.directories[0]]
    assert len(victims) == 2
    for partition in range(4):
        if partition in victims:
            with pytest.raises(KafkaError) as caught:
                put(topic(directories, partition), batch())
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        else:
            assert put(topic(directories, partition), batch()).first_offset == 1
    assert offline == [str(tmp_path / "a")]
    directories.create("a-topic", 9, TOPIC)
    assert directories.directory_of("a-topic", 9) is directories.directories[1]
    stop(directories)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_no_replica_is_recreated_while_a_directory_cannot_be_read(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    first = start(*paths)
    for partition in range(4):
        put(topic(first, partition), batch())
    held = {p: first.directory_of("a-topic", p) for p in range(4)}
    victims = [p for p in range(4) if held[p] is first.directories[0]]
    assert len(victims) == 2
    stop(first)
    paths[0].rename(tmp_path / "away")
    paths[0].write_bytes(b"not a directory")
    second = start(*paths)
    for partition in range(4):
        if partition not in victims:
            assert second.open("a-topic", partition, TOPIC, CONFIG, is_new=False).end_offset == 1
            continue
        with pytest.raises(KafkaError) as caught:
            second.create("a-topic", partition, TOPIC, is_new=False)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError) as caught:
            second.open("a-topic", partition, TOPIC, CONFIG, is_new=False)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    second.create("a-topic", 9, TOPIC, is_new=True)
    stop(second)
    assert not any((paths[1] / f"a-topic-{p}").exists() for p in victims)
    paths[0].unlink()
    (tmp_path / "away").rename(paths[0])
    third = start(*paths)
    assert [third.open("a-topic", p, TOPIC, CONFIG, is_new=False).end_offset for p in range(4)] == [1] * 4
    stop(third)


def test_an_unusable_directory_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    directories = start(tmp_path / "file", tmp_path / "good")
    assert directories.directories[0].offline is not None
    assert topic(directories).end_offset == 0
    stop(directories)
    with pytest.raises(LogDirectoryError, match="no log directory can be used"):
        start(tmp_path / "file")


def test_idle_logs_hold_no_open_file(tmp_path: Path) -> None:
    directories = LogDirectories(SystemDisk(), StandingClock(), SeededRandom(1), [str(tmp_path)], open_files=4)
    directories.startup.load(cluster_id="c", node_id=1)
    for partition in range(20):
        put(topic(directories, partition), batch())
    table = Path("/proc/self/fd")
    if table.exists():
        held = [path for path in table.iterdir() if str(tmp_path) in str(path.resolve())]
        assert 0 < len(held) <= 5  # four and the lock
    for partition in range(20):
        assert fetched(topic(directories, partition), 0) == [0]
    stop(directories)


def test_idle_logs_give_back_what_they_hold(tmp_path: Path) -> None:
    directories = start(tmp_path)
    logs = [topic(directories, partition) for partition in range(3)]
    for log in logs:
        put(log, batch(2))

    def idle() -> int:
        list(directories.files.sweep())
        return sum(log.release_if_idle() for log in directories.opened())

    assert idle() == 0
    put(logs[0], batch(2))
    assert idle() == 2
    assert idle() == 3
    for log, batches in zip(logs, ([0, 2], [0], [0]), strict=True):
        assert fetched(log, 0) == batches
        assert put(log, batch()).first_offset == 2 * len(batches)
    stop(directories)


def test_log_that_becomes_idle_again_gives_back_its_memory_again(tmp_path: Path) -> None:
    """Index entries in memory are written out when an idle log gives its memory back."""
    directories = start(tmp_path)
    log = directories.open("a-topic", 0, TOPIC, LogConfig(index_interval_bytes=0))
    index = tmp_path / "a-topic-0" / f"{0:020d}.index"
    for entries in (1, 3, 5):
        put(log, batch())
        put(log, batch())
        assert not log.release_if_idle()
        assert index.stat().st_size == 8 * max(0, entries - 2)
        assert log.release_if_idle()
        assert index.stat().st_size == 8 * entries
    stop(directories)


def test_a_truncation_below_the_recovery_point_is_written_down_at_once(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = topic(directories)
    for _ in range(5):
        put(log, batch())
    asyncio.run(flush_all(directories))
    directories.checkpoints.write_now("recovery-point-offset-checkpoint")
    log.truncate_to(2)
    assert parse_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes()) == {("a-topic", 0): 2}
    stop(directories, clean=False)


def test_a_deleted_log_does_not_hold_up_the_others(tmp_path: Path) -> None:
    directories = start(tmp_path)
    logs = [topic(directories, partition) for partition in range(2)]
    for log in logs:
        while len(log.segments) < 2:
            put(log, batch(value=b"x" * 200))
    logs[0].fail("broken")
    asyncio.run(directories.flusher.work(NOW))
    assert logs[1].durability.recovery_point == logs[1].active_base_offset
    assert directories.directories[0].offline is None
    stop(directories, clean=False)


def test_running_out_of_descriptors_fails_the_call_and_not_the_directory(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    put(log, batch())
    log.release()
    disk.broken = str(tmp_path)
    for attempt in (lambda: put(log, batch()), lambda: topic(directories, 1)):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.broken = None
    assert put(log, batch()).first_offset == 1
    assert topic(directories, 1).end_offset == 0
    stop(directories)


def test_unwritten_epoch_is_kept_when_descriptors_are_exhausted(tmp_path: Path) -> None:
    class FullDisk(SystemDisk):
        full = False

        def write_atomic(self, path: str, data: Any, *, sync: bool = True) -> None:
            if self.full:
                raise OSError(errno.EMFILE, "too many open files", path)
            super().write_atomic(path, data, sync=sync)

    directories = start(tmp_path, disk=(disk := FullDisk()))
    indexed = LogConfig(index_interval_bytes=0)
    log = directories.open("a-topic", 0, TOPIC, indexed)
    put(log, batch(), epoch=1)
    disk.full = True
    with pytest.raises(KafkaError):
        put(log, batch(), epoch=2)
    disk.full = False
    for _ in range(3):
        put(log, batch(), epoch=2)
    asyncio.run(flush_all(directories))
    asyncio.run(directories.checkpoints.persist_all())
    stop(directories, clean=False)
    assert start(tmp_path).open("a-topic", 0, TOPIC, indexed).history.leader_epochs.entries() == [(1, 0), (2, 1)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_failed_segment_roll_without_descriptors_leaves_no_files(tmp_path: Path, suffix: str, clean: bool) -> None:
    """Found by the simulator (descriptors-2): the log went on in the one before, and the next start cut that off."""
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    put(log, produced(1, 0))
    disk.broken, disk.suffix = log.directory, f"{1:020d}{suffix}"
    with pytest.raises(KafkaError):
        log.roll()
    assert not [name for name in disk.list(log.directory) if name.startswith(f"{1:020d}")]
    disk.broken = None
    for sequence in (1, 2):
        put(log, produced(1, sequence))
    log.roll()
    put(log, produced(1, 3))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    stop(directories, clean=clean)
    again = topic(start(tmp_path))
    assert again.end_offset == 4
    assert [parse_header(bytes(each)).base_offset for each in again.reader.read_batches(0, 4)] == [0, 1, 2, 3]


def test_that_a_segment_was_not_begun_is_durable_before_the_next_answer(tmp_path: Path) -> None:
    """Its name, come back with a power loss, would cut off what was synced and acknowledged since."""
    synced: list[str] = []

    class NotingDisk(FailingDisk):
        def sync_directory(self, path: str) -> None:
            synced.append(path)
            super().sync_directory(path)

    disk = NotingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = directories.open("a-topic", 0, TOPIC, LogConfig(flush_messages=1))
    put(log, batch())
    disk.broken, disk.suffix = log.directory, f"{1:020d}.timeindex"
    with pytest.raises(KafkaError):
        log.roll()
    disk.broken = None
    synced.clear()
    put(log, batch())
    stop(directories, clean=False)
    assert log.directory in synced


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_no_offset_is_given_twice_when_only_an_index_cannot_be_opened(tmp_path: Path, suffix: str) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = directories.open("a-topic", 0, TOPIC, LogConfig(index_interval_bytes=0))
    for _ in range(3):
        put(log, batch())
    log.release()
    disk.broken, disk.suffix = str(tmp_path), suffix
    with pytest.raises(KafkaError) as caught:
        put(log, batch())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.broken = None
    assert put(log, batch()).first_offset == 3
    assert fetched(log, 0) == [0, 1, 2, 3]
    stop(directories, clean=False)


def test_marker_is_not_written_when_its_transaction_index_fails_to_open(tmp_path: Path) -> None:
    """A batch that is written and cannot be noted takes the directory offline."""
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log, other = topic(directories), topic(directories, 1)
    put(log, produced(8, 0, transactional=True))
    disk.broken, disk.suffix = str(tmp_path), ".txnindex"
    with pytest.raises(KafkaError) as caught:
        put(log, marker(8, commit=False), origin=Origin.COORDINATOR)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.is_offline
    assert not other.is_offline
    assert put(log, batch()).first_offset == 1
    disk.broken = None
    assert put(log, marker(8, commit=False), origin=Origin.COORDINATOR).first_offset == 2
    assert fetched(log, 0) == [0, 1, 2]
    assert log.reader.aborted_transactions(0, 3) == [(8, 0)]
    stop(directories)


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_truncation_without_descriptors_changes_nothing(
    tmp_path: Path, suffix: str, is_read: bool, fully: bool
) -> None:
    """Half of it done, the log went on with a segment that was removed, and the next clean start found the rest."""

    def cut() -> None:
        if fully:
            log.truncate_fully_and_start_at(1)
        else:
            log.truncate_to(1)

    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = directories.open("a-topic", 0, TOPIC, replace(CONFIG, index_interval_bytes=0))
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 50))
    put(log, batch(value=b"x" * 50))
    end = log.end_offset
    if is_read:  # then the indexes of its first segment are open
        assert fetched(log, 1)[0] == 1
    disk.broken, disk.suffix = str(tmp_path), suffix
    for _ in range(2):
        list(directories.files.sweep())
    with pytest.raises(KafkaError):
        cut()
    assert log.end_offset == end
    disk.broken = None
    assert fetched(log, 0)[-1] == end - 1
    cut()
    assert log.end_offset == 1
    assert not log.is_offline
    put(log, batch())
    stop(directories)
    again = topic(start(tmp_path))
    assert fetched(again, again.log_start_offset) == ([1] if fully else [0, 1])


def test_a_truncation_that_stops_half_way_takes_the_directory_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    while len(log.segments) < 3:
        put(log, batch(value=b"x" * 200))

    def no_snapshot(path: str, most: int | None = None) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", path)

    log.truncate_to(log.segments[1].base_offset + 2)
    disk.read_file = no_snapshot  # type: ignore[method-assign]
    with pytest.raises(KafkaError):
        log.truncate_to(log.segments[1].base_offset + 1)
    assert directories.directories[0].offline is not None
    stop(directories, clean=False)


def test_truncation_restores_producers_when_epochs_cannot_be_written(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    put(log, produced(8, 0), epoch=1)
    put(log, produced(8, 1), epoch=2)
    disk.broken, disk.suffix = str(tmp_path), "leader-epoch-checkpoint"
    assert log.truncate_to(1), "what is cut off is cut off: its caller has to know"
    disk.broken = None
    assert not log.truncate_to(1)
    assert put(log, produced(8, 1), epoch=3).first_offset == 1
    stop(directories)
    assert topic(start(tmp_path)).history.leader_epochs.entries() == [(1, 0), (3, 1)]


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_that_failed_to_be_written_after_truncation_are_retried(tmp_path: Path, clean: bool) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    for epoch in (1, 2):
        put(log, batch(), epoch=epoch)
    disk.broken, disk.suffix = str(tmp_path), "leader-epoch-checkpoint"
    assert log.truncate_to(1)
    disk.broken = None
    stop(directories, clean=clean)
    assert topic(start(tmp_path)).history.leader_epochs.entries() == [(1, 0)]


def test_log_start_advances_epochs_that_cannot_be_written(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    put(log, produced(8, 0, transactional=True), epoch=1)
    put(log, marker(8, commit=True), epoch=2, origin=Origin.COORDINATOR)
    disk.broken, disk.suffix = str(tmp_path), "leader-epoch-checkpoint"
    assert log.advance_log_start(2)
    assert log.history.producers.first_unstable_offset is None, "no reader waits for the marker to be replicated"
    disk.broken = None
    stop(directories)
    assert topic(start(tmp_path)).log_start_offset == 2


@pytest.mark.parametrize("fully", [False, True])
def test_what_is_written_below_an_earlier_log_start_is_there_after_a_crash(tmp_path: Path, fully: bool) -> None:
    directories = start(tmp_path)
    log, other = topic(directories), topic(directories, 1)
    for each in (log, other):
        for _ in range(6):
            put(each, batch(value=b"x" * 50))
        each.advance_log_start(5)
    asyncio.run(directories.checkpoints.persist_all())
    if fully:
        log.truncate_fully_and_start_at(4)
    else:
        log.truncate_to(4)
    for _ in range(4):
        put(log, batch())
    assert log.log_start_offset == 4
    stop(directories, clean=False)
    again = start(tmp_path)
    assert (topic(again).log_start_offset, topic(again).end_offset) == (4, 8)
    assert fetched(topic(again), 4) == [4, 5, 6, 7]
    assert topic(again, 1).log_start_offset == 5
    stop(again)


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_truncated_state_is_durable_or_its_directory_is_offline(tmp_path: Path, name: str, fully: bool) -> None:
    disk = FailingDisk()
    disk.errno = errno.EMFILE
    directories = start(tmp_path / "a", tmp_path / "b", disk=disk)
    log, other = topic(directories), topic(directories, 1)
    for each in (log, other):
        for _ in range(6):
            put(each, batch(value=b"x" * 50))
        each.advance_log_start(5)
    asyncio.run(flush_all(directories))
    asyncio.run(directories.checkpoints.persist_all())
    disk.broken, disk.suffix = str(tmp_path), name
    with pytest.raises(KafkaError, match="stopped halfway"):
        (log.truncate_fully_and_start_at if fully else log.truncate_to)(3)
    disk.broken = None
    assert [directory.offline is None for directory in directories.directories] == [False, True]
    with pytest.raises(KafkaError):
        put(log, batch())  # after a crash it would be taken for a deleted record, or not be checked
    disk.broken, disk.suffix = str(tmp_path / "a"), name
    assert other.truncate_to(3), "it lies in the other log directory"
    stop(directories, clean=False)


def test_a_log_start_is_seen_only_when_a_crash_does_not_take_it_back(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = topic(directories)
    for _ in range(4):
        put(log, batch(2))
    seen: list[tuple[int, bytes]] = []

    def advance() -> None:
        seen.append((log.log_start_offset, (tmp_path / "log-start-offset-checkpoint").read_bytes()))
        log.advance_log_start(5)

    async def run() -> None:
        deletion = asyncio.create_task(directories.checkpoints.advance_starts({("a-topic", 0): 5}, advance))
        # The checkpoint that is written every minute knows of it while it is not seen yet.
        await asyncio.gather(deletion, directories.checkpoints.persist_all())

    asyncio.run(run())
    assert [(offset, parse_offsets(data)) for offset, data in seen] == [(0, {("a-topic", 0): 5})]
    assert log.log_start_offset == 5
    stop(directories, clean=False)
    assert topic(start(tmp_path)).log_start_offset == 5


def test_a_log_start_follows_a_replica_that_moves_meanwhile(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    directories = start(here, there)
    log = topic(directories)
    put(log, batch(2))
    put(log, batch(2))
    target = next(each for each in directories.directories if not log.directory.startswith(each.path))
    directories.moves.begin(log, target, TOPIC)

    def advance() -> None:
        topic(directories).advance_log_start(3)

    async def exchange() -> None:
        while await directories.moves.exchange(log) is None:
            await directories.moves.copy(log)

    async def run() -> None:
        await directories.moves.copy(log)
        await asyncio.gather(exchange(), directories.checkpoints.advance_starts({("a-topic", 0): 3}, advance))

    asyncio.run(run())
    assert topic(directories).directory.startswith(target.path)
    assert topic(directories).log_start_offset == 3
    stop(directories, clean=False)
    assert topic(start(here, there)).log_start_offset == 3


@pytest.mark.parametrize("is_truncated", [False, True])
def test_log_start_that_is_not_taken_does_not_stay_on_the_disk(tmp_path: Path, is_truncated: bool) -> None:
    """The leader was deposed while it was written. After a crash the records below it were missing on this replica."""
    directories = start(tmp_path)
    log = topic(directories)
    for _ in range(4):
        put(log, batch(2))

    async def run() -> None:
        deletion = asyncio.create_task(directories.checkpoints.advance_starts({("a-topic", 0): 5}, lambda: None))
        await asyncio.sleep(0)
        if is_truncated:
            log.truncate_to(2)
            put(log, batch(6))
        await deletion

    asyncio.run(run())
    assert log.log_start_offset == 0
    stop(directories, clean=False)
    assert topic(start(tmp_path)).log_start_offset == 0


def test_log_start_in_progress_is_not_applied_to_the_next_topic(tmp_path: Path) -> None:
    directories = start(tmp_path)
    put(topic(directories), batch(4))

    async def run() -> None:
        coming = directories.checkpoints.advance_starts({("a-topic", 0): 3}, lambda: None)
        deletion = asyncio.create_task(coming)
        await asyncio.sleep(0)
        directories.delete("a-topic", 0)
        put(topic(directories, topic_id=OTHER), batch(4))
        await asyncio.gather(deletion, directories.checkpoints.persist("log-start-offset-checkpoint"))

    asyncio.run(run())
    stop(directories, clean=False)
    assert topic(start(tmp_path), topic_id=OTHER).log_start_offset == 0


def test_what_checkpoints_know_of_a_deleted_topic_is_not_for_the_next_one(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = topic(directories)
    put(log, batch(4))
    log.advance_log_start(3)
    directories.checkpoints.note_watermarks({("a-topic", 0): 4})
    asyncio.run(directories.checkpoints.persist_all())
    directories.delete("a-topic", 0, 0)
    stop(directories, clean=False)  # before the checkpoints are written again
    again = start(tmp_path)
    log = topic(again, topic_id=OTHER)
    assert (log.log_start_offset, log.end_offset, log.durability.recovery_point) == (0, 0, 0)
    stop(again)


@pytest.mark.parametrize("restarted", [False, True])
def test_checkpoints_of_a_deleted_topic_are_not_applied_to_the_next_one(tmp_path: Path, restarted: bool) -> None:
    """The process is killed before the checkpoints are written again: all that was acknowledged was below the log start
    of the old topic."""
    directories = start(tmp_path)
    log = topic(directories)
    put(log, batch(4))
    log.advance_log_start(3)
    asyncio.run(flush_all(directories))
    directories.checkpoints.note_watermarks({("a-topic", 0): 4})
    asyncio.run(directories.checkpoints.persist_all())
    asyncio.run(directories.note_cleaned("a-topic", 0, 3))
    directories.delete("a-topic", 0, 0)
    if restarted:
        stop(directories, clean=False)
        directories = start(tmp_path)
    put(topic(directories, topic_id=OTHER), batch(2))
    stop(directories, clean=False)
    again = start(tmp_path)
    log = topic(again, topic_id=OTHER)
    assert (log.log_start_offset, log.end_offset, log.durability.recovery_point) == (0, 2, 0)
    assert (again.high_watermark("a-topic", 0), again.cleaned_to("a-topic", 0)) == (None, None)
    stop(again)


def test_deleted_records_do_not_return_with_unsynced_segment_removals(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = topic(directories)
    for _ in range(8):
        put(log, batch(2, value=b"x" * 100))
    middle = log.segments[1].base_offset
    before = {path.name: path.read_bytes() for path in Path(log.directory).iterdir()}
    log.advance_log_start(middle)
    asyncio.run(directories.checkpoints.persist_all())
    log.delete_old_segments(NOW, log.end_offset)
    assert log.segments[0].base_offset == middle
    asyncio.run(directories.checkpoints.persist_all())
    stop(directories, clean=False)
    for name, data in before.items():
        Path(log.directory, name).write_bytes(data)
    assert topic(start(tmp_path)).log_start_offset == middle


def test_a_log_start_that_cannot_be_written_is_not_taken(tmp_path: Path) -> None:
    disk = FailingDisk()
    directories = start(tmp_path, disk=disk)
    log = topic(directories)
    put(log, batch(4))
    disk.broken, disk.errno, disk.suffix = str(tmp_path), errno.EMFILE, ".tmp"
    advances = directories.checkpoints.advance_starts({("a-topic", 0): 3}, lambda: pytest.fail("it was not written"))
    with pytest.raises(KafkaError) as caught:
        asyncio.run(advances)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.broken = None
    stop(directories)


class LoseNothing(SystemDisk):
    """Records which directories were synced after which names were removed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def remove(self, path: str) -> None:
        self.calls.append(("remove", path))
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.calls.append(("sync", path))
        super().sync_directory(path)


def test_that_the_last_stop_was_clean_is_forgotten_durably(tmp_path: Path) -> None:
    directories = start(tmp_path)
    put(topic(directories), batch())
    stop(directories)
    disk = LoseNothing()
    stop(start(tmp_path, disk=disk), clean=False)
    removed = disk.calls.index(("remove", f"{tmp_path}/.kafka_cleanshutdown"))
    assert ("sync", str(tmp_path)) in disk.calls[removed:]


LARGE = LogConfig()


def crashed_with_a_large_log(path: Path) -> None:
    directories = start(path)
    log = directories.open("a-topic", 0, TOPIC, LARGE)
    put(log, batch())
    log.roll()
    for _ in range(3):
        put(log, batch(value=b"x" * 500_000))
    asyncio.run(flush_all(directories))
    asyncio.run(directories.checkpoints.persist_all())
    put(log, batch())
    stop(directories, clean=False)


def test_a_log_whose_recovery_lacks_descriptors_is_recovered_later(tmp_path: Path) -> None:
    crashed_with_a_large_log(tmp_path)
    disk = FailingDisk()
    directories = start(tmp_path, disk=disk)
    disk.broken, disk.errno, disk.suffix = str(tmp_path), errno.EMFILE, ".log"
    assert not asyncio.run(directories.recovery.recover("a-topic", 0, LARGE))
    assert directories.recovery.unrecovered() == [("a-topic", 0)]
    disk.broken = None
    assert asyncio.run(directories.recovery.recover("a-topic", 0, LARGE))
    assert directories.open("a-topic", 0, TOPIC, LARGE).end_offset == 5
    stop(directories)


def test_a_check_that_is_cut_short_is_not_the_end_of_what_it_has_found(tmp_path: Path) -> None:
    """Of a compacted log only the cut itself says that what follows in other segments follows no more."""
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    first = start(tmp_path / "crashed")
    log = first.open("a-topic", 0, TOPIC, config)
    while len(log.segments) < 3:
        put(log, batch(value=b"x" * 100))
    stop(first, clean=False)
    data = bytearray(Path(log.segments[0].path).read_bytes())
    data[-1] ^= 1
    Path(log.segments[0].path).write_bytes(data)
    lost = log.segments[1].base_offset - 1
    for left in range(30):
        shutil.copytree(tmp_path / "crashed", path := tmp_path / str(left))
        directories = start(path, disk=(disk := LackingDisk()))
        disk.left = left
        is_done = asyncio.run(directories.recovery.recover("a-topic", 0, config))
        disk.left = None
        assert is_done or asyncio.run(directories.recovery.recover("a-topic", 0, config))
        assert directories.open("a-topic", 0, TOPIC, config).end_offset == lost, left
        stop(directories)
        if is_done:
            break
    assert 5 < left < 29


def test_files_of_a_log_that_failed_to_open_are_not_reused_as_known(tmp_path: Path) -> None:
    """The check in the background writes to them, too: to which transactions were aborted, for one."""
    first = start(tmp_path / "crashed")
    log = topic(first)
    for producer_id in (1, 2):
        put(log, produced(producer_id, 0, transactional=True))
        put(log, marker(producer_id, commit=False), origin=Origin.COORDINATOR)
        if producer_id == 1:
            asyncio.run(flush_all(first))
            first.checkpoints.write_now("recovery-point-offset-checkpoint")
    stop(first, clean=False)
    for left in range(20):
        shutil.copytree(tmp_path / "crashed", path := tmp_path / str(left))
        directories = start(path, disk=(disk := LackingDisk()))
        disk.left = left
        try:
            topic(directories)
            break
        except KafkaError:
            disk.left = None
        assert asyncio.run(directories.recovery.recover("a-topic", 0, CONFIG))
        log = topic(directories)
        assert log.reader.aborted_transactions(0, 4) == [(1, 0), (2, 2)]
        put(log, produced(3, 0, transactional=True))
        put(log, marker(3, commit=False), origin=Origin.COORDINATOR)
        stop(directories)
        again = start(path)
        assert topic(again).reader.aborted_transactions(0, 6) == [(1, 0), (2, 2), (3, 4)]
        stop(again)
    assert 3 < left < 19


def test_log_that_recovery_cannot_read_is_no_longer_reported_as_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed_with_a_large_log(tmp_path)
    disk = FailingDisk()
    directories = start(tmp_path, disk=disk)
    disk.broken, disk.suffix = str(tmp_path), ".log"
    assert not asyncio.run(directories.recovery.recover("a-topic", 0, LARGE))
    assert directories.directories[0].offline
    disk.broken = None
    stop(directories, clean=False)

    # Whatever it may be that recovery cannot put right.
    def cannot(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "damaged")

    monkeypatch.setattr(background_recovery, "recover", cannot)
    directories = start(tmp_path)
    assert not asyncio.run(directories.recovery.recover("a-topic", 0, LARGE))
    assert directories.recovery.unrecovered() == []
    with pytest.raises(KafkaError) as caught:
        directories.open("a-topic", 0, TOPIC, LARGE)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    stop(directories, clean=False)


def test_topic_recreated_during_recovery_of_the_old_one_starts_empty(tmp_path: Path) -> None:
    crashed_with_a_large_log(tmp_path)
    directories = start(tmp_path)

    async def run() -> None:
        recovery = asyncio.create_task(directories.recovery.recover("a-topic", 0, LARGE))
        await asyncio.sleep(0)
        directories.delete("a-topic", 0)
        with pytest.raises(KafkaError) as caught:
            directories.open("a-topic", 0, OTHER, LARGE)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await recovery

    asyncio.run(run())
    log = directories.open("a-topic", 0, OTHER, LARGE)
    assert (log.end_offset, log.durability.recovery_point) == (0, 0)
    assert ("a-topic", 0) not in directories.directories[0].recovery_points
    stop(directories)


class BusyDisk(SystemDisk):
    """Has its threads recover nothing before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_recover = asyncio.Event()

    async def run(self, lane: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if lane.startswith("recovery"):
            await self.may_recover.wait()
        return await super().run(lane, function, *args, **kwargs)


def test_topic_recreated_before_recovery_of_the_old_one_starts_empty(tmp_path: Path) -> None:
    """The recovery finds an empty directory, and would begin a log in it where the old one began."""
    directories = start(tmp_path)
    log = directories.open("a-topic", 0, TOPIC, LARGE)
    for _ in range(4):
        put(log, batch(value=b"x" * 500_000))
    log.advance_log_start(2)
    asyncio.run(directories.checkpoints.persist_all())
    stop(directories, clean=False)
    directories = start(tmp_path, disk=(disk := BusyDisk()))

    async def run() -> None:
        recovery = asyncio.create_task(directories.recovery.recover("a-topic", 0, LARGE))
        await asyncio.sleep(0)
        directories.delete("a-topic", 0)
        with contextlib.suppress(KafkaError):
            directories.create("a-topic", 0, OTHER)
        disk.may_recover.set()
        await recovery

    asyncio.run(run())
    log = directories.open("a-topic", 0, OTHER, LARGE)
    assert (log.log_start_offset, log.end_offset) == (0, 0)
    stop(directories)


class MeetingDisk(SystemDisk):
    """A sync of a log's directory continues when this number is under way at once."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(parties)

    def sync_directory(self, path: str) -> None:
        if "a-topic-" in path:
            self.barrier.wait(30)
        super().sync_directory(path)


def test_several_threads_sync_the_logs_of_each_directory_at_a_clean_stop(tmp_path: Path) -> None:
    directories = start(tmp_path / "a", tmp_path / "b", disk=MeetingDisk(6))
    for partition in range(12):
        put(topic(directories, partition), batch(3))
    stop(directories, threads=3)
    for name in ("a", "b"):
        points = parse_offsets((tmp_path / name / "recovery-point-offset-checkpoint").read_bytes())
        assert list(points.values()) == [3] * 6
        assert (tmp_path / name / ".kafka_cleanshutdown").exists()


def test_directory_that_fails_at_a_clean_stop_is_not_marked_clean(tmp_path: Path) -> None:
    class Failing(SystemDisk):
        def sync_directory(self, path: str) -> None:
            if path.endswith("/a/a-topic-4"):
                raise OSError(errno.EIO, "failed", path)
            super().sync_directory(path)

    directories = start(tmp_path / "a", tmp_path / "b", disk=Failing())
    for partition in range(12):
        put(topic(directories, partition), batch(3))
    stop(directories, threads=3)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_deleted_records_stay_deleted_when_a_power_loss_restores_segments(tmp_path: Path) -> None:
    """Retention has removed them already, whose new names are not synced, when they are deleted on request."""
    directories = start(tmp_path)
    log = topic(directories)
    put(log, batch(value=b"x" * 400))
    put(log, batch(value=b"x" * 400))
    first = Path(log.segments[0].path)
    content = first.read_bytes()
    put(log, batch())
    begin = log.segments[1].base_offset
    log.set_config(LogConfig(retention_bytes=500))
    assert log.delete_old_segments(NOW, log.end_offset) == 1
    assert log.log_start_offset == begin
    asyncio.run(directories.checkpoints.advance_starts({("a-topic", 0): begin}, lambda: None))
    stop(directories, clean=False)
    first.write_bytes(content)
    assert topic(start(tmp_path)).log_start_offset == begin


@pytest.mark.parametrize("meanwhile", ["nothing", "removal", "restart"])
def test_returning_partition_is_in_one_directory_after_a_power_loss(tmp_path: Path, meanwhile: str) -> None:
    """It was deleted since it moved to another broker: that its directory has another name was not synced."""
    disk = ForgetfulDisk()
    paths = tmp_path / "a", tmp_path / "b"
    directories = start(*paths, disk=disk)
    put(topic(directories), batch(4))
    asyncio.run(flush_all(directories))
    directories.delete("a-topic", 0, 0)
    if meanwhile == "removal":
        asyncio.run(directories.flusher.work(NOW))
        assert disk.synced[-1] == str(paths[0])
    elif meanwhile == "restart":
        stop(directories, clean=False)
        directories = start(*paths, disk=disk)
    directories.placement.prefer("a-topic", 0, directories.directories[1])
    disk.synced.clear()
    log = topic(directories)
    assert disk.synced == ([str(paths[0])] if meanwhile == "nothing" else [])
    put(log, batch())
    asyncio.run(flush_all(directories))
    stop(directories, clean=False)
    disk.lose_power()
    again = start(*paths)
    assert topic(again).end_offset == 1
    assert [str(each.parent) for each in tmp_path.glob("*/a-topic-0")] == [str(paths[1])]
    stop(again)


def test_partition_waits_until_the_end_of_its_last_directory_is_synced(tmp_path: Path) -> None:
    class Failing(SystemDisk):
        error = 0

        def sync_directory(self, path: str) -> None:
            if self.error and path.endswith("/a"):
                raise OSError(self.error, "failed", path)
            super().sync_directory(path)

    disk = Failing()
    directories = start(tmp_path / "a", tmp_path / "b", disk=disk)
    topic(directories)
    directories.delete("a-topic", 0, 0)
    for disk.error in (errno.EMFILE, errno.EIO):
        directories.placement.prefer("a-topic", 0, directories.directories[1])
        with pytest.raises(KafkaError) as refused:
            topic(directories)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [each.offline is not None for each in directories.directories] == [disk.error == errno.EIO, False]
        assert not (tmp_path / "b" / "a-topic-0").exists()
    topic(directories)
    assert (tmp_path / "b" / "a-topic-0").exists()
    stop(directories, clean=False)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_directory_that_cannot_be_synced_after_a_deletion_goes_offline(tmp_path: Path, error: int) -> None:
    """Unless only descriptors are missing: then the next turn syncs it."""

    class Failing(SystemDisk):
        error = 0

        def sync_directory(self, path: str) -> None:
            if self.error:
                raise OSError(self.error, "failed", path)
            super().sync_directory(path)

    disk = Failing()
    directories = start(tmp_path, disk=disk)
    topic(directories)
    directories.delete("a-topic", 0, 0)
    disk.error = error
    asyncio.run(directories.flusher.work(NOW))
    assert (directories.directories[0].offline is not None) is (error == errno.EIO)
    disk.error = 0
    stop(directories, clean=False)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("lacking", [False, True])
def test_log_cut_below_its_recovery_point_is_checked_after_the_next_crash(
    tmp_path: Path, inline: bool, lacking: bool
) -> None:
    """As for rot in its last segment: the file may not say more than is true until the next checkpoint."""
    first = start(tmp_path)
    log = first.open("a-topic", 0, TOPIC, LARGE)
    put(log, batch())
    put(log, batch())
    asyncio.run(flush_all(first))
    asyncio.run(first.checkpoints.persist_all())
    path = Path(log.segments[0].path)
    size = path.stat().st_size
    stop(first, clean=False)
    content = path.read_bytes()
    path.write_bytes(content[: size // 2] + b"\xff" * (size // 2))
    second = start(tmp_path, disk=(disk := FailingDisk()))
    if lacking:
        disk.broken, disk.errno, disk.suffix = str(tmp_path), errno.EMFILE, "recovery-point-offset-checkpoint"
        if inline:
            with pytest.raises(KafkaError):
                second.open("a-topic", 0, TOPIC, LARGE)
            assert not len(second.files), "no open log needs them, and descriptors are scarce"
        else:
            assert not asyncio.run(second.recovery.recover("a-topic", 0, LARGE))
        disk.broken = None
        assert second.recovery.unrecovered(), "that is tried again"
    if not inline:
        assert asyncio.run(second.recovery.recover("a-topic", 0, LARGE))
    assert second.open("a-topic", 0, TOPIC, LARGE).end_offset == 1
    points = parse_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes())
    assert points == {("a-topic", 0): 1}
    stop(second, clean=False)
