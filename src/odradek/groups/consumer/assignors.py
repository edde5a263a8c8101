"""The assignors that the broker offers to consumer groups (KIP-848): `uniform` and `range`.

Both are deterministic, spread partitions within the bounds that subscriptions leave, and keep as much of the target
before as balance allows: `uniform` by moving only what is too much somewhere, `range` because the same members in the
same order get the same ranges. Racks are not looked at, as in Kafka 4.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from odradek.groups.consumer.records import TopicPartitions
from odradek.records.topic_partition import TopicIdPartition

Assignments: TypeAlias = dict[str, TopicPartitions]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it: ids of the existing topics that it subscribes to, and its last target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: TopicPartitions


Assignor: TypeAlias = Callable[[list[MemberSpec], Mapping[bytes, int]], Assignments]
"""(members, number of partitions by topic id) -> every member's partitions."""


# --- range ---


def assign_range(members: list[MemberSpec], partitions: Mapping[bytes, int]) -> Assignments:
    """Per topic: its subscribers in order, each a run of partitions; those who come first get one more.

    Topics with as many partitions and the same subscribers are split alike, so that keys meet (co-partitioning).
    """
    ordered = sorted(members, key=_range_order)
    subscribers: dict[bytes, int] = {}
    for member in ordered:
        for topic_id in member.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    place = dict.fromkeys(subscribers, 0)
    found: Assignments = {}
    for member in ordered:
        mine: dict[bytes, frozenset[int]] = {}
        for topic_id in sorted(member.topics):
            share, extra = divmod(partitions[topic_id], subscribers[topic_id])
            nth = place[topic_id]
            place[topic_id] = nth + 1
            start = nth * share + min(nth, extra)
            end = start + share + (nth < extra)
            if start < end:
                mine[topic_id] = frozenset(range(start, end))
        found[member.member_id] = mine
    return found


def _range_order(member: MemberSpec) -> tuple[bool, str]:
    """Static members first: their place outlives a restart."""
    return (member.instance_id is None, member.instance_id or member.member_id)


# --- uniform ---


def assign_uniform(members: list[MemberSpec], partitions: Mapping[bytes, int]) -> Assignments:
    """As even as subscriptions allow: no member could give one to another and both be closer to even."""
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: member.member_id)
    if all(member.topics == ordered[0].topics for member in ordered):
        return _uniform_alike(ordered, partitions)
    return _Balance(ordered, partitions).assign()


def _uniform_alike(members: list[MemberSpec], partitions: Mapping[bytes, int]) -> Assignments:
    """All subscribe to the same topics: each gets the same number, some one more."""
    topics = sorted(members[0].topics)
    total = sum(partitions[topic_id] for topic_id in topics)
    share, extra = divmod(total, len(members))
    kept: dict[str, list[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    # A member that has more before keeps it while there are places with one more, so that little moves.
    by_size = sorted(members, key=lambda m: (-_size(m.target, topics, partitions), m.member_id))
    quotas: dict[str, int] = {}
    for nth, member in enumerate(by_size):
        quota = quotas[member.member_id] = share + (nth < extra)
        mine: list[TopicIdPartition] = []
        for topic_id in topics:
            for partition in sorted(member.target.get(topic_id, ())):
                key = (topic_id, partition)
                if partition < partitions[topic_id] and len(mine) < quota and key not in taken:
                    mine.append(key)
                    taken.add(key)
        kept[member.member_id] = mine
    free = iter([(t, p) for t in topics for p in range(partitions[t]) if (t, p) not in taken])
    for member in members:
        mine = kept[member.member_id]
        while len(mine) < quotas[member.member_id]:
            mine.append(next(free))
    return {member.member_id: _grouped(kept[member.member_id]) for member in members}


def _size(target: TopicPartitions, topics: list[bytes], partitions: Mapping[bytes, int]) -> int:
    return sum(sum(p < partitions[topic_id] for p in target.get(topic_id, ())) for topic_id in topics)


class _Balance:
    """Members subscribe to different topics: keep, fill up the smallest, then move until no move helps."""

    __slots__ = ("have", "members", "owner", "partitions", "subscribers")

    def __init__(self, members: list[MemberSpec], partitions: Mapping[bytes, int]) -> None:
        self.members = members
        self.partitions = partitions
        self.subscribers: dict[bytes, list[str]] = {}
        self.have: dict[str, dict[bytes, set[int]]] = {}
        self.owner: dict[TopicIdPartition, str] = {}
        for member in members:
            self.have[member.member_id] = {}
            for topic_id in member.topics:
                self.subscribers.setdefault(topic_id, []).append(member.member_id)

    def assign(self) -> Assignments:
        for member in self.members:
            for topic_id, wanted in member.target.items():
                if topic_id in member.topics:
                    for partition in sorted(wanted):
                        if partition < self.partitions[topic_id] and (topic_id, partition) not in self.owner:
                            self._give((topic_id, partition), member.member_id)
        self._fill()
        self._even_out()
        return {name: {t: frozenset(p) for t, p in sorted(mine.items()) if p} for name, mine in self.have.items()}

    def _count(self, name: str) -> int:
        return sum(map(len, self.have[name].values()))

    def _give(self, key: TopicIdPartition, name: str) -> None:
        self.owner[key] = name
        self.have[name].setdefault(key[0], set()).add(key[1])

    def _fill(self) -> None:
        """Topics with the fewest subscribers first: the others can still make up for what these force."""
        for topic_id in sorted(self.subscribers, key=lambda t: (len(self.subscribers[t]), t)):
            heap = [(self._count(name), name) for name in self.subscribers[topic_id]]
            heapq.heapify(heap)
            for partition in range(self.partitions[topic_id]):
                if (topic_id, partition) not in self.owner:
                    count, name = heap[0]
                    self._give((topic_id, partition), name)
                    heapq.heapreplace(heap, (count + 1, name))

    def _even_out(self) -> None:
        """Each move makes the sum of squares smaller, so it ends."""
        counts = {name: self._count(name) for name in self.have}
        moved = True
        while moved:
            moved = False
            for topic_id, names in self.subscribers.items():
                if len(names) > 1 and self._even_topic(topic_id, names, counts):
                    moved = True

    def _even_topic(self, topic_id: bytes, names: list[str], counts: dict[str, int]) -> bool:
        """Move partitions of one topic from the fullest of its owners to the emptiest of its subscribers."""
        low = [(counts[name], name) for name in names]
        high = [(-counts[name], name) for name in names if self.have[name].get(topic_id)]
        heapq.heapify(low)
        heapq.heapify(high)
        moved = False
        while high:
            most, giver = high[0]
            least, taker = low[0]
            if counts[giver] != -most:
                heapq.heapreplace(high, (-counts[giver], giver))
            elif counts[taker] != least:
                heapq.heapreplace(low, (counts[taker], taker))
            elif -most - least < 2:
                break
            else:
                self._give((topic_id, self.have[giver][topic_id].pop()), taker)
                counts[giver] -= 1
                counts[taker] += 1
                moved = True
                if not self.have[giver][topic_id]:
                    heapq.heappop(high)
        return moved


def _grouped(keys: list[TopicIdPartition]) -> TopicPartitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in keys:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in sorted(found.items())}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By their names; also Kafka's class names are accepted where a configuration lists assignors."""

ASSIGNOR_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
