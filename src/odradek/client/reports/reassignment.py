"""Plans that move partitions to other brokers, what throttles them, and how far they are (KIP-455, KIP-73). Pure."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from odradek.client.admin.replicas import PartitionReassignment
from odradek.records.topic_partition import TopicPartition


class Move(NamedTuple):
    """A partition, its replicas before the move, and its replicas afterwards, the preferred leader first."""

    place: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def added(self) -> list[int]:
        """Brokers that receive a replica."""
        return [each for each in self.after if each not in self.before]


class MoveState(StrEnum):
    """How far a reassignment is. DIFFERENT: it does not run, and the replicas are not those of the plan."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    DIFFERENT = "different"
    MISSING = "missing"


def state_of(target: Sequence[int], replicas: Sequence[int] | None, running: PartitionReassignment | None) -> MoveState:
    """The state of one partition of a plan; `replicas` is None for a partition that does not exist."""
    if replicas is None:
        return MoveState.MISSING
    if running is not None and running.target == list(target):
        return MoveState.IN_PROGRESS
    if running is None and list(replicas) == list(target):
        return MoveState.COMPLETED
    return MoveState.DIFFERENT


def is_in_directory(path: str | None, named: str) -> bool:
    """Whether a broker's path is the log directory that a user names, perhaps with a slash at the end."""
    return path is not None and posixpath.normpath(path) == posixpath.normpath(named)


def throttled_leaders(moves: Iterable[Move]) -> dict[str, list[str]]:
    """`PARTITION:BROKER` by topic of the replicas that new replicas may be fetched from."""
    return _by_topic((each.place, each.before) for each in moves if each.added)


def throttled_followers(moves: Iterable[Move]) -> dict[str, list[str]]:
    """`PARTITION:BROKER` by topic of the new replicas."""
    return _by_topic((each.place, each.added) for each in moves if each.added)


def _by_topic(replicas: Iterable[tuple[TopicPartition, Iterable[int]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for (topic, partition), brokers in replicas:
        found[topic] += [f"{partition}:{broker}" for broker in brokers]
    return dict(found)


def spread(
    partitions: Mapping[TopicPartition, int], racks: Mapping[int, str | None], *, rack_aware: bool = True
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas for partitions with these numbers of replicas, over the brokers in `racks`.

    Leaders and replicas are even over brokers. With racks a partition's replicas lie in as many racks as there can be.
    Raises ValueError where there are too few brokers.
    """
    known = {broker: rack if rack_aware else None for broker, rack in racks.items()}
    leads = dict.fromkeys(sorted(known), 0)
    holds = dict.fromkeys(sorted(known), 0)
    result = {}
    for place, factor in sorted(partitions.items()):
        if factor > len(known):
            raise ValueError(f"{place} has {factor} replicas, and there are {len(known)} brokers to hold them")
        chosen: list[int] = []
        for position in range(factor):
            used = {known[each] for each in chosen} - {None}
            free = [broker for broker in known if broker not in chosen]
            apart = [broker for broker in free if known[broker] not in used] or free
            first = position == 0
            best = min(apart, key=lambda b: (leads[b] if first else 0, holds[b], b))
            leads[best] += first
            holds[best] += 1
            chosen.append(best)
        result[place] = tuple(chosen)
    return result
