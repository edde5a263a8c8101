"""Partitions that this broker leads and others follow: their lagging followers, and their fetch sessions.

Where no partition is led for followers, and no session is open, there is no timer. Source: Kafka's ReplicaManager
(`maybeShrinkIsr`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.broker.storage.partitions import Partitions
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.metadata.topic_changes import deleted_topics, partition_changes
from odradek.records.topic_partition import TopicIdPartition
from odradek.replication.replica_sessions import ReplicaSessions

_IDLE_SESSION_MS: Final = 60_000


class LedPartitions:
    """Looks at followers twice in `replica.lag.time.max.ms`, and whenever brokers come or go."""

    __slots__ = ("_led", "_loop", "_max_lag_ms", "_node_id", "_now_ms", "_partitions", "_sessions", "_tick")

    def __init__(
        self,
        node_id: int,
        partitions: Partitions,
        sessions: ReplicaSessions,
        now_ms: Callable[[], int],
        max_lag_ms: int,
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._sessions = sessions
        self._now_ms = now_ms
        self._max_lag_ms = max_lag_ms
        self._loop = asyncio.get_running_loop()
        self._led: set[TopicIdPartition] = set()
        self._tick: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Look at followers no longer."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Take over a new image; `Partitions` has it already."""
        for topic in deleted_topics(old, new):
            self._led.difference_update((topic.id, index) for index in range(len(topic.partitions)))
        for change in partition_changes(old, new):
            self._take_over(change.topic.id, change.partition, change.state)
        if new.brokers is not old.brokers:
            self._reconsider()
        self._adjust_tick()

    def _take_over(self, topic_id: bytes, index: int, state: PartitionState) -> None:
        if state.leader == self._node_id and self._node_id in state.replicas and len(state.replicas) > 1:
            self._led.add((topic_id, index))
        else:
            self._led.discard((topic_id, index))

    def _reconsider(self) -> None:
        """Some brokers may join an ISR now, others no longer delay a high watermark."""
        for partition in self._partitions.opened():
            if partition.followers.progress:
                partition.followers.reconsider()

    def _adjust_tick(self) -> None:
        # A session keeps its partitions in memory, deleted ones too, until it ends.
        is_needed = self._led or len(self._sessions)
        if is_needed and self._tick is None:
            self._tick = self._loop.call_later(self._max_lag_ms / 2000, self._ticked)
        elif not is_needed and self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _ticked(self) -> None:
        self._tick = None
        for partition in self._partitions.opened():
            if partition.followers.progress:
                partition.followers.shrink_isr()
                partition.followers.take_in()
        self._sessions.end_idle(self._now_ms() - max(self._max_lag_ms, _IDLE_SESSION_MS))
        self._adjust_tick()
