"""Long decisions of the active controller: parts that let others have a turn, and records in the order of decisions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.api.services.controller_service import NotTheController
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.controller.topics import NewTopic, TopicReference
from odradek.metadata.kraft.stored_metadata import read_stored_metadata
from tests.unit.broker.quorum.controllers_in_process import add_broker, quorum, until

TOPICS = 150
"""More than one part of a decision changes."""


async def two_brokers_lead(node: ControllerNode) -> None:
    """Topics with two replicas each, all of which broker 7 can lose."""
    await add_broker(node, 7)
    await add_broker(node, 8)
    topics = [NewTopic(f"t{number}", assignments=[(0, [7, 8])]) for number in range(TOPICS)]
    created = await node.parts.controller.decide(lambda c: c.create_topics(topics))
    assert not any(each.failure for each in created)


def led_by(node: ControllerNode, broker: int) -> int:
    image = node.parts.controller.image
    return sum(topic.partitions[0].leader == broker for topic in image.topics.values())


def test_other_work_has_a_turn_while_a_broker_is_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            node = running.active
            await two_brokers_lead(node)
            fence = asyncio.create_task(node.parts.controller.decide(lambda c: c.fence_brokers([7])))
            seen = set()
            while not fence.done():
                await asyncio.sleep(0)
                seen.add(led_by(node, 7))
            assert len(await fence) == TOPICS
            assert any(0 < each < TOPICS for each in seen), "no turn between the first part and the last"
            await until(lambda: node.parts.metadata.end_offset == node.parts.controller.next_offset)
            assert not any(topic.partitions[0].leader == 7 for topic in node.parts.metadata.image.topics.values())

    asyncio.run(scenario())


def test_caller_that_gives_up_leaves_no_decision_half_done(tmp_path: Path) -> None:
    """A broker in controlled shutdown that closes its connection."""

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            node = running.active
            await two_brokers_lead(node)
            fence = asyncio.create_task(node.parts.controller.decide(lambda c: c.fence_brokers([7])))
            await asyncio.sleep(0)
            assert 0 < led_by(node, 7) < TOPICS
            fence.cancel()
            await until(lambda: not led_by(node, 7))

    asyncio.run(scenario())


def test_decision_that_loses_its_controller_is_not_continued(tmp_path: Path) -> None:
    """The rest is decided by the next controller, as its first decision."""

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            node = running.active
            await two_brokers_lead(node)
            fence = asyncio.create_task(node.parts.controller.decide(lambda c: c.fence_brokers([7])))
            await asyncio.sleep(0)
            await running.stop(100)
            with pytest.raises(NotTheController):
                await fence
            await running.start(100)
            await running.wait_until_active()
            await until(lambda: not led_by(running.active, 7))

    asyncio.run(scenario())


def test_records_of_a_large_decision_precede_those_of_the_next_one(tmp_path: Path) -> None:
    """Both are made in one turn of the loop: the second one is made on the image of the first."""

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            node = running.active
            await add_broker(node)
            controller = node.parts.controller
            _, (deleted,) = await asyncio.gather(
                controller.decide(lambda c: c.create_topics([NewTopic("large", 6_000, 1)])),
                controller.decide(lambda c: c.delete_topics([TopicReference("large")])),
            )
            assert deleted.failure is None
            await until(lambda: node.parts.metadata.end_offset == controller.next_offset)
        log = tmp_path / "controller-100" / "__cluster_metadata-0"
        stored = read_stored_metadata(None, 0, [each.read_bytes() for each in sorted(log.glob("*.log"))])
        assert not stored.image.topics
        assert stored.end_offset > 6_000

    asyncio.run(scenario())
