"""Notices to brokers of a change: the difference of two images, and each broker's part of it. Pure.

The controller keeps, for each broker, the image that the broker has acknowledged. Whatever happened since is one
difference, however many changes it sums up; a new broker receives the complete image.
Source: Kafka's `ControllerBrokerRequestBatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.topic_changes import deleted_topics, partition_changes


class PartitionNews(NamedTuple):
    """`is_new`: there was no such partition, or no replica of it here, as far as the broker knows."""

    topic: Topic
    partition: int
    state: PartitionState
    is_new: bool = False


class StoppedReplica(NamedTuple):
    """A replica whose data goes. `leader_epoch` is the one that ended it, or TOPIC_DELETED."""

    topic: Topic
    partition: int
    leader_epoch: int


class Notice(NamedTuple):
    """For one broker, sent in this order: replicas to delete, partitions to lead or follow, metadata to know."""

    full: bool
    stop: Sequence[StoppedReplica]
    lead: Sequence[PartitionNews]
    know: Sequence[PartitionNews]
    deleted: Sequence[Topic]
    brokers_changed: bool

    def __bool__(self) -> bool:
        return bool(self.full or self.stop or self.lead or self.know or self.deleted or self.brokers_changed)


TOPIC_DELETED = -2


class Difference(NamedTuple):
    """What changed from one image to another; `changed` has the state before, or None of a new partition."""

    changed: Sequence[tuple[Topic, int, PartitionState | None]]
    deleted: Sequence[Topic]
    brokers_changed: bool


def difference(old: ClusterImage, new: ClusterImage) -> Difference:
    """Costs a comparison for each partition of topics that changed."""
    brokers = old.brokers is not new.brokers and _addresses(old) != _addresses(new)
    changed = [(topic, index, before) for topic, index, before, state in partition_changes(old, new) if before != state]
    return Difference(changed, deleted_topics(old, new), brokers)


def _addresses(image: ClusterImage) -> dict[int, object]:
    return {i: (broker.epoch, broker.rack, broker.endpoints) for i, broker in image.brokers.items()}


def everything(image: ClusterImage, broker_id: int) -> Notice:
    """For a broker that has just registered, and for all when a controller has just been elected."""
    know = [
        PartitionNews(topic, index, state)
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
    ]
    lead = [news for news in know if broker_id in news.state.replicas]
    return Notice(True, (), lead, know, (), True)


def notice(changes: Difference, broker_id: int) -> Notice:
    """This broker's part of a difference."""
    stop = [
        StoppedReplica(topic, index, TOPIC_DELETED)
        for topic in changes.deleted
        for index, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    ]
    lead = []
    know = []
    for topic, index, before in changes.changed:
        state = topic.partitions[index]
        know.append(PartitionNews(topic, index, state))
        held = before is not None and broker_id in before.replicas
        if broker_id not in state.replicas:
            if held:
                stop.append(StoppedReplica(topic, index, state.leader_epoch))
        elif before is None or not held or _is_role_changed(before, state):
            lead.append(PartitionNews(topic, index, state, not held))
    return Notice(False, stop, lead, know, changes.deleted, changes.brokers_changed)


def _is_role_changed(before: PartitionState, after: PartitionState) -> bool:
    """Whether a replica has something to do; that the ISR alone is another is only to be known."""
    return (
        before.leader != after.leader
        or before.leader_epoch != after.leader_epoch
        or before.replicas != after.replicas
        or before.adding_replicas != after.adding_replicas
        or before.removing_replicas != after.removing_replicas
    )
