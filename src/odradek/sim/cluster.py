"""Several brokers: what must hold of their replicas at every moment, and when all is quiet again."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.replication.partition import Partition
from odradek.sim.history import Violation
from odradek.sim.world import BrokerHost, World

LOOK_SECONDS: Final = 0.05
QUIET_SECONDS: Final = 60.0
"""Within so long after the last fault every replica is in sync again."""
_Key = tuple[str, int]


def _replicas(host: BrokerHost) -> dict[_Key, Partition]:
    """What the broker has open; nothing while it is down, or begins to start."""
    partitions = getattr(host.broker, "_partitions", None) if host.is_up else None
    return {} if partitions is None else {(each.topic, each.index): each for each in partitions.opened()}


class ClusterWatch:
    """Looks at all replicas again and again. Raises Violation."""

    __slots__ = ("_leaders", "_marks", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[tuple[_Key, int], tuple[int, float]] = {}
        self._marks: dict[tuple[str, _Key], int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for host in self._world.brokers:
                for key, partition in _replicas(host).items():
                    self._look(host, key, partition)

    def _look(self, host: BrokerHost, key: _Key, partition: Partition) -> None:
        if partition.leader >= 0 and partition.topic_id:
            self._one_leader(host, key, partition)
        name = host.process.name if host.process is not None else ""
        where = (name, key)
        if partition.leader != partition.local_id:
            self._marks.pop(where, None)
            return
        if not set(partition.isr) <= set(partition.replicas):
            raise Violation("ISR within the replicas", f"{key} at {host.host}: {partition.isr}, {partition.replicas}")
        mark, epoch = partition.high_watermark, partition.leader_epoch
        before = self._marks.get(where, -1)
        self._marks[where] = mark
        if mark < before:
            raise Violation("high watermark goes back", f"{key} at {name}, epoch {epoch}: {mark} after {before}")
        if mark > partition.log.end_offset:
            raise Violation("high watermark within the log", f"{key} at {name}: {mark} > {partition.log.end_offset}")

    def _one_leader(self, host: BrokerHost, key: _Key, partition: Partition) -> None:
        identity = ((f"{key[0]} {partition.topic_id.hex()}", key[1]), partition.leader_epoch)
        known = self._leaders.setdefault(identity, (partition.leader, self._world.now()))
        if known[0] != partition.leader:
            raise Violation(
                "one leader in an epoch",
                f"{key} epoch {partition.leader_epoch}: broker {known[0]} since {known[1]:.3f}, and for {host.host} "
                f"{partition.leader} at {self._world.now():.3f}",
            )


async def see_replicas_agree(world: World) -> None:
    """All replicas come in sync, and have the same batches. Raises Violation."""
    until = world.now() + QUIET_SECONDS
    while behind := _behind(world):
        if world.now() > until:
            raise Violation("replicas come in sync", f"{QUIET_SECONDS} s after all faults: {behind}")
        await asyncio.sleep(0.5)
    world.mark("all replicas in sync")
    for key, found in sorted(_by_partition(world).items()):
        if key[0] != "table" and not key[0].startswith("__"):
            _compare(key, found)


def _by_partition(world: World) -> dict[_Key, list[Partition]]:
    found: dict[_Key, list[Partition]] = {}
    for host in world.brokers:
        for key, partition in _replicas(host).items():
            found.setdefault(key, []).append(partition)
    return found


def _behind(world: World) -> str:
    for key, found in _by_partition(world).items():
        for each in found:
            if each.leader == each.local_id and set(each.isr) != set(each.replicas):
                return f"{key}: led by {each.leader}, ISR {each.isr} of {each.replicas}"
    return ""


def _compare(key: _Key, found: list[Partition]) -> None:
    start = max(each.log.log_start_offset for each in found)
    end = min(each.high_watermark for each in found)
    if start >= end:
        return
    first = [bytes(batch) for batch in found[0].log.read_batches(start, end)]
    for other in found[1:]:
        for ours, theirs in zip(first, other.log.read_batches(start, end), strict=False):
            if ours != bytes(theirs):
                raise Violation(
                    "divergent replicas",
                    f"{key} at offset {int.from_bytes(ours[:8], 'big')}: brokers {found[0].local_id} and "
                    f"{other.local_id} have different batches",
                )
