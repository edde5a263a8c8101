"""Members of groups that die for good, without a word, and the look whether their groups got rid of them.

No other member joins these groups, so only the members' own sessions can end their membership.
"""

from __future__ import annotations

import asyncio
import contextvars

from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.network.cluster import GROUP_COORDINATOR
from odradek.sim.checkers.history import Reader, Violation
from odradek.sim.workloads.clients import CONSUMER_OPTIONS, FAILURES, Assignments, app_random, note_failure, note_seen
from odradek.sim.workloads.raw_clients import Member
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import KafkaError
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

CLASSIC_GROUP = "ghosts"
MODERN_GROUP = "modern-ghosts"
GONE_SECONDS = 40.0
"""Longer than every session and the rebalance timeout of a member that died while it joined."""


async def _die(host: ClientHost) -> None:
    """The process ends here and is not started again; half of the time its machine goes dark with it."""
    host.world.mark("member died for good")
    host.world.loop.call_soon(host.vanish, context=contextvars.Context())
    await host.world.loop.create_future()


async def ghost(host: ClientHost, topic: str) -> None:
    """A member of a classic group that comes and goes, and in the end dies: with partitions or while it joins."""
    world, rng = host.world, app_random(host)
    patient = rng.random() < 0.7
    while True:
        reader = Reader(f"{host.name}.{host.restarts}", "read_uncommitted")
        world.history.readers.append(reader)
        options = host.options(**CONSUMER_OPTIONS, group_id=CLASSIC_GROUP, enable_auto_commit=False)
        try:
            async with Consumer(**options) as consumer:
                consumer.subscribe([topic], listener=Assignments(host, reader, consumer, CLASSIC_GROUP))
                until = world.now() + rng.uniform(4, 20)
                while world.now() < until or world.is_stopping():
                    note_seen(host, reader, await consumer.poll(300))
                    if world.is_stopping() and (consumer.assignment() or not patient):
                        await _die(host)
        except FAILURES as error:
            note_failure(host, CLASSIC_GROUP, error)
            await asyncio.sleep(0.2)


async def modern_ghost(host: ClientHost, topic: str) -> None:
    """The same in a group of KIP-848."""
    world, rng = host.world, app_random(host)
    while True:
        member = Member(host, MODERN_GROUP, topic)
        member.member_id = f"{host.name}.{host.restarts}.{rng.randrange(1 << 30)}"
        try:
            async with Admin(**host.options(request_timeout_ms=3_000, default_api_timeout_ms=6_000)) as admin:
                until = world.now() + rng.uniform(4, 20)
                while world.now() < until or world.is_stopping():
                    await member.beat(admin, full=False)
                    if world.is_stopping() and member.owned:
                        await _die(host)
                    await asyncio.sleep(rng.uniform(0.3, 1.2))
                await member.leave(admin)
        except FAILURES as error:
            note_failure(host, MODERN_GROUP, error)
            member.lose()
            await asyncio.sleep(0.2)


async def see_them_gone(host: ClientHost) -> None:
    """Both groups have no members after a while. Raises Violation."""
    async with Admin(**host.options()) as admin:
        until = host.world.now() + GONE_SECONDS
        while left := [*await _classic_members(admin), *await _modern_members(admin)]:
            if host.world.now() > until:
                raise Violation("dead member stays", f"{', '.join(left)} died {GONE_SECONDS} s ago or more")
            await asyncio.sleep(1)


async def _classic_members(admin: Admin) -> list[str]:
    group = (await admin.groups.describe([CLASSIC_GROUP]))[CLASSIC_GROUP]
    return [] if isinstance(group, KafkaError) else [each.member_id for each in group.members]


async def _modern_members(admin: Admin) -> list[str]:
    request = ConsumerGroupDescribeRequest([MODERN_GROUP])
    answer = await admin.cluster.request_coordinator(
        GROUP_COORDINATOR, MODERN_GROUP, request, ConsumerGroupDescribeResponse
    )
    return [member.member_id for group in answer.groups for member in group.members]
