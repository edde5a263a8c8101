"""Where rules of retention and compaction begin and end to apply, to the millisecond and the byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.log.append import check_fits_segment, check_size
from odradek.log.cleaner.candidates import Cleanable, SegmentFacts, cleanable, group
from odradek.log.config import LONG_MAX, LogConfig
from odradek.log.directories.background_recovery import unchecked_bytes
from odradek.log.directories.checkpoint_formats import LOG_START_OFFSETS, parse_offsets
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.retention import Reason, SegmentAge, below_start, expired, oversized, to_delete
from odradek.log.segments.files import FileCache
from odradek.log.segments.reading import Tail
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import StandingClock, batch, log_environment, open_log, produced, put

NOW = 1_000_000
COMPACT = frozenset({"compact"})


SEGMENTS = [SegmentAge(0, 100, NOW - 30), SegmentAge(10, 100, NOW - 20), SegmentAge(20, 100, NOW - 10)]


@pytest.mark.parametrize(
    ("retention_ms", "count"), [(30, 0), (29, 1), (20, 1), (19, 2), (10, 2), (9, 3), (0, 3), (-1, 0)]
)
def test_segment_expires_when_it_is_older_than_its_retention(retention_ms: int, count: int) -> None:
    assert expired(SEGMENTS, LogConfig(retention_ms=retention_ms), NOW) == count


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (1, 2), (0, 3), (-1, 0)]
)
def test_segments_go_while_as_many_bytes_remain(retention_bytes: int, count: int) -> None:
    assert oversized(SEGMENTS, LogConfig(retention_bytes=retention_bytes)) == count


def test_empty_segment_is_not_oversized() -> None:
    assert oversized([SegmentAge(0, 0, 0), SegmentAge(0, 100, 0)], LogConfig(retention_bytes=100)) == 0


def test_retention_does_not_apply_to_compacted_logs() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=COMPACT)
    assert (expired(SEGMENTS, config, NOW), oversized(SEGMENTS, config)) == (0, 0)


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (99, 2)])
def test_segments_below_the_log_start_go_except_the_last(start: int, count: int) -> None:
    assert below_start(SEGMENTS, start) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(9, None), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3), (31, 3)])
def test_only_segments_below_the_high_watermark_are_deleted(high_watermark: int, count: int | None) -> None:
    found = to_delete(
        SEGMENTS, LogConfig(retention_ms=1), NOW, log_start_offset=0, high_watermark=high_watermark, end_offset=30
    )
    assert found == (None if count is None else (count, Reason.RETENTION_MS))


def test_empty_last_segment_is_not_deleted() -> None:
    segments = [SEGMENTS[0], SegmentAge(10, 0, NOW - 20)]
    found = to_delete(segments, LogConfig(retention_ms=1), NOW, log_start_offset=0, high_watermark=10, end_offset=10)
    assert found == (1, Reason.RETENTION_MS)


@pytest.mark.parametrize(
    ("settings", "start", "reason"),
    [
        ({"retention_ms": 25, "retention_bytes": 100}, 20, (1, Reason.RETENTION_MS)),
        ({"retention_ms": -1, "retention_bytes": 100}, 10, (2, Reason.RETENTION_BYTES)),
        ({"retention_ms": -1, "retention_bytes": -1}, 10, (1, Reason.LOG_START_OFFSET)),
        ({"retention_ms": -1, "retention_bytes": -1}, 9, None),
    ],
)
def test_first_reason_that_applies_is_reported(
    settings: dict[str, int], start: int, reason: tuple[int, Reason] | None
) -> None:
    config = LogConfig(**settings)  # type: ignore[arg-type]
    assert to_delete(SEGMENTS, config, NOW, log_start_offset=start, high_watermark=30, end_offset=30) == reason


def facts(base: int, end: int, size: int = 100, largest: int = NOW, first: int = NOW) -> SegmentFacts:
    return SegmentFacts(base, size, 8, largest, first, end)


def found(config: LogConfig, *segments: SegmentFacts, checkpoint: int | None = None, upper: int = 99) -> Cleanable:
    return cleanable(segments, config, NOW, checkpoint=checkpoint, log_start_offset=0, upper_offset=upper)


@pytest.mark.parametrize(("age_ms", "stop"), [(999, 0), (1000, 10), (1001, 10)])
def test_segment_may_be_compacted_at_the_minimum_lag(age_ms: int, stop: int) -> None:
    config = LogConfig(cleanup_policy=COMPACT, min_compaction_lag_ms=1000)
    assert found(config, facts(0, 10, largest=NOW - age_ms), facts(10, 20)).first_uncleanable_offset == stop


@pytest.mark.parametrize(("age_ms", "overdue"), [(1000, False), (1001, True)])
def test_compaction_is_overdue_after_the_maximum_lag(age_ms: int, overdue: bool) -> None:
    config = LogConfig(cleanup_policy=COMPACT, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    assert found(config, facts(0, 10, first=NOW - age_ms), facts(10, 20)).overdue is overdue
    assert not found(config, facts(0, 10, first=-1), facts(10, 20)).overdue


def test_compaction_is_never_overdue_without_a_maximum_lag() -> None:
    config = LogConfig(cleanup_policy=COMPACT, max_compaction_lag_ms=LONG_MAX)
    assert not found(config, facts(0, 10, first=1), facts(10, 20)).overdue


def test_log_whose_only_cleanable_segment_is_empty_is_not_due() -> None:
    """An open transaction keeps the records behind it, however old: to compact nothing would begin again at once."""
    config = LogConfig(cleanup_policy=COMPACT, max_compaction_lag_ms=1000)
    cleaned = found(config, facts(0, 10, 0, -1, -1), facts(10, 20, first=NOW - 1001), facts(20, 30), upper=10)
    assert (cleaned.first_uncleanable_offset, cleaned.dirty_bytes, cleaned.overdue) == (10, 0, True)
    assert not cleaned.is_due(config)


@pytest.mark.parametrize(("clean", "due"), [(100, False), (99, True)])
def test_log_is_due_when_its_dirty_share_exceeds_the_ratio(clean: int, due: bool) -> None:
    config = LogConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.5)
    cleaned = found(config, facts(0, 10, clean), facts(10, 20, 100), facts(20, 30), checkpoint=10)
    assert (cleaned.clean_bytes, cleaned.dirty_bytes) == (clean, 100)
    assert cleaned.is_due(config) is due
    assert cleaned.ratio == 100 / (100 + clean)


def test_segments_are_grouped_up_to_their_limits() -> None:
    segments = [facts(0, 10, 60), facts(10, 20, 40), facts(20, 30, 1)]
    assert [len(each) for each in group(segments, 100, 100)] == [2, 1]
    assert [len(each) for each in group(segments, 101, 100)] == [3]
    assert [len(each) for each in group(segments, 101, 24)] == [3]
    assert [len(each) for each in group(segments, 101, 23)] == [2, 1]


@pytest.mark.parametrize("max_bytes", [1, 150, 700, 1_000, 1_500, 4_000, 100_000])
def test_read_of_many_segments_stays_below_its_limit(tmp_path: Path, max_bytes: int) -> None:
    config = LogConfig(segment_bytes=1_000, index_interval_bytes=200)
    log = open_log(tmp_path, config, log_environment())
    for number in range(60):
        put(log, batch(value=b"%02d" % number * 30))
    sizes = [len(data) for data in log.reader.read_batches(0, 60)]
    offset = 0
    while offset < 60:
        found = log.reader.read(offset, max_bytes, upper_offset=60)
        size = sum(each.size for each in found.ranges)
        assert size == found.size == sum(sizes[offset : found.next_offset])
        assert found.next_offset == offset + 1 or size <= max_bytes
        offset = found.next_offset
    assert offset == 60
    assert log.reader.read(0, 1, upper_offset=60, min_one_batch=False).size == 0
    log.close()


def test_file_that_was_used_last_stays_open(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=2)
    first, _ = (cache.get(f"{tmp_path}/{name}", create=True) for name in "ab")
    assert cache.get(f"{tmp_path}/a") is first
    cache.get(f"{tmp_path}/c", create=True)
    assert cache.get(f"{tmp_path}/a") is first


def test_sweep_closes_files_that_were_not_used_since_the_last_one(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=9)
    first, second = (cache.get(f"{tmp_path}/{name}", create=True) for name in "ab")
    list(cache.sweep())
    assert cache.get(f"{tmp_path}/a") is first
    assert len(cache) == 2
    list(cache.sweep())
    assert len(cache) == 1
    assert cache.get(f"{tmp_path}/a") is first
    assert cache.get(f"{tmp_path}/b") is not second


def test_forgotten_file_is_opened_again(tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    cache = FileCache(SystemDisk())
    first = cache.get(path, create=True)
    cache.forget(path)
    assert cache.get(path) is not first


@pytest.mark.parametrize(("same", "opened"), [(True, 1), (False, 2)])
def test_another_file_of_a_path_is_opened_again(tmp_path: Path, same: bool, opened: int) -> None:
    path = f"{tmp_path}/a"
    cache, other = FileCache(SystemDisk()), SystemDisk().open(path, create=True)
    first = cache.get(path)
    cache.forget_others(path, first if same else other)
    assert len({id(first), id(cache.get(path))}) == opened


def test_log_remembers_where_eight_readers_stopped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(20))
    tail, segment = Tail(), log.segments[0]
    for offset in range(10):
        tail.remember(offset, segment, 100 * offset)
    assert tail.hints == {offset: (0, 100 * offset) for offset in range(2, 10)}
    log.close()


@pytest.mark.parametrize(("batches", "full"), [(4, False), (5, True)])
def test_segment_is_full_when_its_offset_index_is(tmp_path: Path, batches: int, full: bool) -> None:
    """Four entries fit. The first batch has none, and equal timestamps share one in the time index."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    for _ in range(batches):
        put(log, batch(timestamps=[NOW - 1]))
    assert log.segments[0].full is full
    log.close()


@pytest.mark.parametrize(
    ("segments", "recovery_point", "size"),
    [
        ((), 0, 0),
        ((0,), 0, 100),
        ((0, 10, 20), 0, 300),
        ((0, 10, 20), 9, 300),
        ((0, 10, 20), 10, 200),
        ((0, 10, 20), 20, 100),
        ((0, 10, 20), 99, 100),
        ((10, 20), 5, 200),
    ],
)
def test_unchecked_bytes_begin_with_the_segment_of_the_recovery_point(
    tmp_path: Path, segments: tuple[int, ...], recovery_point: int, size: int
) -> None:
    for base in segments:
        for suffix in (".log", ".index", ".timeindex"):
            (tmp_path / f"{base:020}{suffix}").write_bytes(bytes(100))
    (tmp_path / "leader-epoch-checkpoint").write_bytes(bytes(100))
    assert unchecked_bytes(SystemDisk(), str(tmp_path), recovery_point) == size


class HighestDraw(SeededRandom):
    """Draws the highest number that it may."""

    def randrange(self, limit: int) -> int:
        return limit - 1


@pytest.mark.parametrize(
    ("jitter_ms", "age_ms", "rolls"),
    [(0, 1000, False), (0, 1001, True), (400, 601, False), (400, 602, True), (5000, 1, False), (5000, 2, True)],
)
def test_segment_rolls_at_its_age_less_the_jitter(tmp_path: Path, jitter_ms: int, age_ms: int, rolls: bool) -> None:
    """The jitter is below segment.jitter.ms and below segment.ms."""
    environment = log_environment()
    environment.random = HighestDraw("jitter")
    log = open_log(tmp_path, LogConfig(segment_ms=1000, segment_jitter_ms=jitter_ms), environment)
    put(log, batch(timestamps=[NOW]))
    put(log, batch(timestamps=[NOW + age_ms]))
    assert len(log.segments) == 1 + rolls
    log.close()


def test_only_the_newest_snapshot_between_segments_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in range(3):
        put(log, produced(producer_id, 0))
        log.history.take_snapshot()
    assert [path.name for path in Path(log.directory).glob("*.snapshot")] == [f"{3:020}.snapshot"]
    log.close()


@pytest.mark.parametrize(("start", "noted"), [(0, {}), (1, {("t", 0): 1})])
def test_log_start_is_noted_inside_of_the_first_segment(
    tmp_path: Path, start: int, noted: dict[tuple[str, int], int]
) -> None:
    directories = LogDirectories(SystemDisk(), StandingClock(), SeededRandom("start"), [str(tmp_path)])
    directories.startup.load(cluster_id="c", node_id=1)
    log = directories.open("t", 0, b"t" * 16, LogConfig())
    put(log, batch(2))
    log.advance_log_start(start)
    directories.checkpoints.write_now(LOG_START_OFFSETS)
    assert parse_offsets((tmp_path / LOG_START_OFFSETS).read_bytes()) == noted
    asyncio.run(directories.close(clean=False))


@pytest.mark.parametrize(
    ("check", "code"),
    [(check_size, ErrorCode.MESSAGE_TOO_LARGE), (check_fits_segment, ErrorCode.RECORD_LIST_TOO_LARGE)],
)
def test_batch_may_be_as_large_as_its_limit(check: Callable[[int, LogConfig], None], code: ErrorCode) -> None:
    config = LogConfig(max_message_bytes=1000, segment_bytes=1000)
    check(1000, config)
    with pytest.raises(KafkaError) as rejected:
        check(1001, config)
    assert rejected.value.code is code
