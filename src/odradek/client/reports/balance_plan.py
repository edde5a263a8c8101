"""Which replicas to move, and whom to prefer as leaders, so that brokers carry alike. Pure.

Bytes come first: the fullest broker gives to the emptiest one the replica that brings them nearest together, until
they are within the tolerance. Racks stay spread as they are or better. Then leaders: who is preferred for too many
partitions leaves some to another replica, which moves no data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from odradek.records.topic_partition import TopicPartition


class Replica(NamedTuple):
    """A partition's brokers, and the bytes of one copy."""

    replicas: tuple[int, ...]
    """Brokers, the preferred leader first."""
    size_bytes: int


class Proposal(NamedTuple):
    """A move: the partition's brokers before and after, and the bytes that are copied."""

    place: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    moved_bytes: int


def propose(
    partitions: Mapping[TopicPartition, Replica],
    racks: Mapping[int, str | None],
    *,
    leaving: Collection[int] = (),
    tolerance: float = 0.1,
    most_moves: int = 1000,
) -> list[Proposal]:
    """`racks` has every live broker; `leaving` ones shall hold nothing. Raises ValueError if that cannot be."""
    plan = _Plan(partitions, racks, leaving)
    plan.empty_leaving()
    plan.even_out_bytes(tolerance, most_moves)
    plan.even_out_leaders()
    return [
        Proposal(
            place,
            known.replicas,
            plan.replicas[place],
            known.size_bytes * len(set(plan.replicas[place]) - set(known.replicas)),
        )
        for place, known in partitions.items()
        if plan.replicas[place] != known.replicas
    ]


class _Plan:
    __slots__ = ("_leaving", "_partitions", "_racks", "_takers", "load", "replicas")

    def __init__(
        self, partitions: Mapping[TopicPartition, Replica], racks: Mapping[int, str | None], leaving: Collection[int]
    ) -> None:
        self._partitions = partitions
        self._racks = racks
        self._leaving = frozenset(leaving)
        self._takers = [broker for broker in sorted(racks) if broker not in self._leaving]
        self.replicas = {place: each.replicas for place, each in partitions.items()}
        self.load: Counter[int] = Counter(dict.fromkeys(racks, 0))
        for place, each in partitions.items():
            for broker in each.replicas:
                self.load[broker] += self._weight(place)

    def _weight(self, place: TopicPartition) -> int:
        # Empty partitions count a little, so that they are spread, too.
        return self._partitions[place].size_bytes + 1

    def empty_leaving(self) -> None:
        for place in sorted(self.replicas, key=self._weight, reverse=True):
            for broker in self.replicas[place]:
                if broker in self._leaving:
                    target = self._taker(place, broker)
                    if target is None:
                        raise ValueError(f"{place.topic}-{place.partition} has no broker to go to from {broker}")
                    self._move(place, broker, target)

    def _taker(self, place: TopicPartition, broker: int) -> int | None:
        fitting = [each for each in self._takers if self._fits(place, broker, each)]
        if not fitting:
            fitting = [each for each in self._takers if each not in self.replicas[place]]
        return min(fitting, key=lambda each: (self.load[each], each), default=None)

    def _fits(self, place: TopicPartition, source: int, target: int) -> bool:
        replicas = self.replicas[place]
        if target in replicas:
            return False
        rest = [self._racks.get(broker) for broker in replicas if broker != source]
        spread_now = len({*rest, self._racks.get(source)})
        return len({*rest, self._racks[target]}) >= spread_now

    def _move(self, place: TopicPartition, source: int, target: int) -> None:
        self.replicas[place] = tuple(target if broker == source else broker for broker in self.replicas[place])
        self.load[source] -= self._weight(place)
        self.load[target] += self._weight(place)

    def even_out_bytes(self, tolerance: float, most_moves: int) -> None:
        if len(self._takers) < 2:
            return
        average = sum(self.load[broker] for broker in self._takers) / len(self._takers)
        for _ in range(most_moves):
            fullest = max(self._takers, key=lambda broker: (self.load[broker], -broker))
            if self.load[fullest] - average <= tolerance * average or not self._give(fullest):
                return

    def _give(self, source: int) -> bool:
        """Move one replica to the emptiest broker that can take one that helps."""
        for target in sorted(self._takers, key=lambda broker: (self.load[broker], broker)):
            gap = self.load[source] - self.load[target]
            if gap <= 0:
                return False
            best = min(
                (
                    place
                    for place, replicas in self.replicas.items()
                    if source in replicas and self._weight(place) < gap and self._fits(place, source, target)
                ),
                key=lambda place: (abs(gap / 2 - self._weight(place)), place),
                default=None,
            )
            if best is not None:
                self._move(best, source, target)
                return True
        return False

    def even_out_leaders(self) -> None:
        leads = Counter(dict.fromkeys(self._takers, 0))
        for replicas in self.replicas.values():
            leads[replicas[0]] += 1
        improved = True
        while improved:
            improved = False
            for place, replicas in self.replicas.items():
                best = min(replicas, key=lambda broker: (leads[broker], broker))
                if leads[replicas[0]] - leads[best] > 1:
                    leads[replicas[0]] -= 1
                    leads[best] += 1
                    self.replicas[place] = (best, *(broker for broker in replicas if broker != best))
                    improved = True


def loads(partitions: Mapping[TopicPartition, Replica], brokers: Collection[int]) -> dict[int, tuple[int, int, int]]:
    """Broker -> (bytes, replicas, preferred leaderships)."""
    found = {broker: [0, 0, 0] for broker in brokers}
    for each in partitions.values():
        for position, broker in enumerate(each.replicas):
            entry = found.setdefault(broker, [0, 0, 0])
            entry[0] += each.size_bytes
            entry[1] += 1
            entry[2] += position == 0
    return {broker: (entry[0], entry[1], entry[2]) for broker, entry in found.items()}


def applied(
    partitions: Mapping[TopicPartition, Replica], proposals: Sequence[Proposal]
) -> dict[TopicPartition, Replica]:
    """The partitions once the proposals are carried out."""
    after = dict(partitions)
    for each in proposals:
        after[each.place] = after[each.place]._replace(replicas=each.after)
    return after
