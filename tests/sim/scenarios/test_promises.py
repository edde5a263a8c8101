"""A leader that the controller does not reach acts by promises of its replicas, whatever becomes of these."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.client.admin import Admin
from odradek.records.topic_partition import TopicPartition
from odradek.testing.simulation import Simulation, simulate

PLACE = TopicPartition("t", 0)
SETTINGS = {"broker.session.timeout.ms": 4_000, "replica.lag.time.max.ms": 1_500}
CUT_SECONDS = 30.0


def elected(sim: Simulation, broker: int) -> bool:
    """Whether a broker knows that it is the leader, which it may have to wait for."""
    inspected = sim._world.brokers[broker - 1].inspect()
    state = None if inspected is None else inspected.view.image.partition(*PLACE)
    return state is not None and state.leader == broker


def acting(sim: Simulation) -> set[int]:
    """The brokers that act as the leader of the partition."""
    found = set()
    for host in sim._world.brokers:
        broker = host.inspect() if host.is_up else None
        if broker is not None and elected(sim, host.node_id) and broker.partitions.may_lead(*PLACE):
            found.add(host.node_id)
    return found


def part(sim: Simulation, one: int, other: int) -> None:
    """No packet passes between two brokers for the rest of the scenario."""
    for source, target in ((one, other), (other, one)):
        sim._world.network.link(f"b{source}", f"b{target}").cut_until = sim.now + CUT_SECONDS


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def until_one_acts(sim: Simulation, broker: int) -> None:
    """Wait until this broker acts as the leader; it is never one of two."""

    def acts_alone() -> bool:
        assert len(acting(sim)) < 2
        return acting(sim) == {broker}

    await until(acts_alone)


def in_sync(sim: Simulation, at: int) -> tuple[int, ...]:
    """The ISR as a broker knows it."""
    inspected = sim._world.brokers[at - 1].inspect()
    state = None if inspected is None else inspected.view.image.partition(*PLACE)
    return () if state is None else state.isr


def test_restarted_successor_waits_for_the_end_of_its_promises() -> None:
    """Its process is killed after it has promised not to begin, and the next one does not know that."""

    async def scenario(sim: Simulation) -> None:
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            controller = (await admin.describe_cluster()).controller_id
            leader, successor = sorted({1, 2, 3} - {controller})
            await sim.topic(PLACE.topic, replication_factor=2)
            assert await admin.replicas.reassign({PLACE: [leader, successor]}) == {PLACE: None}
            await until_one_acts(sim, leader)
            part(sim, leader, controller)
            await until(lambda: elected(sim, successor))
            assert acting(sim) == {leader}
            sim.broker(successor).kill()
            await sim.broker(successor).start()
            await until_one_acts(sim, successor)

    simulate(scenario, 1, brokers=3, settings=SETTINGS)


def test_second_successor_waits_for_promises_to_the_former_leader() -> None:
    """It was not in sync, so that it has promised nothing; the first successor may not take it in while it waits."""

    async def scenario(sim: Simulation) -> None:
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            controller = (await admin.describe_cluster()).controller_id
            leader, first, second = sorted({1, 2, 3, 4} - {controller})
            await sim.topic(PLACE.topic, replication_factor=3)
            assert await admin.replicas.reassign({PLACE: [leader, first, second]}) == {PLACE: None}
            await until(lambda: in_sync(sim, controller) == (leader, first, second))
            await admin.replicas.elect([PLACE])
            await until_one_acts(sim, leader)
            part(sim, leader, second)
            await sim.produce(PLACE.topic, "not copied by the second one")
            assert in_sync(sim, leader) == (leader, first)
            part(sim, leader, controller)
            await until(lambda: second in in_sync(sim, controller))
            assert len(acting(sim)) < 2
            sim.broker(first).kill()
            await until_one_acts(sim, second)

    simulate(scenario, 1, brokers=4, settings=SETTINGS)
