"""The figures of log directories."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek.broker.observability.storage_metrics import UNCLEANABLE, StorageMetrics
from odradek.log.config import LogConfig
from odradek.log.directories.log_directories import LogDirectories
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from tests.unit.log.support import StandingClock


def test_uncleanable_partitions_are_counted_by_log_directory(tmp_path: Path) -> None:
    disk, clock = SystemDisk(), StandingClock()
    paths = [f"{tmp_path}/{name}" for name in "ab"]
    directories = LogDirectories(disk, clock, SeededRandom("1"), paths)
    directories.startup.load(cluster_id="c", node_id=1)
    for partition in range(3):
        directories.open("t", partition, bytes(16), LogConfig())
    cleaner: Any = SimpleNamespace(uncleanable={("t", 0): "damaged", ("t", 2): "damaged"})
    metrics = StorageMetrics(directories, cleaner, disk, clock.monotonic)
    found = {family.metric: family.samples for family in metrics.collect() if family is not None}
    counts = {path: sum(f"{path}/t-{n}" == directories.log("t", n).directory for n in (0, 2)) for path in paths}  # type: ignore[union-attr]
    assert {labels: value for _, labels, value in found[UNCLEANABLE]} == {
        f'logDirectory="{path}"': count for path, count in counts.items()
    }
    assert sorted(counts.values()) == [0, 2]
