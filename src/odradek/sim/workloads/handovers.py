"""An administrator whose controllers die with what was asked of them half done.

Topics have many partitions, so that each change takes several writes of the metadata store; replicas that move are cut
off from whom they copy, so that moves last; brokers are away or cut off when topics are deleted and recreated.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Coroutine
from itertools import count
from typing import Any, Final

from odradek.client.admin import Admin, NewTopic
from odradek.sim.faults.cluster_faults import controller_of, started_again
from odradek.sim.workloads.clients import FAILURES, app_random, note_failure
from odradek.sim.workloads.cluster import ask_controller
from odradek.sim.world.hosts import PORT, BrokerHost, ClientHost, World
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
    AlterPartitionReassignmentsResponse,
)

_AT_ONCE: Final = 4
"""How many topics there are at most."""
_TIMEOUT_MS: Final = 3_000


async def hand_over(host: ClientHost) -> None:
    """Change what there is until the faults end; then whatever was begun has to come to its end by itself."""
    world, rng = host.world, app_random(host)
    numbers = count()
    there: list[str] = []
    while not world.is_stopping():
        try:
            async with Admin(**host.options(default_api_timeout_ms=_TIMEOUT_MS)) as admin:
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(2.0))
                    await _change(host, admin, there, rng, numbers)
        except FAILURES as error:
            note_failure(host, "hand over", error)
            await asyncio.sleep(0.2)


async def _change(host: ClientHost, admin: Admin, there: list[str], rng: random.Random, numbers: count[int]) -> None:
    action = rng.random()
    if not there or (action < 0.35 and len(there) < _AT_ONCE):
        # A name is used again only on purpose: nothing that comes later cures what is half done.
        name = f"made-{host.restarts}-{next(numbers)}"
        there.append(name)
        _doom(host.world, rng, (1, 2, 3, 4))
        _note(host, "creation", (await admin.create_topics([NewTopic(name, rng.choice((3, 5)), 3)]))[name])
    elif action < 0.5:
        await _delete(host, admin, there.pop(rng.randrange(len(there))), rng)
    elif action < 0.65:
        await _delete_and_make(host, admin, rng.choice(there), rng)
    elif action < 0.75:
        await _grow(host, admin, rng.choice(there), rng)
    else:
        await _move(host, admin, rng.choice([*there, "plain"]), rng)


def _doom(world: World, rng: random.Random, writes: tuple[int, ...]) -> None:
    """The controller may die right after one of its next writes, and come back a while later."""
    controller = controller_of(world)
    if rng.random() < 0.5 or controller is None or controller.store is None or world.is_stopping():
        return
    controller.store.dies_in = rng.choice(writes)
    _meanwhile(world, _started_if_dead(world, controller, rng))


async def _started_if_dead(world: World, host: BrokerHost, rng: random.Random) -> None:
    """It died in a write: the others learn of it at once or when its session ends, and continue without it."""
    store = host.store
    assert store is not None
    for _ in range(20):
        await asyncio.sleep(0.1)
        if not host.is_up:
            world.mark("controller died in a change")
            if rng.random() < 0.7:
                store.expire()
            break
    store.dies_in = 0
    await started_again(world, host, rng, (0.5, 8.0))


def _meanwhile(world: World, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run on, whatever becomes of the client that began it."""
    world.loop.create_task(coroutine, context=contextvars.Context())


def _away(world: World, rng: random.Random) -> None:
    """A broker that is not the controller dies, and comes back when what is about to be done is done."""
    host = rng.choice(world.brokers)
    if host.is_up and host is not controller_of(world) and not world.is_stopping():
        host.kill()
        if host.store is not None:
            host.store.expire()
        _meanwhile(world, started_again(world, host, rng, (1.5, 6.0)))


def _cut_off_replica(world: World, name: str, rng: random.Random) -> BrokerHost | None:
    """A broker that holds a replica of the topic: what it answers its controller is under way for a while."""
    controller = controller_of(world)
    replicas = {node_id for key, state in world.stored.states.items() if key[0] == name for node_id in state.replicas}
    hosts = [world.brokers[node_id - 1] for node_id in sorted(replicas)]
    hosts = [each for each in hosts if each.is_up and each is not controller]
    if controller is None or not hosts or world.is_stopping():
        return None
    host = rng.choice(hosts)
    world.network.link(host.host, controller.host).cut_until = world.now() + rng.uniform(1.5, 4.0)
    return host


async def _reset_after_notice(world: World, host: BrokerHost, name: str) -> None:
    """Reset the connection once the broker knows the next topic of the name: the controller sends all again."""
    before, until = world.stored.topic_id(name), world.now() + 6
    while host.is_up and world.now() < until and not world.is_stopping():
        found = host.inspect()
        topic = None if found is None else found.view.image.topics.get(name)
        controller = controller_of(world)
        if topic is not None and topic.id != before and controller is not None:
            for stream in world.network.between(controller.host, host.host):
                if stream.peer_port == PORT:
                    stream.reset()
            world.mark("a topic's end was sent again")
            return
        await asyncio.sleep(0.001)


async def _delete(host: ClientHost, admin: Admin, name: str, rng: random.Random) -> None:
    if rng.random() < 0.5:
        _away(host.world, rng)
        await asyncio.sleep(rng.uniform(0.1, 0.5))
    if rng.random() < 0.6:
        _doom(host.world, rng, (1, 2, 2, 3, 4))
    _note(host, "deletion", (await admin.delete_topics([name]))[name])


async def _delete_and_make(host: ClientHost, admin: Admin, name: str, rng: random.Random) -> None:
    """Create the next topic of the name before a broker could be notified of the deletion of the last one."""
    world = host.world
    unheard = _cut_off_replica(world, name, rng)
    if unheard is not None:
        _meanwhile(world, _reset_after_notice(world, unheard, name))
        # The broker is notified of this topic first, by itself; of all that follows at once.
        other = f"{name}-told"
        made = (await admin.create_topics([NewTopic(other, 1, 3)]))[other]
        if isinstance(made, KafkaError):
            _note(host, "deletion", (await admin.delete_topics([other]))[other])
    _note(host, "deletion", (await admin.delete_topics([name]))[name])
    _note(host, "creation", (await admin.create_topics([NewTopic(name, 3, 3)]))[name])


async def _grow(host: ClientHost, admin: Admin, name: str, rng: random.Random) -> None:
    _doom(host.world, rng, (1, 2, 3))
    _note(host, "growth", (await admin.create_partitions({name: rng.choice((5, 6))}))[name])


async def _move(host: ClientHost, admin: Admin, name: str, rng: random.Random) -> None:
    """Partitions move to brokers that cannot copy them yet; meanwhile the controller changes, perhaps."""
    world = host.world
    found = (await admin.describe_topics([name]))[name]
    if isinstance(found, KafkaError):
        return
    rows = []
    ids = [each.node_id for each in world.brokers]
    for partition in found.partitions[:2]:
        target = rng.sample(ids, 3)
        rows.append(AlterPartitionReassignmentsRequestReassignablePartition(partition.partition, target))
        for added in set(target) - set(partition.replicas):
            _cut(world, added, partition.leader, rng)
    wanted = [AlterPartitionReassignmentsRequestReassignableTopic(name, rows)]
    request = AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=wanted)
    answer = await ask_controller(admin, request, AlterPartitionReassignmentsResponse)
    world.mark(f"move: {ErrorCode(answer.error_code).name}")
    controller = controller_of(world)
    if rng.random() < 0.6 and controller is not None and controller.store is not None and not world.is_stopping():
        if rng.random() < 0.5:
            controller.kill()
            _meanwhile(world, started_again(world, controller, rng, (0.5, 8.0)))
        controller.store.expire()


def _cut(world: World, added: int, leader: int, rng: random.Random) -> None:
    if leader < 0 or leader == added or world.is_stopping():
        return
    there, here = world.brokers[leader - 1].host, world.brokers[added - 1].host
    world.network.link(here, there).cut_until = world.network.link(there, here).cut_until = world.now() + rng.uniform(
        2.0, 7.0
    )


def _note(host: ClientHost, what: str, answer: object) -> None:
    if isinstance(answer, KafkaError):
        host.world.mark(f"{what}: {answer.code.name}")
    else:
        host.world.mark(f"{what}: done")
