"""Which logs retention and compaction have something to do for, found out without opening them."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.directories.survey import Survey, survey
from odradek.ports.disk import SystemDisk
from tests.unit.log.support import NOW, batch, open_log, put

SHORT = LogConfig(retention_ms=1000)


def test_log_deleted_during_a_survey_does_not_stop_retention_of_others(tmp_path: Path) -> None:
    class DeletingDisk(SystemDisk):
        def modified_ms(self, path: str) -> int:
            shutil.rmtree(tmp_path / "deleted", ignore_errors=True)
            return super().modified_ms(path)

    wanted = []
    for name in ("deleted", "kept"):
        log = open_log(tmp_path / name)
        put(log, batch())
        log.close()
        wanted.append(Survey(name, 0, log.directory, SHORT, None))
    assert survey(DeletingDisk(), wanted, NOW + 1_000_000) == [("kept", 0)]


def due(
    path: Path,
    config: LogConfig,
    *,
    sizes: tuple[int, ...] = (100, 100),
    age_ms: int = 0,
    index: bytes | None = None,
    cleaned_to: int | None = None,
) -> bool:
    """Whether a log is reported. Its segments begin at 0, 10, and so on; the first was written `age_ms` ago."""
    path.mkdir(exist_ok=True)
    (path / "leader-epoch-checkpoint").write_bytes(bytes(500))
    for number, size in enumerate(sizes):
        segment = path / f"{10 * number:020}.log"
        segment.write_bytes(bytes(size))
        (path / f"{10 * number:020}.index").write_bytes(bytes(500))
        modified = (NOW - age_ms) / 1000 if number == 0 else NOW / 1000
        os.utime(segment, (modified, modified))
    if index is not None:
        (path / f"{0:020}.timeindex").write_bytes(index)
    return bool(survey(SystemDisk(), [Survey("t", 0, str(path), config, cleaned_to)], NOW))


@pytest.mark.parametrize(
    ("retention_bytes", "sizes", "expected"),
    [
        (-1, (100, 100), False),
        (0, (100, 100), True),
        (100, (100, 100), True),
        (101, (100, 100), False),
        (0, (100,), True),
        (1, (100,), False),
        (0, (0,), False),
        (0, (), False),
    ],
)
def test_log_is_due_when_it_is_too_large_without_its_first_segment(
    tmp_path: Path, retention_bytes: int, sizes: tuple[int, ...], expected: bool
) -> None:
    assert due(tmp_path, LogConfig(retention_ms=-1, retention_bytes=retention_bytes), sizes=sizes) is expected


@pytest.mark.parametrize(
    ("retention_ms", "age_ms", "expected"),
    [(1000, 1000, False), (1000, 2000, True), (0, 1000, True), (-1, 1_000_000, False)],
)
def test_log_is_due_when_its_first_segment_expired(
    tmp_path: Path, retention_ms: int, age_ms: int, expected: bool
) -> None:
    assert due(tmp_path, LogConfig(retention_ms=retention_ms), age_ms=age_ms) is expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (b"", False),
        (bytes(11), False),
        (struct.pack(">qi", NOW - 2000, 0), True),
        (struct.pack(">qiqi", NOW - 2000, 0, NOW, 1), False),
        (struct.pack(">qiqi", NOW - 9000, 0, NOW - 2000, 1) + bytes(3), True),
        (struct.pack(">qi", NOW + 9000, 0), False),
    ],
    ids=["empty", "a part of an entry", "old", "last entry is new", "rest after the last entry", "future"],
)
def test_last_timestamp_of_the_index_counts_when_it_is_older(tmp_path: Path, index: bytes, expected: bool) -> None:
    assert due(tmp_path, SHORT, index=index) is expected


def test_time_of_writing_counts_when_the_index_is_newer(tmp_path: Path) -> None:
    assert due(tmp_path, SHORT, age_ms=2000, index=struct.pack(">qi", NOW, 0))


@pytest.mark.parametrize(
    ("sizes", "cleaned_to", "expected"),
    [
        ((100,), None, False),
        ((100, 100), None, True),
        ((100, 100, 100), 19, True),
        ((100, 100, 100), 20, False),
        ((100, 100, 100), 21, False),
    ],
)
def test_compacted_log_is_due_when_a_closed_segment_is_not_cleaned(
    tmp_path: Path, sizes: tuple[int, ...], cleaned_to: int | None, expected: bool
) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=0, retention_bytes=0)
    assert due(tmp_path, config, sizes=sizes, age_ms=5000, cleaned_to=cleaned_to) is expected


def test_deleting_log_is_not_due_for_compaction(tmp_path: Path) -> None:
    assert not due(tmp_path, LogConfig(retention_ms=-1))
