"""Batches that the client code of Apache Kafka 4.3.0 wrote (its MemoryRecords; the file beside this test holds them).

Eight batches of the same 40 records by none, gzip (default and 9), snappy, lz4 (default and 17), zstd (default and 19),
from offset 0 on, then an abort marker.
"""

from pathlib import Path

import pytest

from odradek.records.arrow import decode_to_arrow
from odradek.records.batch import check_batch, split_batches
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import ControlRecord, ControlType, decode_control_record, encode_end_transaction
from odradek.records.record import decode_records
from tests.unit.records.strategies import Row, row_of

DATA = memoryview(Path(__file__).with_name("batches_by_kafka_4_3_0.log").read_bytes())
BATCHES = list(split_batches(DATA))
CODECS = [0, 1, 1, 2, 3, 3, 4, 4]


def expected_row(number: int) -> Row:
    key = None if number % 4 == 0 else b"key%d" % number
    value = b'{"value":%d,"text":"some repeating text"}' % (number * 7919 % 10007)
    headers = ((f"h{number}", b"v%d" % number), ("nul", None)) if number % 3 == 0 else ()
    return 1_700_000_000_000 + number * 7 - number % 5 * 1000, key, None if number % 7 == 0 else value, headers


ROWS = [expected_row(number) for number in range(40)]


@pytest.mark.parametrize("number", range(8))
def test_its_records_are_read(number: int) -> None:
    position, header = BATCHES[number]
    assert check_batch(DATA, position, from_client=False) == header
    assert (header.base_offset, header.compression, header.records_count) == (40 * number, CODECS[number], 40)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40 * number)
    assert (header.base_timestamp, header.max_timestamp) == (ROWS[0][0], max(row[0] for row in ROWS))
    assert [row_of(record) for record in decode_records(DATA, header, position)] == ROWS


def test_its_abort_marker_is_read_and_ours_is_the_same() -> None:
    position, header = BATCHES[8]
    (record,) = decode_records(DATA, header, position)
    assert decode_control_record(record) == ControlRecord(ControlType.ABORT, 11)
    marker = encode_end_transaction(
        commit=False, producer_id=9, producer_epoch=2, coordinator_epoch=11, timestamp_ms=1_700_000_000_000,
        base_offset=320, leader_epoch=3,
    )  # fmt: skip
    assert marker == DATA[position:]


def test_our_uncompressed_batch_is_the_same() -> None:
    _, header = BATCHES[0]
    assert encode_batch(ROWS, BatchFields(0, 3, 7, 1, 0)) == DATA[: header.size]


def test_arrow_reads_them_all() -> None:
    table = decode_to_arrow(DATA, include_headers=True)
    for name, column in zip(("timestamp", "key", "value"), zip(*(row[:3] for row in ROWS), strict=True), strict=True):
        assert table.column(name).to_pylist() == [*column] * 8
    assert table.column("offset").to_pylist() == list(range(320))
    headers = [tuple((h["key"], h["value"]) for h in entry or ()) for entry in table.column("headers").to_pylist()]
    assert headers == [row[3] for row in ROWS] * 8
