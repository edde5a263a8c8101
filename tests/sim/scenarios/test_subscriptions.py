"""A consumer that changes its subscription, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import Consumer
from odradek.records.topic_partition import TopicPartition
from odradek.testing.simulation import Simulation, simulate

SETTINGS = {"group.coordinator.rebalance.protocols": "classic,consumer", "group.initial.rebalance.delay.ms": "0"}


@pytest.mark.parametrize("meanwhile", ["nothing", "assigned"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_subscription_that_begins_again_is_read(protocol: str, meanwhile: str) -> None:
    """Between two polls, so that the member stays in its group."""

    async def scenario(sim: Simulation) -> None:
        await sim.topic("t")
        await sim.produce("t", b"1", b"2")
        async with Consumer(
            "t",
            bootstrap_servers=sim.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            await read(consumer, 2)
            consumer.unsubscribe()
            if meanwhile == "assigned":
                consumer.assign([TopicPartition("t", 0)])
            consumer.subscribe(["t"])
            await sim.produce("t", b"3")
            assert await read(consumer, 3) == [b"1", b"2", b"3"]

    simulate(scenario, 3, brokers=1, settings=SETTINGS)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_other_topics_are_read_after_the_end_of_a_subscription(protocol: str) -> None:
    """The coordinator gives out the new topic once it knows that the former one is given up."""

    async def scenario(sim: Simulation) -> None:
        for topic in ("t", "u"):
            await sim.topic(topic)
            await sim.produce(topic, topic.encode())
        async with Consumer(
            "t",
            bootstrap_servers=sim.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            await read(consumer, 1)
            consumer.unsubscribe()
            consumer.subscribe(["u"])
            assert await read(consumer, 1) == [b"u"]

    simulate(scenario, 3, brokers=1, settings=SETTINGS)


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found.extend(record.value for record in await consumer.poll(timeout_ms=500))
    return found
