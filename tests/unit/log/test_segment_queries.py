"""Questions about the segments of a log, compared with a search through all of its records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.log.segments import queries
from odradek.log.segments.segment import Segment
from odradek.records.batch import parse_header
from odradek.records.builder import BatchFields, finish_batch
from odradek.wire.errors import KafkaError
from tests.unit.log.support import NOW, batch, marker, open_log, produced, put


class Stored(NamedTuple):
    """A batch as the test wrote it."""

    base: int
    timestamps: list[int]
    epoch: int

    @property
    def last(self) -> int:
        return self.base + len(self.timestamps) - 1


CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, message_timestamp_after_max_ms=1 << 60)


def filled(directory: Path, seed: int) -> tuple[PartitionLog, list[Stored]]:
    """A log of several segments, with equal, falling and rising timestamps."""
    chance = random.Random(seed)
    log = open_log(directory, CONFIG)
    stored: list[Stored] = []
    for epoch in range(30):
        times = [NOW + chance.choice((0, 1, 2, 5, 9)) + epoch // 3 for _ in range(chance.randrange(1, 5))]
        stored.append(Stored(log.end_offset, times, epoch))
        put(log, batch(len(times), timestamps=times), epoch=epoch)
    assert len(log.segments) > 3
    return log, stored


@pytest.fixture(params=range(2))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[PartitionLog, list[Stored]]:
    return filled(tmp_path, request.param)


def records(stored: list[Stored], start: int, upper: int = 1 << 40) -> list[tuple[int, int, int]]:
    """(offset, timestamp, epoch) of the records of all batches that end below the upper offset."""
    return [
        (each.base + index, timestamp, each.epoch)
        for each in stored
        if each.last < upper
        for index, timestamp in enumerate(each.timestamps)
        if each.base + index >= start
    ]


def from_start(log: PartitionLog, start: int) -> list[Segment]:
    """The segments from the one that holds the offset on."""
    first = max(index for index, each in enumerate(log.segments) if each.base_offset <= start)
    return log.segments[first:]


def test_timestamp_finds_the_first_record_from_the_start_on(log: tuple[PartitionLog, list[Stored]]) -> None:
    partition, stored = log
    for start in range(0, partition.end_offset, 3):
        known = records(stored, start)
        for timestamp in range(NOW - 1, NOW + 22):
            expected = next((each for each in known if each[1] >= timestamp), None)
            assert queries.find_timestamp(from_start(partition, start), timestamp, start) == expected


def test_largest_timestamp_is_that_of_the_first_record_that_has_it(log: tuple[PartitionLog, list[Stored]]) -> None:
    partition, stored = log
    end = partition.end_offset
    uppers = [each.base for each in stored[::3]] + [end]
    for start in range(0, end, 5):
        for upper in uppers:
            found = queries.max_timestamp(from_start(partition, start), start, upper, end)
            known = records(stored, start, upper)
            expected = max(known, key=lambda each: (each[1], -each[0]), default=None)
            assert found == expected, (start, upper)


def test_batches_are_read_from_the_one_that_holds_the_offset(log: tuple[PartitionLog, list[Stored]]) -> None:
    partition, stored = log
    for offset in range(0, partition.end_offset, 4):
        for upper in [each.base for each in stored[::5]] + [partition.end_offset]:
            found = [
                parse_header(view).base_offset for view in queries.batches(from_start(partition, offset), offset, upper)
            ]
            assert found == [each.base for each in stored if each.last >= offset and each.last < upper]


def test_offset_is_located_in_the_batch_that_holds_it(log: tuple[PartitionLog, list[Stored]]) -> None:
    partition, stored = log
    for each in stored:
        for offset in range(each.base, each.last + 1):
            found = queries.locate(partition.segments, offset)
            assert found is not None
            assert found.header.base_offset == each.base
    assert queries.locate(partition.segments, partition.end_offset) is None


def test_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert queries.find_timestamp(log.segments, 0, 0) is None
    assert queries.max_timestamp(log.segments, 0, 0, 0) is None
    assert list(queries.batches(log.segments, 0, 10)) == []


def test_timestamp_zero_is_a_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(timestamps=[0]), epoch=3)
    assert queries.max_timestamp(log.segments, 0, 1, 1) == (0, 0, 3)
    assert queries.find_timestamp(log.segments, 0, 0) == (0, 0, 3)


def test_records_without_timestamps_are_not_the_largest(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(2, timestamps=[-1, -1]))
    assert queries.max_timestamp(log.segments, 0, 2, 2) is None
    assert queries.max_timestamp(log.segments, 1, 2, 2) is None


def test_damaged_batch_is_a_storage_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(timestamps=[NOW]))
    segment = log.segments[0]
    path = Path(segment.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(KafkaError, match="damaged at byte 0"):
        queries.find_timestamp(log.segments, NOW, 0)
    with pytest.raises(KafkaError, match="damaged at byte 0"):
        list(queries.batches(log.segments, 0, 1))


def test_aborted_transactions_are_those_that_overlap_the_read(tmp_path: Path) -> None:
    """Producers 1, 2 and 3 abort, each in a segment of its own; 2 began before 1 ended."""
    log = open_log(tmp_path)
    put(log, produced(1, 0, transactional=True))
    put(log, produced(2, 0, transactional=True))
    put(log, marker(1, commit=False), origin=Origin.COORDINATOR)
    log.roll()
    put(log, marker(2, commit=False), origin=Origin.COORDINATOR)
    log.roll()
    put(log, produced(3, 0, transactional=True))
    put(log, marker(3, commit=False), origin=Origin.COORDINATOR)
    known = {1: (0, 2), 2: (1, 3), 3: (4, 5)}
    for start in range(6):
        for upper in range(start + 1, 7):
            found = queries.aborted(log.segments, start, upper)
            expected = [
                (producer, first) for producer, (first, last) in known.items() if last >= start and first < upper
            ]
            assert found == expected, (start, upper)


@pytest.mark.parametrize("start", [0, 1])
def test_batch_without_records_does_not_have_the_largest_timestamp(tmp_path: Path, start: int) -> None:
    """Compaction keeps a batch that lost its records, with their timestamp, for the sequence of its producer."""
    log = open_log(tmp_path)
    put(log, batch(timestamps=[NOW]))
    put(log, batch(timestamps=[NOW + 1]), epoch=2)
    emptied = finish_batch(b"", 0, None, (0, 0, -1, NOW + 9), BatchFields(2, 2, 7, 0, 0))
    put(log, memoryview(emptied), epoch=2, origin=Origin.REPLICATION)
    put(log, batch(timestamps=[NOW]), epoch=2)
    assert queries.max_timestamp(log.segments, start, 3, 4) == (1, NOW + 1, 2)


def test_equal_timestamps_are_indexed_with_the_first_of_their_batches(tmp_path: Path) -> None:
    """ListOffsets for the largest timestamp answers its first record (KIP-734)."""
    log = open_log(tmp_path)
    for _ in range(3):
        put(log, batch(2, timestamps=[NOW, NOW]))
    assert log.segments[0].load_max_timestamp() == (NOW, 1)
