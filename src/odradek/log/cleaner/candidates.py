"""What to compact: how dirty a log is, how far it may be cleaned, which segments become one (LogCleanerManager).

Decisions only; time comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from odradek.log.config import LONG_MAX, LogConfig
from odradek.log.segments.segment import MAX_RELATIVE_OFFSET

DICT_ENTRY_BYTES: Final = 170
"""What an entry of the offset map costs besides its key: object headers, the offset, its share of the hash table."""


class SegmentFacts(NamedTuple):
    """What compaction needs to know of a segment; sizes in bytes, timestamps in ms, -1 for none."""

    base_offset: int
    size: int
    index_size: int
    largest_timestamp: int
    first_timestamp: int
    """Of its first batch."""
    end_offset: int
    """Where the next segment begins."""


class Cleanable(NamedTuple):
    """How much of a log waits for compaction, in bytes; offsets are where it begins and where it has to stop."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether `max.compaction.lag.ms` has run out."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether the log is to be compacted: too much of it is dirty, or `max.compaction.lag.ms` has passed."""
        if self.dirty_bytes <= 0 or self.first_uncleanable_offset <= self.first_dirty_offset:
            # A transaction that is open in an old segment, for one, leaves its bytes dirty and nothing to be done.
            return False
        return self.overdue or self.ratio > config.min_cleanable_dirty_ratio


def cleanable(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    now_ms: int,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    upper_offset: int,
) -> Cleanable:
    """Of a log with these segments, the active one last; nothing from `upper_offset` on may be touched.

    `checkpoint` is where the last compaction ended. One outside of the log is ignored, as after a truncation.
    """
    active = segments[-1]
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    if not log_start_offset <= first_dirty <= max(active.base_offset, log_start_offset):
        first_dirty = log_start_offset
    stop = min(upper_offset, active.base_offset)
    dirty = [segment for segment in segments[:-1] if segment.end_offset > first_dirty]
    clean_bytes = sum(segment.size for segment in segments[:-1] if segment.end_offset <= first_dirty)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                stop = min(stop, segment.base_offset)
                break
    stop = max(stop, first_dirty)
    return Cleanable(
        first_dirty,
        stop,
        clean_bytes,
        sum(segment.size for segment in dirty if segment.base_offset < stop),
        _is_overdue(dirty, config, now_ms),
    )


def _is_overdue(dirty: Iterable[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= LONG_MAX:
        return False
    oldest = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=LONG_MAX)
    return oldest < now_ms - config.max_compaction_lag_ms


def group(segments: Iterable[SegmentFacts], segment_bytes: int, index_bytes: int) -> list[list[SegmentFacts]]:
    """Runs of segments that fit into one together, so that compaction does not leave ever smaller files."""
    groups: list[list[SegmentFacts]] = []
    size = index_size = 0
    for segment in segments:
        current = groups[-1] if groups else None
        if (
            current is not None
            and size + segment.size <= segment_bytes
            and index_size + segment.index_size <= index_bytes
            and segment.end_offset - current[0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            current.append(segment)
        else:
            groups.append([segment])
            size = index_size = 0
        size += segment.size
        index_size += segment.index_size
    return groups
