"""A bug that only a rebalance shows, found by a simulation: `python -m pytest examples/testing/test_totals.py`.

Both workers keep totals in memory and save them now and then, with the offsets that they include, in one step. Both
read on from the saved offsets when they are assigned partitions. `add_up` loads the totals once, at its start, so that
a crash is no problem. A member that the group has evicted gets its partitions again without a start: it reads records a
second time that are in its totals, but not in the saved ones. `add_up_from_saved` forgets the totals of partitions that
it is assigned and loads the saved ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from odradek.client import Consumer, Producer, TopicPartition
from odradek.testing import Simulation, eventually, search
from odradek.testing.fault_kinds import FAULTS

PAYMENTS = [1 + number % 7 for number in range(60)]
EVERY_FAULT_BUT_REBALANCES = [kind for kind in FAULTS if kind != "rebalance"]


class Saved:
    """A stand-in for a table with a row per partition: it survives the worker."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, tuple[int, int]] = {}

    def load(self, partition: TopicPartition) -> tuple[int, int]:
        """(next offset, total)."""
        return self.rows.get(partition, (0, 0))

    @property
    def total(self) -> int:
        """The sum over all partitions."""
        return sum(total for _, total in self.rows.values())


class Totals:
    """The totals of this worker; a listener of its consumer."""

    def __init__(self, saved: Saved, *, forgets: bool) -> None:
        self.saved = saved
        self.forgets = forgets
        self.consumer: Consumer[bytes | None, bytes] | None = None
        self.of = Counter({partition: total for partition, (_, total) in saved.rows.items()})

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Read on from the saved offset."""
        assert self.consumer is not None
        for partition in partitions:
            next_offset, total = self.saved.load(partition)
            self.consumer.seek(partition, next_offset)
            if self.forgets:
                self.of[partition] = total


async def work(servers: str, saved: Saved, totals: Totals) -> None:
    """Add up payments, and save every few seconds."""
    consumer: Consumer[bytes | None, bytes] = Consumer(
        "payments", bootstrap_servers=servers, group_id="totals", enable_auto_commit=False, listener=totals
    )
    totals.consumer = consumer
    loop = asyncio.get_running_loop()
    async with consumer:
        due = loop.time() + 3
        while True:
            for payment in await consumer.poll(timeout_ms=500):
                totals.of[payment.topic_partition] += int(payment.value)
            if loop.time() >= due:
                due = loop.time() + 3
                for partition in consumer.assignment():
                    saved.rows[partition] = (await consumer.position(partition), totals.of[partition])


async def add_up(servers: str, saved: Saved) -> None:
    """The worker with the bug."""
    await work(servers, saved, Totals(saved, forgets=False))


async def add_up_from_saved(servers: str, saved: Saved) -> None:
    """The worker without it."""
    await work(servers, saved, Totals(saved, forgets=True))


Worker = Callable[[str, Saved], Awaitable[None]]


def bad_day(worker: Worker, *faults: str) -> Callable[[Simulation], Awaitable[None]]:
    """Payments arrive while faults happen; in the end the saved total is that of all payments."""

    async def scenario(sim: Simulation) -> None:
        saved = Saved()
        await sim.topic("payments", partitions=2)
        sim.program("totals", lambda: worker(sim.bootstrap_servers, saved))
        till = asyncio.create_task(take_payments(sim))
        await sim.faults(30, faults)
        await till
        await eventually(lambda: saved.total >= sum(PAYMENTS), 120)
        await asyncio.sleep(10)
        assert saved.total == sum(PAYMENTS)

    return scenario


async def take_payments(sim: Simulation) -> None:
    """A till that takes two payments a second."""
    async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
        for number, payment in enumerate(PAYMENTS):
            await producer.send_and_wait("payments", b"%d" % payment, partition=number % 2)
            await asyncio.sleep(0.5)


def test_totals_are_right_through_all_faults() -> None:
    search(bad_day(add_up_from_saved), range(10))


def test_crashes_and_cuts_do_not_show_the_payments_counted_twice() -> None:
    search(bad_day(add_up, *EVERY_FAULT_BUT_REBALANCES), range(10))


def test_rebalances_show_the_payments_that_are_counted_twice() -> None:
    with pytest.raises(AssertionError) as caught:
        search(bad_day(add_up, "rebalance"), range(10))
    assert "is evicted from group totals" in caught.value.__notes__[1]
