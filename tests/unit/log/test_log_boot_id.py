import asyncio
import shutil
from math import inf
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.directories.checkpoint_formats import RECOVERY_POINTS
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.log.directories.scan import note_promise
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SystemRandom
from tests.unit.log.support import LackingDisk, batch, put


class RebootingDisk(SystemDisk):
    """A machine that has been started so often."""

    boots = "first"

    def boot_id(self) -> str:
        return self.boots


@pytest.mark.parametrize(
    ("clean", "boots", "lost"),
    [
        (True, "first", False),
        (True, "second", False),
        (False, "first", False),
        (False, "second", True),
        (False, "", True),
    ],
)
def test_records_may_be_lost_when_the_machine_went_down_with_them(
    tmp_path: Path, clean: bool, boots: str, lost: bool
) -> None:
    async def run() -> None:
        disk = RebootingDisk()
        first = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
        first.startup.load(cluster_id="c", node_id=1)
        assert not first.startup.records_may_be_lost
        first.create("t", 0, bytes(16))
        await first.close(clean=clean)
        disk.boots = boots
        second = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
        second.startup.load(cluster_id="c", node_id=1)
        assert second.startup.records_may_be_lost is lost
        await second.close()

    asyncio.run(run())


def test_records_may_be_lost_with_all_directories_of_partitions(tmp_path: Path) -> None:
    """A directory that is not used yet has lost none."""

    async def run() -> None:
        disk = RebootingDisk()
        for lost in (False, True):
            directories = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
            directories.startup.load(cluster_id="c", node_id=1)
            assert directories.startup.records_may_be_lost is lost
            await directories.close(clean=False)
            disk.boots = "second"

    asyncio.run(run())


def test_records_are_lost_with_the_disk_that_held_them(tmp_path: Path) -> None:
    """Its place is taken by an empty one: that the partitions are not there says it, at later starts, too."""

    async def run() -> None:
        paths = [str(tmp_path / name) for name in ("old", "other")]

        def start() -> LogDirectories:
            directories = LogDirectories(RebootingDisk(), SystemClock(), SystemRandom(), paths)
            directories.startup.load(cluster_id="c", node_id=1)
            return directories

        first = start()
        first.startup.expect([])
        assert not first.startup.records_may_be_lost
        for index in range(2):
            first.create("t", index, bytes(16))
        await first.close()
        whole = start()
        whole.startup.expect([("t", 0), ("t", 1)])
        assert not whole.startup.records_may_be_lost
        await whole.close()
        (tmp_path / "old").rename(tmp_path / "away")
        (tmp_path / "old").write_bytes(b"not a directory")
        unread = start()
        unread.startup.expect([("t", 0), ("t", 1)])
        assert not unread.startup.records_may_be_lost, "it is offline, and no partition relies on it"
        await unread.close()
        (tmp_path / "old").unlink()
        replaced = start()
        replaced.startup.expect([("t", 0), ("t", 1)])
        assert replaced.startup.records_may_be_lost
        for index in range(2):
            replaced.create("t", index, bytes(16))
        await replaced.close(clean=True)
        again = start()
        assert again.startup.records_may_be_lost, "the controller has not judged it"
        again.startup.accept_losses()
        await again.close()
        last = start()
        last.startup.expect([("t", 0), ("t", 1)])
        assert not last.startup.records_may_be_lost
        await last.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("none", False),
        ("no registration", True),
        ("the cluster knows what was created", True),
        ("a disk replaced", True),
        ("a disk left out", True),
        ("a disk of another registration", True),
        ("the partition was there", True),
    ],
)
def test_partition_created_after_the_last_process_is_no_loss(tmp_path: Path, change: str, lost: bool) -> None:
    """The cluster counted on the broker, whose registration had not ended yet."""
    paths = [str(tmp_path / name) for name in ("one", "two")]

    def start(places: list[str]) -> LogDirectories:
        directories = LogDirectories(RebootingDisk(), SystemClock(), SystemRandom(), places)
        directories.startup.load(cluster_id="c", node_id=1)
        return directories

    async def be_killed() -> None:
        first = start(paths)
        first.create("t", 0, bytes(16))
        if change == "the partition was there":
            first.create("t", 1, bytes(16))
            put(first.open("t", 1, bytes(16), LogConfig()), batch(1))
            first.checkpoints.write_now(RECOVERY_POINTS)
        if change != "no registration":
            first.startup.note_use(7)
        await first.close(clean=False)

    async def start_again(places: list[str], *, may_be_new: bool) -> bool:
        second = start(places)
        second.startup.expect([("t", 0), ("t", 1)], may_be_new=may_be_new)
        is_lost = second.startup.records_may_be_lost
        await second.close()
        return is_lost

    asyncio.run(be_killed())
    directory = str(next(tmp_path.glob("*/t-0")).parent)
    other = next(each for each in paths if each != directory)
    if change == "the partition was there":
        shutil.rmtree(next(tmp_path.glob("*/t-1")))
    elif change == "a disk replaced":
        shutil.rmtree(other)
    elif change == "a disk of another registration":
        note = Path(other, ".odradek_epoch")
        note.write_bytes(note.read_bytes().replace(b"7", b"6"))
    places = [directory] if change == "a disk left out" else paths
    may_be_new = change != "the cluster knows what was created"
    assert asyncio.run(start_again(places, may_be_new=may_be_new)) is lost


def test_start_fails_when_it_cannot_note_a_lost_disk(tmp_path: Path) -> None:
    """The partitions would be recreated, and the next start would treat them as complete."""
    directories = LogDirectories(disk := LackingDisk(), SystemClock(), SystemRandom(), [str(tmp_path)])
    directories.startup.load(cluster_id="c", node_id=1)
    disk.left = 0
    with pytest.raises(LogDirectoryError, match="records may be lost"):
        directories.startup.expect([("t", 0)])
    disk.left = None
    again = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
    again.startup.load(cluster_id="c", node_id=1)
    again.startup.expect([("t", 0)])
    assert again.startup.records_may_be_lost
    asyncio.run(again.close())


@pytest.mark.parametrize("clean", [True, False])
def test_loss_is_reported_at_every_start_until_it_is_accepted(tmp_path: Path, clean: bool) -> None:
    async def run() -> None:
        disk = RebootingDisk()

        def start() -> LogDirectories:
            directories = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
            directories.startup.load(cluster_id="c", node_id=1)
            return directories

        first = start()
        first.create("t", 0, bytes(16))
        await first.close(clean=False)
        disk.boots = "second"
        for _ in range(2):
            again = start()
            assert again.startup.records_may_be_lost
            await again.close(clean=clean)
        judged = start()
        judged.startup.accept_losses()
        assert not judged.startup.records_may_be_lost
        await judged.close(clean=clean)
        last = start()
        assert not last.startup.records_may_be_lost
        await last.close()

    asyncio.run(run())


@pytest.mark.parametrize(("boots", "watermark"), [("first", 2), ("second", 1)])
def test_high_watermark_after_a_reboot_covers_synced_records(tmp_path: Path, boots: str, watermark: int) -> None:
    """The truncation of records at these offsets may be undone, while the checkpoint is on the disk."""

    async def run() -> None:
        disk = RebootingDisk()
        first = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
        first.startup.load(cluster_id="c", node_id=1)
        first.create("t", 0, bytes(16))
        first.create("never-flushed", 0, bytes(16))
        log = first.open("t", 0, bytes(16), LogConfig())
        put(log, batch())
        log.durability.flush()
        put(log, batch())
        first.checkpoints.note_watermarks({("t", 0): 2, ("never-flushed", 0): 2})
        await first.checkpoints.persist_all()
        await first.close(clean=False)
        disk.boots = boots
        second = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
        second.startup.load(cluster_id="c", node_id=1)
        assert second.high_watermark("t", 0) == watermark
        assert second.high_watermark("never-flushed", 0) == (2 if boots == "first" else 0)
        await second.close()

    asyncio.run(run())


def test_promises_of_the_process_before_are_known(tmp_path: Path) -> None:
    """The longest of all directories counts; after a reboot, or with an offline directory, that is unknown."""
    paths = [str(tmp_path / name) for name in "ab"]
    disk = RebootingDisk()

    def start() -> float:
        directories = LogDirectories(disk, SystemClock(), SystemRandom(), paths)
        directories.startup.load(cluster_id="c", node_id=1)
        asyncio.run(directories.close(clean=True))
        return directories.startup.promised_until

    assert start() == -inf, "the directories are new"
    assert start() == -inf, "no process has promised"
    assert note_promise(disk, [f"{tmp_path}/missing", *paths], 12.3456)
    assert start() == 12.346
    assert note_promise(disk, paths[1:], 11.0)
    assert start() == 12.346
    (tmp_path / "a" / ".odradek_promise").write_bytes(b"soon")
    assert start() == inf
    assert note_promise(disk, paths, 13.0)
    assert start() == 13.0
    disk.boots = "second"
    assert start() == inf
    assert start() == 13.0
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_bytes(b"not a directory")
    assert start() == inf


def test_promise_is_not_noted_without_a_directory(tmp_path: Path) -> None:
    assert not note_promise(RebootingDisk(), [f"{tmp_path}/missing"], 1.0)
