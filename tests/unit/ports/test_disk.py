"""The machine's files: appends that fail half way, atomic replacement, locks, lanes."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ports.disk import DiskError, SystemDisk
from odradek.ports.foreign_files import copy
from odradek.ports.liveness import Lease


@pytest.fixture
def disk() -> Iterator[SystemDisk]:
    disk = SystemDisk()
    yield disk
    disk.close()


@given(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=5), max_size=6))
def test_appended_parts_are_read_back_at_the_returned_positions(
    tmp_path_factory: pytest.TempPathFactory, appends: list[list[bytes]]
) -> None:
    path = str(tmp_path_factory.mktemp("append") / "file")
    file = SystemDisk().open(path, create=True)
    content = b""
    for parts in appends:
        assert file.append(parts) == len(content)
        content += b"".join(parts)
    assert file.size() == len(content)
    assert file.read(0, len(content) + 10) == content
    assert file.read(len(content) // 2, 7) == content[len(content) // 2 :][:7]


def test_more_parts_than_one_call_takes_are_written(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append([b"%05d" % i for i in range(3000)])
    assert file.size() == 15_000
    assert file.read(14_990, 10) == b"0299802999"


def test_an_append_that_fails_half_way_leaves_no_trace(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = SystemDisk().open(path, create=True)
    file.append([b"x" * 1000])
    # A file size limit stands in for a full disk: the kernel takes a part of the write and refuses the rest.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
    try:
        with pytest.raises(DiskError) as raised:
            file.append([b"y" * 1000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert raised.value.filename == path
    assert file.size() == 1000
    assert os.stat(path).st_size == 1000
    assert file.append([b"z"]) == 1000


def test_the_beginning_of_a_file_is_read_without_the_right_to_write(disk: SystemDisk, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_bytes(b"content")
    path.chmod(0o400)
    assert [disk.read_file(str(path), most) for most in (None, 0, 4, sys.maxsize)] == [
        b"content",
        b"",
        b"cont",
        b"content",
    ]


def test_a_missing_file_is_not_made_by_accident(disk: SystemDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "missing"))
    assert not disk.exists(str(tmp_path / "missing"))


def test_file_stays_open_while_it_is_referenced_and_closes_after(disk: SystemDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    disk.write_atomic(path, b"kept")
    file = disk.open(path)
    fd = file.fileno()
    disk.remove(path)
    assert file.read(0, 4) == b"kept"
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_write_atomic_replaces_the_whole_file(disk: SystemDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    disk.write_atomic(path, b"long content")
    disk.write_atomic(path, b"new", sync=False)
    assert disk.read_file(path) == b"new"
    assert disk.list(str(tmp_path)) == ["file"]
    with pytest.raises(DiskError):
        disk.write_atomic(str(tmp_path / "no" / "file"), b"x")


def test_large_write_goes_to_the_kernel_in_pieces(
    disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    sizes, pwrite = [], os.pwrite

    def watched(fd: int, data: memoryview, position: int) -> int:
        sizes.append(len(data))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", watched)
    content = os.urandom(2_500_000)
    file.write_at(3, content)
    assert max(sizes) == 1 << 20
    assert sum(sizes) == len(content)
    assert file.read(3, len(content)) == content
    file.close()


def test_truncate_and_write_at_keep_the_size_right(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert (file.size(), file.append([b"ab"])) == (4, 4)
    file.write_at(2, b"XYZW_")
    assert file.read(0, 100) == b"01XYZW_"
    assert file.size() == 7
    file.sync()
    assert file.is_cached(0, 7)


def test_a_lock_is_exclusive_until_released(disk: SystemDisk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    disk.lock(path).release()


def test_calls_of_a_lane_run_one_after_the_other_in_another_thread(disk: SystemDisk) -> None:
    order: list[int] = []
    threads: set[int] = set()
    running = threading.Semaphore(1)

    def call(number: int) -> int:
        assert running.acquire(blocking=False), "two calls of a lane at once"
        threads.add(threading.get_ident())
        order.append(number)
        running.release()
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*(disk.run("lane", call, i) for i in range(20)))

    assert asyncio.run(main()) == list(range(20))
    assert order == list(range(20))
    assert threads != {threading.get_ident()}
    assert len(threads) == 1


def test_what_a_call_raises_arrives_where_it_was_asked_for(disk: SystemDisk) -> None:
    async def main() -> bytes:
        return await disk.run("lane", disk.read_file, "/nonexistent/file")

    with pytest.raises(FileNotFoundError):
        asyncio.run(main())


def test_removing_what_is_not_there_is_no_error(disk: SystemDisk, tmp_path: Path) -> None:
    disk.remove(str(tmp_path / "nothing"))
    disk.remove_tree(str(tmp_path / "nothing"))
    disk.make_directories(str(tmp_path / "a" / "b"))
    disk.make_directories(str(tmp_path / "a" / "b"))
    assert disk.is_directory(str(tmp_path / "a" / "b"))
    disk.remove_tree(str(tmp_path / "a"))
    assert not disk.exists(str(tmp_path / "a"))
    free, total = disk.free_bytes(str(tmp_path))
    assert 0 <= free <= total


def test_waiting_for_a_lane_ends_when_its_calls_are_executed(disk: SystemDisk) -> None:
    async def scenario() -> None:
        gate = threading.Event()
        done: list[int] = []

        def call(number: int) -> None:
            gate.wait(10)
            done.append(number)

        calls = [asyncio.ensure_future(disk.run("lane", functools.partial(call, n))) for n in range(3)]
        await asyncio.sleep(0)
        threading.Timer(0.01, gate.set).start()
        disk.wait("lane")
        assert done == [0, 1, 2]
        assert not any(call.done() for call in calls), "their awaiting tasks resume later"
        await asyncio.gather(*calls)

    asyncio.run(scenario())
    disk.wait("an unused lane")


@pytest.mark.parametrize(
    ("dirty", "writeback", "keeps_up"), [(0, 0, True), (500, 249, True), (500, 250, False), (900, 0, False)]
)
def test_linux_says_when_writers_have_to_wait(
    disk: SystemDisk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dirty: int,
    writeback: int,
    keeps_up: bool,
) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text(
        f"nr_free_pages 7\nnr_dirty {dirty}\nnr_writeback {writeback}\nnr_writeback_temp 5000\n"
        "nr_dirty_threshold 1000\nnr_dirty_background_threshold 500\nnr_dirtied 99999\n"
    )
    monkeypatch.setattr("odradek.ports.disk._VMSTAT", str(vmstat))
    assert disk.keeps_up() is keeps_up


def test_platform_without_a_report_counts_as_keeping_up(
    disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.ports.disk._VMSTAT", str(tmp_path / "missing"))
    assert disk.keeps_up()
    (tmp_path / "other").write_text("nothing of it\n")
    monkeypatch.setattr("odradek.ports.disk._VMSTAT", str(tmp_path / "other"))
    assert disk.keeps_up()


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.mark.parametrize(("group_reads", "file_mode", "directory_mode"), [(False, 0o600, 0o700), (True, 0o640, 0o750)])
@pytest.mark.usefixtures("no_umask")
def test_created_files_are_for_owner_or_group(
    tmp_path: Path, group_reads: bool, file_mode: int, directory_mode: int
) -> None:
    disk = SystemDisk(group_reads=group_reads)
    folder = str(tmp_path / "data" / "t-0")
    disk.make_directories(folder)
    disk.make_directories(folder + "/")
    disk.write_atomic(f"{folder}/checkpoint", b"0")
    disk.lock(f"{folder}/.lock").release()
    file = disk.open(f"{folder}/linked", create=True)
    file.append([b"0123456789"])
    os.link(f"{folder}/linked", f"{folder}/other")
    file.truncate(4)
    assert {mode_of(f"{folder}/{name}") for name in os.listdir(folder)} == {file_mode}
    assert {mode_of(folder), mode_of(str(tmp_path / "data"))} == {directory_mode}
    disk.close()


@pytest.mark.parametrize("create", ["atomic", "open", "lock", "part"])
def test_planted_link_is_not_written_through(disk: SystemDisk, tmp_path: Path, create: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = str(tmp_path / "file")
    if create == "atomic":
        os.symlink(victim, path + ".tmp")
        disk.write_atomic(path, b"x")
    elif create == "part":
        file = disk.open(path, create=True)
        file.append([b"0123456789"])
        os.link(path, str(tmp_path / "second name"))
        os.symlink(victim, path + ".tmp")
        file.truncate(4)
    else:
        os.symlink(victim, path)
        with pytest.raises(OSError, match="symbolic link") as raised:
            disk.open(path, create=True) if create == "open" else disk.lock(path)
        assert raised.value.errno == errno.ELOOP
    assert victim.read_bytes() == b"precious"
    assert not os.path.islink(path) or create in ("open", "lock")


def test_write_atomic_replaces_a_leftover_that_others_can_read(disk: SystemDisk, tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_bytes(b"of an older version")
    (tmp_path / "file.tmp").chmod(0o666)
    disk.write_atomic(str(tmp_path / "file"), b"secret")
    assert mode_of(str(tmp_path / "file")) == 0o600


@pytest.mark.usefixtures("no_umask")
def test_copy_of_a_foreign_file_is_for_its_owner(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"records")
    source.chmod(0o644)
    os.utime(source, ns=(1, 10**18 + 7))
    copy(str(source), str(target))
    assert (target.read_bytes(), mode_of(str(target))) == (b"records", 0o600)
    assert target.stat().st_mtime_ns == 10**18 + 7
    (tmp_path / "planted").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        copy(str(source), str(tmp_path / "planted"))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("suffix", ["", ".life", ".wake"])
def test_planted_link_at_a_lease_is_not_followed(tmp_path: Path, suffix: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f"lease{suffix}").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        Lease(str(tmp_path / "lease"), 1.0)
    assert victim.read_bytes() == b"precious"
