"""Deleting the committed offsets of deleted topics, until the log takes the tombstones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from odradek.groups.events import NOTHING, GroupDecision, TopicOffsetsDeleted
from odradek.groups.offsets.committed import Offsets
from odradek.groups.offsets.records import OffsetRecord
from odradek.groups.timers import Due, Timers
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode

RETRY_MS: Final = 500
"""After which tombstones are written again that the log rejected."""


class RetryDeletion(NamedTuple):
    """Payload of the deadline of a retry; `topics` as in `TopicOffsetsDeleted`."""

    topics: frozenset[str] | None


class OffsetDeletions:
    """Decides which offsets go with a topic, and decides again after a write that failed."""

    __slots__ = ("_image", "_knows_all_topics", "_offsets", "_timers")

    def __init__(
        self,
        offsets: Offsets,
        timers: Timers,
        image: Callable[[], ClusterImage],
        knows_all_topics: Callable[[], bool],
    ) -> None:
        """`knows_all_topics`: whether a topic outside the image does not exist; else the image may be incomplete."""
        self._offsets = offsets
        self._timers = timers
        self._image = image
        self._knows_all_topics = knows_all_topics

    def topics_deleted(self, topics: Iterable[str]) -> GroupDecision:
        """Delete the offsets of deleted topics: a later topic of the same name must not inherit them.

        The later topic must keep its own offsets. A broker may learn in one step that one topic has replaced another,
        and may act on it only when a partition is loaded, while consumers of the new topic already commit.
        """
        names = frozenset(topics)
        existing = self._image().topics
        records = []
        for group_id, (topic, partition) in self._offsets.of_topics(names):
            found = existing.get(topic)
            # An offset of the old topic beside a pending one of the new is not fetched, and is replaced by its commit.
            if found is None or found.id not in self._offsets.topic_ids(group_id, (topic, partition)):
                records.append(OffsetRecord(group_id, topic, partition, None))
        return GroupDecision(records, then=TopicOffsetsDeleted(names)) if records else NOTHING

    def topics_missed(self) -> GroupDecision:
        """As `topics_deleted`, for every topic that the image does not have under the offset's topic id.

        Only for an image that has every topic. No broker writes the tombstones of a deleted topic if this one stops
        between the deletion and them.
        """
        gone = self._offsets.of_others(self._image().topics)
        records = [OffsetRecord(group_id, *key, None) for group_id, key in gone]
        return GroupDecision(records, then=TopicOffsetsDeleted(None)) if records else NOTHING

    def stored(self, now_ms: int, then: TopicOffsetsDeleted, error: ErrorCode | None) -> GroupDecision:
        """The tombstones are committed, or were not written because of `error`."""
        if error is not None:
            self._schedule(now_ms, then.topics)
        return NOTHING

    def _schedule(self, now_ms: int, topics: frozenset[str] | None) -> None:
        names = ("*",) if topics is None else sorted(topics)
        self._timers.schedule(("offset-deletion", *names), now_ms + RETRY_MS, RetryDeletion(topics))

    def expire(self, now_ms: int, due: Due) -> GroupDecision:
        """Decide again: the topics may have been created again, and offsets committed or deleted, meanwhile."""
        topics: frozenset[str] | None = due.payload.topics
        if topics is not None:
            return self.topics_deleted(topics)
        if self._knows_all_topics():
            return self.topics_missed()
        # The image has been incomplete since: a topic that it lacks may exist.
        self._schedule(now_ms, None)
        return NOTHING
