"""Which segments have outlived their topic's retention (UnifiedLog.deleteOldSegments). Decisions only."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from odradek.log.config import LogConfig


class SegmentAge(NamedTuple):
    """What retention needs to know of a segment; size in bytes, the timestamp is the largest one or the file's."""

    base_offset: int
    size: int
    largest_timestamp: int


class Reason(Enum):
    """Why segments go."""

    RETENTION_MS = "retention.ms"
    RETENTION_BYTES = "retention.bytes"
    LOG_START_OFFSET = "log start offset"


def expired(segments: Sequence[SegmentAge], config: LogConfig, now_ms: int) -> int:
    """How many of the first segments are older than retention.ms; may be all of them."""
    if config.retention_ms < 0 or not config.delete:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.largest_timestamp <= config.retention_ms:
            break
        count += 1
    return count


def oversized(segments: Sequence[SegmentAge], config: LogConfig) -> int:
    """How many of the first segments can go while at least retention.bytes remain."""
    if config.retention_bytes < 0 or not config.delete:
        return 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if excess < segment.size or excess <= 0:
            break
        excess -= segment.size
        count += 1
    return count


def below_start(segments: Sequence[SegmentAge], log_start_offset: int) -> int:
    """How many of the first segments end at or below the log start offset; never the last one."""
    count = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset:
            break
        count += 1
    return count


def to_delete(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    high_watermark: int,
    end_offset: int,
) -> tuple[int, Reason] | None:
    """How many of the first segments to delete, and why; None for none.

    Only what is wholly below the high watermark goes, and never an empty last segment. All segments may be named: the
    caller then rolls an empty one first.
    """
    allowed = 0
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        upper = end_offset if is_last else segments[index + 1].base_offset
        if upper > high_watermark or (is_last and not segment.size):
            break
        allowed += 1
    for reason, count in (
        (Reason.RETENTION_MS, expired(segments, config, now_ms)),
        (Reason.RETENTION_BYTES, oversized(segments, config)),
        (Reason.LOG_START_OFFSET, below_start(segments, log_start_offset)),
    ):
        if min(count, allowed):
            return min(count, allowed), reason
    return None
