"""A bug that only bad days show, found by a simulation: `python -m pytest examples/testing/test_shipping.py`.

`ship_at_once` ships orders as they come, and the client commits its position once a second. That is fine on a good day.
A worker that is killed between a shipment and the next commit ships the order a second time. `ship_and_remember` keeps
the place of each shipped order in the warehouse, in one step with the shipment, and begins where that memory ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.client import Consumer, Producer, TopicPartition
from odradek.testing import Simulation, eventually, search

ORDERS = [f"order {number}" for number in range(30)]


class Warehouse:
    """A stand-in for a database with transactions: it survives the worker."""

    def __init__(self) -> None:
        self.shipped: list[str] = []
        """Orders, as often as they were shipped."""
        self.next_offsets: dict[int, int] = {}
        """The first offset of each partition that is not shipped yet."""

    def ship(self, order: str) -> None:
        """Ship an order."""
        self.shipped.append(order)

    def ship_once(self, order: str, partition: int, offset: int) -> None:
        """Ship an order and remember its place, both or neither."""
        if offset >= self.next_offsets.get(partition, 0):
            self.shipped.append(order)
            self.next_offsets[partition] = offset + 1


async def ship_at_once(bootstrap_servers: str, warehouse: Warehouse) -> None:
    """Ship orders as they come; the client commits once a second."""
    async with Consumer(
        "orders",
        bootstrap_servers=bootstrap_servers,
        group_id="shipping",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1_000,
    ) as consumer:
        async for order in consumer:
            warehouse.ship(order.value.decode())


async def ship_and_remember(bootstrap_servers: str, warehouse: Warehouse) -> None:
    """Ship each order once: the warehouse knows where to begin, not the group."""
    async with Consumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition("orders", found.partition) for found in await consumer.partitions_for("orders")]
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, warehouse.next_offsets.get(partition.partition, 0))
        async for order in consumer:
            warehouse.ship_once(order.value.decode(), order.partition, order.offset)


Worker = Callable[[str, Warehouse], Awaitable[None]]


def bad_day(worker: Worker) -> Callable[[Simulation], Awaitable[None]]:
    """Orders arrive for half a minute while programs and brokers die; at the end each one must be shipped, once."""

    async def scenario(sim: Simulation) -> None:
        warehouse = Warehouse()
        await sim.topic("orders", partitions=2)
        sim.program("shipping", lambda: worker(sim.bootstrap_servers, warehouse))
        shop = asyncio.create_task(take_orders(sim))
        await sim.faults(30, ["kill program", "kill", "reset", "cut"])
        await shop
        await eventually(lambda: set(ORDERS) <= set(warehouse.shipped), 120)
        assert sorted(warehouse.shipped) == sorted(ORDERS)

    return scenario


async def take_orders(sim: Simulation) -> None:
    """A shop that takes an order every second."""
    async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
        for order in ORDERS:
            await producer.send_and_wait("orders", order.encode(), key=order.encode())
            await asyncio.sleep(1)


def test_orders_are_shipped_once() -> None:
    search(bad_day(ship_and_remember), range(20))


def test_simulation_finds_the_orders_that_are_shipped_twice() -> None:
    with pytest.raises(AssertionError) as caught:
        search(bad_day(ship_at_once), range(20))
    assert "ODRADEK_SEED=" in caught.value.__notes__[0]
