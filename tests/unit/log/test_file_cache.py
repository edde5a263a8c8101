"""Open files are given back where the process may open no more."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.log.segments.files import FileCache, most_kept_open
from odradek.ports.disk import SystemDisk, SystemFile


class ScarceDisk(SystemDisk):
    """May have so many files open."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.opened: list[str] = []
        self.cache: FileCache | None = None

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        assert self.cache is not None
        if len(self.cache) >= self.limit:
            raise OSError(errno.EMFILE, "Too many open files", path)
        self.opened.append(path)
        return super().open(path, create=create)


def test_the_longest_unused_are_given_back(tmp_path: Path) -> None:
    disk = ScarceDisk(40)
    cache = disk.cache = FileCache(disk)
    paths = [str(tmp_path / f"{number}") for number in range(41)]
    for path in paths:
        cache.get(path, create=True)
    assert disk.opened == paths
    assert len(cache) < 40
    assert cache.get(paths[39]) is cache.get(paths[39])
    assert disk.opened == paths, "the latest were kept"
    cache.get(paths[0])
    assert disk.opened[-1] == paths[0], "the first was not"
    disk.close()


def test_where_there_is_none_to_give_back_nothing_opens(tmp_path: Path) -> None:
    disk = ScarceDisk(0)
    cache = disk.cache = FileCache(disk)
    with pytest.raises(OSError, match="Too many") as raised:
        cache.get(str(tmp_path / "x"), create=True)
    assert raised.value.errno == errno.EMFILE
    disk.close()


def test_files_of_a_directory_are_forgotten_with_it(tmp_path: Path) -> None:
    disk = SystemDisk()
    cache = FileCache(disk, limit=9)
    for folder in ("a", "ab"):
        (tmp_path / folder).mkdir()
    paths = [str(tmp_path / name) for name in ("a/1", "a/2", "ab/1")]
    files = [cache.get(path, create=True) for path in paths]
    cache.forget(paths[0])
    cache.forget_directory(str(tmp_path / "a"))
    assert len(cache) == 1
    assert cache.get(paths[2]) is files[2]
    assert cache.get(paths[1]) is not files[1]
    cache.forget_directory(str(tmp_path / "a"))
    cache.forget_directory(str(tmp_path / "a"))
    assert len(cache) == 1


def test_swept_files_are_no_longer_of_their_directory(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=2)
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        cache.get(path, create=True)
    cache.forget_directory(str(tmp_path))
    assert not len(cache)
    cache.get(paths[0])
    list(cache.sweep())
    list(cache.sweep())
    assert not len(cache)
    cache.forget_directory(str(tmp_path))
    assert not len(cache)


def test_sweep_closes_all_files_that_were_not_used_since_the_last_one(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=100)
    paths = [str(tmp_path / f"{number}") for number in range(10)]
    files = [cache.get(path, create=True) for path in paths]
    list(cache.sweep())
    assert len(cache) == 10
    used = [cache.get(path) for path in paths[4:7]]
    list(cache.sweep())
    assert len(cache) == 3
    assert used == files[4:7]
    assert [cache.get(path) for path in paths[4:7]] == files[4:7]
    assert cache.get(paths[0]) is not files[0]
    list(cache.sweep())
    list(cache.sweep())
    assert not len(cache)


@pytest.mark.parametrize(("allowed", "kept"), [(256, 1024), (1024, 1024), (20_000, 10_000), (-1, 1 << 19)])
def test_logs_keep_half_of_the_files_that_a_process_may_open(allowed: int, kept: int) -> None:
    assert most_kept_open(allowed) == kept


def test_file_that_is_used_during_a_sweep_stays_open(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=100)
    paths = [str(tmp_path / f"{number}") for number in range(4)]
    files = [cache.get(path, create=True) for path in paths]
    list(cache.sweep())
    sweep = cache.sweep()
    assert next(sweep) == paths[0]
    assert cache.get(paths[2]) is files[2]
    assert list(sweep) == [paths[1], paths[3]]
    assert cache.get(paths[2]) is files[2]
    assert list(cache.sweep()) == []
    assert list(cache.sweep()) == [paths[2]]


def test_sweep_ends_where_new_files_have_pushed_out_all_unused_ones(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=4)
    for number in range(3):
        cache.get(str(tmp_path / f"old {number}"), create=True)
    list(cache.sweep())
    sweep = cache.sweep()
    assert next(sweep) == str(tmp_path / "old 0")
    new = [str(tmp_path / f"new {number}") for number in range(4)]
    files = [cache.get(path, create=True) for path in new]
    assert list(sweep) == []
    assert [cache.get(path) for path in new] == files
    assert sorted(cache.sweep()) == []
    assert sorted(cache.sweep()) == new
