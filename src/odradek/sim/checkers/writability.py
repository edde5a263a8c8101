"""For how long a partition takes no write while brokers work: bounds on gaps, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from odradek.metadata.image import PartitionState
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.sim.checkers.history import Violation
from odradek.sim.world.hosts import BrokerHost, World

BROKER_SESSION_SECONDS: Final = 4.0
"""After which a controller fences a broker that does not reach it."""
UNWRITABLE_SECONDS: Final = 12.0
"""The longest gap while the same majority works: the store's session of a silent controller (6 s), a lease of its
partitions (4 s), and two seconds for replicas to fetch and join on disks that may be slow. A broker that is cut off,
but not from the store, has to cost less: its session with the controller."""

WITHOUT_STORE_SECONDS: Final = 2.0
"""The longest gap while all brokers reach each other, and only the store is away: promises take the lease's place."""
NEWLY_LED_SECONDS: Final = 6.0
"""The same for a partition whose leader has just got it: it waits for a lease of its former leader (4 s) before."""

_WRITTEN: Final = ("plain", "ledger")
"""Topics whose partitions clients write all the time: others are opened with their first use, perhaps never."""


class WritabilityWithoutStoreWatch:
    """Sees that partitions stay writable while no broker reaches the store, and all brokers reach each other."""

    __slots__ = ("_led_at", "_world", "_writable_at")

    def __init__(self, world: World) -> None:
        self._world = world
        self._led_at: dict[tuple[PartitionKey, int], float] = {}
        self._writable_at: dict[tuple[PartitionKey, int], float] = {}

    def look(self) -> None:
        """Look once; to be called often. Raises Violation."""
        world = self._world
        now = world.now()
        if not all(self._is_without_store(host) for host in world.brokers) or not reach_each_other(
            world, world.brokers
        ):
            self._writable_at.clear()
            self._led_at.clear()
            return
        hosts = {host.node_id: host for host in world.brokers}
        for key, state in world.stored.states.items():
            leader = hosts.get(state.leader)
            if key[0] not in _WRITTEN or leader is None:
                continue
            place = key, state.leader_epoch
            # A leader that the controller has not notified does not know that it is one.
            leads = [each for each in _leading(leader, key) if each.leader_epoch == state.leader_epoch]
            if any(takes_writes(world, each, hosts) for each in leads):
                self._writable_at[place] = now
                continue
            since, limit = self._writable_at.get(place), WITHOUT_STORE_SECONDS
            if since is None:
                if not any(len(each.isr) >= each.min_isr for each in leads):
                    continue
                since, limit = self._led_at.setdefault(place, now), NEWLY_LED_SECONDS
            if now - since > limit:
                raise Violation(
                    "partitions stay writable while the store is away",
                    f"{key}: {limit} s without, all brokers reach each other: {state}",
                )

    def _is_without_store(self, host: BrokerHost) -> bool:
        process, store, now = host.process, host.store, self._world.now()
        if process is None or store is None or not host.is_up or not host.serves or host.is_stopping:
            return False
        return store.cut_until > now and not store.is_expired and process.paused_until <= now


class WritabilityWatch:
    """Sees that partitions are writable while a majority of brokers reach each other and the store."""

    __slots__ = ("_since", "_world", "_writable_at")

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[frozenset[int], float] = {}
        self._writable_at: dict[PartitionKey, float] = {}

    def look(self) -> None:
        """Look once; to be called often. Raises Violation."""
        world = self._world
        now = world.now()
        found: dict[frozenset[int], float] = {}
        for members in combinations(world.brokers, len(world.brokers) // 2 + 1):
            if self._works(members):
                ids = frozenset(host.node_id for host in members)
                found[ids] = self._since.get(ids, now)
        self._since = found
        if not found:
            return
        majority, since = min(found.items(), key=lambda item: item[1])
        hosts = {host.node_id: host for host in world.brokers}
        for key, state in world.stored.states.items():
            if key[0] not in _WRITTEN:
                continue
            if self._is_writable(hosts, key) or majority.isdisjoint(state.isr):
                self._writable_at[key] = now
            elif now - max(since, self._writable_at.get(key, now)) > UNWRITABLE_SECONDS:
                self._writable_at[key] = now
                raise Violation("a partition takes writes while a majority works", self._story(key, state, majority))
            else:
                self._writable_at.setdefault(key, now)

    def _works(self, members: tuple[BrokerHost, ...]) -> bool:
        now = self._world.now()
        for host in members:
            process, store = host.process, host.store
            if process is None or store is None or not host.is_up:
                return False
            if process.paused_until > now or store.cut_until > now or host.inspect() is None:
                return False
        return reach_each_other(self._world, members)

    def _is_writable(self, hosts: dict[int, BrokerHost], key: PartitionKey) -> bool:
        leading = [each for host in hosts.values() for each in _leading(host, key)]
        return any(takes_writes(self._world, each, hosts) or _is_idle(each) for each in leading)

    def _story(self, key: PartitionKey, state: PartitionState, majority: frozenset[int]) -> str:
        return (
            f"{key}: {UNWRITABLE_SECONDS} s without, brokers {sorted(majority)} reach each other and the store: {state}"
        )


def reach_each_other(world: World, members: Sequence[BrokerHost]) -> bool:
    """Whether no connection between two of these brokers is cut."""
    now, network = world.now(), world.network
    return all(
        network.link(one.host, other.host).cut_until <= now for one in members for other in members if one is not other
    )


def takes_writes(world: World, leader: Partition, hosts: dict[int, BrokerHost]) -> bool:
    """Whether the leader may act, and no member of its ISR is out of its reach."""
    now, network = world.now(), world.network
    if not leader.may_lead or len(leader.isr) < leader.min_isr:
        return False
    host = hosts[leader.local_id]
    for member in leader.isr:
        other = hosts[member]
        if not other.is_up or other.process is None or other.process.paused_until > now:
            return False
        ways = (network.link(host.host, other.host), network.link(other.host, host.host))
        if other is not host and any(way.cut_until > now for way in ways):
            return False
    return True


def _is_idle(leader: Partition) -> bool:
    """Whether the leader may act and no write waits: a follower that has all records stays in sync, in reach or not."""
    is_complete = leader.high_watermark == leader.log.end_offset
    return is_complete and leader.may_lead and len(leader.isr) >= leader.min_isr


def _leading(host: BrokerHost, key: PartitionKey) -> list[Partition]:
    found = host.inspect() if host.is_up else None
    if found is None:
        return []
    return [each for each in found.partitions.opened() if (each.topic, each.index) == key and each.is_leader]
