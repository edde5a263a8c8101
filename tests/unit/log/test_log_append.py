"""What an append refuses, what it changes in a batch, and when it rolls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.ports.disk import SystemDisk, SystemFile
from odradek.records.batch import parse_header, patch_placement, set_log_append_time
from odradek.records.compression import Codec
from odradek.records.record import decode_records
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, batch, fetched, log_environment, marker, open_log, produced, put


def refusal(log: PartitionLog, data: memoryview, *, origin: Origin = Origin.CLIENT) -> ErrorCode:
    end, size = log.end_offset, log.size_bytes
    with pytest.raises(KafkaError) as caught:
        put(log, data, origin=origin)
    assert (log.end_offset, log.size_bytes) == (end, size), "a refused append must leave nothing"
    return caught.value.code


def stored(log: PartitionLog) -> list[memoryview]:
    return list(log.reader.read_batches(log.log_start_offset, log.end_offset))


def test_offsets_and_leader_epoch_are_patched_in_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = batch(3)
    assert put(log, data, epoch=4) == (0, 2, -1, 0, False)
    assert put(log, data, epoch=5) == (3, 5, -1, 0, False)
    header = parse_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    assert bytes(stored(log)[1]) == bytes(data)
    assert log.history.leader_epochs.entries() == [(4, 0), (5, 3)]


def test_refusals(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(max_message_bytes=1000))
    put(log, batch())
    flipped = batch()
    flipped[-1] ^= 1
    assert refusal(log, flipped) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, batch()[:-1]) == ErrorCode.INVALID_RECORD
    assert refusal(log, memoryview(bytearray())) == ErrorCode.INVALID_RECORD
    assert refusal(log, batch(value=b"x" * 1000)) == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(log, batch(base_offset=5)) == ErrorCode.INVALID_RECORD
    assert refusal(log, memoryview(bytearray(batch()) + bytearray(batch()))) == ErrorCode.INVALID_RECORD
    assert refusal(log, marker(1, commit=True)) == ErrorCode.INVALID_RECORD
    assert refusal(log, batch(timestamps=[NOW + 3_600_001])) == ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, batch(timestamps=[NOW, NOW + 3_600_001, NOW])) == ErrorCode.INVALID_TIMESTAMP
    for magic, code in ((0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)):
        other_format = bytearray(batch())
        other_format[16] = magic
        assert refusal(log, memoryview(other_format)) == code
    short = bytearray(batch())
    short[8:12] = (13).to_bytes(4, "big")
    assert refusal(log, memoryview(short)) == ErrorCode.CORRUPT_MESSAGE, "less than a batch of any format"
    assert refusal(log, memoryview(short)[:11]) == ErrorCode.INVALID_RECORD, "no length: no batch"
    assert refusal(log, batch()[:16]) == ErrorCode.INVALID_RECORD, "no magic: no batch"
    put(log, batch(timestamps=[NOW + 3_600_000]))
    put(log, batch(timestamps=[0]))
    put(log, batch(timestamps=[-1]))


def test_the_beginning_of_another_batch_is_cut_off_as_in_kafka(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    whole = batch(2)
    put(log, memoryview(bytearray(whole) + bytearray(batch()[:30])))
    assert log.end_offset == 2
    assert log.size_bytes == len(whole)


def test_timestamps_before_the_limit_are_found_in_single_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(message_timestamp_before_max_ms=1000))
    put(log, batch(timestamps=[NOW, NOW - 1000]))
    assert refusal(log, batch(timestamps=[NOW, NOW - 1001, NOW])) == ErrorCode.INVALID_TIMESTAMP


def test_compacted_topics_reject_records_without_key(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(cleanup_policy=frozenset({"compact"})))
    put(log, batch(2))
    assert refusal(log, batch(2, key=None)) == ErrorCode.INVALID_RECORD
    assert refusal(log, batch(2, key=None, codec=Codec.GZIP)) == ErrorCode.INVALID_RECORD
    put(log, batch(2, key=b""))


def test_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    data = batch(2, timestamps=[5, NOW * 2])
    assert put(log, data, now=NOW + 7).log_append_time_ms == NOW + 7
    (found,) = stored(log)
    header = parse_header(found)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW + 7)
    assert [record.timestamp for record in decode_records(found, header)] == [NOW + 7, NOW + 7]
    mine = batch()
    set_log_append_time(mine, 0, parse_header(mine), 3)
    assert refusal(log, mine) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"])
@pytest.mark.parametrize("codec", list(Codec))
def test_compression_type(tmp_path: Path, name: str, codec: Codec) -> None:
    log = open_log(tmp_path, LogConfig(compression_type=name, compression_zstd_level=7))
    put(log, batch())
    put(log, batch(20, value=b"same " * 20, codec=codec, producer_id=5, producer_epoch=1, base_sequence=0), epoch=2)
    found = stored(log)[1]
    header = parse_header(found)
    wanted = codec if name == "producer" else Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    assert header.compression == wanted
    assert header[:1] + header[2:3] + header[9:] == (1, 2, 5, 1, 0, 20)
    assert [bytes(record.value or b"") for record in decode_records(found, header)] == [b"same " * 20] * 20
    assert put(log, batch()).first_offset == 21


def test_rolls_by_size_age_and_offset_range(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=200, segment_ms=1000)
    log = open_log(tmp_path, config)
    put(log, batch(value=b"x" * 60))
    put(log, batch(value=b"x" * 60))
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    put(log, batch(timestamps=[NOW + 1001]), now=NOW + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    far = batch(base_offset=(1 << 31) + 10, partition_leader_epoch=0)
    put(log, far, origin=Origin.REPLICATION)
    assert log.segments[-1].base_offset == (1 << 31) + 10
    assert fetched(log, 3) == [(1 << 31) + 10]


def test_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for _ in range(20):
        put(log, batch(timestamps=[NOW + log.end_offset]))
    assert len(log.segments) > 3
    assert fetched(log, 0) == list(range(20))


def test_replication_takes_offsets_as_they_are_and_demands_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    two = bytearray(batch(2, base_offset=10, partition_leader_epoch=3)) + bytearray(
        batch(1, base_offset=20, partition_leader_epoch=4)
    )
    cut_off = bytearray(batch(1, base_offset=30))[:-3]
    assert put(log, memoryview(two + cut_off), origin=Origin.REPLICATION, epoch=9)[:2] == (10, 20)
    assert log.end_offset == 21
    assert log.history.leader_epochs.entries() == [(3, 10), (4, 20)]
    assert fetched(log, 0 + 12) == [20]
    assert refusal(log, batch(base_offset=20), origin=Origin.REPLICATION) == ErrorCode.INVALID_RECORD
    backwards = memoryview(bytearray(batch(base_offset=40)) + bytearray(batch(base_offset=35)))
    assert refusal(log, backwards, origin=Origin.REPLICATION) == ErrorCode.INVALID_RECORD


def test_duplicates_answer_the_first_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(0, 14, 2):
        put(log, produced(1, sequence, 2))
    for sequence in range(4, 14, 2):
        assert put(log, produced(1, sequence, 2)) == (sequence, sequence + 1, NOW, 0, True)
    assert log.end_offset == 14
    assert refusal(log, produced(1, 2, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, produced(1, 12, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, produced(1, 15, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_reads_stop_at_the_bounds(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=400))
    for count in (3, 3, 3, 3):
        put(log, batch(count))
    assert fetched(log, 4, upper=9) == [3, 6]
    assert fetched(log, 4, upper=8) == [3]
    assert fetched(log, 4, upper=4) == []
    assert fetched(log, 4, max_bytes=1) == [3]
    assert log.reader.read(4, 1, upper_offset=12, min_one_batch=False) == ([], 0, 4)
    assert log.reader.read(12, 100, upper_offset=12) == ([], 0, 12)
    for offset in (-1, 13):
        with pytest.raises(KafkaError) as caught:
            log.reader.read(offset, 100, upper_offset=12)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_last_stable_offset_waits_for_the_markers_replication(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, produced(1, 0, transactional=True))
    put(log, produced(2, 0, transactional=True))
    assert log.history.first_unstable_offset == 0
    assert log.history.last_stable_offset(2) == 0
    put(log, marker(1, commit=False), origin=Origin.COORDINATOR)
    assert log.history.first_unstable_offset == 1
    assert log.history.last_stable_offset(2) == 0, "the marker at 2 is not below the high watermark"
    assert log.history.last_stable_offset(3) == 1
    put(log, marker(2, commit=True), origin=Origin.COORDINATOR)
    assert log.history.first_unstable_offset is None
    assert log.history.last_stable_offset(4) == 4
    assert log.reader.aborted_transactions(0, 4) == [(1, 0)]
    assert log.reader.aborted_transactions(3, 4) == []


def test_fenced_markers_and_mixed_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, produced(1, 0, epoch=3, transactional=True))
    assert refusal(log, produced(1, 1, epoch=3)) == ErrorCode.INVALID_TXN_STATE
    assert refusal(log, marker(1, commit=True, epoch=2), origin=Origin.COORDINATOR) == ErrorCode.INVALID_PRODUCER_EPOCH
    put(log, marker(1, commit=True, epoch=3, coordinator_epoch=5), origin=Origin.COORDINATOR)
    fenced = marker(1, commit=True, epoch=3, coordinator_epoch=4)
    assert refusal(log, fenced, origin=Origin.COORDINATOR) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_changed_setting_is_obeyed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch())
    log.set_config(LogConfig(max_message_bytes=10))
    assert refusal(log, batch()) == ErrorCode.MESSAGE_TOO_LARGE


def test_flush_messages(tmp_path: Path) -> None:
    synced: list[str] = []

    class NotingDisk(SystemDisk):
        def sync_directory(self, path: str) -> None:
            synced.append(path)
            super().sync_directory(path)

        def open(self, path: str, *, create: bool = False) -> SystemFile:
            return NotingFile(path, super().open(path, create=create))

    class NotingFile(SystemFile):
        def __init__(self, path: str, file: SystemFile) -> None:
            super().__init__(path, os.dup(file.fileno()))

        def sync(self) -> None:
            synced.append(self.path)
            super().sync()

    environment = log_environment(NotingDisk())
    log = open_log(tmp_path, LogConfig(flush_messages=3), environment)
    for _ in range(2):
        put(log, batch())
    assert synced == []
    put(log, batch())
    assert synced == [log.segments[-1].path, log.directory, str(tmp_path)], "the file, and once its name"
    synced.clear()
    for _ in range(2):
        put(log, batch())
    assert synced == []
    put(log, batch())
    assert synced == [log.segments[-1].path]
    synced.clear()
    old = log.segments[-1].path
    put(log, batch())
    log.roll()
    put(log, batch(2))
    assert synced == [log.segments[-1].path, old, log.directory], "what was not synced before the roll, too"
    synced.clear()
    for _ in range(2):
        put(log, batch())
        log.roll()
    put(log, batch())
    assert synced == [log.segments[-1].path, *(each.path for each in log.segments[1:-1]), log.directory]


def test_delete_records_and_truncate_fully(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=200, file_delete_delay_ms=0))
    for epoch in range(6):
        put(log, batch(), epoch=epoch)
    with pytest.raises(KafkaError) as caught:
        log.advance_log_start(7)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.advance_log_start(4)
    assert not log.advance_log_start(3)
    assert log.history.leader_epochs.entries() == [(4, 4), (5, 5)]
    assert log.delete_old_segments(NOW, 6) > 0
    assert fetched(log, 4) == [4, 5]
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.end_offset) == (100, 100)
    assert len(list(Path(log.directory).glob("*.log"))) == 1
    assert put(log, batch()).first_offset == 100


def test_oversized_batch_is_rejected_by_a_leader_and_kept_by_a_follower(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=300, max_message_bytes=10_000)
    log = open_log(tmp_path, config)
    data = batch(value=b"x" * 400)
    assert refusal(log, data) == ErrorCode.RECORD_LIST_TOO_LARGE
    put(log, data, origin=Origin.REPLICATION)
    assert log.end_offset == 1


def test_restarted_log_is_not_durable_before_it_is_synced(tmp_path: Path) -> None:
    """Until then a power loss may bring the old segments back, of which nothing above the recovery point was synced."""
    log = open_log(tmp_path)
    put(log, batch(2))
    log.durability.flush()
    put(log, batch(2))
    log.truncate_fully_and_start_at(100)
    assert log.durability.recovery_point == 2
    assert log.durability.is_dirty
    plan = log.durability.plan_flush()
    assert plan is not None
    assert log.directory in plan.directories
    log.durability.execute(plan)
    assert log.durability.recovery_point == 100


def test_no_stable_offset_lies_below_the_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, produced(1, 0, 4, transactional=True))
    put(log, produced(1, 4, 4, transactional=True))
    assert log.history.last_stable_offset(8) == 0
    log.advance_log_start(6)
    assert log.history.last_stable_offset(8) == 6


@pytest.mark.parametrize("origin", [Origin.COORDINATOR, Origin.REPLICATION])
def test_no_offset_is_given_twice_when_the_transaction_index_is_broken(tmp_path: Path, origin: Origin) -> None:
    log = open_log(tmp_path)
    put(log, produced(8, 0, transactional=True))
    put(log, marker(8, commit=False), origin=Origin.COORDINATOR)
    put(log, produced(8, 1, transactional=True))
    log.close()
    (index,) = tmp_path.glob("topic-0/*.txnindex")
    index.write_bytes(b"?" * 34)
    log = open_log(tmp_path, clean=True)
    end = memoryview(bytearray(marker(8, commit=False)))
    patch_placement(end, 0, parse_header(end), 3, 0)
    assert refusal(log, end, origin=origin) == ErrorCode.KAFKA_STORAGE_ERROR
    assert put(log, batch()).first_offset == 3
    assert fetched(log, 0) == [0, 1, 2, 3]
    log.close()


@pytest.mark.parametrize("codec", ["producer", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_repeated_batch_is_a_duplicate_when_the_topic_rewrites_it(tmp_path: Path, codec: str, kind: str) -> None:
    log = open_log(tmp_path, LogConfig(compression_type=codec, message_timestamp_type=kind))
    first = put(log, produced(1, 0))
    again = put(log, produced(1, 0), now=NOW + 5)
    assert again == first._replace(duplicate=True, log_append_time_ms=NOW)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_other_batch_is_out_of_order_when_its_sequence_is_used(tmp_path: Path, kind: str) -> None:
    log = open_log(tmp_path, LogConfig(message_timestamp_type=kind))
    put(log, produced(1, 0))
    other = batch(value=b"other", producer_id=1, producer_epoch=0, base_sequence=0)
    assert refusal(log, other) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_repeated_batch_is_a_duplicate_when_a_follower_wrote_it(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader", LogConfig(message_timestamp_type="LogAppendTime"))
    put(leader, produced(1, 0))
    follower = open_log(tmp_path / "follower", LogConfig(message_timestamp_type="LogAppendTime"))
    for view in stored(leader):
        put(follower, memoryview(bytearray(view)), origin=Origin.REPLICATION)
    assert put(follower, produced(1, 0), now=NOW + 9).duplicate


@pytest.mark.parametrize("damaged", [0, 12, 13, 14])
@pytest.mark.parametrize("target", [10, 13, 20])
def test_truncation_ends_at_a_damaged_batch(tmp_path: Path, target: int, damaged: int) -> None:
    """It raised an error when it had removed later segments, and the log ended beyond its last batch from then on."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=150, segment_bytes=2000))
    while len(log.segments) < 3:
        put(log, batch())
    second = log.segments[1]
    base = second.base_offset
    path = Path(second.path)
    size = parse_header(path.read_bytes()).size
    data = bytearray(path.read_bytes())
    data[damaged * size + 16] ^= 1
    path.write_bytes(data)
    assert log.truncate_to(base + target)
    end = log.end_offset
    # An index entry behind the damage leads past it.
    assert end in (base + min(damaged, target), base + target)
    assert damaged or end == base
    assert put(log, batch()).first_offset == end
    assert fetched(log, end) == [end]
    log.close()
    assert open_log(tmp_path, log.config, clean=True).end_offset == end + 1
