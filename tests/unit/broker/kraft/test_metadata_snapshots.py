"""When the metadata log gets another snapshot."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.kraft.checkpoints import CheckpointId
from odradek.metadata.features import BROKER_METADATA
from odradek.metadata.image import ClusterImage
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


def written(level: int, *, unknown: bool = False, is_in_transaction: bool = False) -> list[CheckpointId]:
    """The snapshots that are written of a log of 10 records, whose epochs begin at 0 and 10."""
    found: list[CheckpointId] = []
    log: Any = SimpleNamespace(
        epochs=[(3, 0), (4, 10)],
        start=SimpleNamespace(offset=0, epoch=0),
        save_snapshot=lambda checkpoint, _data: found.append(checkpoint),
    )
    image = ClusterImage("c")
    image.features = {"metadata.version": level}
    replay: Any = SimpleNamespace(
        image=image,
        end_offset=10,
        unknown={99} if unknown else set(),
        is_in_transaction=is_in_transaction,
        controls=[],
    )
    asyncio.run(MetadataSnapshots(SystemClock(), 1, 0.0).write(replay, log))
    return found


@pytest.mark.parametrize("level", [BROKER_METADATA.min_level, BROKER_METADATA.max_level])
def test_snapshot_of_each_known_level_has_the_epoch_of_its_last_record(level: int) -> None:
    assert written(level) == [CheckpointId(10, 3)]


@pytest.mark.parametrize("level", [BROKER_METADATA.min_level - 1, BROKER_METADATA.max_level + 1])
def test_metadata_of_an_unknown_level_gets_no_snapshot(level: int) -> None:
    """It would lose what this version cannot read."""
    assert written(level) == []


def test_metadata_that_is_partly_unknown_gets_no_snapshot() -> None:
    """It has unknown records, or a transaction has not ended."""
    assert written(BROKER_METADATA.max_level, unknown=True) == []
    assert written(BROKER_METADATA.max_level, is_in_transaction=True) == []
