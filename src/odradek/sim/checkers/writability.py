"""For how long a partition takes no write while a majority of the brokers works: a bound on gaps, in virtual time."""

from __future__ import annotations

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

_WRITTEN: Final = ("plain", "ledger")
"""Topics whose partitions clients write all the time: others are opened with their first use, perhaps never."""


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
        network = self._world.network
        for host in members:
            process, store = host.process, host.store
            if process is None or store is None or not host.is_up:
                return False
            if process.paused_until > now or store.cut_until > now or host.inspect() is None:
                return False
        return all(
            network.link(one.host, other.host).cut_until <= now
            for one in members
            for other in members
            if one is not other
        )

    def _is_writable(self, hosts: dict[int, BrokerHost], key: PartitionKey) -> bool:
        return any(self._takes_writes(each, hosts) for host in hosts.values() for each in _leading(host, key))

    def _takes_writes(self, leader: Partition, hosts: dict[int, BrokerHost]) -> bool:
        """Whether the leader may act, and no member of its ISR is out of its reach."""
        now = self._world.now()
        if not leader.may_lead or len(leader.isr) < leader.min_isr:
            return False
        host = hosts[leader.local_id]
        network = self._world.network
        for member in leader.isr:
            other = hosts[member]
            if not other.is_up or other.process is None or other.process.paused_until > now:
                return False
            ways = (network.link(host.host, other.host), network.link(other.host, host.host))
            if other is not host and any(way.cut_until > now for way in ways):
                return False
        return True

    def _story(self, key: PartitionKey, state: PartitionState, majority: frozenset[int]) -> str:
        return (
            f"{key}: {UNWRITABLE_SECONDS} s without, brokers {sorted(majority)} reach each other and the store: {state}"
        )


def _leading(host: BrokerHost, key: PartitionKey) -> list[Partition]:
    found = host.inspect() if host.is_up else None
    if found is None:
        return []
    return [each for each in found.partitions.opened() if (each.topic, each.index) == key and each.is_leader]
