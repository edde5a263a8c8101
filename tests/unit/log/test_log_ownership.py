"""Which program wrote a log directory, and that a start refuses those of others without a change."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.log.directories.ownership import IMPORT_MARKER, METADATA_FILE, Owner, inspect, refuse_foreign
from odradek.log.directories.placed_logs import DirectorySettings
from odradek.ports.disk import SystemDisk
from odradek.ports.foreign_files import hold
from odradek.ports.randomness import SeededRandom
from tests.unit.log.support import StandingClock

DIRECTORY_ID = "AAECAwQFBgcICQoLDA0ODw"


def make_directories(path: Path, *, adopts: bool = False) -> LogDirectories:
    settings = DirectorySettings(adopts=adopts)
    return LogDirectories(SystemDisk(), StandingClock(), SeededRandom("owner"), [str(path)], settings=settings)


def make_kraft_folder(path: Path) -> None:
    for name in ("__cluster_metadata-0", "orders-0"):
        (path / name).mkdir(parents=True)
        (path / name / "00000000000000000000.log").write_bytes(b"data")
    (path / "bootstrap.checkpoint").write_bytes(b"boot")
    (path / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id={DIRECTORY_ID}\n")


def make_zookeeper_folder(path: Path) -> None:
    (path / "orders-0").mkdir(parents=True)
    (path / "orders-0" / "00000000000000000000.log").write_bytes(b"data")
    (path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")


def contents(path: Path) -> dict[str, bytes | None]:
    return {str(each.relative_to(path)): each.read_bytes() if each.is_file() else None for each in path.rglob("*")}


def refusal(path: Path, cluster: str = "abc") -> str:
    with pytest.raises(LogDirectoryError) as caught:
        make_directories(path).startup.load(cluster_id=cluster, node_id=1)
    return str(caught.value)


def test_kraft_folder_is_rejected_and_not_changed(tmp_path: Path) -> None:
    make_kraft_folder(tmp_path)
    before = contents(tmp_path)
    text = refusal(tmp_path)
    assert "data of Apache Kafka (KRaft)" in text
    assert "meta.properties version 1 with node.id, __cluster_metadata-0, bootstrap.checkpoint" in text
    assert f"odradek import {tmp_path} --data-dir" in text
    assert contents(tmp_path) == before


def test_zookeeper_era_folder_is_rejected_and_not_changed(tmp_path: Path) -> None:
    make_zookeeper_folder(tmp_path)
    before = contents(tmp_path)
    text = refusal(tmp_path)
    assert "data of Apache Kafka (with ZooKeeper)" in text
    assert "meta.properties version 0 with broker.id" in text
    assert contents(tmp_path) == before


def test_partitions_of_an_unknown_broker_are_rejected(tmp_path: Path) -> None:
    make_zookeeper_folder(tmp_path)
    (tmp_path / "meta.properties").unlink()
    assert "(orders-0)" in refusal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0"]


def test_partitions_of_an_unknown_broker_are_kept_when_adopting(tmp_path: Path) -> None:
    make_zookeeper_folder(tmp_path)
    (tmp_path / "meta.properties").unlink()
    directories = make_directories(tmp_path, adopts=True)
    directories.startup.load(cluster_id="abc", node_id=1)
    assert directories.partitions() == [("orders", 0)]


def test_second_directory_is_rejected_before_the_first_is_touched(tmp_path: Path) -> None:
    make_kraft_folder(tmp_path / "b")
    directories = LogDirectories(
        SystemDisk(), StandingClock(), SeededRandom("owner"), [str(tmp_path / "a"), str(tmp_path / "b")]
    )
    with pytest.raises(LogDirectoryError, match="Apache Kafka"):
        directories.startup.lock()
    assert not (tmp_path / "a").exists()


def test_folder_of_odradek_that_apache_has_used_is_rejected(tmp_path: Path) -> None:
    make_directories(tmp_path).startup.load(cluster_id="abc", node_id=1)
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert "__cluster_metadata-0" in refusal(tmp_path)


@pytest.mark.parametrize("joins_quorum", [False, True])
def test_folder_of_a_newer_odradek_is_rejected(tmp_path: Path, joins_quorum: bool) -> None:
    make_directories(tmp_path).startup.load(cluster_id="abc", node_id=1)
    meta = tmp_path / "meta.properties"
    assert "odradek.format=1\n" in meta.read_text()
    meta.write_text(meta.read_text().replace("odradek.format=1", "odradek.format=2"))
    if joins_quorum:
        (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(LogDirectoryError, match="newer Odradek"):
        refuse_foreign(SystemDisk(), str(tmp_path), joins_quorum=joins_quorum)
    assert "odradek.format=2\n" in meta.read_text()


def test_target_of_an_unfinished_import_is_rejected(tmp_path: Path) -> None:
    (tmp_path / IMPORT_MARKER).write_text("{}")
    assert "import into this folder did not end" in refusal(tmp_path)


@pytest.mark.parametrize("sign", [".odradek_boot", METADATA_FILE])
def test_folder_of_an_earlier_odradek_is_recognised(tmp_path: Path, sign: str) -> None:
    """One written before `meta.properties` said so; with ZooKeeper there is no metadata file in it."""
    make_kraft_folder(tmp_path)
    for name in ("__cluster_metadata-0/00000000000000000000.log", "bootstrap.checkpoint"):
        (tmp_path / name).unlink()
    (tmp_path / "__cluster_metadata-0").rmdir()
    (tmp_path / sign).write_text("")
    make_directories(tmp_path).startup.load(cluster_id="abc", node_id=1)
    assert "odradek.format=1\n" in (tmp_path / "meta.properties").read_text()


def test_empty_and_missing_folders_have_no_owner(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert inspect(SystemDisk(), str(tmp_path)).owner is Owner.NONE
    assert inspect(SystemDisk(), str(tmp_path / "missing")).owner is Owner.NONE


def test_lock_of_java_is_respected(tmp_path: Path) -> None:
    """Java's FileChannel locks with fcntl, in another process; a lock of the open file stands for it here."""
    directories = make_directories(tmp_path)
    directories.startup.lock()
    with (tmp_path / ".lock").open("r+b") as other:
        with pytest.raises(BlockingIOError):
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
        directories.startup.unlock()
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
        with pytest.raises(LogDirectoryError, match="another process uses"):
            make_directories(tmp_path).startup.lock()
        with pytest.raises(BlockingIOError):
            hold(str(tmp_path / ".lock"))


def _whole_file(kind: int) -> bytes:
    import struct

    return struct.pack("hhqqi4x", kind, 0, 0, 0, 0)


def test_held_folder_cannot_be_locked_and_is_not_written(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    before = lock.stat().st_mtime_ns
    held = hold(str(lock))
    assert held is not None
    with pytest.raises(LogDirectoryError, match="another process uses"):
        make_directories(tmp_path).startup.lock()
    held.release()
    make_directories(tmp_path).startup.lock()
    assert lock.stat().st_mtime_ns == before


def test_truncating_a_linked_file_leaves_its_other_name_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"0123456789")
    (tmp_path / "ours").hardlink_to(tmp_path / "theirs")
    file = SystemDisk().open(str(tmp_path / "ours"))
    file.truncate(4)
    file.append((b"new",))
    file.close()
    assert (tmp_path / "theirs").read_bytes() == b"0123456789"
    assert (tmp_path / "ours").read_bytes() == b"0123new"
    assert (tmp_path / "theirs").stat().st_nlink == 1


def test_new_name_of_a_truncated_linked_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power loss gives the name back to the file of the other folder, and what was appended is lost."""
    (tmp_path / "theirs").write_bytes(b"0123456789")
    (tmp_path / "ours").hardlink_to(tmp_path / "theirs")
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    file = SystemDisk().open(str(tmp_path / "ours"))
    file.truncate(4)
    file.close()
    assert synced == [str(tmp_path / "ours.tmp"), str(tmp_path)]
