"""What compaction keeps of one batch, decided batch by batch."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from odradek.log.cleaner.batch_filter import Kept, LastRecord, Retention, Transactions, walk
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.records.batch import BatchHeader, parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import ControlRecord, ControlType, encode_end_transaction
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records, records_section
from tests.unit.log.support import NOW

HOUR = 3_600_000
Row = tuple[int, bytes | None, bytes | None]


def encoded(rows: Sequence[Row], **fields: Any) -> memoryview:
    return memoryview(encode_batch([(time, key, value, ()) for time, key, value in rows], BatchFields(**fields)))


def with_timestamps_of(rows: Sequence[Row], batch: memoryview) -> list[tuple[int, int, bytes | None, bool]]:
    header = parse_header(batch)
    found = walk(bytes(records_section(batch, header)), header)
    return [(header.base_timestamp + each[3], each[4], each[5], each[6]) for each in found]


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 65, 127, 128, 8191, 8192, 8193, 20_000])
def test_walk_reads_numbers_of_every_length(size: int) -> None:
    """Numbers of one, two and three bytes, and those whose first byte is exactly 0x80."""
    rows: list[Row] = [(NOW + delta, b"k" * size, b"") for delta in (0, size, -size, size + 1)]
    rows += [(NOW, b"", None), (NOW, None, b"v" * size)]
    assert with_timestamps_of(rows, encoded(rows)) == [
        (time, index, key, value is not None) for index, (time, key, value) in enumerate(rows)
    ]


def test_walk_reads_offsets_of_a_long_batch() -> None:
    rows: list[Row] = [(NOW, b"k", b"v")] * 200
    assert [offset for _, offset, _, _ in with_timestamps_of(rows, encoded(rows))] == list(range(200))


def test_walk_returns_the_place_of_each_record() -> None:
    batch = encoded([(NOW, b"a" * 10, b"v" * 300), (NOW + 70, b"b", None)])
    header = parse_header(batch)
    section = bytes(records_section(batch, header))
    found = walk(section, header)
    assert [each[0] for each in found] == [0, found[0][1]]
    assert found[1][1] == len(section)
    first = decode_records(batch, header)[0]
    assert section[found[0][0] : found[0][1]].endswith(b"v" * 300 + b"\0")
    assert first.value == b"v" * 300


@pytest.mark.parametrize("section", [b"", b"\0", b"\x01", b"\x02", b"\x0c\0\0\0\x04ab"])
def test_walk_rejects_records_that_do_not_fit(section: bytes) -> None:
    header = parse_header(encoded([(NOW, b"k", b"v")]))
    with pytest.raises(CorruptRecords):
        walk(section, header)


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, last)


def data(producer_id: int, offset: int, *, is_transactional: bool = True) -> BatchHeader:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "base_offset": offset}
    return parse_header(encoded([(NOW, b"k", b"v")], is_transactional=is_transactional, **fields))


def end(producer_id: int, offset: int, *, commit: bool) -> tuple[BatchHeader, ControlRecord]:
    view = memoryview(
        encode_end_transaction(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
        )
    )
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    header = parse_header(view)._replace(base_offset=offset)
    return header, ControlRecord(kind, 0)


def test_aborted_transactions_begin_in_the_order_of_their_first_offsets() -> None:
    """The index lists them by their ends: one that began early may be the last of three."""
    ends = [aborted(1, 20, 21), aborted(2, 30, 31), aborted(3, 0, 40)]
    transactions = Transactions(ends)
    assert transactions.is_aborted(data(3, 0))
    assert not transactions.is_aborted(data(1, 10))
    assert transactions.is_aborted(data(1, 20))
    assert transactions.on_marker(*end(1, 21, commit=False)) == (False, ends[0])
    assert transactions.is_aborted(data(2, 30))
    assert transactions.on_marker(*end(3, 40, commit=False)) == (False, ends[2])


def test_records_of_the_first_offset_belong_to_the_transaction() -> None:
    transactions = Transactions([aborted(1, 5, 9)])
    assert not transactions.is_aborted(data(1, 4))
    assert transactions.is_aborted(data(1, 5))


def test_records_outside_transactions_are_never_aborted() -> None:
    transactions = Transactions([aborted(1, 0, 9)])
    assert not transactions.is_aborted(data(1, 1, is_transactional=False))


def test_marker_of_an_abort_stays_as_long_as_records_of_it_were_seen() -> None:
    transaction = aborted(1, 0, 9)
    transactions = Transactions([transaction])
    assert transactions.on_marker(*end(1, 9, commit=False)) == (True, None), "all its records are gone"
    transactions = Transactions([transaction])
    transactions.is_aborted(data(1, 3))
    assert transactions.on_marker(*end(1, 9, commit=False)) == (False, transaction)
    assert transactions.on_marker(*end(1, 12, commit=False)) == (True, None), "the next one has no records"


def test_marker_of_an_abort_goes_when_only_an_earlier_one_has_records() -> None:
    earlier, later = aborted(1, 0, 9), aborted(1, 10, 19)
    transactions = Transactions([earlier, later])
    transactions.is_aborted(data(1, 3))
    assert transactions.on_marker(*end(1, 9, commit=False)) == (False, earlier)
    assert transactions.on_marker(*end(1, 19, commit=False)) == (True, None)


def test_marker_of_a_commit_stays_as_long_as_records_of_it_were_seen() -> None:
    transactions = Transactions([])
    assert transactions.on_marker(*end(1, 9, commit=True)) == (True, None)
    transactions.is_aborted(data(1, 10))
    assert transactions.on_marker(*end(2, 11, commit=True)) == (True, None), "another producer's"
    assert transactions.on_marker(*end(1, 12, commit=True)) == (False, None)
    assert transactions.on_marker(*end(1, 13, commit=True)) == (True, None)


def test_emptied_marker_leaves_nothing() -> None:
    header, _ = end(1, 9, commit=True)
    assert Transactions([]).on_marker(header, None) == (True, None)


def test_other_control_records_stay() -> None:
    header, marker = end(1, 9, commit=True)
    other = marker._replace(type=ControlType.LEADER_CHANGE)
    assert Transactions([]).on_marker(header, other) == (False, None)


def retention(
    offsets: Mapping[bytes, int],
    latest: int,
    *,
    last_records: Mapping[int, LastRecord] | None = None,
    now_ms: int = NOW,
    transactions: Transactions | None = None,
) -> Retention:
    levels: dict[int, int | None] = {0: None}
    return Retention(offsets, latest, transactions or Transactions([]), last_records or {}, (now_ms, HOUR), levels)


def keys(kept: Kept) -> list[tuple[int, bytes | None]]:
    assert kept.data is not None
    view = memoryview(kept.data)
    header = parse_header(view)
    return [
        (record.offset, None if record.key is None else bytes(record.key)) for record in decode_records(view, header)
    ]


def test_record_stays_if_it_is_the_last_of_its_key() -> None:
    batch = encoded([(NOW, b"a", b"1"), (NOW, b"b", b"1"), (NOW, b"c", b"1"), (NOW, None, b"1")], base_offset=10)
    kept = retention({b"a": 10, b"b": 12}, 13).keep(batch, parse_header(batch))
    assert keys(kept) == [(10, b"a"), (12, b"c")]


def test_first_records_stay_if_their_keys_were_not_written_again() -> None:
    """The map has the keys of the dirty part only."""
    batch = encoded([(NOW, b"a", b"1"), (NOW, b"b", b"1"), (NOW, b"c", b"1")], base_offset=0)
    kept = retention({b"b": 50}, 60).keep(batch, parse_header(batch))
    assert keys(kept) == [(0, b"a"), (2, b"c")]


def test_records_after_the_cleaned_range_stay() -> None:
    batch = encoded([(NOW, b"a", b"1"), (NOW, b"a", b"2"), (NOW, None, b"3")], base_offset=10)
    kept = retention({b"a": 99}, 10).keep(batch, parse_header(batch))
    assert keys(kept) == [(11, b"a"), (12, None)]


def test_batch_of_which_all_stays_is_unchanged() -> None:
    batch = encoded([(NOW, b"a", b"1")], base_offset=10)
    assert retention({b"a": 10}, 10).keep(batch, parse_header(batch)).data is batch


def test_largest_timestamp_is_that_of_the_records_that_stay() -> None:
    batch = encoded([(NOW + 5, b"a", b"1"), (NOW + 9, b"b", b"1"), (NOW - 3, b"c", b"1")], base_offset=0)
    kept = retention({b"a": 0, b"b": 7, b"c": 2}, 2).keep(batch, parse_header(batch))
    assert kept.max_timestamp == NOW + 5
    assert kept.data is not None
    header = parse_header(memoryview(kept.data))
    assert (header.max_timestamp, header.records_count, header.last_offset_delta) == (NOW + 5, 2, 2)


def test_tombstone_gets_a_horizon_and_goes_when_that_has_passed() -> None:
    batch = encoded([(NOW, b"a", None), (NOW + 1, b"b", b"1")], base_offset=0)
    offsets = {b"a": 0, b"b": 1}
    first = retention(offsets, 1).keep(batch, parse_header(batch))
    assert keys(first) == [(0, b"a"), (1, b"b")]
    assert first.data is not None
    view = memoryview(first.data)
    header = parse_header(view)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + HOUR
    assert [record.timestamp for record in decode_records(view, header)] == [NOW, NOW + 1]
    assert retention(offsets, 1, now_ms=NOW + HOUR - 1).keep(view, header).data is view
    last = retention(offsets, 1, now_ms=NOW + HOUR).keep(view, header)
    assert keys(last) == [(1, b"b")]
    assert last.max_timestamp == NOW + 1


@pytest.mark.parametrize(
    ("last", "is_kept"),
    [
        (LastRecord(10, 0), True),
        (LastRecord(11, 0), False),
        (LastRecord(9, 0), False),
        (LastRecord(None, 0), False),
        (None, False),
    ],
)
def test_empty_batch_stays_if_it_is_the_last_of_its_producer(last: LastRecord | None, is_kept: bool) -> None:
    batch = encoded([(NOW, b"a", b"1")], base_offset=10, producer_id=7, producer_epoch=0, base_sequence=3)
    last_records = {} if last is None else {7: last}
    kept = retention({b"a": 99}, 98, last_records=last_records).keep(batch, parse_header(batch))
    assert (kept.data is not None) is is_kept
    if kept.data is not None:
        header = parse_header(memoryview(kept.data))
        assert (header.records_count, header.last_offset, header.producer_id) == (0, 10, 7)
        assert (header.base_sequence, header.max_timestamp, header.base_timestamp) == (3, NOW, -1)
        again = retention({b"a": 99}, 98, last_records=last_records).keep(memoryview(kept.data), header)
        assert again.data is not None
        assert bytes(again.data) == bytes(kept.data), "a second compaction leaves it alone"


def test_batch_at_the_end_of_the_cleaned_range_leaves_its_header() -> None:
    """Without it the log would end before the offset that the checkpoint names."""
    batch = encoded([(NOW, b"a", b"1")], base_offset=10)
    assert retention({b"a": 99}, 10).keep(batch, parse_header(batch)).data is not None
    assert retention({b"a": 99}, 11).keep(batch, parse_header(batch)).data is None


@pytest.mark.parametrize(("epoch", "is_kept"), [(0, True), (1, False)])
def test_marker_stays_empty_if_it_is_the_last_of_its_producers_epoch(epoch: int, is_kept: bool) -> None:
    view = memoryview(
        encode_end_transaction(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
    )
    last_records = {7: LastRecord(None, epoch)}
    first = retention({}, 50, last_records=last_records).keep(view, parse_header(view))
    assert first.data is not None
    marked = memoryview(first.data)
    header = parse_header(marked)
    assert header.has_delete_horizon
    assert header.records_count == 1
    later = retention({}, 50, last_records=last_records, now_ms=NOW + HOUR - 1).keep(marked, header)
    assert later.data is marked
    last = retention({}, 50, last_records=last_records, now_ms=NOW + HOUR).keep(marked, header)
    assert (last.data is not None) is is_kept
    if last.data is not None:
        assert parse_header(memoryview(last.data)).records_count == 0


def test_marker_of_records_that_stay_is_unchanged() -> None:
    transactions = Transactions([])
    transactions.is_aborted(data(7, 0))
    view = memoryview(
        encode_end_transaction(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
    )
    assert retention({}, 50, transactions=transactions).keep(view, parse_header(view)).data is view


def test_aborted_records_go_with_everything_in_them() -> None:
    transaction = aborted(7, 0, 9)
    transactions = Transactions([transaction])
    batch = encoded(
        [(NOW, b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True, base_offset=0
    )
    found = retention({b"a": 0}, 50, transactions=transactions)
    assert found.keep(batch, parse_header(batch)).data is None
    view = memoryview(
        encode_end_transaction(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
    )
    kept = found.keep(view, parse_header(view)._replace(base_offset=9))
    assert (kept.data, kept.aborted) == (view, transaction)


def test_random_batches_keep_the_last_value_of_each_key() -> None:
    chance = random.Random(1)
    for _ in range(50):
        rows: list[Row] = [
            (NOW + chance.randrange(200), bytes([chance.randrange(5)]) * 70, b"v")
            for _ in range(chance.randrange(1, 90))
        ]
        batch = encoded(rows, base_offset=1000)
        offsets = {key: 1000 + index for index, (_, key, _) in enumerate(rows) if key is not None}
        kept = retention(offsets, 1000 + len(rows) - 1).keep(batch, parse_header(batch))
        assert keys(kept) == sorted((offset, key) for key, offset in offsets.items())
        assert kept.max_timestamp == max(rows[offset - 1000][0] for offset in offsets.values())
