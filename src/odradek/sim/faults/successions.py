"""Faults by which others take over at the worst moment: the follower that knows least, coordinators between a decision
and what follows from it, leaders and controllers that continue after they were deposed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final

from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.records.topic_partition import PartitionKey
from odradek.sim.faults.cluster_faults import controller_of, started_again
from odradek.sim.world.hosts import PORT, BrokerHost, World

AWAY_SECONDS: Final = (14.0, 19.0)
"""Longer than a session and the time within which a partition is led again."""


def _others(world: World, host: BrokerHost) -> list[BrokerHost]:
    return [each for each in world.brokers if each is not host]


def _part(world: World, host: BrokerHost, others: Iterable[BrokerHost], until: float) -> None:
    """Nothing gets through between the host and the others, in both directions; their sessions live."""
    for other in others:
        world.network.link(host.host, other.host).cut_until = until
        world.network.link(other.host, host.host).cut_until = until


def _die_for_all(hosts: Iterable[BrokerHost], rng: random.Random) -> None:
    """They are killed; the metadata store mostly notices at once, else when their sessions end."""
    for host in hosts:
        host.kill()
        if host.store is not None and rng.random() < 0.8:
            host.store.expire()


async def _when(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came to hold within so many seconds."""
    for _ in range(int(seconds / 0.1)):
        if condition():
            return True
        await asyncio.sleep(0.1)
    return condition()


def _led(
    world: World, accepts: Callable[[PartitionKey, PartitionState], bool]
) -> list[tuple[PartitionKey, PartitionState]]:
    """Partitions with a leader of which this holds, in an order that does not depend on who wrote them when."""
    found = world.stored.states.items()
    return [(key, state) for key, state in sorted(found) if state.leader != NO_LEADER and accepts(key, state)]


def _host(world: World, node_id: int) -> BrokerHost:
    return world.brokers[node_id - 1]


async def _left_alone(world: World, host: BrokerHost, rng: random.Random) -> None:
    """All others die; this one takes over what it may, and is joined by the others."""
    others = _others(world, host)
    _die_for_all(others, rng)
    _part(world, host, others, 0.0)
    world.note(f"{host.host} is left alone")
    await _when(lambda: any(state.leader == host.node_id for state in world.stored.states.values()), 8.0)
    if host.is_up and controller_of(world) is host:
        world.mark("left alone as the controller")
    await asyncio.sleep(rng.uniform(0.5, 3.0))
    await asyncio.gather(*(started_again(world, each, rng, (0, 1.5)) for each in others))


async def who_knows_least_leads(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A member of the ISR is cut off for less time than `replica.lag.time.max.ms`, then all others die."""
    seconds = rng.uniform(0.8, 3.2)
    _part(world, host, _others(world, host), world.now() + seconds + 1)
    await asyncio.sleep(seconds)
    await _left_alone(world, host, rng)


async def straggler_is_left(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A follower that was removed from ISRs is the only one that lives: it must not lead there."""

    def is_out() -> bool:
        return any(host.node_id in s.replicas and host.node_id not in s.isr for s in world.stored.states.values())

    _part(world, host, _others(world, host), world.now() + 12)
    if await _when(is_out, 9.0):
        world.mark("a straggler is left")
    await asyncio.sleep(rng.uniform(0.2, 1.5))
    await _left_alone(world, host, rng)


async def coordinator_dies_deciding(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Requests of a transaction coordinator to others do not arrive, and it dies; so does a client, perhaps."""
    mine = _led(world, lambda key, _state: key[0] == "__transaction_state")
    if not mine:
        return
    coordinator = _host(world, rng.choice(mine)[1].leader)
    until = world.now() + rng.uniform(1.0, 3.5)
    for other in _others(world, coordinator):
        for stream in world.network.between(coordinator.host, other.host):
            if stream.peer_port == PORT:
                stream.outgoing.stalled_until = until + 5
    await asyncio.sleep(until - world.now())
    _die_for_all([coordinator], rng)
    for client in world.clients:
        if client.name.startswith(("bank", "processor")) and rng.random() < 0.5:
            client.crash()
    await started_again(world, coordinator, rng, (4.0, 10.0))


async def away_for_long(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker dies and comes back only when the others have had the time to do without it."""
    _die_for_all([host], rng)
    await started_again(world, host, rng, AWAY_SECONDS)


async def deposed_leader_asks(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A replacing leader is cut off when the former one is elected again, and sends its AlterPartition late."""
    _die_for_all([host], rng)
    await started_again(world, host, rng, (0.2, 0.6))
    node_id = host.node_id

    def is_back(_key: PartitionKey, state: PartitionState) -> bool:
        return state.replicas[0] == node_id and state.leader != node_id and node_id in state.isr

    if not await _when(lambda: bool(_led(world, is_back)), 8.0):
        return
    controller = controller_of(world)
    leaders = {state.leader for _, state in _led(world, is_back)} - {controller.node_id if controller else -1}
    if not leaders:
        return
    leader = _host(world, rng.choice(sorted(leaders)))
    world.mark("the leader in place of the preferred one is cut off")
    _part(world, leader, _others(world, leader), world.now() + rng.uniform(6.0, 9.0))
    await asyncio.sleep(10.0)


async def deposed_unconfirmed(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A leader is deposed while its followers have a batch of which it does not know that."""
    led = _led(world, lambda key, _state: key[0] == "ledger")
    if not led:
        return
    leader = _host(world, rng.choice(led)[1].leader)
    until = world.now() + rng.uniform(0.6, 2.0)
    for other in _others(world, leader):
        # A fetch that waits at the leader is still answered; the next one does not arrive.
        world.network.link(other.host, leader.host).cut_until = until
    world.note(f"{leader.host} does not receive its followers' fetches until {until:.3f}")
    await asyncio.sleep(rng.uniform(0.2, 0.5))
    if leader.store is not None:
        leader.store.expire()
    await asyncio.sleep(max(0.0, until - world.now()) + 0.5)


# --- controllers ---


async def controller_speaks_late(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Requests of the controller are under way until after another controller has been elected."""
    controller = controller_of(world)
    if controller is None or controller.store is None:
        return
    until = world.now() + rng.uniform(2.0, 5.0)
    for other in _others(world, controller):
        for stream in world.network.between(controller.host, other.host):
            if stream.peer_port == PORT:
                stream.outgoing.stalled_until = until
    if host is not controller:
        # The controller has something to send.
        host.kill()
        if host.store is not None:
            host.store.expire()
    await asyncio.sleep(rng.uniform(0.3, 1.5))
    if rng.random() < 0.5 and controller.process is not None and controller.is_up:
        # It does not even learn that it was deposed.
        world.loop.pause(controller.process, until - world.now() + rng.uniform(0, 1.0))
    controller.store.expire()
    await asyncio.sleep(until - world.now() + 1)
    await started_again(world, host, rng, (0, 0.5))


async def deposed_in_a_write(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The controller's way to the metadata store is slow; its session ends while it writes, and it has a new one."""
    controller = controller_of(world)
    if controller is None or controller.store is None:
        return
    store = controller.store
    store.slow = rng.uniform(1.0, 4.0)
    if host is not controller and rng.random() < 0.3:
        host.kill()
        if host.store is not None:
            host.store.expire()
    await asyncio.sleep(rng.uniform(0.2, 2.0))
    # What is under way arrives when there is a new session, and another controller.
    store.slow = 0.0
    store.expire()
    world.note(f"{controller.host} is deposed while it writes")
    await asyncio.sleep(rng.uniform(0.5, 2.0))
    await started_again(world, host, rng, (0, 0.5))
