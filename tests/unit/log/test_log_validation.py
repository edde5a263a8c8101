"""`odradek.batch.validation`: what a header cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.append import RejectedRecords
from odradek.log.config import LogConfig
from odradek.records.batch import parse_header, patch_crc
from odradek.records.builder import encode_batch
from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, batch, open_log, put


def broken(offset_delta: int) -> memoryview:
    """Two records, the second one with another offset delta than 1; the CRC is right."""
    data = batch(2, key=b"k", value=b"v")
    position = 61
    first_size = data[position] // 2 + 1
    data[position + first_size + 3] = offset_delta * 2
    patch_crc(data, 0, parse_header(data).batch_length)
    return data


def test_records_are_looked_at_only_if_asked_for(tmp_path: Path) -> None:
    log = open_log(tmp_path / "header")
    assert put(log, broken(5)).last_offset == 1
    checked = open_log(tmp_path / "records", LogConfig(batch_validation="records"))
    assert put(checked, batch(2)).last_offset == 1
    for delta in (0, 5):
        with pytest.raises(KafkaError) as caught:
            put(checked, broken(delta))
        assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert checked.end_offset == 2


def test_headers_are_counted_where_every_record_is_looked_at(tmp_path: Path) -> None:
    headers = tuple((f"h{i}", b"x") for i in range(3))
    data = encode_batch([(1, b"k", b"v", headers[:2]), (2, b"k", b"v", headers)])
    unchecked = open_log(tmp_path / "header", LogConfig(max_record_headers=2))
    assert put(unchecked, memoryview(bytearray(data))).last_offset == 1
    checked = open_log(tmp_path / "records", LogConfig(batch_validation="records", max_record_headers=2))
    with pytest.raises(RejectedRecords) as refused:
        put(checked, memoryview(bytearray(data)))
    assert refused.value.record_errors == [(1, "the record has 3 headers (odradek.max.record.headers)")]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("settings", [{"cleanup_policy": frozenset({"compact"})}, {"compression_type": "uncompressed"}])
def test_batch_that_expands_beyond_the_bound_is_too_large(
    tmp_path: Path, codec: Codec, settings: dict[str, object]
) -> None:
    bounded = LogConfig(max_decompressed_bytes=10_000, **settings)  # type: ignore[arg-type]  # of two kinds
    log = open_log(tmp_path / "log", bounded)
    fits = encode_batch([(1, b"k", bytes(9_000), ())], compression=codec)
    assert put(log, memoryview(bytearray(fits))).last_offset == 0
    with pytest.raises(KafkaError) as caught:
        put(log, memoryview(bytearray(encode_batch([(1, b"k", bytes(11_000), ())], compression=codec))))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset == 1


def test_records_without_key_or_outside_the_bounds_are_named(tmp_path: Path) -> None:
    """All of them by their index, though columns only show that there is one."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), message_timestamp_before_max_ms=1000)
    log = open_log(tmp_path / "log", config)
    rows = [(NOW, b"k", b"v", ()), (NOW, None, b"v", ()), (NOW - 5000, b"k", b"v", ()), (-1, b"k", b"v", ())]
    with pytest.raises(RejectedRecords) as caught:
        put(log, memoryview(bytearray(encode_batch(rows))))
    assert [index for index, _ in caught.value.record_errors] == [1, 2]
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    accepted = encode_batch([rows[0], rows[3]])
    assert put(log, memoryview(bytearray(accepted))).last_offset == 1
