"""Machines that run several brokers each and share a ZooKeeper: their ids, and where copies lie."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.cluster import ClusterProcess
from bench.peers.zookeeper import ZooKeeper
from tests.integration.clusters import QUICK, described
from tests.integration.waiting import until

SESSION_MS = 2000
"""A process that is gone keeps its id so long, and half of it more."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), sync=False) as running:
        yield running


def machine(zookeeper: ZooKeeper, folder: Path, first_id: int) -> ClusterProcess:
    """Two brokers; the racks are set since all of them run on one host here."""
    settings = {
        **QUICK,
        "zookeeper.connect": f"{zookeeper.connect}/clusters/machines",
        "zookeeper.session.timeout.ms": SESSION_MS,
        "broker.rack": folder.name,
    }
    return ClusterProcess(folder / "data", 2, settings, ["--first-id", str(first_id)])


def test_copies_of_a_partition_lie_on_different_machines(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with machine(zookeeper, tmp_path / "a", 1) as first, machine(zookeeper, tmp_path / "b", 3) as second:
        assert (sorted(first.pids()), sorted(second.pids())) == ([1, 2], [3, 4])
        assert {each.name for each in (tmp_path / "b" / "data").glob("broker-*")} == {"broker-3", "broker-4"}
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        until(lambda: len(admin.list_topics(timeout=60).brokers) == 4, "all brokers are known")
        topic = f"t-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, 12, 2)])[topic].result(30)
        replicas = [sorted(each.replicas) for each in described(admin, topic).partitions.values()]
        assert len(replicas) == 12
        assert all(low <= 2 < high for low, high in replicas), replicas

        # A third machine whose administrator has not thought of its ids.
        (tmp_path / "c").mkdir()
        third = machine(zookeeper, tmp_path / "c", 2)
        done = subprocess.run(third.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done.stderr
        address = first.bootstrap.split(",")[1]
        assert (
            f"odradek serve: metadata store: broker id 2 is registered by another process, at {address} on "
            in done.stderr
        )
        assert "set another broker.id (serve --brokers N: --first-id)" in done.stderr
        assert sorted(first.pids()) == [1, 2]
