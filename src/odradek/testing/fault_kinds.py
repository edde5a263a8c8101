"""The faults of a simulated application by name: most are those of Odradek's own simulator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.groups.events import GroupListing, LeavingMember
from odradek.groups.service import GroupService
from odradek.sim.faults import nemesis
from odradek.sim.faults.cluster_faults import started_again
from odradek.sim.world.hosts import BrokerHost, World
from odradek.wire.errors import KafkaError

_EVICTION_SECONDS: Final = 10.0
_RESTART_SECONDS: Final = (0.0, 1.0)


class GroupMember(NamedTuple):
    """A member of a consumer group, and the broker that coordinates the group."""

    host: BrokerHost
    group_id: str
    member_id: str
    instance_id: str | None


def members(world: World) -> list[GroupMember]:
    """The members of all groups in a fixed order, as far as coordinators have loaded their groups."""
    return [member for host in world.brokers if host.is_up and host.serves for member in _members_at(host)]


def _members_at(host: BrokerHost) -> Iterator[GroupMember]:
    service = _groups_of(host)
    if service is None:
        return
    try:
        for group in sorted(service.list_groups((), ())):
            for member_id, instance_id in sorted(_ids(service, group), key=lambda ids: ids[0]):
                yield GroupMember(host, group.group_id, member_id, instance_id)
    except KafkaError:
        return  # The coordinator loads its groups, or has just lost them.


def _ids(service: GroupService, group: GroupListing) -> list[tuple[str, str | None]]:
    if group.group_type == "consumer":
        described = service.describe_consumer_group(group.group_id)
        return [(each.member_id, each.instance_id) for each in described.members]
    return [(each.member_id, each.group_instance_id) for each in service.describe_group(group.group_id).members]


def _groups_of(host: BrokerHost) -> GroupService | None:
    found = host.inspect()
    return None if found is None else found.groups


async def evict(world: World, member: GroupMember) -> None:
    """Remove a member from its group, as the coordinator does when the session has expired.

    The member learns of it with its next request. Returns when the group has forgotten the member, or the coordinator
    is gone.
    """
    process, service = member.host.process, _groups_of(member.host)
    if process is None or service is None:
        return
    world.note(f"{member.member_id} is evicted from group {member.group_id}")
    task = world.loop.create_task(_remove(service, member), name="evict", context=process.context)
    # A process that is killed meanwhile never ends its tasks.
    await asyncio.wait((task,), timeout=_EVICTION_SECONDS)


async def _remove(service: GroupService, member: GroupMember) -> None:
    leaving = LeavingMember(member.member_id, member.instance_id, "evicted by the simulation")
    try:
        await service.leave(member.group_id, [leaving])
    except KafkaError:
        return  # Another broker coordinates the group now; the member stays.


async def rebalance(world: World, _host: BrokerHost, rng: random.Random) -> None:
    """Evict a member of any group."""
    found = members(world)
    if found:
        await evict(world, rng.choice(found))


async def full_disk(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The broker's disk is full for a while; then the broker is restarted if its log directory went offline."""
    await nemesis.disk_full(world, host, rng)
    if host.lacks_a_directory or not host.is_up:
        host.kill()
        await started_again(world, host, rng, _RESTART_SECONDS)


FAULTS: Final[Mapping[str, nemesis.Kind]] = {
    "kill": nemesis.Kind(nemesis.crash, 3),
    "restart": nemesis.Kind(nemesis.restart, 2),
    "pause": nemesis.Kind(nemesis.pause_broker, 2),
    "cut": nemesis.Kind(nemesis.cut, 3),
    "slow network": nemesis.Kind(nemesis.slow_link, 2),
    "reset": nemesis.Kind(nemesis.reset, 4),
    "stall": nemesis.Kind(nemesis.stall, 3),
    "slow disk": nemesis.Kind(nemesis.slow_disk, 2),
    "full disk": nemesis.Kind(full_disk, 2),
    "failing disk": nemesis.Kind(nemesis.disk_error, 1),
    "rebalance": nemesis.Kind(rebalance, 3),
    "kill program": nemesis.Kind(nemesis.crash_client, 3),
    "pause program": nemesis.Kind(nemesis.pause_client, 2),
}
"""Faults of `Simulation.faults` by name: of brokers, their disks, the network to programs, groups and programs.

None of them loses what a broker has acknowledged; `SimulatedBroker.lose_power` may.
"""

NEED_PROGRAMS: Final = (nemesis.cut, nemesis.slow_link, nemesis.crash_client, nemesis.pause_client)
"""Faults of which there is nothing to do without programs."""
