"""What a consumer does when one of its topics is deleted, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import Consumer
from odradek.client.admin import Admin, NewTopic
from odradek.client.errors import CallTimedOut
from odradek.records.topic_partition import TopicPartition
from odradek.testing.simulation import Simulation, simulate

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.initial.rebalance.delay.ms": "0",
}
KEPT, DELETED = TopicPartition("kept", 0), TopicPartition("deleted", 0)


async def longest_pause(sim: Simulation, protocol: str | None, members: int) -> float:
    """Seconds without a record of the topic that is kept, which gets one each second, during and after a deletion."""
    for place in (KEPT, DELETED):
        await sim.topic(place.topic)
        await sim.produce(place.topic, b"first")
    read_at = [sim.now]
    topics: set[str] = set()

    async def read() -> None:
        async with Consumer(
            KEPT.topic,
            DELETED.topic,
            bootstrap_servers=sim.bootstrap_servers,
            group_id=None if protocol is None else "g",
            group_protocol=protocol or "classic",
            auto_offset_reset="earliest",
            metadata_max_age_ms=5_000,
        ) as consumer:
            while True:
                for record in await consumer.poll(timeout_ms=500):
                    topics.add(record.topic)
                    if record.topic == KEPT.topic:
                        read_at.append(sim.now)

    tasks = [asyncio.create_task(read()) for _ in range(members)]
    while len(topics) < 2:
        await asyncio.sleep(0.1)
    async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
        await admin.delete_topics([DELETED.topic])
    del read_at[:-1]
    for _ in range(120):
        await asyncio.sleep(1)
        await sim.produce(KEPT.topic, b"next")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return max(later - earlier for earlier, later in zip(read_at, [*read_at[1:], sim.now], strict=True))


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("protocol", ["classic", "consumer", None])
def test_deletion_of_a_topic_does_not_stop_the_others(protocol: str | None, members: int) -> None:
    async def scenario(sim: Simulation) -> None:
        assert await longest_pause(sim, protocol, members) < 10

    simulate(scenario, 5, brokers=1, settings=SETTINGS)


@pytest.mark.parametrize("pause_seconds", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_recreated_topic_is_read_from_its_beginning(protocol: str, pause_seconds: float) -> None:
    """Its records have offsets that the consumer has read, and committed, of the topic before."""

    async def scenario(sim: Simulation) -> None:
        await sim.topic("t")
        await sim.produce("t", *[b"old"] * 20)
        read: list[bytes | None] = []

        async def consume() -> None:
            async with Consumer(
                "t",
                bootstrap_servers=sim.bootstrap_servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=100,
            ) as consumer:
                while True:
                    read.extend(record.value for record in await consumer.poll(timeout_ms=100))

        task = asyncio.create_task(consume())
        while len(read) < 20:
            await asyncio.sleep(0.1)
        await asyncio.sleep(6)
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            await admin.delete_topics(["t"])
            await asyncio.sleep(pause_seconds)
            await admin.create_topics([NewTopic("t", 1, 1)])
        new = [b"%d" % number for number in range(50)]
        await sim.produce("t", *new)
        await asyncio.sleep(30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert set(read) >= set(new)

    simulate(scenario, 7, brokers=1, settings=SETTINGS)


def test_commit_of_given_offsets_of_a_deleted_topic_fails() -> None:
    async def scenario(sim: Simulation) -> None:
        for place in (KEPT, DELETED):
            await sim.topic(place.topic)
        async with (
            Admin(bootstrap_servers=sim.bootstrap_servers) as admin,
            Consumer(bootstrap_servers=sim.bootstrap_servers, group_id="g", default_api_timeout_ms=5_000) as consumer,
        ):
            consumer.assign([KEPT, DELETED])
            for place in (KEPT, DELETED):
                consumer.seek(place, 0)
            await admin.delete_topics([DELETED.topic])
            await consumer.commit()
            with pytest.raises(CallTimedOut, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await consumer.commit({DELETED: 0})
            assert set(await consumer.committed([KEPT, DELETED])) == {KEPT}

    simulate(scenario, 5, brokers=1, settings=SETTINGS)
