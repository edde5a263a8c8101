"""Faults that take several brokers: controllers that die half-way, brokers that freeze for longer than their session,
several that are killed, machines that lose power one after the other or together."""

from __future__ import annotations

import asyncio
import random

from odradek.sim.checkers.replicas import ALL_AT_ONCE, ONE_AT_A_TIME, is_whole
from odradek.sim.world.hosts import PORT, BrokerHost, World


async def started_again(world: World, host: BrokerHost, rng: random.Random, down: tuple[float, float]) -> None:
    """Start the broker after a while, again and again until it serves."""
    await asyncio.sleep(rng.uniform(*down))
    while not world.stopping and not host.is_up and not await host.start():
        await asyncio.sleep(0.5)


def controller_of(world: World) -> BrokerHost | None:
    """The broker that is the controller, or still believes it."""
    for host in world.brokers:
        found = host.inspect() if host.is_up else None
        if found is not None and found.controller.is_active:
            return host
    return None


async def controller_dies_half_way(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The controller dies right after one of its next writes into the store, while it has something to decide."""
    controller = controller_of(world)
    if controller is None or controller.store is None:
        return
    store = controller.store
    store.dies_in = rng.choice((1, 1, 2, 3, 5))
    if rng.random() < 0.5 and host is not controller:
        host.kill()
    elif rng.random() < 0.5 and host is not controller and host.store is not None:
        host.store.expire()
    for _ in range(20):
        await asyncio.sleep(0.1)
        if not controller.is_up:
            world.mark("controller died half-way")
            break
    store.dies_in = 0
    controller.kill()
    await started_again(world, controller, rng, (0, 3.0))
    await started_again(world, host, rng, (0, 1.0))


async def freeze(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker stands still for longer than its session, as after SIGSTOP; then it resumes."""
    if rng.random() < 0.5:
        host = controller_of(world) or host
    if host.process is None or host.store is None:
        return
    seconds = rng.choice((1.0, 4.0, 9.0)) * rng.uniform(0.7, 1.5)
    host.pause(seconds)
    await asyncio.sleep(seconds * rng.uniform(0.1, 0.9))
    host.store.expire()
    await asyncio.sleep(seconds)


async def cut_off(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker, or the controller, is cut off from the others, and the store ends its session: it learns that late."""
    if rng.random() < 0.5:
        host = controller_of(world) or host
    seconds = rng.choice((2.0, 6.0, 10.0)) * rng.uniform(0.7, 1.3)
    until = world.now() + seconds
    for other in world.brokers:
        if other is not host:
            if rng.random() < 0.8:
                world.network.link(host.host, other.host).cut_until = until
            if rng.random() < 0.8:
                world.network.link(other.host, host.host).cut_until = until
    world.note(f"{host.host} is cut off until {until:.3f}")
    await asyncio.sleep(seconds * rng.uniform(0, 0.7))
    if host.store is not None and rng.random() < 0.7:
        host.store.expire()


async def alone_with_its_clients(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Clients reach a broker that is cut off from the store, from other brokers, or both; its session may end."""
    if rng.random() < 0.4:
        host = controller_of(world) or host
    store = host.store
    if store is None:
        return
    seconds = rng.choice((3.0, 7.0, 12.0)) * rng.uniform(0.7, 1.3)
    until = world.now() + seconds
    way = rng.choice(("store", "brokers", "both", "both", "both"))
    if way != "brokers":
        store.cut_until = until
    if way != "store":
        for other in world.brokers:
            if other is not host and rng.random() < 0.9:
                world.network.link(host.host, other.host).cut_until = until
                world.network.link(other.host, host.host).cut_until = until
    world.note(f"{host.host} is cut off from {way} until {until:.3f}")
    await asyncio.sleep(rng.uniform(0.5, 6.0))
    if way != "brokers" and world.now() < until:
        # It is not notified: the store cannot reach it either.
        store.expire()
        world.mark("a session ended, and its broker did not learn of it")
    await asyncio.sleep(max(0.0, until - world.now()))


async def store_is_away(world: World, host: BrokerHost, rng: random.Random) -> None:
    """No broker reaches the metadata store for a while; records must still be read and written."""
    until = world.now() + rng.uniform(3.0, 10.0)
    for each in world.brokers:
        if each.store is not None:
            each.store.cut_until = until
    world.note(f"the store is away until {until:.3f}")
    await asyncio.sleep(until - world.now())


async def store_is_silent(world: World, host: BrokerHost, rng: random.Random) -> None:
    """As `store_is_away`, and requests to the store wait for it, as ZooKeeper's client lets them."""
    for each in world.brokers:
        if each.store is not None:
            each.store.patience = 60.0
    await store_is_away(world, host, rng)
    for each in world.brokers:
        if each.store is not None:
            each.store.reconnect()


async def given_up(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker gives up connections to another one and opens new ones; what it sent on the old ones comes later."""
    other = rng.choice([each for each in world.brokers if each is not host])
    streams = [s for s in world.network.between(host.host, other.host) if s.peer_port == PORT]
    until = world.now() + rng.uniform(0.2, 3)
    for stream in streams:
        stream.outgoing.stalled_until = until + rng.uniform(0.5, 8)
    await asyncio.sleep(until - world.now())
    for stream in streams:
        if not stream.closed:
            world.mark("connection between brokers given up")
            stream.incoming.reset()


async def kill_several(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Two brokers or all are killed, at once or one after the other, and come back in any order."""
    several = rng.sample(world.brokers, rng.choice((2, 2, len(world.brokers))))
    pause = rng.choice((0.0, 0.0, 1.5))
    for each in several:
        each.kill()
        await asyncio.sleep(rng.uniform(0, pause))
    rng.shuffle(several)
    await asyncio.gather(*(started_again(world, each, rng, (0, rng.choice((0.5, 6.0)))) for each in several))


def _goes_dark(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The machine loses power; where only one at a time may, and another has not recovered, its process dies alone."""
    weak = [each for each in world.brokers if each is not host and each.is_dark and not is_whole(world, each)]
    if world.power == ONE_AT_A_TIME and weak:
        world.faults["killed instead of losing power"] += 1
        host.kill()
        return
    host.lose_power(rng)
    host.is_dark = world.power == ONE_AT_A_TIME


async def machine_loses_power(world: World, host: BrokerHost, rng: random.Random) -> None:
    """One machine loses power and returns later."""
    _goes_dark(world, host, rng)
    if rng.random() < 0.3:
        # And again while it starts.
        again = asyncio.get_running_loop().create_task(host.start())
        await asyncio.sleep(rng.uniform(0, 0.2))
        _goes_dark(world, host, rng)
        await again
    await started_again(world, host, rng, (0.1, 5.0))


async def dark_in_a_write(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A machine loses power between two changes of its disk."""
    faults = host.volume.faults
    faults.crash_in = 1 + int(rng.expovariate(1 / 12))
    for _ in range(30):
        await asyncio.sleep(0.1)
        if not host.is_up:
            break
    faults.crash_in = 0
    _goes_dark(world, host, rng)
    await started_again(world, host, rng, (0.1, 3.0))


async def blackout(world: World, host: BrokerHost, rng: random.Random) -> None:
    """All machines lose power at once; where that may cost records, all processes die instead."""
    several = list(world.brokers)
    rng.shuffle(several)
    for each in several:
        if world.power == ONE_AT_A_TIME:
            each.kill()
        else:
            each.lose_power(rng)
    if world.power == ALL_AT_ONCE:
        world.mark("blackout without a sync")
    await asyncio.gather(*(started_again(world, each, rng, (0.1, rng.choice((1.0, 6.0)))) for each in several))
