"""Replicas that our controller moves between brokers of Apache Kafka and of Odradek."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.client import Admin, TopicPartition
from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import Load, assert_nothing_is_lost, progress, start_cluster, until
from tests.interop.kraft_nodes import KraftNodes

pytestmark = pytest.mark.long

TOPICS = ("plain", "transacted")
TARGETS = ([1], [3, 1], [2, 3], [1, 2, 3])
"""Fewer replicas, more, others in the place of those before, and all in another order."""


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    """Controller 100 votes alone; broker 1 is Apache's."""
    made = KraftNodes(tmp_path, controllers=(100,), settings={"min.insync.replicas": "1"})
    yield made
    made.close()


def move(bootstrap: str, replicas: list[int]) -> None:
    """Move all partitions of the topics of `Load`. Raises KafkaError."""

    async def work() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            targets = {TopicPartition(topic, index): replicas for topic in TOPICS for index in range(4)}
            failures = (await admin.replicas.reassign(targets)).values()
            assert not any(failures), failures

    asyncio.run(work())


def has_replicas(admin: AdminClient, replicas: list[int]) -> bool:
    """Whether the broker knows each partition with these replicas, all in sync."""
    known = admin.list_topics(timeout=10).topics
    partitions = [each for topic in TOPICS for each in known[topic].partitions.values()]
    return all(each.replicas == replicas and sorted(each.isrs) == sorted(replicas) for each in partitions)


def test_nodes_of_apache_follow_moves_that_our_controller_decides(nodes: KraftNodes) -> None:
    """The replicas of a record and their directories must fit, or each of Apache's nodes ends for good."""
    start_cluster(nodes, odradek=(100, 2, 3), apache=(1,))
    by_apache = AdminClient({"bootstrap.servers": f"127.0.0.1:{nodes.ports[1]}"})
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        for replicas in TARGETS:
            move(nodes.bootstrap, replicas)
            until(partial(has_replicas, by_apache, replicas), f"Apache's broker does not have {replicas}")
            progress(load)
        nodes.stop(1)
        nodes.start_apache(1)
        nodes.wait_until_serving(1)
        until(partial(has_replicas, by_apache, TARGETS[-1]), "Apache's broker does not come back")
    assert_nothing_is_lost(nodes, load)
