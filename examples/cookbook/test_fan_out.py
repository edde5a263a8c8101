"""Fan-out: each service gets all events; the instances of one service share them.

One group per service is enough: groups are independent, and one that is slow or away delays no other. Events that every
instance must see (a cache to be emptied) are read without a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.client import Consumer, Producer
from odradek.testing import Simulation, eventually, search

EVENTS = [f"event {number:02}" for number in range(30)]


async def serve(servers: str, service: str, handle: Callable[[str], object]) -> None:
    """One instance of a service: its group gets each event at least once."""
    async with Consumer(
        "events",
        bootstrap_servers=servers,
        group_id=service,
        auto_offset_reset="earliest",  # a new service begins with the oldest event
        enable_auto_commit=False,
    ) as consumer:
        async for event in consumer:
            handle(event.value.decode())
            consumer.commit_async()


async def watch(servers: str, handle: Callable[[str], object]) -> None:
    """One instance that sees every event from now on, and remembers no place."""
    async with Consumer("events", bootstrap_servers=servers) as consumer:
        async for event in consumer:
            handle(event.value.decode())


async def scenario(sim: Simulation) -> None:
    seen: dict[str, list[str]] = {name: [] for name in ("billing-1", "billing-2", "search", "cache-1", "cache-2")}
    await sim.topic("events", partitions=2)

    def start(name: str, program: Callable[..., Any], *arguments: object) -> None:
        sim.program(name, lambda: program(sim.bootstrap_servers, *arguments, seen[name].append))

    start("billing-1", serve, "billing")
    start("billing-2", serve, "billing")
    start("cache-1", watch)
    start("cache-2", watch)
    async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
        # Watchers miss what was written before they were there.
        while not (seen["cache-1"] and seen["cache-2"]):
            await producer.send_and_wait("events", b"first")
            await asyncio.sleep(1)

        async def write() -> None:
            for event in EVENTS:
                await producer.send_and_wait("events", event.encode())
                await asyncio.sleep(0.5)

        writing = asyncio.create_task(write())
        await sim.faults(15, ["kill", "restart", "reset", "cut", "rebalance"])
        start("search", serve, "search")  # a service that comes later
        await writing

    def billed() -> set[str]:
        return {*seen["billing-1"], *seen["billing-2"]}

    expected = {"first", *EVENTS}
    await eventually(lambda: billed() == {*seen["search"]} == expected, 120)
    await eventually(lambda: {*seen["cache-1"]} == {*seen["cache-2"]} == expected, 120)


def test_each_service_gets_all_events() -> None:
    search(scenario, range(6))
