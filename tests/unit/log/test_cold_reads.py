"""Ranges that are read ahead, so that `sendfile` does not wait for the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.segments.cold_reads import RECENT_BYTES, cold_ranges, read_ahead
from odradek.ports.disk import FileRange, SystemDisk, SystemFile

CHUNK = 1 << 18


class ProbedFile(SystemFile):
    """A file of 4 MiB that notes its reads; reads at `fails_at` fail."""

    def __init__(self, path: Path, *, cached: bool = False) -> None:
        plain = SystemDisk().open(str(path), create=True)
        self._fd, plain._fd = plain._fd, -1
        self._size = 4 * RECENT_BYTES
        self.cached = cached
        self.fails_at = -1
        self.reads: list[tuple[int, int]] = []

    def is_cached(self, position: int, size: int) -> bool:
        return self.cached

    def read(self, position: int, size: int) -> bytes:
        self.reads.append((position, size))
        if position == self.fails_at:
            raise OSError(5, "input/output error")
        return bytes(size)


@pytest.fixture
def file(tmp_path: Path) -> ProbedFile:
    return ProbedFile(tmp_path / "file")


@pytest.mark.parametrize(
    ("from_end", "cached", "cold"),
    [
        (RECENT_BYTES + 1, False, True),
        (RECENT_BYTES, False, False),
        (RECENT_BYTES - 1, False, False),
        (RECENT_BYTES + 1, True, False),
    ],
)
def test_range_is_cold_when_it_is_neither_recent_nor_cached(
    file: ProbedFile, from_end: int, cached: bool, cold: bool
) -> None:
    file.cached = cached
    part = FileRange(file, file.size() - from_end, 100)
    assert cold_ranges([part]) == ([part] if cold else [])


def test_only_cold_ranges_are_read_ahead(file: ProbedFile, tmp_path: Path) -> None:
    cached = ProbedFile(tmp_path / "cached", cached=True)
    parts = [FileRange(file, 0, 10), FileRange(cached, 0, 10), FileRange(file, 10, 10)]
    assert cold_ranges(parts) == [parts[0], parts[2]]


def test_range_is_read_ahead_in_chunks_up_to_its_end(file: ProbedFile) -> None:
    read_ahead([FileRange(file, 7, 2 * CHUNK + 5)])
    assert file.reads == [(7, CHUNK), (7 + CHUNK, CHUNK), (7 + 2 * CHUNK, 5)]


def test_read_ahead_continues_with_the_next_range_after_an_error(file: ProbedFile) -> None:
    file.fails_at = 0
    read_ahead([FileRange(file, 0, 2 * CHUNK), FileRange(file, 3, 4)])
    assert file.reads == [(0, CHUNK), (3, 4)]
