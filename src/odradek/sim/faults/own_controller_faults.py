"""Faults of controllers of Odradek: their processes die or stand still, their machines lose power, or are cut off."""

from __future__ import annotations

import asyncio
import random

from odradek.sim.controllers.active_controller import SESSION_SECONDS
from odradek.sim.controllers.model_quorum import FETCH_TIMEOUT_SECONDS
from odradek.sim.controllers.own_controllers import ControllerHost, OwnQuorum
from odradek.sim.world.hosts import BrokerHost, Machine, World


def _quorum(world: World) -> OwnQuorum:
    assert isinstance(world.controllers, OwnQuorum), "the profile has no controllers of Odradek"
    return world.controllers


def _victim(world: World, rng: random.Random) -> ControllerHost:
    """The active controller, or any."""
    quorum = _quorum(world)
    leader = quorum.leader
    return leader if leader is not None and rng.random() < 0.7 else rng.choice(quorum.controllers)


def _part(world: World, one: Machine, other: Machine, until: float) -> None:
    """Nothing gets through between two machines, in both directions."""
    world.network.link(one.host, other.host).cut_until = until
    world.network.link(other.host, one.host).cut_until = until


async def own_controller_is_killed(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A controller dies, sometimes two of them, and is started again; sometimes a broker dies, too."""
    quorum = _quorum(world)
    victims = [_victim(world, rng)]
    if rng.random() < 0.2:
        victims.append(rng.choice(quorum.controllers))
    if rng.random() < 0.3:
        host.kill()
    for each in victims:
        each.kill()
    await asyncio.sleep(rng.choice((0.01, 0.5, 3.0)) * rng.uniform(0.5, 1.5))
    for each in victims:
        quorum.restart(each)
    if not host.is_up and not world.stopping:
        await host.start()


async def own_controller_loses_power(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The machine of a controller goes dark, or those of all of them, and what was not synced is gone."""
    quorum = _quorum(world)
    victims = quorum.controllers if rng.random() < 0.2 else [_victim(world, rng)]
    for each in victims:
        each.lose_power(rng)
    await asyncio.sleep(rng.uniform(0.2, 4.0))
    for each in victims:
        quorum.restart(each)


async def own_controller_has_a_bad_disk(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Writes or syncs of a controller fail for a while, all or some of them."""
    victim = _victim(world, rng)
    kind = rng.choice(("write_error", "sync_error"))
    setattr(victim.volume.faults, kind, rng.choice((0.05, 0.3, 1.0)))
    world.note(f"{kind} on {victim.host}")
    await asyncio.sleep(rng.uniform(0.3, 4.0))
    setattr(victim.volume.faults, kind, 0.0)


async def own_controller_stands_still(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A controller does nothing for a while; another one may lead when it resumes."""
    process = _victim(world, rng).process
    if process is not None and process.alive:
        world.loop.pause(process, rng.choice((0.5, 3.0, 7.0)) * rng.uniform(0.7, 1.3))


async def own_controller_is_cut_off(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A controller and the others do not reach each other, in both directions or one."""
    quorum, victim = _quorum(world), _victim(world, rng)
    until = world.now() + rng.choice((1.0, 4.0, 9.0)) * rng.uniform(0.7, 1.3)
    for each in quorum.controllers:
        ways = [(victim.host, each.host), (each.host, victim.host)]
        for way in ways if rng.random() < 0.7 else [rng.choice(ways)]:
            if each is not victim:
                world.network.link(*way).cut_until = until
    world.note(f"{victim.host} is cut off until {until:.3f}")


async def own_controller_is_succeeded_early(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The active controller is cut off together with a broker, and the other controllers elect another one soon.

    Some of them have lost it before, and seek votes already; others restart and vote for whoever asks, or the fetches
    of all wait unread while it stands still.
    """
    quorum = _quorum(world)
    leader = quorum.leader
    others = [each for each in quorum.controllers if each is not leader]
    if leader is None or leader.process is None or not others:
        return
    seconds = rng.uniform(FETCH_TIMEOUT_SECONDS, FETCH_TIMEOUT_SECONDS + 2 * SESSION_SECONDS)
    until = world.now() + FETCH_TIMEOUT_SECONDS + seconds

    early = rng.sample(others, len(others) // 2)
    if rng.random() < 0.3:
        early = []
        stands_still = FETCH_TIMEOUT_SECONDS * rng.uniform(0.8, 2.0)
        world.loop.pause(leader.process, stands_still)
        await asyncio.sleep(stands_still * rng.random())
    for each in early:
        _part(world, leader, each, until)
    if early:
        await asyncio.sleep(FETCH_TIMEOUT_SECONDS * rng.uniform(0.5, 1.1))
    for each in others:
        _part(world, host, each, until)
        if each not in early:
            _part(world, leader, each, until)
    world.note(f"{host.host} is alone with {leader.host} until {until:.3f}")
    restarted = [each for each in others if each not in early and rng.random() < 0.7]
    for each in restarted:
        each.kill()
    await asyncio.sleep(rng.uniform(0.01, 0.5))
    for each in restarted:
        quorum.restart(each)
    await asyncio.sleep(max(0.0, until - world.now()))


async def own_controller_is_succeeded_at_once(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The other controllers elect another active one as soon as the majority that followed it no longer reaches it.

    Half of them have lost it before, and seek votes. The rest follow it until they are cut off from it and restart:
    then they vote at once. The deposed one is alone with a broker until the broker's session with the successor is
    over: it answers a heartbeat that comes within half a fetch timeout after a majority followed it.
    """
    quorum = _quorum(world)
    leader = quorum.leader
    others = [each for each in quorum.controllers if each is not leader]
    if leader is None or not others:
        return
    seekers = rng.sample(others, len(others) // 2)
    followers = [each for each in others if each not in seekers]
    # They seek votes a fetch timeout after the last answer to them, and at least an election timeout long.
    seek = FETCH_TIMEOUT_SECONDS * rng.uniform(1.0, 1.25)
    until = world.now() + seek + SESSION_SECONDS + FETCH_TIMEOUT_SECONDS * rng.uniform(1.0, 2.0)
    for each in seekers:
        _part(world, leader, each, until)
        _part(world, host, each, until)
    await asyncio.sleep(seek)
    for each in followers:
        _part(world, leader, each, until)
        _part(world, host, each, until)
        each.kill()
    world.note(f"{host.host} is alone with {leader.host} until {until:.3f}")
    await asyncio.sleep(rng.uniform(0.0, 0.1))
    for each in followers:
        quorum.restart(each)
    await asyncio.sleep(max(0.0, until - world.now()))


async def broker_reaches_no_controller(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker does not reach the controllers, or not the active one, in both directions or one."""
    quorum = _quorum(world)
    leader = quorum.leader
    controllers = [leader] if leader is not None and rng.random() < 0.4 else quorum.controllers
    until = world.now() + rng.choice((1.0, 4.0, 9.0)) * rng.uniform(0.7, 1.3)
    for each in controllers:
        ways = [(host.host, each.host), (each.host, host.host)]
        for way in ways if rng.random() < 0.7 else [rng.choice(ways)]:
            world.network.link(*way).cut_until = until
    world.note(f"{host.host} is cut off from {[each.host for each in controllers]} until {until:.3f}")
