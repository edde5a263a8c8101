"""Leader epochs, retention, indexes, the transaction index, the file cache, and configuration, each alone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.config import LONG_MAX, LogConfig
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.retention import Reason, SegmentAge, to_delete
from odradek.log.segments.files import FileCache, base_offset_of
from odradek.log.segments.indexes import CorruptIndex, OffsetIndex, TimeIndex
from odradek.log.segments.transaction_index import AbortedTransaction, collect, decode, encode
from odradek.ports.disk import SystemDisk
from odradek.records.compression import Codec

# --- leader epochs ---


def test_end_offset_for_epoch() -> None:
    epochs = LeaderEpochs([(2, 0), (5, 10), (6, 20)])
    assert epochs.end_offset_for(6, 33) == (6, 33)
    assert epochs.end_offset_for(5, 33) == (5, 20)
    assert epochs.end_offset_for(3, 33) == (2, 10)
    assert epochs.end_offset_for(1, 33) == (1, 0)
    assert epochs.end_offset_for(7, 33) == (-1, -1)
    assert epochs.end_offset_for(-1, 33) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, 5) == (-1, -1)
    assert [epochs.epoch_for(offset) for offset in (0, 9, 10, 25)] == [2, 2, 5, 6]


def test_truncation_of_epochs() -> None:
    epochs = LeaderEpochs([(2, 0), (5, 10), (6, 20)])
    assert epochs.truncate_from_start(15)
    assert epochs.entries() == [(5, 15), (6, 20)]
    assert not epochs.truncate_from_start(15)
    assert not epochs.truncate_from_start(3)
    assert epochs.truncate_from_end(20)
    assert (epochs.entries(), epochs.latest) == ([(5, 15)], 5)
    assert epochs.truncate_from_end(0)
    assert (epochs.entries(), epochs.latest) == ([], -1)


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 50)), max_size=12))
def test_epochs_always_grow(assignments: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, offset in assignments:
        epochs.assign(epoch, offset)
        assert epochs.latest == epoch
        entries = epochs.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))


# --- retention ---

SEGMENTS = [SegmentAge(0, 100, 1000), SegmentAge(10, 100, 2000), SegmentAge(20, 100, 3000)]


def decide(
    config: LogConfig, now: int = 3000, start: int = 0, high: int = 30, end: int = 30
) -> tuple[int, Reason] | None:
    return to_delete(SEGMENTS, config, now, log_start_offset=start, high_watermark=high, end_offset=end)


def test_retention_by_time() -> None:
    assert decide(LogConfig(retention_ms=2000)) is None
    assert decide(LogConfig(retention_ms=1999)) == (1, Reason.RETENTION_MS)
    assert decide(LogConfig(retention_ms=1), now=9000) == (3, Reason.RETENTION_MS)
    assert decide(LogConfig(retention_ms=1), now=9000, high=15) == (1, Reason.RETENTION_MS)
    assert decide(LogConfig(retention_ms=1), now=9000, high=29) == (2, Reason.RETENTION_MS)
    assert decide(LogConfig(retention_ms=-1), now=LONG_MAX) is None
    assert decide(LogConfig(retention_ms=1, cleanup_policy=frozenset({"compact"})), now=9000) is None


def test_retention_by_size() -> None:
    assert decide(LogConfig(retention_bytes=300)) is None
    assert decide(LogConfig(retention_bytes=201)) is None
    assert decide(LogConfig(retention_bytes=200)) == (1, Reason.RETENTION_BYTES)
    assert decide(LogConfig(retention_bytes=0)) == (3, Reason.RETENTION_BYTES)


def test_retention_by_start_offset() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert decide(config, start=9) is None
    assert decide(config, start=10) == (1, Reason.LOG_START_OFFSET)
    assert decide(config, start=30) == (2, Reason.LOG_START_OFFSET)


def test_an_empty_last_segment_stays() -> None:
    segments = [SegmentAge(0, 100, 0), SegmentAge(10, 0, 0)]
    config = LogConfig(retention_ms=1)
    assert to_delete(segments, config, 9000, log_start_offset=0, high_watermark=10, end_offset=10) == (
        1,
        Reason.RETENTION_MS,
    )


# --- indexes ---


@pytest.mark.parametrize("count", [0, 1, 100, 1500, 4000])
def test_offset_index(tmp_path: Path, count: int) -> None:
    cache = FileCache(SystemDisk())
    path = f"{tmp_path}/x.index"
    index = OffsetIndex(cache, path, 1000, fresh=True)
    for entry in range(1, count + 1):
        index.append(1000 + 10 * entry, 100 * entry)
    for opened in (index, None):
        if opened is None:
            index.flush()
            cache.forget(path)
            opened = OffsetIndex(cache, path, 1000) if count else index
        assert len(opened) == count
        for offset in {1000, 1009, 1010, 1011, 1000 + 5 * count, 999 + 10 * count, 2000 + 10 * count}:
            assert opened.lookup(offset) == 100 * min(count, max(0, (offset - 1000) // 10))
        assert opened.floor(100 * count, 1010) == 0
        assert opened.floor(50 * count, 1 << 31) == 50 * count // 100 * 100
    index.truncate_to(1000 + 5 * count)
    assert len(index) == max(0, (5 * count - 1) // 10)


def test_time_index(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk())
    index = TimeIndex(cache, f"{tmp_path}/x.timeindex", 50, fresh=True)
    assert index.last_entry() == (-1, 50)
    for timestamp, offset in ((100, 55), (100, 60), (90, 65), (200, 70)):
        index.maybe_append(timestamp, offset)
    index.flush()
    assert (tmp_path / "x.timeindex").read_bytes().hex() == "00000000000000640000000500000000000000c800000014"
    assert [index.lookup(at) for at in (99, 100, 150, 200, 300)] == [50, 55, 55, 70, 70]
    index.truncate_to(70)
    assert index.last_entry() == (100, 55)


@pytest.mark.parametrize("content", [b"123", b"\xff" * 8, bytes(16)])
def test_broken_offset_index(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.index").write_bytes(content)
    with pytest.raises(CorruptIndex):
        OffsetIndex(FileCache(SystemDisk()), f"{tmp_path}/x.index", 0)


def test_offset_index_with_an_entry_for_the_base_offset_is_sound(tmp_path: Path) -> None:
    """Its batch has one record and begins the segment (`OffsetIndex.sanityCheck`)."""
    (tmp_path / "x.index").write_bytes(bytes(8))
    assert OffsetIndex(FileCache(SystemDisk()), f"{tmp_path}/x.index", 7).lookup(7) == 0


def test_transaction_index() -> None:
    transactions = [AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 7, 12, 9), AbortedTransaction(3, 20, 30, 31)]
    data = b"".join(map(encode, transactions))
    assert len(data) == 3 * 34
    assert decode(data + b"torn", 0) == transactions
    with pytest.raises(ValueError, match="version"):
        decode(b"\x00\x01" + data[2:], 0)
    with pytest.raises(ValueError, match="ends at"):
        decode(data, 6)
    found: list[AbortedTransaction] = []
    assert not collect(transactions, 6, 100, found)
    assert found == transactions[1:]
    found.clear()
    assert collect(transactions, 0, 6, found)
    assert found == transactions[:1]


# --- files and settings ---


def test_the_file_cache_is_bounded_and_ranges_keep_their_file(tmp_path: Path) -> None:
    cache = FileCache(SystemDisk(), limit=2)
    first = cache.get(f"{tmp_path}/a", create=True)
    first.append([b"content"])
    for name in "bcd":
        cache.get(f"{tmp_path}/{name}", create=True)
    assert len(cache) == 2
    assert first.read(0, 7) == b"content"
    assert cache.get(f"{tmp_path}/a") is not first
    with pytest.raises(FileNotFoundError):
        cache.get(f"{tmp_path}/missing")


def test_base_offsets_of_names() -> None:
    assert base_offset_of("00000000000000000012.log") == 12
    assert base_offset_of("00000000000000000012.log.deleted") == 12
    for name in ("12.log", "leader-epoch-checkpoint", "0000000000000000001x.log", ""):
        assert base_offset_of(name) is None


def test_settings() -> None:
    assert LogConfig.build({}) == LogConfig()
    config = LogConfig.build(
        {
            "cleanup.policy": ["compact", "delete"],
            "segment.bytes": 5,
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "zstd",
            "compression.zstd.level": 9,
            "min.insync.replicas": 2,
            "retention.ms": None,
            "leader.replication.throttled.replicas": "",
        }
    )
    assert (config.compact, config.delete, config.segment_bytes, config.log_append_time) == (True, True, 5, True)
    assert (config.target_codec, config.compression_level(Codec.ZSTD), config.min_insync_replicas) == (Codec.ZSTD, 9, 2)
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert LogConfig.build({"cleanup.policy": "compact"}).delete is False


def test_cleared_epochs_are_assigned_from_the_first() -> None:
    epochs = LeaderEpochs([(2, 0), (5, 10)])
    epochs.clear()
    assert (epochs.entries(), epochs.latest) == ([], -1)
    epochs.assign(1, 3)
    assert (epochs.entries(), epochs.latest) == ([(1, 3)], 1)


def test_retention_of_no_time_deletes_what_is_older_than_now() -> None:
    assert decide(LogConfig(retention_ms=0), now=3000) == (2, Reason.RETENTION_MS)
    assert decide(LogConfig(retention_ms=0), now=3001) == (3, Reason.RETENTION_MS)
