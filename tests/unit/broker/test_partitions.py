"""Partitions come and go with the cluster image without holding up the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.broker.partitions import Partitions
from odradek.log.config import LogConfig
from odradek.log.directories import LogDirectories
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom

MANY = 300


def image_with(*topics: Topic) -> ClusterImage:
    image = ClusterImage()
    for topic in topics:
        image = image.with_topic(topic)
    return image


def a_topic(name: str, topic_id: bytes, partitions: int) -> Topic:
    state = PartitionState(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    return Topic(name, topic_id, (state,) * partitions)


def start(path: Path) -> tuple[LogDirectories, Partitions]:
    directories = LogDirectories(SystemDisk(), SystemClock(), SeededRandom("partitions"), [str(path)])
    directories.load(cluster_id="c", node_id=1)
    return directories, Partitions(1, directories, lambda _: LogConfig())


async def turns_during(work: Partitions) -> int:
    """How often other work of the loop got its turn."""
    turns = 0
    settling = asyncio.ensure_future(work.settle())
    while not settling.done():
        await asyncio.sleep(0)
        turns += 1
    await settling
    return turns


def test_many_directories_come_and_go_in_many_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"t" * 16, MANY)))
        assert partitions.find("t", MANY - 1) is not None, "it does not have to wait for the others"
        assert await turns_during(partitions) > 5
        assert len(directories.partitions()) == MANY
        partitions.apply(ClusterImage())
        assert partitions.find("t", MANY - 1) is None
        assert await turns_during(partitions) > 5
        assert directories.partitions() == []
        await directories.close()

    asyncio.run(scenario())


def test_a_topic_recreated_before_the_old_one_is_gone_from_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"1" * 16, 2)))
        await partitions.settle()
        partitions.apply(ClusterImage())
        partitions.apply(image_with(a_topic("t", b"2" * 16, 2)))
        new = partitions.find("t", 0)
        assert new is not None
        await partitions.settle()
        assert new.log is directories.log("t", 0)
        assert not new.log.is_offline
        assert sorted(directories.partitions()) == [("t", 0), ("t", 1)]
        for index in (0, 1):
            assert partitions.find("t", index) is not None
            assert (tmp_path / f"t-{index}" / "partition.metadata").exists()
        await directories.close()

    asyncio.run(scenario())
