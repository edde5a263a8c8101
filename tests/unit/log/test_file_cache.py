"""Open files are given back where the process may open no more."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.log.segments.files import FileCache
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
