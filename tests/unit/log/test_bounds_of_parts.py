"""Parts of a log at their bounds: damaged snapshots, overlapping batches, reads that are cut, offline logs."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.log.append import Origin
from odradek.log.cleaner.log_cleaner import facts
from odradek.log.config import LogConfig
from odradek.log.directories import ownership
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.producers.state import CorruptSnapshot, ProducerStates, _snapshot_of, decode_snapshot
from odradek.log.segments.files import FileCache
from odradek.log.segments.queries import max_timestamp
from odradek.log.segments.reading import _TAIL_KEPT, _TAIL_LIMIT, Tail
from odradek.log.segments.segment import Segment
from odradek.ports.disk import SystemDisk
from odradek.records.batch import NO_TIMESTAMP, parse_header
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, batch, fetched, open_log, produced, put

SIZE = len(batch())


def segment_of(root: Path, *batches: memoryview, interval: int = 0) -> Segment:
    """A segment with these batches as its file, and no index."""
    data = b"".join(batches)
    (root / f"{0:020d}.log").write_bytes(data)
    segment = Segment(FileCache(SystemDisk(), 10), str(root), 0, len(data), NOW)
    segment.configure(interval, 1 << 20)
    return segment


# --- segments ---


def test_batch_that_begins_within_the_one_before_is_damage(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, batch(3), batch(base_offset=1))
    with pytest.raises(KafkaError, match="where offset 3 or a later one should begin"):
        list(segment.scan(0))
    assert len(list(segment_of(tmp_path, batch(3), batch(base_offset=3)).scan(0))) == 2


@pytest.mark.parametrize(("limit", "is_damage"), [(4, False), (3, True), (2, True)])
def test_batch_that_reaches_into_the_next_segment_is_damage(tmp_path: Path, limit: int, is_damage: bool) -> None:
    """Its base offset is outside of its CRC."""
    segment = segment_of(tmp_path, batch(3), batch(base_offset=3))
    segment.limit = limit
    if is_damage:
        with pytest.raises(KafkaError, match="the batch has offset"):
            list(segment.scan(0))
    else:
        assert len(list(segment.scan(0))) == 2


def test_rebuilt_indexes_have_the_last_offsets_of_batches(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, batch(3), batch(3, base_offset=3, timestamps=[NOW + 5] * 3))
    segment.rebuild_indexes()
    assert segment.load_max_timestamp() == (NOW + 5, 5)


@pytest.mark.parametrize(
    ("limit", "expected"), [(2 * SIZE - 1, (SIZE, 1)), (2 * SIZE, (2 * SIZE, 2)), (3 * SIZE - 1, (2 * SIZE, 2))]
)
def test_boundary_is_the_end_of_the_last_batch_that_fits(
    tmp_path: Path, limit: int, expected: tuple[int, int | None]
) -> None:
    segment = segment_of(tmp_path, *(batch(base_offset=offset) for offset in range(3)), interval=1 << 20)
    segment.rebuild_indexes()
    assert segment.boundary(0, limit, 99) == expected


def test_tail_keeps_its_last_half_when_it_is_full() -> None:
    tail = Tail()
    for offset in range(_TAIL_LIMIT + 1):
        tail.add(offset, offset, offset * 10, 10)
    assert tail.base_offsets == list(range(_TAIL_LIMIT - _TAIL_KEPT, _TAIL_LIMIT + 1))
    assert len(tail.last_offsets) == len(tail.positions) == len(tail.ends) == _TAIL_KEPT + 1


def test_empty_segment_does_not_end_the_search_for_the_largest_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch())
    empty: Any = SimpleNamespace(size=0, base_offset=0)
    found = max_timestamp([empty, *log.segments], 0, 1, 1)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, NOW)


def test_rolled_segment_keeps_no_index_in_memory(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0))
    for _ in range(3):
        put(log, batch())
    assert not log.segments[0].is_cold
    log.roll()
    assert [segment.is_cold for segment in log.segments] == [True, False]
    assert fetched(log, 1) == [1, 2]


# --- producers ---


def test_snapshot_with_fewer_entries_than_it_says_is_damaged() -> None:
    """Its checksum is right."""
    with pytest.raises(CorruptSnapshot, match="cannot hold 1 entries"):
        decode_snapshot(_snapshot_of([b""]))


@pytest.mark.parametrize(("age", "is_kept"), [(999, True), (1_000, False), (1_001, False)])
def test_idle_producer_expires_at_its_time(age: int, is_kept: bool) -> None:
    states = ProducerStates()
    states.apply(parse_header(produced(1, 0)), 0)
    for _ in range(2):
        states.remove_expired(NOW + age, 1_000)
    assert (1 in states.producers) is is_kept


def test_windows_of_known_producers_follow_batches_of_others() -> None:
    states = ProducerStates()
    for sequence in range(2):
        states.apply(parse_header(produced(1, sequence)), sequence)
    entry = states.producers[1]
    entry.batches = entry.batches[-1:]
    headers = [
        parse_header(produced(2, 0)),
        parse_header(produced(1, 0, epoch=-1)),
        parse_header(produced(1, 0)),
        parse_header(produced(1, 1))._replace(base_offset=1),
    ]
    states.complete_windows(headers)
    assert [each.last_offset for each in states.producers[1].batches] == [0, 1]


# --- whole logs ---


def test_log_that_is_offline_neither_rolls_nor_deletes(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(retention_ms=1))
    put(log, batch())
    log.roll()
    put(log, batch(timestamps=[NOW + 10_000]))
    log.fail("the disk is gone")
    for action in (log.roll, lambda: log.delete_old_segments(NOW + 10_000, 2)):
        with pytest.raises(KafkaError) as caught:
            action()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_batches_that_have_the_codec_stay_beside_recompressed_ones(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(compression_type="gzip"))
    parts = [batch(value=b"v" * 900, codec=codec) for codec in (1, 0, 1, 0)]
    put(log, memoryview(bytearray(b"".join(parts))), origin=Origin.COORDINATOR)
    assert fetched(log, 0) == [0, 1, 2, 3]
    data = (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes()
    assert data.count(b"v" * 900) == 0
    assert len(data) == 4 * len(parts[0])


@pytest.mark.parametrize(("lag_ms", "largest"), [(0, NO_TIMESTAMP), (1, NOW)])
def test_largest_timestamps_are_read_where_a_lag_asks_for_them(tmp_path: Path, lag_ms: int, largest: int) -> None:
    log = open_log(tmp_path, LogConfig(min_compaction_lag_ms=lag_ms))
    put(log, batch())
    assert [each.largest_timestamp for each in facts(log)] == [largest]


# --- log directories ---


@pytest.mark.parametrize(
    ("names", "text"),
    [(("a-0",), "a-0"), (("a-0", "a-1"), "a-0 and 1 more"), (("a-0", "a-1", "b-0"), "a-0 and 2 more")],
)
def test_unknown_owner_is_named_by_its_partitions(tmp_path: Path, names: tuple[str, ...], text: str) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(b"data")
    assert ownership.inspect(SystemDisk(), str(tmp_path)) == ownership.Ownership(
        ownership.Owner.UNKNOWN_BROKER, (text,)
    )


def test_deleted_partition_stays_for_the_file_delete_delay() -> None:
    delay = inspect.signature(LogDirectories.delete).parameters["delay_ms"]
    assert delay.default == LogConfig().file_delete_delay_ms == 60_000
