"""Our batches read by kafka-python and aiokafka, and theirs by us: each field, and each byte where uncompressed."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as AiokafkaPythonBuilder
from aiokafka.record.default_records import _DefaultRecordBatchPy as AiokafkaPythonBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from odradek.records.batch import check_batch, parse_header, patch_placement, set_log_append_time
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import encode_end_transaction
from odradek.records.record import decode_records
from tests.unit.records.strategies import BATCHES, Row, plain, row_of

# kafka-python needs extra libraries for snappy and zstd; aiokafka reads and writes them with what it comes with.
KAFKA_PYTHON_CODECS = [0, 1, 3]
AIOKAFKA_CODECS = [0, 1, 2, 3, 4]
PEERS = [
    *(("kafka-python", KafkaPythonBatch, KafkaPythonBuilder, codec) for codec in KAFKA_PYTHON_CODECS),
    *(("aiokafka", AiokafkaBatch, AiokafkaBuilder, codec) for codec in AIOKAFKA_CODECS),
    *(("aiokafka in Python", AiokafkaPythonBatch, AiokafkaPythonBuilder, codec) for codec in AIOKAFKA_CODECS),
]
peers = pytest.mark.parametrize(
    ("reader", "writer", "codec"), [peer[1:] for peer in PEERS], ids=[f"{peer[0]}-{peer[3]}" for peer in PEERS]
)


def theirs(record: Any) -> Row:
    headers = tuple((name, plain(value)) for name, value in record.headers)
    return record.timestamp, plain(record.key), plain(record.value), headers


@peers
@given(rows=BATCHES, transactional=st.booleans())
@settings(max_examples=25)
def test_they_read_what_we_write(reader: Any, writer: Any, codec: int, rows: list[Row], transactional: bool) -> None:
    fields = BatchFields(1234, 3, 5, 6, 7, transactional)
    batch = reader(bytes(encode_batch(rows, fields, compression=codec)))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1234, 5, 6, 7)
    assert bool(batch.is_transactional) == transactional
    records = list(batch)
    assert [theirs(record) for record in records] == rows
    assert [record.offset for record in records] == list(range(1234, 1234 + len(rows)))


@peers
@given(rows=BATCHES, transactional=st.booleans())
@settings(max_examples=25)
def test_we_read_what_they_write(reader: Any, writer: Any, codec: int, rows: list[Row], transactional: bool) -> None:
    builder = writer(
        2, codec, is_transactional=transactional, producer_id=5, producer_epoch=6, base_sequence=7, batch_size=1 << 30
    )
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
    batch = bytes(builder.build())
    view = memoryview(bytearray(batch))
    header = check_batch(view)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert (header.is_transactional, header.records_count) == (transactional, len(rows))
    assert [row_of(record) for record in decode_records(view, header)] == rows
    if not header.compression:
        # aiokafka leaves the leader epoch 0, which no CRC covers.
        fields = BatchFields(0, header.partition_leader_epoch, 5, 6, 7, transactional)
        assert encode_batch(rows, fields) == batch


@pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch, AiokafkaPythonBatch])
def test_log_append_time_is_read_alike(reader: Any) -> None:
    view = memoryview(encode_batch([(5, b"a", b"b", ()), (7, None, b"c", ())], compression=3))
    patch_placement(view, 0, parse_header(view), 70, 0)
    set_log_append_time(view, 0, parse_header(view), 123)
    batch = reader(bytes(view))
    assert batch.validate_crc()
    assert [(record.offset, record.timestamp, record.timestamp_type) for record in batch] == [
        (70, 123, 1),
        (71, 123, 1),
    ]


@pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch, AiokafkaPythonBatch])
@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_read_alike(reader: Any, commit: bool) -> None:
    marker = encode_end_transaction(
        commit=commit, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp_ms=4, base_offset=9
    )
    batch = reader(bytes(marker))
    assert batch.validate_crc()
    assert batch.is_control_batch
    (record,) = batch
    assert bytes(record.key) == bytes([0, 0, 0, int(commit)])
    assert bytes(record.value) == bytes([0, 0, 0, 0, 0, 3])
    assert record.offset == 9
