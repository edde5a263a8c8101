"""What a broker of a KRaft cluster makes sure of before it opens its logs."""

from __future__ import annotations

import asyncio
import errno
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.kraft import opening
from odradek.broker.kraft.opening import _cluster_id, open_quorum_storage
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.opening import QuorumMetadata, Storage
from odradek.broker.ports import Ports
from odradek.kraft.metadata_observer import Server
from odradek.log.directories.checkpoint_formats import MetaProperties, format_clean_shutdown, format_meta_properties
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.metadata.directories import UNASSIGNED
from odradek.ports.clock import Clock
from odradek.ports.disk import SystemDisk
from odradek.ports.store import StoreError, WrongStore
from odradek.wire.frames import ReceiveBuffers
from odradek.wire.messages import cluster_metadata as md
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.unit.broker.kraft.quorum_double import LEADER, ALeader, topic


class AQuorum(ALeader):
    """Names its cluster, too."""

    async def fetch(self, server: Any, request: Any, kind: type, timeout_ms: float) -> Any:
        if isinstance(request, DescribeClusterRequest) and not self.is_away:
            return DescribeClusterResponse(error_message=None, cluster_id="cluster", brokers=[])
        return await super().fetch(server, request, kind, timeout_ms)


class World:
    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.data = directory / "data"
        self.quorum = AQuorum()
        patch.setattr(opening, "Controllers", lambda *_: self.quorum)
        self.config = BrokerConfig(
            {
                "process.roles": "broker",
                "node.id": "7",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "controller:9093",
                "initial.broker.registration.timeout.ms": "200",
                "log.dirs": str(self.data),
            }
        )

    def open(self, then: Any = lambda _storage: None) -> Any:
        async def main() -> Any:
            ports = Ports()
            async with AsyncExitStack() as opened:
                tls = TlsListeners(self.config, [], ports.clock)
                storage = await open_quorum_storage(self.config, ports, tls, ReceiveBuffers(None), opened)
                return then(storage)

        return asyncio.run(main())

    def format(self, cluster_id: str = "cluster", node_id: int = 7) -> None:
        """As `kafka-storage.sh format` does it."""
        self.data.mkdir()
        properties = MetaProperties(cluster_id, node_id, b"d" * 16)
        (self.data / "meta.properties").write_bytes(format_meta_properties(properties))
        (self.data / "bootstrap.checkpoint").write_bytes(b"")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def previous_epoch(storage: Storage) -> int:
    assert isinstance(storage.metadata, QuorumMetadata)
    return storage.metadata.previous_broker_epoch


def test_empty_directory_becomes_one_of_the_quorums_cluster(world: World) -> None:
    world.quorum.append(topic("a"))
    assert world.open(lambda storage: (storage.cluster_id, set(storage.view.image.topics))) == ("cluster", {"a"})
    assert b"cluster.id=cluster" in (world.data / "meta.properties").read_bytes()


def test_directory_that_apache_kafka_formatted_is_taken_over(world: World) -> None:
    world.format()
    ids = world.open(lambda storage: [each.directory_id for each in storage.directories.directories])
    assert ids == [b"d" * 16]


def test_directory_of_another_cluster_is_rejected(world: World) -> None:
    world.format(node_id=8)
    with pytest.raises(LogDirectoryError, match="belongs to node 8"):
        world.open()


def test_epoch_of_a_clean_shutdown_is_registered_again(world: World) -> None:
    world.format()
    (world.data / ".kafka_cleanshutdown").write_bytes(format_clean_shutdown(16))
    assert world.open(previous_epoch) == 16


def test_no_former_epoch_is_registered_without_a_note_of_it(world: World) -> None:
    world.format()
    assert world.open(previous_epoch) == -1


def use(directory: int) -> Any:
    """The life of a process that registers under epoch 16 and is killed."""

    def then(storage: Storage) -> None:
        storage.directories.create("a", directory, topic("a").topic_id)
        storage.directories.startup.registered(16)

    return then


def append_topic(world: World, *directories: bytes) -> None:
    """A topic of as many partitions, each with a replica here that is in sync, in these directories."""
    topic_id = topic("a").topic_id
    partitions = [
        md.PartitionRecord(i, topic_id, [7], [7], [], [], 7, 0, 0, directories=[directory])
        for i, directory in enumerate(directories)
    ]
    world.quorum.append(topic("a"), *partitions)


def test_killed_broker_registers_the_epoch_before_it(world: World) -> None:
    """It has lost no record: its replicas stay eligible, and replicas that may lack records yield to them."""
    world.format()
    append_topic(world, b"d" * 16)
    world.open(use(0))
    assert world.open(previous_epoch) == 16


def test_no_former_epoch_is_registered_after_a_power_loss(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a process has registered so, whatever ends the processes before it."""
    world.format()
    append_topic(world, b"d" * 16)
    world.open(use(0))
    monkeypatch.setattr(SystemDisk, "boot_id", lambda _self: "another boot")
    assert world.open(previous_epoch) == -1
    assert world.open(previous_epoch) == -1
    world.open(lambda storage: storage.directories.startup.registered(17))
    assert world.open(previous_epoch) == 17


def test_no_former_epoch_is_registered_after_a_failure_of_a_disk(world: World) -> None:
    """What the disk was to write back may be gone."""
    world.format()
    append_topic(world, b"d" * 16)

    def fail(storage: Storage) -> None:
        use(0)(storage)
        storage.directories._places.failed(str(world.data), OSError(errno.EIO, "failed"))

    world.open(fail)
    assert world.open(previous_epoch) == -1


@pytest.mark.parametrize(("directory", "epoch"), [(UNASSIGNED, 16), (b"d" * 16, -1)])
def test_replica_assigned_after_a_kill_is_no_lost_one(world: World, directory: bytes, epoch: int) -> None:
    """A dead broker gets replicas of new topics until its session is over."""
    world.format()
    append_topic(world, b"d" * 16)
    world.open(use(0))
    registered = md.RegisterBrokerRecord(broker_id=7, incarnation_id=b"i" * 16, broker_epoch=16, rack=None)
    world.quorum.append(
        registered, md.PartitionRecord(1, topic("a").topic_id, [7], [7], [], [], 7, 0, 0, directories=[directory])
    )
    assert world.open(previous_epoch) == epoch


def test_replica_that_the_newest_metadata_lacks_is_set_aside(world: World) -> None:
    """Not before the metadata log has caught up: new topics would be mistaken for strays."""
    world.format()
    for name in ("kept-0", "stray-0"):
        (world.data / name).mkdir()
        (world.data / name / "00000000000000000000.log").write_bytes(b"")
    topic_id = topic("kept").topic_id
    world.quorum.append(topic("kept"), md.PartitionRecord(0, topic_id, [7], [7], [], [], 7, 0, 0))
    world.open()
    names = {each.name for each in world.data.iterdir() if each.is_dir()}
    assert {"kept-0", "__cluster_metadata-0"} <= names
    assert [name.endswith("-stray") for name in names if name.startswith("stray-0")] == [True]


@pytest.mark.parametrize("feature", ["share.version", "streams.version"])
def test_feature_that_this_version_lacks_is_rejected_with_the_way_back(world: World, feature: str) -> None:
    world.quorum.append(md.FeatureLevelRecord("metadata.version", 30), md.FeatureLevelRecord(feature, 1))
    with pytest.raises(WrongStore, match=f"downgrade --feature {feature}=0"):
        world.open()


def test_quorum_that_does_not_answer_is_an_error(world: World) -> None:
    world.quorum.is_away = True
    with pytest.raises(StoreError, match=r"no controller has named the cluster within 0\.2 s: controller:9093"):
        world.open()
    (world.data / "meta.properties").write_bytes(format_meta_properties(MetaProperties("cluster", 7, b"d" * 16)))
    with pytest.raises(StoreError, match=r"no controller has answered within 0\.2 s"):
        world.open()


def test_quorum_is_asked_once_when_there_is_no_time_to_wait(world: World) -> None:
    """At the deadline the start fails, and does not wait for another round."""
    ports = Ports(clock=cast(Clock, SimpleNamespace(monotonic=lambda: 100.0)))
    asked: list[str] = []

    async def reject(server: Server, *_: Any) -> DescribeClusterResponse:
        assert not asked
        asked.append(server.host)
        return DescribeClusterResponse(error_code=3, error_message=None, cluster_id="", brokers=[])

    controllers: Any = SimpleNamespace(fetch=reject)
    with pytest.raises(StoreError, match="controller:9093 answers DescribeCluster with error 3"):
        asyncio.run(_cluster_id(world.config, ports, controllers, [LEADER], 0.0))
    assert asked == ["controller"]
