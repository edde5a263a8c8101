"""Counts in memory that survive rebalances and crashes: a snapshot of each partition's state together with its offset.

Whoever is assigned a partition loads its snapshot and reads on from there. As the state follows from the records before
its offset, the snapshot with the larger offset is always the better one: a late writer does no harm.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from odradek.client import Consumer, Producer, TopicPartition
from odradek.testing import Simulation, eventually, search

CLICKS = [f"page {number % 5}" for number in range(60)]


class Snapshots:
    """A stand-in for a table with one row per partition, which all members reach."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, tuple[int, dict[str, int]]] = {}
        self.late = 0
        """Snapshots that were dropped because a newer one was there."""

    def load(self, partition: TopicPartition) -> tuple[int, dict[str, int]]:
        """(next offset, counts)."""
        return self.rows.get(partition, (0, {}))

    def save(self, partition: TopicPartition, next_offset: int, counts: dict[str, int]) -> None:
        """As `UPDATE ... WHERE next_offset <= :next_offset`: an older snapshot never replaces a newer one."""
        if next_offset < self.load(partition)[0]:
            self.late += 1
            return
        self.rows[partition] = (next_offset, dict(counts))


class Counts:
    """The state of the partitions that this member has now; a listener of the consumer."""

    def __init__(self, snapshots: Snapshots) -> None:
        self.snapshots = snapshots
        self.consumer: Consumer[bytes | None, bytes] | None = None
        self.of: dict[TopicPartition, Counter[str]] = {}
        self.next_offsets: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Load the state and read on from its end."""
        assert self.consumer is not None
        for partition in partitions:
            next_offset, counts = self.snapshots.load(partition)
            self.of[partition], self.next_offsets[partition] = Counter(counts), next_offset
            self.consumer.seek(partition, next_offset)

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Save, so that the next member need not repeat anything; lost partitions come here, too."""
        for partition in partitions:
            self.save(partition)
            self.of.pop(partition, None)

    def save(self, partition: TopicPartition) -> None:
        """Save the state of one partition."""
        if partition in self.of:
            self.snapshots.save(partition, self.next_offsets[partition], self.of[partition])


async def count(servers: str, snapshots: Snapshots, records_per_snapshot: int = 10) -> None:
    """Count the clicks of each page."""
    counts = Counts(snapshots)
    consumer: Consumer[bytes | None, bytes] = Consumer(
        "clicks",
        bootstrap_servers=servers,
        group_id="counters",
        enable_auto_commit=False,
        partition_assignment_strategy=["cooperative-sticky"],  # members keep what they have in memory
        listener=counts,
    )
    counts.consumer = consumer
    async with consumer:
        while True:
            records = await consumer.poll(timeout_ms=1_000, max_records=records_per_snapshot)
            for click in records:
                counts.of[click.topic_partition][click.value.decode()] += 1
                counts.next_offsets[click.topic_partition] = click.offset + 1
            for partition in {click.topic_partition for click in records}:
                counts.save(partition)


async def scenario(sim: Simulation) -> None:
    snapshots = Snapshots()
    await sim.topic("clicks", partitions=4)
    for name in ("counter-1", "counter-2"):
        sim.program(name, lambda: count(sim.bootstrap_servers, snapshots))

    async def click() -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for number, page in enumerate(CLICKS):
                await producer.send_and_wait("clicks", page.encode(), partition=number % 4)
                await asyncio.sleep(0.3)

    def total() -> Counter[str]:
        return sum((Counter(counts) for _, counts in snapshots.rows.values()), Counter[str]())

    clicking = asyncio.create_task(click())
    await sim.faults(20, ["kill program", "pause program", "kill", "reset", "cut", "rebalance"], between_s=0.7)
    await clicking
    await eventually(lambda: total().total() >= len(CLICKS), 120)
    assert total() == Counter(CLICKS)


async def frozen_counter(sim: Simulation) -> None:
    """A counter stands still until another one has its partitions, and wakes up with records that it fetched before."""
    snapshots = Snapshots()
    await sim.topic("clicks", partitions=2)
    frozen = sim.program("counter-1", lambda: count(sim.bootstrap_servers, snapshots))

    def total() -> Counter[str]:
        return sum((Counter(counts) for _, counts in snapshots.rows.values()), Counter[str]())

    async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
        for number, page in enumerate(CLICKS):
            await producer.send_and_wait("clicks", page.encode(), partition=number % 2)
            if number == 20:
                await eventually(lambda: total().total() > 20, 60)
                frozen.pause(90)
    sim.program("counter-2", lambda: count(sim.bootstrap_servers, snapshots))
    await eventually(lambda: total().total() == len(CLICKS), 80)
    await eventually(lambda: snapshots.late > 0, 60)
    assert total() == Counter(CLICKS)


def test_late_snapshot_does_no_harm() -> None:
    search(frozen_counter, range(2))


def test_counts_are_exact_through_rebalances_and_crashes() -> None:
    search(scenario, range(6))
