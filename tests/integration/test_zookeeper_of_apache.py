"""A ZooKeeper that holds the metadata of Apache Kafka: read by an import, and no place for a broker to join."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.zookeeper import ZooKeeper
from odradek.metadata.changes import topic_creation
from odradek.metadata.image import PartitionState, Topic
from odradek.metadata.nodes import (
    CLUSTER_ID,
    PRODUCER_ID_BLOCK,
    BrokerNode,
    ClusterIdNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
)
from odradek.metadata.stores.zookeeper_store import ZooKeeperStore
from odradek.ports.disk import SystemDisk
from odradek.ports.store import Create, MetadataStore
from tests.integration.test_import import odradek
from tests.integration.test_lifecycle import serve
from tests.unit.broker.migration.kraft_folder import CLUSTER, write_checkpoints, write_identity, write_partition
from tests.unit.broker.migration.test_migration import A, stored
from tests.unit.metadata.stores.test_stores import APACHE_BROKER


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=2000, sync=False) as running:
        yield running


async def open_store(connect: str) -> MetadataStore:
    return await ZooKeeperStore.open(connect, SystemDisk(), session_timeout_ms=10_000)


def write_cluster(connect: str) -> None:
    """The nodes of a cluster of one topic, as a stopped Apache Kafka leaves them."""

    async def run() -> None:
        store = await open_store(connect)
        topic = Topic("orders", A, (PartitionState(1, 2, (1,), (1,)),), {"retention.ms": "5"})
        block = ProducerIdBlockNode.encode(ProducerIdBlock(1, 4000, 4999))
        await store.apply([Create(CLUSTER_ID, ClusterIdNode.encode(CLUSTER)), *topic_creation(topic)])
        await store.apply([Create(PRODUCER_ID_BLOCK, block)])
        await store.close()

    asyncio.run(run())


def test_import_reads_settings_from_zookeeper(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    connect = f"{zookeeper.connect}/kafka3"
    write_cluster(connect)
    folder = tmp_path / "kafka3"
    write_identity(folder, kraft=False)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    done = odradek("import", folder, "--data-dir", tmp_path / "new", "--zookeeper", connect)
    assert done.returncode == 0, done.stderr
    image, next_id = stored(tmp_path / "new")
    assert (image.topics["orders"].configs, next_id) == ({"retention.ms": "5"}, 5000)


def test_missing_chroot_is_rejected_and_not_made(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    folder = tmp_path / "kafka3"
    write_identity(folder, kraft=False)
    write_checkpoints(folder, {})
    connect = f"{zookeeper.connect}/missing"
    done = odradek("import", folder, "--data-dir", tmp_path / "new", "--zookeeper", connect)
    assert done.returncode == 2
    assert f"--zookeeper {connect}: there is no node /missing" in done.stderr

    async def exists() -> bool:
        store = await open_store(zookeeper.connect)
        try:
            return await store.get("/missing") is not None
        finally:
            await store.close()

    assert not asyncio.run(exists())


def test_broker_does_not_join_brokers_of_apache(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    async def run() -> tuple[int, str, list[str]]:
        connect = f"{zookeeper.connect}/running"
        store = await open_store(connect)
        try:
            await store.apply([Create(BrokerNode.path(1), APACHE_BROKER, ephemeral=True)])
            properties = tmp_path / "server.properties"
            properties.write_text(
                f"broker.id=2\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n"
                f"zookeeper.connect={connect}\n"
            )
            done = await asyncio.to_thread(serve, str(properties), "--log-level", "error")
            return done.returncode, done.stderr, await store.children("/brokers/ids")
        finally:
            await store.close()

    code, error, brokers = asyncio.run(run())
    assert code == 2, error
    assert "broker 1 of Apache Kafka registered in ZooKeeper" in error
    assert error.count(os.linesep) == 1
    assert brokers == ["1"]
