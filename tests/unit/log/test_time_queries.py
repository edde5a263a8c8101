"""Records found by time, against all records of a log, and what a log rejects that is offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.log.producers.state import (
    CorruptSnapshot,
    ProducerEntry,
    ProducerStates,
    _snapshot_of,
    decode_snapshot,
    encode_snapshot,
)
from odradek.records.batch import BatchHeader, parse_header
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, batch, open_log, produced, put

batches = st.lists(st.lists(st.integers(-1, 30), min_size=1, max_size=4), min_size=1, max_size=25)
"""The timestamps of the records of each batch, after NOW; -1 stands for no timestamp."""


def filled(root: Path, rows: list[list[int]], interval: int, segment_bytes: int) -> tuple[PartitionLog, list[int]]:
    """A log, and the timestamp of the record at each offset."""
    log = open_log(root, LogConfig(index_interval_bytes=interval, segment_bytes=segment_bytes))
    times: list[int] = []
    for row in rows:
        found = [-1 if -1 in row else NOW + each for each in row]
        put(log, batch(len(row), timestamps=found), now=NOW + 1_000)
        times += found
    return log, times


@settings(max_examples=100, deadline=None)
@given(batches, st.sampled_from([0, 200, 4096]), st.sampled_from([200, 500, 1 << 20]), st.data())
def test_first_record_of_a_time_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[int]],
    interval: int,
    segment_bytes: int,
    data: st.DataObject,
) -> None:
    log, times = filled(tmp_path_factory.mktemp("log"), rows, interval, segment_bytes)
    log.advance_log_start(start := data.draw(st.integers(0, len(times)), label="log start"))
    upper = data.draw(st.integers(start, len(times)), label="upper offset")
    for wanted in {NOW, NOW + 31, *times, *(each + 1 for each in times)} - {-1, 0}:
        found = log.reader.find_timestamp(wanted, upper)
        expected = next((i for i in range(start, len(times)) if times[i] >= wanted), None)
        if expected is not None and expected >= upper:
            expected = None
        assert (None if found is None else (found.offset, found.timestamp)) == (
            None if expected is None else (expected, times[expected])
        )
    log.close()


@settings(max_examples=100, deadline=None)
@given(batches, st.sampled_from([0, 200, 4096]), st.sampled_from([200, 500, 1 << 20]), st.data())
def test_record_with_the_largest_time_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[int]],
    interval: int,
    segment_bytes: int,
    data: st.DataObject,
) -> None:
    log, times = filled(tmp_path_factory.mktemp("log"), rows, interval, segment_bytes)
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    log.advance_log_start(start := data.draw(st.integers(0, len(times)), label="log start"))
    upper = data.draw(st.sampled_from([each for each in starts if each >= start]), label="upper offset")
    found = log.reader.max_timestamp(upper)
    largest = max(times[start:upper], default=-1)
    if largest < 0:
        assert found is None
    else:
        assert found is not None
        assert (found.offset, found.timestamp) == (times.index(largest, start), largest)
    log.close()


def test_offline_log_rejects_every_change_and_read(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(retention_ms=1))
    put(log, batch(3))
    log.fail("its directory failed")
    calls: tuple[Callable[[], object], ...] = (
        lambda: put(log, batch()),
        log.roll,
        lambda: log.advance_log_start(1),
        lambda: log.delete_old_segments(NOW + 10_000, 3),
        lambda: log.truncate_to(1),
        lambda: log.truncate_fully_and_start_at(9),
        log.durability.finish_writes,
        lambda: log.reader.read(0, 100, upper_offset=3),
        lambda: list(log.reader.read_batches(0, 3)),
        lambda: log.reader.find_timestamp(NOW, 3),
        lambda: log.reader.max_timestamp(3),
    )
    for number, call in enumerate(calls):
        with pytest.raises(KafkaError) as raised:
            call()
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR, number
    assert log.is_offline
    assert [segment.base_offset for segment in log.segments] == [0]


def entry(producer_id: int, last_timestamp: int, first_offset: int = -1) -> ProducerEntry:
    made = ProducerEntry(producer_id)
    made.epoch = 3
    made.last_timestamp = last_timestamp
    made.transaction_first_offset = first_offset
    return made


def test_producer_expires_unless_a_transaction_is_open() -> None:
    content = encode_snapshot([entry(1, NOW - 1_001), entry(2, NOW - 1_000), entry(3, NOW - 999), entry(4, 0, 7)])
    states = ProducerStates()
    states.load(content)
    assert sorted(states.producers) == [1, 2, 3, 4], "what is old may have been written just now"
    for _ in range(2):
        states.remove_expired(NOW, 1_000)
    assert sorted(states.producers) == [3, 4]
    assert states.open_transactions() == [(7, 4)]


def test_damaged_snapshot_is_rejected_and_changes_nothing() -> None:
    content = bytearray(encode_snapshot([entry(1, NOW), entry(2, NOW)]))
    assert [each.producer_id for each in decode_snapshot(bytes(content))] == [1, 2]
    states = ProducerStates()
    states.load(encode_snapshot([entry(9, NOW)]))
    other_version = content.copy()
    other_version[1] = 2
    for damaged in (b"", content[:9], content[:-1], content[:-1] + bytes([content[-1] ^ 1]), other_version):
        with pytest.raises(CorruptSnapshot):
            states.load(bytes(damaged))
    assert list(states.producers) == [9]


def test_count_beyond_the_content_is_a_damaged_snapshot() -> None:
    whole = encode_snapshot([entry(1, NOW), entry(2, NOW)])
    size = (len(whole) - len(encode_snapshot([]))) // 2
    one = whole[len(encode_snapshot([])) :][:size]
    assert len(decode_snapshot(_snapshot_of([one]))) == 1
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(_snapshot_of([one, b""]))


def test_batches_of_another_epoch_do_not_hide_those_of_the_last_one() -> None:
    def header(offset: int, sequence: int, epoch: int) -> BatchHeader:
        data = bytearray(produced(1, sequence, epoch=epoch))
        data[:8] = offset.to_bytes(8, "big")
        return parse_header(data)

    states = ProducerStates()
    rows = [(0, 0, 4), (1, 9, 3), (2, 1, 4), (3, 2, 4)]
    made = [header(*row) for row in rows]
    for each in (made[0], made[2], made[3]):
        states.apply(each, each.base_offset)
    before = list(states.producers[1].batches)
    loaded = ProducerStates()
    loaded.load(states.snapshot())
    assert len(loaded.producers[1].batches) == 1
    loaded.complete_windows(made)
    assert list(loaded.producers[1].batches) == before
