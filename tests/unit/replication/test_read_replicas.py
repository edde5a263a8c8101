"""The replica that a consumer is sent to (KIP-392)."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.replication.read_replicas import nearest_replica
from tests.unit.replication.replicas import Cluster

RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    for replica in made.replicas.values():
        replica.apply_next()
    for _ in range(3):
        made.produce(1)
        made.fetch(2)
    made.fetch(2)
    made.fetch(3)
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "wanted"),
    [("b", 0, 2), ("b", 3, 2), ("b", 4, None), ("a", 0, None), ("", 0, None), ("c", 0, None)],
)
def test_the_one_furthest_on_in_the_rack(cluster: Cluster, rack: str, offset: int, wanted: int | None) -> None:
    leader = cluster.replicas[1].partition
    assert nearest_replica(leader, rack, offset, RACKS.get) == wanted


def test_only_those_in_sync(cluster: Cluster) -> None:
    cluster.change(isr=(1, 3))
    cluster.replicas[1].apply_next()
    leader = cluster.replicas[1].partition
    assert nearest_replica(leader, "b", 0, RACKS.get) == 3
    assert nearest_replica(leader, "b", 1, RACKS.get) is None, "which does not have it yet"
