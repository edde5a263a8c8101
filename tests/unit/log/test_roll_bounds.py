"""When a log begins a segment, at the exact bounds (Kafka's `LogSegment.shouldRoll`), and where reads are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.config import LogConfig
from odradek.records.batch import HEADER_SIZE, parse_header
from tests.unit.log.support import NOW, batch, log_environment, open_log, put

SIZE = len(batch())


def bases(root: Path, config: LogConfig, *timestamps: int, now: int = NOW) -> list[int]:
    """The base offsets of the segments after a batch of each timestamp; the last one arrives at `now`."""
    log = open_log(root, config)
    for index, timestamp in enumerate(timestamps):
        put(log, batch(timestamps=[timestamp]), now=now if index == len(timestamps) - 1 else NOW)
    found = [segment.base_offset for segment in log.segments]
    log.close()
    return found


@pytest.mark.parametrize(
    ("segment_bytes", "expected"), [(SIZE, [0, 1, 2]), (2 * SIZE - 1, [0, 1, 2]), (2 * SIZE, [0, 2]), (3 * SIZE, [0])]
)
def test_segment_is_filled_to_its_last_byte(tmp_path: Path, segment_bytes: int, expected: list[int]) -> None:
    assert bases(tmp_path, LogConfig(segment_bytes=segment_bytes), NOW, NOW, NOW) == expected


@pytest.mark.parametrize("first", [NOW, 5, 0])
@pytest.mark.parametrize(("age", "expected"), [(999, [0]), (1_000, [0]), (1_001, [0, 1]), (-5_000, [0])])
def test_segment_ages_with_its_first_timestamp(tmp_path: Path, first: int, age: int, expected: list[int]) -> None:
    config = LogConfig(segment_ms=1_000)
    assert bases(tmp_path, config, first, max(0, first + age), now=NOW + 50_000) == (
        expected if first + age >= 0 else [0]
    )


@pytest.mark.parametrize(("age", "expected"), [(1_000, [0]), (1_001, [0, 1])])
def test_segment_without_timestamps_ages_by_the_clock(tmp_path: Path, age: int, expected: list[int]) -> None:
    assert bases(tmp_path, LogConfig(segment_ms=1_000), -1, -1, now=NOW + age) == expected


@pytest.mark.parametrize(("index_bytes", "expected"), [(48, [0, 4]), (24, [0, 2]), (1 << 20, [0])])
def test_segment_with_full_indexes_is_closed(tmp_path: Path, index_bytes: int, expected: list[int]) -> None:
    """An index of 48 bytes has room for three time entries besides the last one, each for a batch after the first."""
    config = LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0)
    assert bases(tmp_path, config, *range(NOW, NOW + 5))[:2] == expected


def test_compacted_segment_is_closed_within_the_compaction_lag(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=5_000, max_compaction_lag_ms=1_000, cleanup_policy=frozenset({"compact"}))
    assert bases(tmp_path, config, NOW, NOW + 1_000, NOW + 1_001) == [0, 2]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 400)), min_size=1, max_size=40),
    st.sampled_from([0, 300, 4096]),
    st.data(),
)
def test_read_is_cut_at_the_last_batch_that_fits(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]], interval: int, data: st.DataObject
) -> None:
    """Against all batches of the segment, walked one by one."""
    root = tmp_path_factory.mktemp("log")
    log = open_log(root, LogConfig(index_interval_bytes=interval), log_environment())
    for count, size in rows:
        put(log, batch(count, value=bytes(size)))
    content = (root / "topic-0" / f"{0:020d}.log").read_bytes()
    headers, position = [], 0
    while position + HEADER_SIZE <= len(content):
        headers.append((position, parse_header(content, position)))
        position += headers[-1][1].size
    upper = data.draw(st.integers(1, log.end_offset), label="upper offset")
    offset = data.draw(st.integers(0, upper - 1), label="offset")
    most = data.draw(st.integers(1, len(content) + 10), label="most bytes")
    expected: list[int] = []
    total = 0
    for _, header in headers:
        if header.last_offset < offset:
            continue
        if header.last_offset >= upper or (expected and total + header.size > most):
            break
        expected.append(header.base_offset)
        total += header.size
    found = log.reader.read(offset, most, upper_offset=upper)
    read = b"".join(part.file.read(part.position, part.size) for part in found.ranges)
    assert len(read) == found.size == total
    places = [0]
    while places[-1] < len(read):
        places.append(places[-1] + parse_header(read, places[-1]).size)
    assert [parse_header(read, place).base_offset for place in places[:-1]] == expected
    log.close()
