"""Batches that are examined before their append, so that a thread can do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.append import examine, takes_long
from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.records.batch import parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, open_log

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))
BOUNDED = LogConfig(message_timestamp_before_max_ms=1000)
GZIP = LogConfig(compression_type="gzip")
STAMPED = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1000)


def records(count: int, size: int = 20, *, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> memoryview:
    rows = [(NOW, key, bytes(size), ())] * count
    return memoryview(bytearray(encode_batch(rows, compression=codec)))


@pytest.mark.parametrize(
    ("batch", "config", "is_long"),
    [
        (records(1), COMPACT, False),
        (records(1000), COMPACT, True),
        (records(1000), BOUNDED, True),
        (records(1000), LogConfig(batch_validation="records"), True),
        (records(1000), GZIP, True),
        (records(1000, codec=Codec.GZIP), GZIP, False),
        (records(1000), LogConfig(), False),
        (records(1000), STAMPED, False),
        (records(1, 2 << 20, codec=Codec.GZIP), COMPACT, True),
        (records(1, 2 << 20, codec=Codec.ZSTD), COMPACT, True),
        (records(1, 60_000, codec=Codec.LZ4), COMPACT, False),
        (records(1001, 1, codec=Codec.ZSTD), COMPACT, True),
        (memoryview(bytes(100_000)), COMPACT, False),
        (memoryview(b""), COMPACT, False),
    ],
)
def test_batch_takes_long_by_what_its_topic_demands(batch: memoryview, config: LogConfig, is_long: bool) -> None:
    assert takes_long(batch, config) == is_long


def append(log: PartitionLog, batch: memoryview, config: LogConfig, now_ms: int = NOW) -> None:
    log.append(batch, leader_epoch=0, now_ms=now_ms, examined=examine(batch, config, NOW))


@pytest.mark.parametrize("config", [COMPACT, BOUNDED, GZIP, STAMPED])
def test_examined_batch_is_appended_as_any_other(tmp_path: Path, config: LogConfig) -> None:
    examined, other = open_log(tmp_path / "examined", config), open_log(tmp_path / "other", config)
    for _ in range(2):
        append(examined, records(50), config, NOW + 7)
        other.append(records(50), leader_epoch=0, now_ms=NOW + 7)
    found = [bytes(each) for each in examined.reader.read_batches(0, 100)]
    assert found == [bytes(each) for each in other.reader.read_batches(0, 100)]
    assert len(found) == 2
    assert examined.end_offset == 100


def test_examined_batch_has_the_time_of_its_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", STAMPED)
    append(log, records(2), STAMPED, NOW + 500)
    (found,) = log.reader.read_batches(0, 2)
    assert parse_header(found).max_timestamp == NOW + 500


def test_error_of_the_examination_is_raised_by_the_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", COMPACT)
    with pytest.raises(KafkaError) as caught:
        append(log, records(2, key=None), COMPACT)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert log.end_offset == 0


def test_examination_is_repeated_when_settings_have_changed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", COMPACT)
    with pytest.raises(KafkaError):
        append(log, records(2, key=None), BOUNDED)
    log.set_config(BOUNDED)
    append(log, records(2, key=None), COMPACT)
    assert log.end_offset == 2


def test_examination_of_another_batch_is_no_evidence(tmp_path: Path) -> None:
    """As of a request that names a partition twice."""
    log = open_log(tmp_path / "log", COMPACT)
    with pytest.raises(KafkaError):
        log.append(records(2, key=None), leader_epoch=0, now_ms=NOW, examined=examine(records(2), COMPACT, NOW))


def test_examined_batch_is_not_appended_twice(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", COMPACT)
    fields = BatchFields(producer_id=5, producer_epoch=0, base_sequence=0)
    rows = [(NOW, b"k", b"v", ())]
    first = memoryview(bytearray(encode_batch(rows, fields)))
    again = memoryview(bytearray(encode_batch(rows, fields)))
    append(log, first, COMPACT)
    append(log, again, COMPACT)
    assert log.end_offset == 1
