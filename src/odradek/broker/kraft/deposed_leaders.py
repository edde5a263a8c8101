"""Which brokers of a KRaft cluster may act as the leader of a partition, though another one has been elected since.

A successor that was elected, and has not begun, proves nothing of the leaders before it: it may have been fenced, or
deposed, while it waited for one of them, or before it learned that it leads. So the next leader waits for all of them.
A lease is over a session after this broker has learned of the successor, or once its broker is fenced.
See docs/decisions/0011-leaders-hold-leases.md.

Pure: times are seconds of this broker's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState
from odradek.metadata.topic_changes import partition_changes
from odradek.records.topic_partition import TopicIdPartition

_FIRST_EPOCH: Final = 0


class _Deposed(NamedTuple):
    brokers: frozenset[int]
    until: float
    """When the last of their leases is over, unless one of them has the metadata log and does not apply it."""


class DeposedLeaders:
    """`follow` every image; `acting` for a partition that this broker is to lead, `ended` when it begins."""

    __slots__ = ("_found", "_node_id", "_now", "_session_seconds")

    def __init__(self, node_id: int, now: Callable[[], float], session_seconds: Callable[[], float]) -> None:
        """`session_seconds` is `broker.session.timeout.ms`."""
        self._node_id = node_id
        self._now = now
        self._session_seconds = session_seconds
        self._found: dict[TopicIdPartition, _Deposed] = {}
        """In the order of `until`."""

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Note the leaders of this broker's partitions that `new` deposes and does not fence."""
        now = self._now()
        self._forget(now)
        for topic, index, before, state in partition_changes(old, new):
            if self._node_id not in state.replicas:
                # If it becomes a replica again, a leader that has begun adds it to the ISR.
                continue
            found = {i for i in former_leaders(before, state) if i != self._node_id and _may_act(i, old, new)}
            if found:
                place = (topic.id, index)
                known = self._found.pop(place, None)
                self._found[place] = _Deposed(
                    frozenset(found if known is None else known.brokers | found), now + self._session_seconds()
                )

    def _forget(self, now: float) -> None:
        """Forget those whose leases are over."""
        over = []
        for place, deposed in self._found.items():
            if deposed.until > now:
                break
            over.append(place)
        for place in over:
            del self._found[place]

    def acting(self, place: TopicIdPartition, image: ClusterImage) -> set[int]:
        """The brokers that may still act as leaders of the partition."""
        found = self._found.get(place)
        return set() if found is None else {i for i in found.brokers if not is_fenced(image, i)}

    def ended(self, place: TopicIdPartition) -> None:
        """All former leaders of the partition have ended, and this broker begins to lead it."""
        self._found.pop(place, None)


def former_leaders(before: PartitionState | None, state: PartitionState) -> set[int]:
    """The brokers of which one led the partition before this state; `before` is its state in the image before.

    Where the image before does not have the leader of the epoch before, each replica may have been that.
    """
    if state.leader_epoch == _FIRST_EPOCH:
        return set()
    if before is None:
        return set(state.replicas)
    if (before.leader, before.leader_epoch) == (state.leader, state.leader_epoch):
        return set()
    if before.leader != NO_LEADER and before.leader_epoch + 1 == state.leader_epoch:
        return {before.leader}
    return {*before.replicas, *state.replicas}


def is_fenced(image: ClusterImage, broker_id: int) -> bool:
    """Whether the broker is registered, and fenced: it has no lease."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.fenced


def _may_act(broker_id: int, old: ClusterImage, new: ClusterImage) -> bool:
    """Whether the broker may have a lease; one that is unregistered keeps it until it ends."""
    broker = new.brokers.get(broker_id) or old.brokers.get(broker_id)
    return broker is not None and not broker.fenced
