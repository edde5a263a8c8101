"""Compaction: what is cleanable, what is kept of each batch, whole logs against a model, crashes at every step."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.append import Origin
from odradek.log.cleaner.batch_filter import walk
from odradek.log.cleaner.candidates import SegmentFacts, cleanable, group
from odradek.log.cleaner.log_cleaner import Cleaned, Cleaner
from odradek.log.cleaner.segment_rewrite import Compaction, CompactionResult
from odradek.log.config import LogConfig
from odradek.log.directories.checkpoint_formats import parse_offsets
from odradek.log.directories.events import DirectoryEvents
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import Segment
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.records.batch import parse_header
from odradek.records.builder import BatchFields, encode_batch, finish_batch
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records, records_section
from odradek.records.section import varint
from odradek.wire.errors import KafkaError
from tests.unit.log.support import NOW, StandingClock, UnflushedOwner, batch, marker, put

TOPIC = b"t" * 16
HOUR = 3_600_000
CONFIG = LogConfig(
    segment_bytes=1200, cleanup_policy=frozenset({"compact"}), file_delete_delay_ms=0, delete_retention_ms=HOUR
)


def segment(base: int, end: int, size: int = 100, largest: int = NOW, first: int = NOW) -> SegmentFacts:
    return SegmentFacts(base, size, 8, largest, first, end)


def test_the_dirty_part() -> None:
    segments = [segment(0, 10), segment(10, 20), segment(20, 30), segment(30, 40)]
    found = cleanable(segments, CONFIG, NOW, checkpoint=None, log_start_offset=0, upper_offset=40)
    assert found[:4] == (0, 30, 0, 300)
    assert found.is_due(CONFIG)
    found = cleanable(segments, CONFIG, NOW, checkpoint=20, log_start_offset=0, upper_offset=40)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 100)
    assert not found.is_due(CONFIG)
    found = cleanable(segments, CONFIG, NOW, checkpoint=30, log_start_offset=0, upper_offset=40)
    assert not found.is_due(CONFIG)
    found = cleanable(segments, CONFIG, NOW, checkpoint=None, log_start_offset=0, upper_offset=15)
    assert found.first_uncleanable_offset == 15, "nothing from the last stable offset on"
    found = cleanable(segments, CONFIG, NOW, checkpoint=15, log_start_offset=0, upper_offset=15)
    assert not found.is_due(CONFIG), "what is dirty of its segment must not be touched: there is nothing to do"
    for stray in (-5, 99):
        found = cleanable(segments, CONFIG, NOW, checkpoint=stray, log_start_offset=5, upper_offset=40)
        assert found.first_dirty_offset == 5, "a checkpoint outside of the log is not believed"


def test_lags() -> None:
    segments = [
        segment(0, 10, largest=NOW - HOUR, first=NOW - 2 * HOUR),
        segment(10, 20, largest=NOW - 10),
        segment(20, 30),
    ]
    lag = LogConfig(cleanup_policy=frozenset({"compact"}), min_compaction_lag_ms=1000)
    found = cleanable(segments, lag, NOW, checkpoint=None, log_start_offset=0, upper_offset=30)
    assert found.first_uncleanable_offset == 10
    overdue = LogConfig(
        cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=HOUR, min_cleanable_dirty_ratio=1.0
    )
    found = cleanable(segments, overdue, NOW, checkpoint=None, log_start_offset=0, upper_offset=30)
    assert found.overdue
    assert found.is_due(overdue)
    found = cleanable(segments, overdue, NOW, checkpoint=10, log_start_offset=0, upper_offset=30)
    assert not found.is_due(overdue)


def test_small_segments_become_one() -> None:
    segments = [segment(0, 10, 100), segment(10, 20, 0), segment(20, 30, 60), segment(30, 2**31 + 10, 1)]
    assert [[s.base_offset for s in g] for g in group(segments, 160, 100)] == [[0, 10, 20], [30]]
    assert [len(g) for g in group(segments, 1000, 16)] == [2, 2]
    assert [len(g) for g in group(segments, 1000, 1000)] == [3, 1], "offsets relative to the first must fit 32 bits"


def keyed(*records: tuple[bytes | None, bytes | None], codec: int = 0, times: Sequence[int] = (), **fields: Any) -> Any:
    rows = [
        (times[i] if times else NOW, key, value, [("h", b"x")] if i % 2 else ())
        for i, (key, value) in enumerate(records)
    ]
    return memoryview(encode_batch(rows, BatchFields(**fields), compression=codec))


@given(
    st.lists(
        st.tuples(
            st.integers(NOW - 10**6, NOW + 10**6),
            st.binary(max_size=200),
            st.one_of(st.none(), st.binary(max_size=300)),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_walking_sees_what_decoding_sees(rows: list[tuple[int, bytes, bytes | None]]) -> None:
    data = memoryview(encode_batch([(time, key, value, ()) for time, key, value in rows]))
    header = parse_header(data)
    found = walk(bytes(records_section(data, header)), header)
    assert [(header.base_timestamp + r[3], r[4], r[5], r[6]) for r in found] == [
        (time, index, key, value is not None) for index, (time, key, value) in enumerate(rows)
    ]
    section = bytes(records_section(data, header))
    with pytest.raises(CorruptRecords):
        walk(section[:-1], header)
    with pytest.raises(CorruptRecords):
        walk(section + b"\0", header)


class World:
    """One compacted partition on a real directory."""

    def __init__(self, root: Path, config: LogConfig = CONFIG, disk: SystemDisk | None = None) -> None:
        self.clock = StandingClock()
        self.disk = disk or SystemDisk()
        self.root = root
        self.config = config
        self.reports: list[str] = []
        self.directories = LogDirectories(
            self.disk, self.clock, SeededRandom(str(root)), [str(root)], events=DirectoryEvents(self.reports.append)
        )
        self.directories.startup.load(cluster_id="c", node_id=1)
        self.log: PartitionLog = self.directories.open("a-topic", 0, TOPIC, config)
        self.cleaner = Cleaner(self.directories, self.disk)

    def compact(self, map_bytes: int = 1 << 20, *, flush: bool = True) -> Cleaned | None:
        """Compacts everything but the active segment, due or not."""
        if flush:
            self.log.durability.flush(self.log.active_base_offset)
        stable = self.log.history.last_stable_offset(self.log.end_offset)
        found = self.cleaner._cleanable(self.log, stable, self.clock.now)
        if not found.dirty_bytes:
            return None

        async def unthrottled(_: int) -> None:
            return

        return asyncio.run(self.cleaner.clean(self.log, found, self.clock.now, map_bytes, unthrottled))

    def close(self) -> None:
        asyncio.run(self.directories.close(clean=False))

    def batches(self) -> list[memoryview]:
        return list(self.log.reader.read_batches(self.log.log_start_offset, self.log.end_offset))

    def records(self) -> list[tuple[int, int, bytes, bytes | None]]:
        """(offset, timestamp, key, value) of all data."""
        return [
            (r.offset, r.timestamp, bytes(r.key or b""), None if r.value is None else bytes(r.value))
            for view in self.batches()
            if not parse_header(view).is_control
            for r in decode_records(view, parse_header(view), copy=True)
        ]

    def last_values(self) -> dict[bytes, tuple[int, int, bytes | None]]:
        return {key: (offset, time, value) for offset, time, key, value in self.records()}


class FullDisk(SystemDisk):
    """Has no descriptor for what ends so."""

    ending = ""

    def open(self, path: str, *, create: bool = False) -> Any:
        if self.ending and path.endswith(self.ending):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create)


def fill(world: World, rounds: int = 60, codec: int = 0) -> None:
    for number in range(rounds):
        key = b"key-%d" % (number % 7)
        other = b"once-%d" % number if number % 10 == 0 else b"key-%d" % ((number + 3) % 7)
        put(world.log, keyed((key, b"%d" % number * 10), (other, b"second"), codec=codec))


def test_what_is_not_synced_is_not_compacted(tmp_path: Path) -> None:
    world = World(tmp_path)
    while len(world.log.segments) < 4:
        put(world.log, batch(key=b"k", value=b"x" * 100))
    assert not world.cleaner._cleanable(world.log, world.log.end_offset, NOW).dirty_bytes
    second = world.log.segments[2].base_offset
    world.log.durability.flush(second)
    assert world.cleaner._cleanable(world.log, world.log.end_offset, NOW).first_uncleanable_offset == second
    world.close()


@pytest.mark.parametrize("codec", range(5))
def test_last_values_stay_where_they_are(tmp_path: Path, codec: int) -> None:
    world = World(tmp_path)
    fill(world, codec=codec)
    before, all_before = world.last_values(), set(world.records())
    size = world.log.size_bytes
    active = world.log.active_base_offset
    cleaned = world.compact()
    assert cleaned is not None
    assert cleaned.outcome.end_offset == active
    assert world.last_values() == before
    after = world.records()
    assert set(after) <= all_before, "no record was changed"
    assert [r[0] for r in after] == sorted(r[0] for r in after)
    assert world.log.size_bytes < size / 2
    clean_keys = [r[2] for r in after if r[0] < active]
    assert len(clean_keys) == len(set(clean_keys))
    for record in after:
        found = world.log.reader.read(record[0], 1, upper_offset=world.log.end_offset)
        assert found.size, "every offset is found"
    stored = parse_offsets((tmp_path / "cleaner-offset-checkpoint").read_bytes())
    assert stored == {("a-topic", 0): active}
    assert world.compact() is None
    asyncio.run(world.directories.flusher.work(NOW))
    assert not list(tmp_path.glob("a-topic-0/*.deleted"))
    world.close()
    again = World(tmp_path)
    assert again.records() == after
    assert again.compact() is None
    again.close()


def test_value_is_superseded_by_a_later_record_of_any_place_in_its_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    put(world.log, keyed((b"k", b"old"), (b"l", b"old")))
    put(world.log, keyed((b"other", b"x"), (b"another", b"x"), (b"k", b"new"), (b"l", b"new")))
    active = world.log.active_base_offset
    while world.log.active_base_offset == active:
        put(world.log, batch(key=b"last", value=b"x" * 100))
    assert world.compact() is not None
    found = [(offset, key) for offset, _, key, _ in world.records() if key in (b"k", b"l")]
    assert found == [(4, b"k"), (5, b"l")]
    world.close()


def test_what_needs_no_change_stays_byte_for_byte(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(40):
        put(world.log, keyed((b"unique-%d" % number, b"x" * 50)))
    before = [bytes(view) for view in world.batches()]
    inodes = {path.name: path.stat().st_ino for path in tmp_path.glob("a-topic-0/*.log")}
    assert len(inodes) > 3
    assert world.compact() is not None
    assert [bytes(view) for view in world.batches()] == before
    assert {path.name: path.stat().st_ino for path in tmp_path.glob("a-topic-0/*.log")} == inodes
    assert not list(tmp_path.glob("a-topic-0/*.cleaned"))
    world.close()


def test_records_of_the_future_are_compacted_when_there_is_no_minimum_lag(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(40):
        put(world.log, keyed((b"k", b"%d" % number * 20), times=[NOW + HOUR]))
    assert world.compact()
    assert len(world.records()) < 40
    world.close()


def test_tombstones_go_after_their_horizon(tmp_path: Path) -> None:
    world = World(tmp_path)
    put(world.log, keyed((b"gone", b"value"), (b"stays", b"value")))
    put(world.log, keyed((b"gone", None), times=[NOW - 5]))
    fill(world, 20)
    world.log.roll()
    put(world.log, keyed((b"active", b"")))
    world.compact()
    assert world.last_values()[b"gone"] == (2, NOW - 5, None), "a first pass keeps it, timestamp and all"
    (found,) = [parse_header(view) for view in world.batches() if parse_header(view).base_offset == 2]
    assert found.has_delete_horizon
    assert found.base_timestamp == NOW + HOUR

    def another_pass() -> None:
        world.log.roll()
        put(world.log, keyed((b"active", b"")))
        world.compact()

    world.clock.now = NOW + HOUR - 1
    another_pass()
    assert b"gone" in world.last_values()
    world.clock.now = NOW + HOUR
    another_pass()
    assert b"gone" not in world.last_values()
    assert world.last_values()[b"stays"][0] == 1
    world.close()


def transaction(world: World, producer: int, sequence: int, key: bytes, *, commit: bool) -> None:
    put(
        world.log,
        keyed((key, b"tx"), producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True),
    )
    put(world.log, marker(producer, commit=commit), origin=Origin.COORDINATOR)


def roll_and_compact(world: World) -> None:
    world.log.roll()
    put(world.log, keyed((b"active", b"")))
    world.compact()


def test_transactions(tmp_path: Path) -> None:
    world = World(tmp_path)
    put(world.log, keyed((b"a", b"plain")))
    transaction(world, 1, 0, b"a", commit=False)
    transaction(world, 1, 1, b"b", commit=True)
    transaction(world, 1, 2, b"b", commit=True)
    put(world.log, keyed((b"c", b"open"), producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True))
    roll_and_compact(world)
    assert world.directories.cleaned_to("a-topic", 0) == 7, "an open transaction is not touched"
    assert world.last_values()[b"a"][2] == b"plain", "what was aborted does not win over what was there"
    assert [record[0] for record in world.records() if record[2] == b"b"] == [5]
    offsets = {parse_header(view).base_offset for view in world.batches()}
    assert {2, 6} <= offsets, "the marker of what an aborted batch of this pass belonged to stays, and the last one"
    assert world.log.reader.aborted_transactions(0, world.log.end_offset) == [(1, 1)]
    put(world.log, marker(2, commit=True), origin=Origin.COORDINATOR)
    put(world.log, keyed((b"x", b""), producer_id=1, producer_epoch=0, base_sequence=3))
    world.clock.now += 1
    roll_and_compact(world)
    assert 2 in {parse_header(view).base_offset for view in world.batches()}, "consumers get time to read the marker"
    world.clock.now += HOUR + 1
    roll_and_compact(world)
    left = {parse_header(view).base_offset for view in world.batches()}
    assert not {1, 2} & left
    assert world.log.reader.aborted_transactions(0, world.log.end_offset) == []
    world.close()


def test_cleaned_abort_does_not_affect_later_commits_of_its_producer(tmp_path: Path) -> None:
    """As of a producer of offsets, which lives for long and aborts now and then."""
    world = World(tmp_path)
    transaction(world, 1, 0, b"a", commit=False)
    transaction(world, 1, 1, b"a", commit=True)
    roll_and_compact(world)
    for sequence in range(2, 6):
        transaction(world, 1, sequence, b"a", commit=True)
    end = world.log.end_offset
    roll_and_compact(world)
    assert [record[0] for record in world.records() if record[2] == b"a"] == [end - 2]
    world.close()


def test_left_over_of_a_compaction_does_not_abort_transactions(tmp_path: Path) -> None:
    """A read_committed consumer would skip the committed records that the left-over names."""
    other = World(tmp_path / "other")
    transaction(other, 1, 0, b"a", commit=False)
    left_over = Path(other.log.segments[0].path).with_suffix(".txnindex").read_bytes()
    other.close()
    world = World(tmp_path / "world")
    transaction(world, 1, 0, b"a", commit=True)
    for _ in range(2):
        put(world.log, keyed((b"b", b"plain")))
    Path(world.log.segments[0].path).with_suffix(".txnindex.cleaned").write_bytes(left_over)
    roll_and_compact(world)
    assert [record[2] for record in world.records()] == [b"a", b"b", b"active"], "it was compacted"
    world.close()
    again = World(tmp_path / "world")
    assert again.log.reader.aborted_transactions(0, again.log.end_offset) == []
    again.close()


def test_a_producers_last_sequence_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    put(world.log, keyed((b"a", b"1"), producer_id=9, producer_epoch=4, base_sequence=0))
    put(world.log, keyed((b"a", b"2"), producer_id=9, producer_epoch=4, base_sequence=1))
    put(world.log, keyed((b"a", b"3")))
    roll_and_compact(world)
    headers = [parse_header(view) for view in world.batches()]
    (kept,) = [header for header in headers if header.producer_id == 9]
    assert (kept.base_offset, kept.records_count, kept.last_sequence, kept.producer_epoch) == (1, 0, 1, 4)
    world.close()
    for path in tmp_path.glob("a-topic-0/*.snapshot"):
        path.unlink()
    again = World(tmp_path)
    again_put = put(again.log, keyed((b"a", b"2"), producer_id=9, producer_epoch=4, base_sequence=1))
    assert again_put.duplicate
    again.close()


def test_little_memory_takes_more_passes(tmp_path: Path) -> None:
    world = World(tmp_path)
    fill(world)
    before, active = world.last_values(), world.log.active_base_offset
    passes = 0
    while world.compact(map_bytes=1500) is not None:
        passes += 1
    assert passes > 2
    assert world.directories.cleaned_to("a-topic", 0) == active
    assert world.last_values() == before
    world.close()


def test_retention_that_comes_in_between_wins(tmp_path: Path) -> None:
    class MeddlingDisk(SystemDisk):
        world: World

        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            result = await super().run(lane, function, *args, **kwargs)
            if lane.startswith("cleaner") and self.world.log.log_start_offset == 0:
                self.world.log.advance_log_start(self.world.log.segments[2].base_offset)
                self.world.log.delete_old_segments(NOW, self.world.log.end_offset)
            return result

    disk = MeddlingDisk()
    world = disk.world = World(tmp_path, disk=disk)
    fill(world)
    before = world.last_values()
    assert world.compact() is None
    start = world.log.log_start_offset
    assert start > 0
    assert {key: found for key, found in before.items() if found[0] >= start}.items() <= world.last_values().items()
    assert not list(tmp_path.glob("a-topic-0/*.cleaned"))
    assert world.compact() is not None
    world.close()


def test_a_segment_whose_end_is_not_synced_keeps_its_end(tmp_path: Path) -> None:
    """Aborted records were dropped; once the topic was no longer compacted, recovery treated that as a loss."""
    world = World(tmp_path, replace(CONFIG, segment_bytes=1 << 20))
    for _ in range(2):
        for number in range(4):
            put(world.log, keyed((b"key-0", b"%d" % number)))
        world.log.roll()
    put(world.log, keyed((b"key-0", b"last")))
    world.log.durability.flush()
    fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    put(world.log, keyed((b"gone", b"x"), base_sequence=0, **fields))
    world.log.roll()
    put(world.log, marker(1, commit=False), origin=Origin.COORDINATOR)
    put(world.log, keyed((b"stays", b"x"), base_sequence=1, **fields))
    put(world.log, marker(1, commit=True), origin=Origin.COORDINATOR)
    put(world.log, keyed((b"key-1", b"last")))
    end, values = world.log.end_offset, world.last_values()
    assert world.compact(flush=False) is not None
    assert len(world.log.segments) < 4, "what is synced is compacted"
    world.close()
    again = World(tmp_path, LogConfig())
    assert again.log.end_offset == end
    assert {k: v for k, v in again.last_values().items() if k != b"gone"} == {
        k: v for k, v in values.items() if k != b"gone"
    }
    again.close()


@pytest.mark.parametrize("position", [0, 5, 8, 11, 16, 18, 22, 30, 60, 70, 100, 500, 700])
def test_damage_is_named_and_left_alone(tmp_path: Path, position: int) -> None:
    world = World(tmp_path)
    fill(world)
    path = Path(world.log.segments[1].path)
    data = bytearray(path.read_bytes())
    data[position] ^= 1 if position > 7 else 0x40
    path.write_bytes(data)
    assert world.compact() is None
    (problem,) = world.cleaner.uncleanable.values()
    assert str(path) in problem
    assert "at byte" in problem
    assert problem in world.reports[-1]
    assert world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) is None
    assert path.read_bytes() == bytes(data)
    world.close()


@pytest.mark.parametrize("cut", [1, 3])
def test_batch_of_unreadable_records_stops_the_compaction_of_its_log(tmp_path: Path, cut: int) -> None:
    """The broker did not read them, as the topic was not compacted when they came. Their checksum is right."""
    world = World(tmp_path)
    broken = finish_batch(bytes(bytearray(b"\x40") * cut), 0, None, (1, 0, NOW, NOW))
    world.log.set_config(replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    put(world.log, memoryview(broken))
    world.log.set_config(CONFIG)
    fill(world)
    before = Path(world.log.segments[0].path).read_bytes()
    assert world.compact() is None
    (problem,) = world.cleaner.uncleanable.values()
    assert f"{world.log.segments[0].path}: damaged at byte 0" in problem
    assert Path(world.log.segments[0].path).read_bytes() == before
    world.close()


INT64_MAX = (1 << 63) - 1


def record(timestamp_delta: int, offset_delta: int, key: bytes, value: bytes | None) -> bytes:
    """One encoded record, without headers."""
    encoded = b"".join((b"\0", varint(timestamp_delta), varint(offset_delta), varint(len(key)), key))
    encoded += (b"\1" if value is None else varint(len(value)) + value) + b"\0"
    return varint(len(encoded)) + encoded


@pytest.mark.parametrize(
    ("base_timestamp", "records"),
    [
        (INT64_MAX, (record(0, 0, b"key-1", b"old"), record(10, 1, b"other", b"stays"))),
        (-INT64_MAX, (record(0, 0, b"key-1", b"old"), record(-10, 1, b"other", b"stays"))),
        (-INT64_MAX - 1, (record(0, 0, b"key-1", b"old"), record(0, 1, b"other", None))),
    ],
    ids=["above", "below", "far from its horizon"],
)
def test_timestamp_of_more_than_64_bits_stops_the_compaction_of_its_log(
    tmp_path: Path, base_timestamp: int, records: tuple[bytes, bytes]
) -> None:
    """The first two ended the task that compacts. Of the third one no client could read the batch any longer."""
    world = World(tmp_path)
    world.log.set_config(replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    put(world.log, memoryview(finish_batch(b"".join(records), 0, None, (2, 1, base_timestamp, NOW))))
    world.log.set_config(CONFIG)
    fill(world)
    before = Path(world.log.segments[0].path).read_bytes()
    assert world.compact() is None
    (problem,) = world.cleaner.uncleanable.values()
    assert f"{world.log.segments[0].path}: damaged at byte 0" in problem
    assert Path(world.log.segments[0].path).read_bytes() == before
    world.close()


def test_tombstones_stay_when_their_retention_is_unlimited(tmp_path: Path) -> None:
    """The sum of now and `delete.retention.ms` has more than 64 bits, which ended the task that compacts."""
    world = World(tmp_path, replace(CONFIG, delete_retention_ms=INT64_MAX))
    put(world.log, keyed((b"key-1", b"old")))
    put(world.log, keyed((b"key-1", None), (b"key-2", b"value")))
    fill(world, 20)
    put(world.log, keyed((b"gone", b"old")))
    put(world.log, keyed((b"gone", None)))
    roll_and_compact(world)
    found = world.last_values()
    assert found[b"gone"][1:] == (NOW, None)
    world.clock.now += 1000 * HOUR
    fill(world, 20)
    roll_and_compact(world)
    assert world.last_values()[b"gone"] == found[b"gone"]
    world.close()


def test_unreadable_log_does_not_stop_the_compaction_of_others(tmp_path: Path) -> None:
    world = World(tmp_path, replace(CONFIG, max_compaction_lag_ms=HOUR))
    fill(world)
    other = world.directories.open("a-topic", 1, TOPIC, world.config)
    for number in range(60):
        put(other, keyed((b"key-%d" % (number % 7), b"value" * 10)))
    for log in (world.log, other):
        log.durability.flush(log.active_base_offset)
    Path(world.log.segments[0].path).write_bytes(b"damaged" * 200)
    candidates = [(log, log.end_offset) for log in (world.log, other)]
    (dirtiest, _) = world.cleaner.dirtiest(candidates, NOW) or pytest.fail("nothing to compact")
    assert dirtiest is other
    assert list(world.cleaner.uncleanable) == [("a-topic", 0)]
    assert "compaction of a-topic-0 stopped: " in world.reports[-1]
    world.close()


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "Input/output error"), ZeroDivisionError("a mistake")])
def test_failed_compaction_does_not_stop_that_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """The dirtiest log, of which a sector could not be read, was chosen again and again."""
    world = World(tmp_path)
    fill(world)
    other = world.directories.open("a-topic", 1, TOPIC, world.config)
    for number in range(60):
        put(other, keyed((b"key-%d" % (number % 7), b"value" * 10)))
    for log in (world.log, other):
        log.durability.flush(log.active_base_offset)
    candidates = [(log, log.end_offset) for log in (world.log, other)]

    def fail(_: Compaction) -> None:
        raise failure

    dirtiest, found = world.cleaner.dirtiest(candidates, NOW) or pytest.fail("nothing to compact")
    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "step", fail)
        with pytest.raises((KafkaError, ZeroDivisionError)):
            asyncio.run(world.cleaner.clean(dirtiest, found, NOW, 1 << 20, asyncio.sleep))
    remaining, found = world.cleaner.dirtiest(candidates, NOW) or pytest.fail("nothing to compact")
    assert remaining is not dirtiest
    asyncio.run(world.cleaner.clean(remaining, found, NOW, 1 << 20, asyncio.sleep))
    assert world.cleaner.dirtiest(candidates, NOW) is None
    world.cleaner.retry_failed()
    again = world.cleaner.dirtiest(candidates, NOW)
    assert (None if again is None else again[0]) is (dirtiest if isinstance(failure, OSError) else None)
    world.close()


def test_a_log_that_cannot_be_opened_for_now_is_looked_at_again(tmp_path: Path) -> None:
    world = World(tmp_path, replace(CONFIG, max_compaction_lag_ms=HOUR), disk=(disk := FullDisk()))
    fill(world)
    world.log.durability.flush(world.log.active_base_offset)
    world.log.release()
    disk.ending = ".log"
    assert world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) is None
    assert not world.cleaner.uncleanable
    disk.ending = ""
    assert world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) is not None
    world.close()


def test_nothing_is_compacted_while_recovery_points_cannot_be_written(tmp_path: Path) -> None:
    world = World(tmp_path, disk=(disk := FullDisk()))
    fill(world)
    world.log.durability.flush(world.log.active_base_offset)
    (_, found) = world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) or pytest.fail("nothing to compact")
    bases = [segment.base_offset for segment in world.log.segments]
    disk.ending = ".tmp"
    with pytest.raises(KafkaError):
        asyncio.run(world.cleaner.clean(world.log, found, NOW, 1 << 20, asyncio.sleep))
    assert [segment.base_offset for segment in world.log.segments] == bases
    disk.ending = ""
    assert not world.cleaner.uncleanable
    assert world.compact() is not None
    world.close()


def test_compacted_segment_waits_for_descriptors_before_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start would put it in the place of what has become of its sources until then."""
    world = World(tmp_path)
    fill(world)
    before = world.records()

    def no_index(_: Segment) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    world.log.durability.flush(world.log.active_base_offset)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "release", no_index)
        with pytest.raises(KafkaError):
            world.compact(flush=False)
    assert not [path.name for path in tmp_path.glob("*/*") if path.suffix in (".swap", ".cleaned", ".deleted")]
    assert world.records() == before
    assert world.compact() is not None
    world.close()


def test_log_with_a_broken_transaction_index_is_not_compacted_repeatedly(tmp_path: Path) -> None:
    world = World(tmp_path)
    transaction(world, 1, 0, b"key-1", commit=False)
    fill(world)
    asyncio.run(world.directories.close())
    (index,) = tmp_path.glob("a-topic-0/*.txnindex")
    world = World(tmp_path)
    index.write_bytes(b"?" * 34)
    assert world.compact() is None
    assert str(index) in world.cleaner.uncleanable["a-topic", 0]
    assert world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) is None
    world.close()


@pytest.mark.parametrize("way", ["truncated", "copied again", "deleted"])
def test_log_is_compacted_again_when_its_damage_is_gone(tmp_path: Path, way: str) -> None:
    world = World(tmp_path, replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"})))
    fill(world)
    second = world.log.segments[1].base_offset
    Path(world.log.segments[0].path).write_bytes(b"damaged" * 100)
    assert world.compact() is None
    candidates = [(world.log, world.log.end_offset)]
    assert world.cleaner.dirtiest(candidates, NOW) is None
    assert world.cleaner.uncleanable
    if way == "deleted":
        world.log.advance_log_start(second)
        assert world.log.delete_old_segments(NOW, world.log.end_offset) == 1
    else:
        world.log.truncate_fully_and_start_at(0 if way == "truncated" else second)
        fill(world)
    assert not world.cleaner.uncleanable
    world.log.durability.flush(world.log.active_base_offset)
    candidates = [(world.log, world.log.end_offset)]
    assert world.cleaner.dirtiest(candidates, NOW) is not None
    assert world.compact() is not None
    world.close()


def test_damage_of_a_deleted_topic_does_not_stop_compaction_of_the_next(tmp_path: Path) -> None:
    world = World(tmp_path)
    fill(world)
    path = Path(world.log.segments[1].path)
    path.write_bytes(b"damaged" * 100)
    assert world.compact() is None
    assert world.cleaner.uncleanable
    world.directories.delete("a-topic", 0)
    assert not world.cleaner.uncleanable
    world.log = world.directories.open("a-topic", 0, b"o" * 16, CONFIG)
    fill(world)
    world.log.durability.flush(world.log.active_base_offset)
    assert world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) is not None
    assert world.compact() is not None
    world.close()


def test_topic_deleted_at_the_end_of_compaction_leaves_its_successor_clean(
    tmp_path: Path,
) -> None:
    class MeddlingDisk(SystemDisk):
        world: World

        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            result = await super().run(lane, function, *args, **kwargs)
            if isinstance(result, CompactionResult):
                self.world.directories.delete("a-topic", 0)
                self.world.directories.open("a-topic", 0, b"o" * 16, CONFIG)
            return result

    disk = MeddlingDisk()
    world = disk.world = World(tmp_path, disk=disk)
    fill(world)
    assert world.compact() is None
    assert world.log.is_offline
    assert world.directories.cleaned_to("a-topic", 0) is None
    world.close()


def test_batches_appended_after_a_truncation_are_not_compacted_as_older(tmp_path: Path) -> None:
    """It came while the recovery points were written: of a segment that had grown only what it had before was kept."""

    class MeddlingDisk(SystemDisk):
        world: World
        meddled = False

        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.meddled:
                self.meddled = True
                log = self.world.log
                last = log.segments[-2]
                *_, found = last.scan(0)
                again = memoryview(bytearray(last.read_batch(found)))
                log.truncate_to(found.header.base_offset)
                log.set_config(replace(CONFIG, segment_bytes=1 << 20))
                put(log, again, origin=Origin.REPLICATION)
                for position in range(4):
                    put(log, keyed((b"new-%d" % position, b"value"), (b"key-0", b"last")))
                log.roll()
            return await super().run(lane, function, *args, **kwargs)

    disk = MeddlingDisk()
    world = disk.world = World(tmp_path, disk=disk)
    fill(world)
    world.compact()
    assert {b"new-%d" % position for position in range(4)} <= world.last_values().keys()
    world.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_tombstone_appended_after_a_truncation_deletes_the_value_before_it(tmp_path: Path, restarts: bool) -> None:
    """The leader after an unclean election lacks records that this replica has already compacted."""
    world = World(tmp_path)
    put(world.log, keyed((b"gone", b"value")))
    fill(world, 20)
    cut = world.log.end_offset
    fill(world, 20)
    world.log.roll()
    put(world.log, keyed((b"active", b"")))
    world.compact()
    cleaned_to = world.directories.cleaned_to("a-topic", 0)
    assert cleaned_to is not None
    assert cleaned_to > cut
    world.log.truncate_to(cut)
    if restarts:
        world.close()
        world = World(tmp_path)
    put(world.log, keyed((b"gone", None)))
    fill(world, 40)
    assert world.log.active_base_offset > cleaned_to
    for now in (NOW, NOW + HOUR):
        world.clock.now = now
        world.log.roll()
        put(world.log, keyed((b"active", b"")))
        world.compact()
    assert b"gone" not in world.last_values()
    world.close()


def test_log_stays_with_its_writing_thread_when_its_worker_is_dismissed(tmp_path: Path) -> None:
    class SlowDisk(SystemDisk):
        gate = threading.Event()
        started = threading.Event()

        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            def slowly() -> Any:
                if lane.startswith("cleaner"):
                    self.started.set()
                    assert self.gate.wait(30)
                return function(*args, **kwargs)

            return await super().run(lane, slowly)

    disk = SlowDisk()
    world = World(tmp_path, disk=disk)
    fill(world)
    world.log.durability.flush(world.log.active_base_offset)
    candidates = [(world.log, world.log.end_offset)]

    async def run() -> None:
        (_, found) = world.cleaner.dirtiest(candidates, NOW) or pytest.fail("nothing to compact")
        cleaning = asyncio.create_task(world.cleaner.clean(world.log, found, NOW, 1 << 20, asyncio.sleep))
        await asyncio.to_thread(disk.started.wait, 30)
        cleaning.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.cleaner.dirtiest(candidates, NOW) is None
        disk.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        assert world.cleaner.dirtiest(candidates, NOW) is not None

    asyncio.run(run())
    world.close()


@pytest.mark.parametrize("ending", [".log.cleaned", ".timeindex.cleaned"])
def test_a_compaction_that_fails_leaves_nothing(tmp_path: Path, ending: str) -> None:
    world = World(tmp_path, disk=(disk := FullDisk()))
    fill(world)
    before = world.last_values()
    disk.ending = ending
    with pytest.raises(KafkaError):
        world.compact()
    assert not list(tmp_path.glob("a-topic-0/*.cleaned"))
    disk.ending = ""
    assert world.compact() is not None
    assert world.last_values() == before
    world.close()


def test_damage_behind_what_is_written_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    fill(world)
    assert world.compact() is not None
    path = Path(world.log.segments[0].path)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    fill(world)
    assert world.compact() is None
    assert world.cleaner.uncleanable
    assert not list(tmp_path.glob("a-topic-0/*.cleaned"))
    world.close()


def test_an_error_of_a_thread_whose_worker_was_dismissed_is_nobodys(tmp_path: Path) -> None:
    class FailingDisk(SystemDisk):
        gate = asyncio.Event()
        started = asyncio.Event()

        async def run(self, lane: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            if lane.startswith("cleaner"):
                self.started.set()
                await self.gate.wait()
                raise OSError("disk")
            return await super().run(lane, function, *args, **kwargs)

    disk = FailingDisk()
    world = World(tmp_path, disk=disk)
    fill(world)
    world.log.durability.flush(world.log.active_base_offset)
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        (_, found) = world.cleaner.dirtiest([(world.log, world.log.end_offset)], NOW) or pytest.fail("nothing to do")
        cleaning = asyncio.create_task(world.cleaner.clean(world.log, found, NOW, 1 << 20, asyncio.sleep))
        await disk.started.wait()
        cleaning.cancel()
        await asyncio.sleep(0)
        disk.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        del cleaning
        gc.collect()

    asyncio.run(run())
    assert not complaints
    world.close()


class Crash(Exception):
    pass


class CrashingDisk(SystemDisk):
    """Ends the process before its n-th change of a name."""

    left = -1
    crashed_at = ""

    def _step(self, what: str) -> None:
        if self.left == 0:
            self.crashed_at = what
            raise Crash(what)
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self._step(f"rename {source} to {target}")
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._step(f"remove {path}")
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._step(f"sync {path}")
        super().sync_directory(path)


def test_a_crash_at_every_step_loses_nothing(tmp_path: Path) -> None:
    step, suffixes = 0, set()
    while True:
        root = tmp_path / str(step)
        disk = CrashingDisk()
        world = World(root, disk=disk)
        fill(world, 30)
        transaction(world, 1, 0, b"key-1", commit=False)
        transaction(world, 1, 1, b"key-2", commit=True)
        fill(world, 30)
        before, aborted = world.last_values(), world.log.reader.aborted_transactions(0, world.log.end_offset)
        end = world.log.end_offset
        world.log.durability.flush()
        disk.left = step
        try:
            world.compact()
        except Crash:
            suffixes.add(disk.crashed_at.rpartition(".")[2])
        else:
            break
        finally:
            disk.left = -1
            world.close()
        again = World(root)
        # What was aborted may have been removed already, and then no longer is the last of its key.
        assert {k: v for k, v in again.last_values().items() if k != b"key-1"} == {
            k: v for k, v in before.items() if k != b"key-1"
        }, disk.crashed_at
        assert again.log.end_offset == end
        assert set(again.log.reader.aborted_transactions(0, end)) <= set(aborted)
        assert not list(root.glob("a-topic-0/*.cleaned")) + list(root.glob("a-topic-0/*.swap")), disk.crashed_at
        if again.directories.cleaned_to("a-topic", 0) is None:
            assert again.compact() is not None
        assert {k: v for k, v in again.last_values().items() if k != b"key-1"} == {
            k: v for k, v in before.items() if k != b"key-1"
        }
        again.close()
        step += 1
    assert {"log", "swap", "deleted"} <= suffixes


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=20))
ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.integers(0, 4)),
    st.tuples(st.just("transaction"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("roll"), st.none(), st.none()),
    st.tuples(st.just("compact"), st.integers(200, 100_000), st.integers(0, 2 * HOUR)),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


@settings(max_examples=60)
@given(actions=st.lists(ACTIONS, min_size=5, max_size=40))
def test_any_history(tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any, Any]]) -> None:
    """The model: the last committed value of each key, where it was written; offsets never move."""
    root = tmp_path_factory.mktemp("history")
    world = World(root)
    written: dict[int, tuple[int, bytes, bytes | None]] = {}
    model: dict[bytes, int] = {}
    sequence = 0
    for what, first, second in [*actions, ("roll", None, None), ("compact", 1 << 20, 0)]:
        if what == "put":
            start = put(world.log, keyed(*first, codec=second)).first_offset
            committed = True
        elif what == "transaction":
            fields: dict[str, Any] = {
                "producer_id": 5,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
            sequence += len(first)
            start = put(world.log, keyed(*first, **fields)).first_offset
            put(world.log, marker(5, commit=second), origin=Origin.COORDINATOR)
            committed = second
        elif what == "roll":
            world.log.roll()
            continue
        elif what == "compact":
            world.clock.now += second
            world.compact(first)
            continue
        else:
            now = world.clock.now
            world.close()
            world = World(root)
            world.clock.now = now
            continue
        for index, (key, value) in enumerate(first):
            written[start + index] = (NOW, key, value)
            if committed:
                model[key] = start + index
    found = {offset: (time, key, value) for offset, time, key, value in world.records()}
    assert found.items() <= written.items(), "nothing moved, nothing was invented"
    for key, offset in model.items():
        value = written[offset][2]
        if value is not None:
            assert found.get(offset) == (NOW, key, value), "the last value of a key is gone"
        later = [other for other, entry in found.items() if entry[1] == key and other > offset]
        assert all(written[other][1] == key for other in later)
        if value is None and offset not in found:
            assert not [o for o, e in found.items() if e[1] == key and o < offset and e[2] is not None], (
                "an expired tombstone brought an older value back"
            )
    assert world.log.end_offset >= max(written, default=-1) + 1
    world.close()


def test_transaction_whose_end_was_compacted_is_not_open_after_a_crash(tmp_path: Path) -> None:
    """The snapshot from before its end is the newest that recovery may use: a later one went with its segment."""
    world = World(tmp_path)
    put(world.log, keyed((b"a", b"tx"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    put(world.log, keyed((b"fills the segment", b"x" * 1020)))
    world.log.roll()
    second = world.log.active_base_offset
    put(world.log, marker(1, commit=True), origin=Origin.COORDINATOR)
    put(world.log, keyed((b"a", b"later")))
    world.clock.now += 25 * HOUR
    expired = [world.log.history.producers.remove_expired(world.clock.now, 24 * HOUR) for _ in range(2)]
    assert expired == [[], [1]]
    roll_and_compact(world)
    roll_and_compact(world)
    assert second in {parse_header(view).base_offset for view in world.batches()}, "the marker has its horizon now"
    world.clock.now += HOUR + 1
    world.log.durability.flush()
    recovery_point = world.log.durability.recovery_point
    put(world.log, keyed((b"active", b"")))
    # The process dies before the rolled segment is synced.
    world.directories._environment.owner = UnflushedOwner(world.disk)
    world.log.roll()
    put(world.log, keyed((b"active", b"")))
    found = world.cleaner._cleanable(world.log, world.log.end_offset, world.clock.now)

    async def unthrottled(_: int) -> None:
        return

    assert asyncio.run(world.cleaner.clean(world.log, found, world.clock.now, 1 << 20, unthrottled)) is not None
    assert world.log.durability.recovery_point == recovery_point
    assert second not in {parse_header(view).base_offset for view in world.batches()}
    assert world.log.history.first_unstable_offset is None
    assert [found.base_offset for found in world.log.segments][:2] == [0, second]
    world.close()
    for path in tmp_path.glob("a-topic-0/*.snapshot"):
        if int(path.stem) > second:
            path.write_bytes(b"damaged")
    again = World(tmp_path)
    assert again.log.history.first_unstable_offset is None
    again.close()
