"""The files of both indexes, entry by entry, against what the batches of their segment say.

An entry is due when more than `index.interval.bytes` lie between the last indexed batch and this one (Kafka's
`LogSegment.append`). A closed segment ends its time index with its largest timestamp (`onBecomeInactiveSegment`).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek.records.batch import BatchHeader, parse_header
from tests.unit.log.support import NOW, batch, log_environment, open_log, put

HEADER_SIZE = 61


class Entries(NamedTuple):
    """What both files contain."""

    offsets: list[tuple[int, int]]
    times: list[tuple[int, int]]


def batches_of(path: Path) -> list[tuple[int, BatchHeader]]:
    data, position, found = path.read_bytes(), 0, []
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        found.append((position, header))
        position += header.size
    return found


def expected(path: Path, interval: int, *, is_closed: bool) -> Entries:
    """What the indexes of a segment must contain."""
    base = int(path.stem)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    since, largest, largest_at = 0, -1, 0
    for position, header in batches_of(path):
        if header.max_timestamp > largest:
            largest, largest_at = header.max_timestamp, header.last_offset
        if since > interval:
            offsets.append((header.last_offset - base, position))
            if not times or largest > times[-1][0]:
                times.append((largest, largest_at - base))
            since = 0
        since += header.size
    if is_closed and largest >= 0 and (not times or largest > times[-1][0]):
        times.append((largest, largest_at - base))
    return Entries(offsets, times)


def stored(path: Path) -> Entries:
    offsets, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    return Entries(
        list(OFFSET_ENTRY.iter_unpack(offsets.read_bytes() if offsets.exists() else b"")),
        list(TIME_ENTRY.iter_unpack(times.read_bytes() if times.exists() else b"")),
    )


def segments_of(root: Path) -> list[Path]:
    return sorted((root / "topic-0").glob("*.log"))


def maxima(path: Path) -> set[tuple[int, int]]:
    """Each timestamp that is larger than all before it, with the last offset of its batch."""
    found: set[tuple[int, int]] = set()
    largest = -1
    for _, header in batches_of(path):
        if header.max_timestamp > largest:
            largest = header.max_timestamp
            found.add((largest, header.last_offset - int(path.stem)))
    return found


def check(root: Path, log: PartitionLog, interval: int) -> None:
    """All segments of an open log have the entries that are due."""
    for segment in log.segments:
        segment.flush_indexes()
    paths = segments_of(root)
    for path in paths:
        assert stored(path) == expected(path, interval, is_closed=path != paths[-1]), path.name


steps = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(-5_000, 5_000)), min_size=1, max_size=60)
"""Batches: number of records, size of each value, and how its timestamp differs from now."""


def write(log: PartitionLog, rows: list[tuple[int, int, int]]) -> None:
    for count, size, shift in rows:
        put(log, batch(count, value=bytes(size), timestamps=[NOW + shift] * count))


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([0, 100, 400, 4096]), st.sampled_from([1_600, 4_000, 1 << 20]))
def test_appends_index_as_much_as_is_due(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], interval: int, segment_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("log")
    log = open_log(root, LogConfig(index_interval_bytes=interval, segment_bytes=segment_bytes))
    write(log, rows)
    check(root, log, interval)
    log.close()


@settings(max_examples=40, deadline=None)
@given(steps, steps, st.floats(0, 1), st.sampled_from([0, 100, 400]))
def test_truncated_segment_continues_with_the_entries_that_are_due(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int]],
    more: list[tuple[int, int, int]],
    share: float,
    interval: int,
) -> None:
    root = tmp_path_factory.mktemp("log")
    log = open_log(root, LogConfig(index_interval_bytes=interval))
    write(log, rows)
    log.truncate_to(int(share * log.end_offset))
    for written in ([], more):
        write(log, written)
        log.segments[0].flush_indexes()
        (path,) = segments_of(root)
        due, found = expected(path, interval, is_closed=False), stored(path)
        assert found.offsets == due.offsets
        # An entry of the batches that stay may have been made with a batch that was cut off.
        assert set(due.times) <= set(found.times) <= maxima(path)
    log.close()


@pytest.mark.parametrize("interval", [100, 200, 400])
def test_reopened_segment_continues_with_the_entries_that_are_due(tmp_path: Path, interval: int) -> None:
    config = LogConfig(index_interval_bytes=interval)
    for _ in range(4):
        log = open_log(tmp_path, config)
        write(log, [(1, 10 * size, 0) for size in range(3)])
        log.close()
    (path,) = segments_of(tmp_path)
    assert stored(path).offsets == expected(path, interval, is_closed=False).offsets


@pytest.mark.parametrize("lost", [".index", ".timeindex", "both"])
@pytest.mark.parametrize("interval", [0, 100, 400])
def test_lost_index_is_rebuilt_with_the_same_entries(tmp_path: Path, lost: str, interval: int) -> None:
    config = LogConfig(index_interval_bytes=interval, segment_bytes=2_000)
    log = open_log(tmp_path, config)
    write(log, [(1 + n % 3, 17 * n % 230, 40 * n - 900 * (n % 5)) for n in range(60)])
    log.close()
    for path in segments_of(tmp_path):
        for suffix in (".index", ".timeindex") if lost == "both" else (lost,):
            path.with_suffix(suffix).unlink(missing_ok=True)
    again = open_log(tmp_path, config, log_environment(), recovery_point=0, clean=False)
    for segment in again.segments:
        segment.flush_indexes()
    paths = segments_of(tmp_path)
    assert len(paths) > 5
    for path in paths[:-1]:
        assert stored(path) == expected(path, interval, is_closed=True), path.name
    again.close()


@settings(max_examples=40, deadline=None)
@given(steps, st.sampled_from([0, 100, 400]), st.sampled_from([1_600, 4_000]))
def test_every_offset_and_time_is_found_where_the_batches_have_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], interval: int, segment_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("log")
    log = open_log(root, LogConfig(index_interval_bytes=interval, segment_bytes=segment_bytes))
    write(log, rows)
    headers = [header for path in segments_of(root) for _, header in batches_of(path)]
    for header in headers:
        for offset in {header.base_offset, header.last_offset}:
            found = log.reader.read(offset, 1, upper_offset=log.end_offset)
            (part,) = found.ranges
            assert parse_header(part.file.read(part.position, part.size)).base_offset == header.base_offset
            assert found.size == header.size
    log.close()


@pytest.mark.parametrize("interval", [0, 100])
def test_read_of_a_compacted_log_ends_below_the_upper_offset(tmp_path: Path, interval: int) -> None:
    """Offsets that grow faster than the bytes are not mistaken for positions of batches."""
    config = LogConfig(index_interval_bytes=interval, segment_bytes=1 << 20)
    log = open_log(tmp_path, config)
    for number in range(40):
        put(log, batch(base_offset=1_000 * number), origin=Origin.REPLICATION)
    log.roll()
    put(log, batch(base_offset=40_000), origin=Origin.REPLICATION)
    size = len(batch())
    for first in range(0, 40, 3):
        for upper in range(first + 1, 40):
            found = log.reader.read(1_000 * first, 1 << 20, upper_offset=1_000 * upper)
            assert found.size == size * (upper - first), (first, upper)
    log.close()
