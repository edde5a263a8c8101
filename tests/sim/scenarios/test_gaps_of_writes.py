"""How long a partition takes no write, in virtual time: the machine's load has no part in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import NamedTuple

import pytest

from odradek.client import Producer
from odradek.client.admin import Admin
from odradek.records.topic_partition import TopicPartition
from odradek.testing.simulation import Simulation, simulate

PLACE = TopicPartition("t", 0)
BROKERS = (1, 2, 3)
SESSION_SECONDS = 4.0
SETTINGS = {"broker.session.timeout.ms": int(SESSION_SECONDS * 1000)}
HELD_SECONDS = 12.0
LONGEST_CUT_SECONDS = SESSION_SECONDS + 2.0 + 2.0
"""A session, a lease, and two seconds for looks, elections and requests that wait on the former leader."""


class Stage(NamedTuple):
    """What a fault works with."""

    sim: Simulation
    admin: Admin
    leader: int

    @property
    def others(self) -> list[int]:
        return [broker for broker in BROKERS if broker != self.leader]

    def cut(self, *ways: tuple[int, int]) -> None:
        """No packet passes on these ways between brokers for a while."""
        for one, other in ways:
            link = self.sim._world.network.link(f"b{one}", f"b{other}")
            link.cut_until = self.sim.now + HELD_SECONDS


Fault = Callable[[Stage], Awaitable[None]]


def longest_gap(fault: Fault, seed: int, rest_seconds: float = 5.0, *, request_timeout_ms: int = 5_000) -> float:
    """Seconds without an acknowledgement of one producer that writes without pause, during a fault and after it."""

    async def scenario(sim: Simulation) -> float:
        await sim.topic(PLACE.topic, partitions=3)
        servers = sim.bootstrap_servers
        async with (
            Admin(bootstrap_servers=servers) as admin,
            Producer(bootstrap_servers=servers, request_timeout_ms=request_timeout_ms) as producer,
        ):
            acknowledged = [sim.now]

            async def write() -> None:
                while True:
                    await producer.send_and_wait(PLACE.topic, b"value", partition=PLACE.partition)
                    acknowledged.append(sim.now)

            writer = asyncio.create_task(write())
            await asyncio.sleep(1)
            described = (await admin.describe_topics([PLACE.topic]))[PLACE.topic]
            assert not isinstance(described, Exception)
            del acknowledged[:-1]
            await fault(Stage(sim, admin, described.partitions[PLACE.partition].leader))
            await asyncio.sleep(rest_seconds)
            writer.cancel()
            acknowledged.append(sim.now)
            return max(after - before for before, after in pairwise(acknowledged))

    return float(simulate(scenario, seed, brokers=len(BROKERS), settings=SETTINGS).result)


async def reassign(stage: Stage) -> None:
    """The leader gives its replica away, gets it again, and leads as the preferred one."""
    for replicas in (stage.others, [stage.leader, *stage.others]):
        assert await stage.admin.replicas.reassign({PLACE: replicas}) == {PLACE: None}
        while await stage.admin.replicas.reassignments([PLACE]):
            await asyncio.sleep(0.05)
    await stage.admin.replicas.elect([PLACE])


@pytest.mark.parametrize("seed", [0, 20])
def test_reassignment_stops_writes_for_less_than_half_a_second(seed: int) -> None:
    assert longest_gap(reassign, seed, rest_seconds=1.0) < 0.5


async def kill_leader(stage: Stage) -> None:
    stage.sim.broker(stage.leader).kill()


async def kill_controller(stage: Stage) -> None:
    stage.sim.broker((await stage.admin.describe_cluster()).controller_id).kill()


async def kill_two_and_start(stage: Stage) -> None:
    """They listen again before the third broker has tried to connect to them."""
    two = (stage.leader, stage.others[0])
    for broker in two:
        stage.sim.broker(broker).kill()
    for broker in two:
        await stage.sim.broker(broker).start()


async def stop_leader(stage: Stage) -> None:
    await stage.sim.broker(stage.leader).stop()


@pytest.mark.parametrize(
    ("fault", "seed"), [(kill_leader, 11), (kill_controller, 10), (kill_two_and_start, 3), (stop_leader, 17)]
)
def test_process_that_ends_stops_writes_for_less_than_a_second(fault: Fault, seed: int) -> None:
    assert longest_gap(fault, seed) < 1.0


async def fill_disk_of_leader(stage: Stage) -> None:
    volume = stage.sim._world.brokers[stage.leader - 1].volume
    volume.capacity = volume.used() + 200


def test_full_disk_of_a_leader_stops_writes_for_less_than_a_second() -> None:
    assert longest_gap(fill_disk_of_leader, 12) < 1.0


async def cut_from_brokers(stage: Stage) -> None:
    """Its clients and the metadata store reach the leader, the other brokers do not."""
    stage.cut(*((stage.leader, other) for other in stage.others), *((other, stage.leader) for other in stage.others))


async def deafen(stage: Stage) -> None:
    stage.cut(*((other, stage.leader) for other in stage.others))


async def mute(stage: Stage) -> None:
    stage.cut(*((stage.leader, other) for other in stage.others))


@pytest.mark.parametrize(("fault", "seed"), [(cut_from_brokers, 0), (deafen, 1), (mute, 2)])
def test_cut_leader_stops_writes_for_about_a_session(fault: Fault, seed: int) -> None:
    assert longest_gap(fault, seed, rest_seconds=10.0) < LONGEST_CUT_SECONDS < HELD_SECONDS


async def deafen_controller(stage: Stage) -> None:
    """The others' requests do not arrive: it yields, as too few brokers reach it."""
    controller = (await stage.admin.describe_cluster()).controller_id
    stage.cut(*((other, controller) for other in BROKERS if other != controller))


async def mute_controller(stage: Stage) -> None:
    """Its notices and answers do not arrive: no broker acknowledges them, so its own connections end."""
    controller = (await stage.admin.describe_cluster()).controller_id
    stage.cut(*((controller, other) for other in BROKERS if other != controller))


@pytest.mark.parametrize(
    ("fault", "seed"), [(deafen_controller, 0), (deafen_controller, 2), (mute_controller, 0), (mute_controller, 2)]
)
def test_controller_cut_one_way_stops_writes_for_about_a_session(fault: Fault, seed: int) -> None:
    assert longest_gap(fault, seed, rest_seconds=20.0) < LONGEST_CUT_SECONDS < HELD_SECONDS


async def pause_leader(stage: Stage) -> None:
    stage.sim.broker(stage.leader).pause(9.0)


@pytest.mark.parametrize("seed", [4, 8])
def test_paused_leader_stops_writes_for_about_a_session(seed: int) -> None:
    """The client does not wait for its request timeout: it learns of the next leader while a request is unanswered."""
    assert longest_gap(pause_leader, seed, rest_seconds=8.0, request_timeout_ms=60_000) < SESSION_SECONDS + 1.0


async def pause_controller(stage: Stage) -> None:
    """It leads the partition, too."""
    controller = (await stage.admin.describe_cluster()).controller_id
    await stage.admin.replicas.reassign({PLACE: [controller, *(each for each in BROKERS if each != controller)]})
    await stage.admin.replicas.elect([PLACE])
    while not isinstance(found := (await stage.admin.describe_topics([PLACE.topic]))[PLACE.topic], Exception):
        if found.partitions[PLACE.partition].leader == controller:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    stage.sim.broker(controller).pause(9.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_paused_controller_that_leads_stops_writes_for_about_a_session(seed: int) -> None:
    """Its lease for itself has ended with its session: the next controller does not wait for it."""
    assert longest_gap(pause_controller, seed, rest_seconds=8.0, request_timeout_ms=60_000) < SESSION_SECONDS + 1.0
