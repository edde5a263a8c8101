"""A leader that the controller does not reach acts by promises of its replicas, whatever becomes of these."""

from __future__ import annotations

import asyncio

from odradek.client.admin import Admin
from odradek.records.topic_partition import TopicPartition
from odradek.testing.simulation import Simulation, simulate

PLACE = TopicPartition("t", 0)
BROKERS = {1, 2, 3}
SETTINGS = {"broker.session.timeout.ms": 4_000}
CUT_SECONDS = 15.0


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


def test_restarted_successor_waits_for_the_end_of_its_promises() -> None:
    """Its process is killed after it has promised not to begin, and the next one does not know that."""

    async def scenario(sim: Simulation) -> None:
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            controller = (await admin.describe_cluster()).controller_id
            leader, successor = sorted(BROKERS - {controller})
            await sim.topic(PLACE.topic, replication_factor=2)
            assert await admin.replicas.reassign({PLACE: [leader, successor]}) == {PLACE: None}
            async with asyncio.timeout(10):
                while acting(sim) != {leader}:
                    await asyncio.sleep(0.01)
            for one, other in ((leader, controller), (controller, leader)):
                sim._world.network.link(f"b{one}", f"b{other}").cut_until = sim.now + CUT_SECONDS
            async with asyncio.timeout(10):
                while not elected(sim, successor):
                    await asyncio.sleep(0.001)
            assert acting(sim) == {leader}
            sim.broker(successor).kill()
            await sim.broker(successor).start()
            async with asyncio.timeout(5):
                while acting(sim) != {successor}:
                    assert len(acting(sim)) < 2
                    await asyncio.sleep(0.001)

    simulate(scenario, 1, brokers=len(BROKERS), settings=SETTINGS)
