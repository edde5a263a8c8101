"""Which replicas to add or remove so that partitions have a number of replicas. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from odradek.client.reports.balance_plan import Proposal, Replica
from odradek.records.topic_partition import TopicPartition


def with_factor(
    partitions: Mapping[TopicPartition, Replica],
    wanted: Collection[TopicPartition],
    racks: Mapping[int, str | None],
    factor: int,
) -> list[Proposal]:
    """Moves that give the wanted partitions `factor` replicas; `racks` has every live broker.

    Existing replicas stay where they can, and the preferred leader stays unless its broker is dead. New ones go to
    racks that have none, then to the broker with the fewest bytes; brokers that are dead, then crowded racks, then the
    fullest brokers lose theirs first. Raises ValueError if there are too few brokers.
    """
    if not 1 <= factor <= len(racks):
        raise ValueError(f"{factor} replicas cannot be held by {len(racks)} live brokers")
    load: Counter[int] = Counter()
    for each in partitions.values():
        for broker in each.replicas:
            load[broker] += each.size_bytes + 1
    proposals = []
    for place in sorted(wanted):
        known = partitions[place]
        weight = known.size_bytes + 1
        after = list(known.replicas)
        while len(after) > factor:
            lost = _lost(after, racks, load)
            after.remove(lost)
            load[lost] -= weight
        while len(after) < factor:
            used = {racks.get(broker) for broker in after}
            free = [broker for broker in sorted(racks) if broker not in after]
            gained = min(free, key=lambda broker: (racks[broker] is not None and racks[broker] in used, load[broker]))
            after.append(gained)
            load[gained] += weight
        if tuple(after) != known.replicas:
            moved = known.size_bytes * len(set(after) - set(known.replicas))
            proposals.append(Proposal(place, known.replicas, tuple(after), moved))
    return proposals


def _lost(replicas: list[int], racks: Mapping[int, str | None], load: Mapping[int, int]) -> int:
    """The broker whose replica is removed first."""
    crowd = Counter(racks[broker] for broker in replicas if broker in racks and racks[broker] is not None)

    def rank(broker: int) -> tuple[bool, bool, int, int]:
        is_dead = broker not in racks
        crowded = 0 if is_dead or racks[broker] is None else crowd[racks[broker]]
        return is_dead, broker != replicas[0], crowded, load[broker]

    return max(replicas, key=rank)
