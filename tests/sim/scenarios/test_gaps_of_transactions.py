"""How long a transaction waits for a broker that stands still, in virtual time: its connections stay open."""

from __future__ import annotations

import pytest

from odradek.client import TransactionalProducer
from odradek.client.admin import Admin, NewTopic
from odradek.testing.simulation import Simulation, simulate

SESSION_SECONDS = 4.0
SETTINGS = {
    "broker.session.timeout.ms": int(SESSION_SECONDS * 1000),
    "transaction.state.log.num.partitions": 1,
    "min.insync.replicas": 1,
    "transaction.state.log.min.isr": 1,
}
PAUSE_SECONDS = 60.0
LONGEST_SECONDS = SESSION_SECONDS + 4.0
"""A session, and what the election and the retries take."""


async def coordinator(admin: Admin) -> int:
    """The broker that coordinates all transactions."""
    found = (await admin.describe_topics(["__transaction_state"]))["__transaction_state"]
    assert not isinstance(found, Exception)
    return found.partitions[0].leader


@pytest.mark.parametrize("seed", [5, 6])
def test_markers_go_to_the_successor_of_a_paused_leader(seed: int) -> None:
    """The next transaction waits until the one before it has its markers."""

    async def scenario(sim: Simulation) -> None:
        servers = sim.bootstrap_servers
        async with (
            Admin(bootstrap_servers=servers) as admin,
            TransactionalProducer(transactional_id="t", bootstrap_servers=servers) as producer,
        ):
            here = await coordinator(admin)
            paused = here % 3 + 1
            third = 6 - here - paused
            places = {"elsewhere": [paused, third], "here": [here]}
            await admin.create_topics([NewTopic(name, replica_assignments={0: on}) for name, on in places.items()])
            # The first one opens the connection for markers.
            for pause_seconds in (0.0, PAUSE_SECONDS):
                producer.begin()
                for name in places:
                    await producer.send_and_wait(name, b"first")
                began = sim.now
                sim.broker(paused).pause(pause_seconds)
                await producer.commit()
            producer.begin()
            await producer.send_and_wait("here", b"next")
            assert sim.now - began < LONGEST_SECONDS
            await producer.commit()

    simulate(scenario, seed, brokers=3, settings={**SETTINGS, "transaction.state.log.replication.factor": 1})


@pytest.mark.parametrize("seed", [5, 6])
def test_first_write_asks_the_successor_of_a_paused_coordinator(seed: int) -> None:
    """The leader of a partition asks the coordinator to add it to the transaction."""

    async def scenario(sim: Simulation) -> None:
        servers = sim.bootstrap_servers
        async with (
            Admin(bootstrap_servers=servers) as admin,
            TransactionalProducer(transactional_id="t", bootstrap_servers=servers) as producer,
        ):
            paused = await coordinator(admin)
            others = [broker for broker in (1, 2, 3) if broker != paused]
            await admin.create_topics([NewTopic("t", replica_assignments={0: others})])
            producer.begin()
            await producer.send_and_wait("t", b"first")
            await producer.commit()
            producer.begin()
            began = sim.now
            sim.broker(paused).pause(PAUSE_SECONDS)
            await producer.send_and_wait("t", b"second")
            assert sim.now - began < LONGEST_SECONDS
            await producer.abort()

    simulate(scenario, seed, brokers=3, settings={**SETTINGS, "transaction.state.log.replication.factor": 2})
