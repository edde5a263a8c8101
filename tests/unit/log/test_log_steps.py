"""Work on many segments is done some at a time, so that the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.log import history
from odradek.log.config import LogConfig
from odradek.log.directories.flusher import LogFlusher
from odradek.log.partition_log import MOST_DELETED, PartitionLog
from odradek.log.producers.state import decode_snapshot
from odradek.log.writing.flush_plan import FlushPlan
from tests.unit.log.support import NOW, batch, open_log, produced, put

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

    def encode_snapshot(self) -> bool:
        return False

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


PRODUCERS = 25


@pytest.fixture
def log_rolled_with_many_producers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartitionLog:
    """Its producers, of whom a roll encodes no more than ten, have appended once before it and once after."""
    monkeypatch.setattr(history, "_PRODUCERS_AT_ONCE", 10)
    monkeypatch.setattr(history, "_PRODUCERS_IN_A_PIECE", 10)
    log = open_log(tmp_path)
    for producer_id in range(PRODUCERS):
        put(log, produced(producer_id, 0))
    log.roll()
    for producer_id in range(PRODUCERS):
        put(log, produced(producer_id, 1))
    return log


def snapshot_at(log: PartitionLog, offset: int) -> dict[int, int] | None:
    """The last sequence of each producer in the snapshot of that offset; None without the file."""
    path = Path(log.directory) / f"{offset:020}.snapshot"
    if not path.exists():
        return None
    return {entry.producer_id: entry.last_sequence for entry in decode_snapshot(path.read_bytes())}


def test_snapshot_of_many_producers_waits_for_the_flush(log_rolled_with_many_producers: PartitionLog) -> None:
    log = log_rolled_with_many_producers
    assert snapshot_at(log, PRODUCERS) is None
    plan = log.durability.plan_flush(PRODUCERS)
    assert snapshot_at(log, PRODUCERS) == dict.fromkeys(range(PRODUCERS), 0)
    assert plan is not None
    assert [file.path for file in plan.files if file.path.endswith(".snapshot")] != []  # type: ignore[attr-defined]


def test_snapshot_of_many_producers_is_encoded_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_PRODUCERS_AT_ONCE", 10)
    monkeypatch.setattr(history, "_PRODUCERS_IN_A_PIECE", 10)
    log = open_log(tmp_path)
    for producer_id in range(PRODUCERS):
        put(log, produced(producer_id, 0))
    log.roll()
    assert [log.durability.encode_snapshot() for _ in range(3)] == [True, True, False]


def test_next_roll_writes_the_snapshot_of_the_one_before(log_rolled_with_many_producers: PartitionLog) -> None:
    log = log_rolled_with_many_producers
    log.roll()
    assert snapshot_at(log, PRODUCERS) == dict.fromkeys(range(PRODUCERS), 0)


def test_truncation_below_a_roll_drops_its_snapshot(log_rolled_with_many_producers: PartitionLog) -> None:
    log = log_rolled_with_many_producers
    log.truncate_to(PRODUCERS - 5)
    log.durability.flush()
    assert snapshot_at(log, PRODUCERS) is None
    assert snapshot_at(log, PRODUCERS - 5) == dict.fromkeys(range(PRODUCERS - 5), 0)


def test_producers_of_an_unwritten_snapshot_are_known_after_a_crash(
    log_rolled_with_many_producers: PartitionLog, tmp_path: Path
) -> None:
    del log_rolled_with_many_producers
    reopened = open_log(tmp_path, recovery_point=0)
    known = reopened.history.producers.producers
    assert {each: entry.last_sequence for each, entry in known.items()} == dict.fromkeys(range(PRODUCERS), 1)
