"""Work on many segments is done some at a time, so that the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek.log.config import LogConfig
from odradek.log.directories.flusher import LogFlusher
from odradek.log.partition_log import MOST_DELETED, PartitionLog
from odradek.log.writing.flush_plan import FlushPlan
from tests.unit.log.support import NOW, batch, open_log, put

SEGMENTS = 2 * MOST_DELETED + 5


def log_of_many_segments(directory: Path) -> PartitionLog:
    """One record in each segment."""
    log = open_log(directory, LogConfig(file_delete_delay_ms=0))
    for _ in range(SEGMENTS):
        put(log, batch())
        log.roll()
    return log


def test_retention_deletes_some_segments_at_a_time(tmp_path: Path) -> None:
    log = log_of_many_segments(tmp_path)
    log.advance_log_start(log.end_offset)
    deleted = [log.delete_old_segments(NOW, log.end_offset) for _ in range(4)]
    assert deleted == [MOST_DELETED, MOST_DELETED, 5, 0]
    assert (len(log.segments), log.log_start_offset) == (1, SEGMENTS)


def test_flush_plan_names_the_files_of_some_segments(tmp_path: Path) -> None:
    log, planned = log_of_many_segments(tmp_path), []
    while (plan := log.durability.plan_flush(SEGMENTS, most_segments=30)) is not None:
        planned.append(sum(file.path.endswith(".log") for file in plan.files))  # type: ignore[attr-defined]
        log.durability.execute(plan)
    assert max(planned) <= 31, "30, and the one that ends at the recovery point"
    assert len(planned) == 3
    assert log.durability.recovery_point == SEGMENTS


class LogInPieces:
    """A log of which each plan covers ten offsets."""

    directory = "topic-0"
    is_offline = False

    def __init__(self) -> None:
        self.synced: list[int] = []

    def plan_flush(self, offset: int, *, most_segments: int) -> FlushPlan | None:
        assert most_segments > 0
        flushed = self.synced[-1] if self.synced else 0
        return FlushPlan(min(flushed + 10, offset), [], [], 0) if flushed < offset else None

    def finish_flush(self, plan: FlushPlan) -> None:
        self.synced.append(plan.offset)


def test_flusher_syncs_a_log_in_pieces_up_to_the_offset() -> None:
    async def run(*_: object) -> None:
        return None

    clock = SimpleNamespace(monotonic=lambda: 0.0)
    places: Any = SimpleNamespace(
        lane=lambda _: "lane", disk=SimpleNamespace(run=run), environment=SimpleNamespace(clock=clock)
    )
    log: Any = LogInPieces()
    assert asyncio.run(LogFlusher(places).flush(log, 25))
    assert log.synced == [10, 20, 25]
