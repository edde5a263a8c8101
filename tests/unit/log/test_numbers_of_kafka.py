"""Numbers of the log's formats and defaults.

A number of the protocol or of a stored format is not ours to choose: it is compared with Apache Kafka's here.
"""

from __future__ import annotations

from odradek.log.config import CREATE_TIME, LONG_MAX, PRODUCER, UNLIMITED, VALIDATE_HEADERS, LogConfig
from odradek.log.directories.placed_logs import DEFAULT_SETTINGS
from odradek.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from odradek.log.producers.state import BATCHES_TO_RETAIN
from odradek.log.segments.segment import MAX_RELATIVE_OFFSET
from odradek.log.writing.write_queue import WriteSettings


def test_log_without_settings_has_the_defaults_of_kafka() -> None:
    assert LogConfig() == LogConfig(
        segment_bytes=1_073_741_824,
        segment_ms=604_800_000,
        segment_jitter_ms=0,
        segment_index_bytes=10_485_760,
        index_interval_bytes=4_096,
        retention_bytes=-1,
        retention_ms=604_800_000,
        delete_retention_ms=86_400_000,
        file_delete_delay_ms=60_000,
        cleanup_policy=frozenset({"delete"}),
        min_cleanable_dirty_ratio=0.5,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=9_223_372_036_854_775_807,
        max_message_bytes=1_048_588,
        message_timestamp_type=CREATE_TIME,
        message_timestamp_before_max_ms=9_223_372_036_854_775_807,
        message_timestamp_after_max_ms=3_600_000,
        compression_type=PRODUCER,
        compression_gzip_level=-1,
        compression_lz4_level=9,
        compression_zstd_level=3,
        flush_messages=9_223_372_036_854_775_807,
        flush_ms=9_223_372_036_854_775_807,
        min_insync_replicas=1,
        unclean_leader_election_enable=False,
        preallocate=False,
        batch_validation=VALIDATE_HEADERS,
        max_record_headers=10_000,
        max_decompressed_bytes=67_108_864,
    )
    assert (LONG_MAX, UNLIMITED) == (9_223_372_036_854_775_807, -1)


def test_derived_settings_follow_from_the_others() -> None:
    plain = LogConfig()
    assert (plain.compact, plain.delete, plain.log_append_time, plain.needs_records) == (False, True, False, False)
    assert (plain.target_codec, plain.roll_ms) == (None, plain.segment_ms)
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=7)
    assert (compacted.compact, compacted.delete, compacted.needs_records, compacted.roll_ms) == (True, False, True, 7)
    assert LogConfig(max_compaction_lag_ms=7).roll_ms == plain.segment_ms
    assert LogConfig(message_timestamp_type="LogAppendTime").log_append_time
    assert LogConfig(message_timestamp_before_max_ms=5).needs_records
    assert LogConfig(batch_validation="records").needs_records
    assert LogConfig(compression_type="uncompressed").target_codec == 0
    assert [LogConfig(compression_type=name).target_codec for name in ("gzip", "snappy", "lz4", "zstd")] == [1, 2, 3, 4]
    levels = LogConfig(compression_gzip_level=7, compression_lz4_level=8, compression_zstd_level=9)
    assert [levels.compression_level(codec) for codec in range(5)] == [None, 7, None, 8, 9]


def test_formats_have_the_numbers_of_kafka() -> None:
    assert (UNDEFINED_EPOCH, UNDEFINED_OFFSET) == (-1, -1)
    assert BATCHES_TO_RETAIN == 5, "ProducerStateEntry.NUM_BATCHES_TO_RETAIN"
    assert MAX_RELATIVE_OFFSET == 2_147_483_647


def test_directories_without_settings_adopt_and_cordon_nothing() -> None:
    assert (DEFAULT_SETTINGS.adopts, DEFAULT_SETTINGS.joins_quorum) == (False, False)
    assert list(DEFAULT_SETTINGS.cordoned()) == []
    writes = WriteSettings()
    assert (writes.inline_bytes, writes.stall_s, writes.probation_s) == (1_048_576, 0.01, 1.0)
