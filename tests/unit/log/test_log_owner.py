"""What a log reports to its owner, and where it begins here and for its readers."""

from __future__ import annotations

from pathlib import Path

from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.log.writing.flush_plan import RolledLog
from odradek.ports.disk import SystemDisk
from tests.unit.log.support import NOW, StandingClock, batch, open_log, put


class ListeningOwner(StandaloneOwner):
    """Notes each closed segment: where it ends, and where its log's active segment begins by then."""

    def __init__(self) -> None:
        super().__init__(SystemDisk())
        self.closed: list[tuple[int, int]] = []

    def segment_closed(self, log: RolledLog, end_offset: int) -> None:
        self.closed.append((end_offset, log.active_base_offset))
        super().segment_closed(log, end_offset)


def owned(owner: StandaloneOwner) -> LogEnvironment:
    return LogEnvironment(SystemDisk(), StandingClock(), owner=owner)


def test_log_reports_each_closed_segment_once(tmp_path: Path) -> None:
    owner = ListeningOwner()
    log = open_log(tmp_path, LogConfig(segment_bytes=200), owned(owner))
    for _ in range(3):
        put(log, batch(2, value=b"x" * 50))
    assert owner.closed == [(2, 2), (4, 4)]


def test_log_reports_no_closed_segment_when_the_active_one_is_empty(tmp_path: Path) -> None:
    owner = ListeningOwner()
    log = open_log(tmp_path, env=owned(owner))
    log.roll()
    log.roll(100)
    assert (owner.closed, log.active_base_offset) == ([], 100)


def test_standalone_log_is_durable_up_to_its_closed_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, env=owned(ListeningOwner()))
    put(log, batch(2))
    assert log.durability.recovery_point == 0
    log.roll()
    put(log, batch())
    assert (log.durability.recovery_point, log.end_offset) == (2, 3)


def test_local_log_start_is_the_log_start_within_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(4))
    log.advance_log_start(3)
    assert (log.segments[0].base_offset, log.local_log_start_offset, log.log_start_offset) == (0, 3, 3)


def test_log_start_follows_the_local_log_start_after_retention(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(retention_ms=1000))
    put(log, batch(4))
    assert log.delete_old_segments(NOW + 5000, log.end_offset) == 1
    assert (log.local_log_start_offset, log.log_start_offset) == (4, 4)
