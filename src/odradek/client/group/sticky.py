"""The sticky assignment: balanced first, then as few partitions moved as possible (KIP-54). Pure and deterministic.

Balanced means that no member could take a partition from another with at least two more. Kept is what a member
claims to own, unless a member of a later generation claims it too; of the same generation, both lose it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from odradek.client.group.racks import Racks
from odradek.records.topic_partition import TopicPartition

_NO_RACKS: Final = Racks({}, {})
Claims = Mapping[str, tuple[Sequence[TopicPartition], int]]
"""(partitions, generation) that each member claims to own."""


def assign_sticky(
    counts: Mapping[str, int], topics: Mapping[str, Sequence[str]], claims: Claims, racks: Racks = _NO_RACKS
) -> dict[str, list[TopicPartition]]:
    """Every partition of a subscribed topic to exactly one of its subscribers; lists are sorted.

    Of the members that may get a partition without an owner, one in a rack of its replicas comes first.
    """
    wanted = {member_id: set(names) for member_id, names in topics.items()}
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member_id in sorted(topics):
        for name in wanted[member_id]:
            subscribers[name].append(member_id)
    partitions = [
        TopicPartition(name, number) for name in sorted(counts) if name in subscribers for number in range(counts[name])
    ]
    owner = _valid_claims(set(partitions), wanted, claims)
    held: dict[str, set[TopicPartition]] = {member_id: set() for member_id in topics}
    for partition, member_id in owner.items():
        held[member_id].add(partition)
    loads = {member_id: len(each) for member_id, each in held.items()}
    # Those with the fewest candidates first: they have the least choice.
    free = sorted((each for each in partitions if each not in owner), key=lambda p: (len(subscribers[p.topic]), p))
    if len({frozenset(each) for each in wanted.values()}) <= 1:
        _share_evenly(held, free, len(partitions), claims, racks)
    else:
        for partition in free:
            member_id = min(subscribers[partition.topic], key=lambda m: (loads[m], not racks.are_near(m, partition), m))
            held[member_id].add(partition)
            loads[member_id] += 1
        _balance(held, loads, subscribers)
    return {member_id: sorted(held[member_id]) for member_id in topics}


def _valid_claims(
    partitions: set[TopicPartition], wanted: Mapping[str, set[str]], claims: Claims
) -> dict[TopicPartition, str]:
    best: dict[TopicPartition, int] = {}
    owner: dict[TopicPartition, str] = {}
    for member_id in sorted(claims):
        claimed, generation = claims[member_id]
        for each in claimed:
            if each not in partitions or each.topic not in wanted[member_id]:
                continue
            before = best.get(each)
            if before is None or generation > before:
                best[each] = generation
                owner[each] = member_id
            elif generation == before and owner.get(each) != member_id:
                owner.pop(each, None)
    return owner


def _share_evenly(
    held: dict[str, set[TopicPartition]], free: list[TopicPartition], total: int, claims: Claims, racks: Racks
) -> None:
    """All members subscribe to the same topics: each gets the quotient, some one more; a surplus is revoked."""
    if not held:
        return
    quota, extra = divmod(total, len(held))
    # A member that has more already gets one more: that moves the least.
    ranked = sorted(held, key=lambda m: (-len(held[m]), m))
    targets = {member_id: quota + (index < extra) for index, member_id in enumerate(ranked)}
    pool = list(free)
    if racks.matter(held, {each.topic for each in chain(pool, *held.values())}):
        pool = _share_nearby(held, pool, targets, racks)
    for member_id in ranked:
        surplus = len(held[member_id]) - targets[member_id]
        if surplus > 0:
            released = sorted(held[member_id])[-surplus:]
            held[member_id].difference_update(released)
            pool += released
    pool.sort()
    pool.reverse()
    needy = sorted((m for m in held if len(held[m]) < targets[m]), key=lambda m: (len(held[m]), m))
    while needy:
        # In turns, so that a topic's partitions spread over the members.
        for member_id in list(needy):
            if len(held[member_id]) < targets[member_id]:
                held[member_id].add(pool.pop())
            else:
                needy.remove(member_id)
    assert not pool, (total, claims)


def _share_nearby(
    held: dict[str, set[TopicPartition]], free: list[TopicPartition], targets: Mapping[str, int], racks: Racks
) -> list[TopicPartition]:
    """Let members have partitions of their racks, within the targets; returns those that are still free.

    A member keeps a partition of another rack only if no member in one of its racks has room: racks come before
    stickiness, as in Kafka.
    """
    owner: dict[TopicPartition, str] = {}
    for member_id, partitions in held.items():
        kept = sorted(each for each in partitions if racks.are_near(member_id, each))[: targets[member_id]]
        owner |= dict.fromkeys(partitions.difference(kept), member_id)
        held[member_id] = set(kept)
    left = []
    for partition in sorted(chain(free, owner)):
        near = [m for m in held if len(held[m]) < targets[m] and racks.are_near(m, partition)]
        if near:
            held[min(near, key=lambda m: (len(held[m]), m))].add(partition)
        else:
            left.append(partition)
    found = []
    for partition in left:
        before = owner.get(partition)
        if before is not None and len(held[before]) < targets[before]:
            held[before].add(partition)
        else:
            found.append(partition)
    return found


def _balance(
    held: dict[str, set[TopicPartition]], loads: dict[str, int], subscribers: Mapping[str, Sequence[str]]
) -> None:
    """Move partitions from fuller to emptier members, directly or along chains, while that evens them out."""
    while True:
        for member_id in sorted(held, key=lambda m: (-loads[m], m)):
            path = _way_down(member_id, held, loads, subscribers)
            if path:
                break
        else:
            return
        for source, partition, target in path:
            held[source].discard(partition)
            held[target].add(partition)
        loads[path[0][0]] -= 1
        loads[path[-1][2]] += 1


def _way_down(
    start: str,
    held: Mapping[str, set[TopicPartition]],
    loads: Mapping[str, int],
    subscribers: Mapping[str, Sequence[str]],
) -> list[tuple[str, TopicPartition, str]]:
    """Moves that take one partition off `start` and leave a member with at least two fewer one fuller; shortest first.

    A chain may pass through members in between whose load stays. Each step lowers the sum of squared loads, so that
    balancing ends.
    """
    came_from: dict[str, tuple[str, TopicPartition]] = {}
    seen = {start}
    frontier = [start]
    while frontier:
        reached: list[str] = []
        for member_id in frontier:
            topics: dict[str, TopicPartition] = {}
            for partition in sorted(held[member_id]):
                topics[partition.topic] = partition
            for topic, partition in topics.items():
                for other in subscribers[topic]:
                    if other not in seen:
                        seen.add(other)
                        came_from[other] = (member_id, partition)
                        reached.append(other)
        best = min((m for m in reached if loads[m] + 1 < loads[start]), key=lambda m: (loads[m], m), default=None)
        if best is not None:
            path = []
            while best != start:
                source, partition = came_from[best]
                path.append((source, partition, best))
                best = source
            return path[::-1]
        frontier = reached
    return []
