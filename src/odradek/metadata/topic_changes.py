"""Which topics and partitions differ between two images. Pure.

Parts that are the same object count as equal. It costs the number of changed topics where one image was made of the
other by a few changes, whatever the cluster has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, compress
from operator import is_not
from typing import NamedTuple

from odradek.metadata.image import ClusterImage, PartitionState, Topic

_NO_STATES: tuple[PartitionState, ...] = ()


class TopicChange(NamedTuple):
    """A topic that differs; both have the same id where both are there.

    A topic that was deleted and created again under its name is two changes.
    """

    before: Topic | None
    after: Topic | None


class PartitionChange(NamedTuple):
    """A partition that differs; `before` is None of one that is new."""

    topic: Topic
    partition: int
    before: PartitionState | None
    state: PartitionState


def topic_changes(old: ClusterImage, new: ClusterImage) -> list[TopicChange]:
    """The topics that differ, deleted ones first."""
    if old.topics is new.topics:
        return []
    deleted, others = [], []
    for name in new.topics.keys_changed_since(old.topics):
        before, after = old.topics.get(name), new.topics.get(name)
        if before is after:
            continue
        if before is not None and (after is None or after.id != before.id):
            deleted.append(TopicChange(before, None))
            before = None
        if after is not None:
            others.append(TopicChange(before, after))
    return deleted + others


def deleted_topics(old: ClusterImage, new: ClusterImage) -> list[Topic]:
    """The topics of `old` that `new` lacks, those among them whose name another topic has now."""
    return [before for before, after in topic_changes(old, new) if before is not None and after is None]


def changed_topics(old: ClusterImage, new: ClusterImage) -> Iterator[tuple[Topic, Topic | None]]:
    """The topics that are new in `new`, or differ there; with what each was before."""
    for before, after in topic_changes(old, new):
        if after is not None:
            yield after, before


def partition_changes(old: ClusterImage, new: ClusterImage) -> Iterator[PartitionChange]:
    """The partitions that are new in `new`, or differ there."""
    for topic, before in changed_topics(old, new):
        states, known = topic.partitions, _NO_STATES if before is None else before.partitions
        for index in changed_indexes(known, states):
            yield PartitionChange(topic, index, known[index] if index < len(known) else None, states[index])


def changed_indexes(before: Sequence[PartitionState], after: Sequence[PartitionState]) -> Iterator[int]:
    """Where two lists of the partitions of a topic differ; of partitions that `after` lacks nothing is said."""
    if before is after:
        return iter(())
    common = range(min(len(before), len(after)))
    return chain(compress(common, map(is_not, before, after)), range(len(common), len(after)))
