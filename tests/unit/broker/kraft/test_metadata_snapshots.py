"""When the metadata log gets another snapshot."""

from __future__ import annotations

import pytest

from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.ports.clock import SystemClock


@pytest.mark.parametrize(
    ("appended", "age", "is_due"),
    [
        (0, 10_000.0, False),
        (65_535, 10_000.0, False),
        (65_536, 99.0, False),
        (65_536, 100.0, True),
        (999_999, 99.0, False),
        (1_000_000, 0.0, True),
    ],
)
def test_snapshot_is_due_after_its_bytes_or_its_time(appended: int, age: float, is_due: bool) -> None:
    """An old snapshot of a log that has hardly grown is as good as a new one."""
    snapshots = MetadataSnapshots(SystemClock(), 1_000_000, 100.0)
    snapshots.begun_at(50.0)
    snapshots.appended(appended)
    assert snapshots.is_due(50.0 + age) is is_due


def test_snapshot_is_due_after_its_bytes_only_when_no_interval_is_set() -> None:
    snapshots = MetadataSnapshots(SystemClock(), 1_000_000, 0.0)
    snapshots.begun_at(0.0)
    snapshots.appended(999_999)
    assert not snapshots.is_due(1e9)
    snapshots.appended(1)
    assert snapshots.is_due(0.0)
