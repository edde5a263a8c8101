"""The topic-level settings that a log obeys, under Kafka's names and with Kafka's defaults (LogConfig)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.records.compression import CODEC_NAMES, DEFAULT_LEVELS, Codec

Setting = int | float | bool | str | Sequence[str] | None

LONG_MAX: Final = (1 << 63) - 1
DAY_MS: Final = 24 * 60 * 60 * 1000
HOUR_MS: Final = 60 * 60 * 1000

UNLIMITED: Final = -1
LOG_APPEND_TIME: Final = "LogAppendTime"
CREATE_TIME: Final = "CreateTime"
PRODUCER: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"
VALIDATE_HEADERS: Final = "header"
VALIDATE_RECORDS: Final = "records"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, durations in milliseconds; -1 is unlimited where Kafka says so."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * DAY_MS
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    compression_type: str = PRODUCER
    compression_gzip_level: int = DEFAULT_LEVELS[Codec.GZIP]
    compression_lz4_level: int = DEFAULT_LEVELS[Codec.LZ4]
    compression_zstd_level: int = DEFAULT_LEVELS[Codec.ZSTD]
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    batch_validation: str = VALIDATE_HEADERS
    """Not a topic's setting but the broker's `odradek.batch.validation`: whether every record is looked at, too."""
    max_record_headers: int = 10_000
    """The broker's `odradek.max.record.headers`; checked only where every record is decoded."""
    max_decompressed_bytes: int = 64 << 20
    """The broker's `odradek.max.decompressed.bytes`, for batches that an append decompresses."""
    compact: bool = field(init=False, default=False)
    delete: bool = field(init=False, default=True)
    roll_ms: int = field(init=False, default=0)
    """The age of a full segment: segment.ms, or max.compaction.lag.ms where that is shorter."""
    log_append_time: bool = field(init=False, default=False)
    target_codec: Codec | None = field(init=False, default=None)
    """The codec that batches are brought to; None keeps the producer's."""
    needs_records: bool = field(init=False, default=False)
    """Whether an append from a client has to look at single records."""

    def __post_init__(self) -> None:
        put = object.__setattr__  # a frozen dataclass fills its derived fields this way
        put(self, "compact", "compact" in self.cleanup_policy)
        put(self, "delete", "delete" in self.cleanup_policy)
        put(self, "roll_ms", min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms)
        put(self, "log_append_time", self.message_timestamp_type == LOG_APPEND_TIME)
        name = self.compression_type
        target = None if name == PRODUCER else Codec.NONE if name == UNCOMPRESSED else CODEC_NAMES[name]
        put(self, "target_codec", target)
        validates = self.batch_validation == VALIDATE_RECORDS
        put(self, "needs_records", self.compact or validates or self.message_timestamp_before_max_ms != LONG_MAX)

    @classmethod
    def build(cls, settings: Mapping[str, Setting]) -> LogConfig:
        """From typed topic settings by Kafka's names; absent ones and None take the default, others are ignored."""
        chosen: dict[str, object] = {}
        for name, value in settings.items():
            key = name.replace(".", "_").replace("-", "_")
            if value is not None and key in _SETTINGS:
                chosen[key] = _policy(value) if key == "cleanup_policy" else value
        return cls(**chosen)  # type: ignore[arg-type]  # the definitions of metadata have typed and checked them

    def compression_level(self, codec: int) -> int | None:
        """The configured level of a codec; None for codecs without levels."""
        if codec == Codec.GZIP:
            return self.compression_gzip_level
        if codec == Codec.LZ4:
            return self.compression_lz4_level
        return self.compression_zstd_level if codec == Codec.ZSTD else None


_SETTINGS: Final = frozenset(name for name, entry in LogConfig.__dataclass_fields__.items() if entry.init)


def _policy(value: Setting) -> frozenset[str]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, Sequence | frozenset | set):
        raise TypeError(f"cleanup.policy is {value!r}, not a list of words")
    return frozenset(word.strip() for word in words if word.strip())
