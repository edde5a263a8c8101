"""Clusters of both kinds of nodes at older levels of metadata.version, and their upgrade by Apache's tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.metadata.image import Broker
from odradek.metadata.kraft.stored_metadata import read_stored_metadata
from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import Load, assert_nothing_is_lost, create, in_sync, until
from tests.interop.kraft_nodes import KraftNodes

pytestmark = pytest.mark.long

Make = Callable[[int], KraftNodes]


@pytest.fixture
def make(java_tools: JavaTools, tmp_path: Path) -> Iterator[Make]:
    """Formats the nodes of a cluster at a level, and ends them."""
    made: list[KraftNodes] = []

    def nodes(level: int) -> KraftNodes:
        others = ("transaction.version", "group.version", "share.version", "streams.version")
        features = (f"metadata.version={level}", *(f"{name}=0" for name in others))
        made.append(KraftNodes(tmp_path, features=features, controllers=(100,)))
        return made[-1]

    yield nodes
    for each in made:
        each.close()


def work(nodes: KraftNodes) -> None:
    """Producers, transactions and a group; what was acknowledged or committed is there, and nothing twice."""
    nodes.wait_until_serving(1, 2, 3)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    create(admin, "plain")
    create(admin, "transacted")
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(100, 10) and len(load.read) > 50, f"no load: {load.failures}")
        until(lambda: all(in_sync(nodes, node) for node in (1, 2, 3)), "not all replicas are in sync")
    assert_nothing_is_lost(nodes, load)


def registered(nodes: KraftNodes) -> Mapping[int, Broker]:
    """The brokers as the controller's log has them from its beginning."""
    segments = sorted(nodes.metadata_log(100).glob("*.log"))
    return read_stored_metadata(None, 0, [each.read_bytes() for each in segments]).image.brokers


@pytest.mark.parametrize("level", [7, 17, 21])
def test_broker_joins_a_cluster_of_apache_at_an_older_level(level: int, make: Make) -> None:
    nodes = make(level)
    nodes.start_apache(100, 1, 2)
    nodes.start_odradek(3)
    work(nodes)


@pytest.mark.parametrize("level", [17, 22])
def test_brokers_of_apache_work_on_a_controller_at_an_older_level(
    level: int, make: Make, java_tools: JavaTools
) -> None:
    nodes = make(level)
    nodes.start_odradek(100)
    nodes.wait_until_serving(100)
    nodes.start_apache(1, 2)
    nodes.start_odradek(3)
    work(nodes)
    by_broker = ("--bootstrap-server", nodes.bootstrap)
    java_tools.run("features", *by_broker, "upgrade", "--feature", "metadata.version=30")
    features = java_tools.run("features", *by_broker, "describe")
    assert re.search(r"metadata\.version.*FinalizedVersionLevel: 4\.3", features), features
    java_tools.run("topics", *by_broker, "--create", "--topic", "newest", "--partitions", "2")
    assert "PartitionCount: 2" in java_tools.run("topics", *by_broker, "--describe", "--topic", "newest")


def test_directories_of_brokers_are_registered_after_an_upgrade(make: Make, java_tools: JavaTools) -> None:
    """At level 7 no record has them. Apache's brokers register again with the level that has, and so do ours."""
    nodes = make(7)
    nodes.start_apache(100, 1, 2)
    nodes.start_odradek(3)
    nodes.wait_until_serving(1, 2, 3)
    java_tools.run("features", "--bootstrap-server", nodes.bootstrap, "upgrade", "--feature", "metadata.version=30")

    def are_registered() -> bool:
        brokers = registered(nodes)
        return brokers.keys() == {1, 2, 3} and all(len(each.log_dirs) == 1 for each in brokers.values())

    until(are_registered, "a broker has not registered its directory")
    epochs = {node: each.epoch for node, each in registered(nodes).items()}
    work(nodes)
    brokers = registered(nodes)
    assert {node: each.epoch for node, each in brokers.items()} == epochs
    assert not any(each.fenced for each in brokers.values())
