"""Faults of a KRaft quorum: its controllers die, stand still, are cut off, resign, and take snapshots."""

from __future__ import annotations

import asyncio
import random

from odradek.sim.controllers.active_controller import SESSION_SECONDS
from odradek.sim.controllers.model_quorum import FETCH_TIMEOUT_SECONDS, ModelController, ModelQuorum
from odradek.sim.world.hosts import BrokerHost, World


def _quorum(world: World) -> ModelQuorum:
    assert isinstance(world.controllers, ModelQuorum), "only modelled controllers suffer these faults"
    return world.controllers


def _victim(world: World, rng: random.Random) -> ModelController:
    """The leader, or any controller."""
    quorum = _quorum(world)
    return quorum.leader if quorum.leader is not None and rng.random() < 0.7 else rng.choice(quorum.controllers)


async def controller_is_killed(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A controller dies, and is started again; sometimes while a broker is in trouble, too."""
    controller = _victim(world, rng)
    if rng.random() < 0.3:
        host.kill()
    await asyncio.sleep(rng.uniform(0, 0.3))
    controller.kill()
    await asyncio.sleep(rng.uniform(0.2, 5))
    if not controller.is_up:
        controller.start()
    if not host.is_up and not world.stopping:
        await host.start()


async def controller_stands_still(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A controller does nothing for a while; another one may lead when it resumes."""
    controller = _victim(world, rng)
    if controller.process is not None and controller.process.alive:
        world.loop.pause(controller.process, rng.choice((0.5, 3.0, 7.0)) * rng.uniform(0.7, 1.3))


async def leadership_changes(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Another controller leads, which has a part of the records that were not committed; often again at once."""
    quorum = _quorum(world)
    for _ in range(rng.choice((1, 1, 2, 4))):
        leader = quorum.leader
        if leader is None:
            return
        awake = [each for each in quorum.controllers if each.is_awake]
        # What the leader appends from here on stays with it, and brokers may fetch it.
        leader.slow_until = world.now() + rng.choice((0.0, 0.3, 1.0))
        await asyncio.sleep(max(0.0, leader.slow_until - world.now()))
        best = max((each.log.order for each in awake if each is not leader), default=None)
        others = [each for each in awake if each is not leader and each.log.order == best]
        if others and 2 * len(awake) > len(quorum.controllers) and leader.is_leader:
            voters = [each for each in awake if each is not leader]
            if 2 * len(voters) > len(quorum.controllers):
                quorum.elect(rng.choice(others), voters)
                world.mark("another controller leads")
        await asyncio.sleep(rng.uniform(0, 0.5))


async def cut_off_from_controllers(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker reaches none of the controllers, or not the leader, in both directions or one."""
    quorum = _quorum(world)
    controllers = [quorum.leader] if quorum.leader is not None and rng.random() < 0.4 else quorum.controllers
    until = world.now() + rng.choice((1.0, 4.0, 9.0)) * rng.uniform(0.7, 1.3)
    for each in controllers:
        ways = [(host.host, each.host), (each.host, host.host)]
        if rng.random() < 0.3:
            ways = [rng.choice(ways)]
        for way in ways:
            world.network.link(*way).cut_until = until
    world.note(f"{host.host} is cut off from {[each.host for each in controllers]} until {until:.3f}")


async def alone_with_a_controller(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The leader of the quorum and a broker reach each other, and no other controller: it leads on for a moment."""
    quorum = _quorum(world)
    leader = quorum.leader
    if leader is None:
        return
    until = world.now() + rng.uniform(FETCH_TIMEOUT_SECONDS, FETCH_TIMEOUT_SECONDS + 2 * SESSION_SECONDS)
    for each in quorum.controllers:
        if each is not leader:
            for one in (leader.host, host.host):
                world.network.link(one, each.host).cut_until = until
                world.network.link(each.host, one).cut_until = until
    world.note(f"{host.host} is alone with {leader.host} until {until:.3f}")
    await asyncio.sleep(until - world.now())


async def controllers_are_away(world: World, host: BrokerHost, rng: random.Random) -> None:
    """No broker reaches a controller, or all controllers die."""
    quorum = _quorum(world)
    seconds = rng.uniform(1, 5)
    if rng.random() < 0.5:
        for each in quorum.controllers:
            each.kill()
        await asyncio.sleep(seconds)
        for each in quorum.controllers:
            if not each.is_up:
                each.start()
        return
    until = world.now() + seconds
    for broker in world.brokers:
        for each in quorum.controllers:
            world.network.link(broker.host, each.host).cut_until = until
    await asyncio.sleep(seconds)


async def snapshot_is_taken(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Controllers replace their logs by snapshots, while a broker is behind."""
    quorum = _quorum(world)
    if rng.random() < 0.6:
        until = world.now() + rng.uniform(0.5, 4)
        for each in quorum.controllers:
            world.network.link(each.host, host.host).cut_until = until
        await asyncio.sleep(until - world.now())
    for each in quorum.controllers:
        if each.is_up and each.log.take_snapshot(each.high_watermark, quorum.now_ms()):
            world.mark("a controller took a snapshot")


async def metadata_commits_late(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The leader's records are fetched by brokers long before a majority has them."""
    quorum = _quorum(world)
    leader = quorum.leader
    if leader is not None and len(quorum.controllers) > 1:
        leader.slow_until = world.now() + rng.uniform(0.2, 1.8)
        await asyncio.sleep(leader.slow_until - world.now())


async def broker_freezes_in_a_heartbeat(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker stands still while a heartbeat of it is on its way, and takes the answer when its session is over."""
    quorum, process = _quorum(world), host.process
    before = quorum.reported_at.get(host.node_id)
    for _ in range(4000):
        await asyncio.sleep(0.0005)
        if quorum.reported_at.get(host.node_id) != before:
            break
    if process is not None and process.alive:
        world.loop.pause(process, SESSION_SECONDS * rng.uniform(0.9, 1.5))
