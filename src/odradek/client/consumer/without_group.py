"""What a consumer without a group reads: every partition of its topics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import Final

from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.positions import PartitionState
from odradek.client.errors import ClientClosed
from odradek.client.network.cluster import Cluster
from odradek.records.topic_partition import TopicPartition

Topics = Collection[str] | re.Pattern[str]
"""Names, or a pattern of complete names."""
_AWAY_S: Final = 60.0
"""How long the position in a topic is kept that the metadata lack."""


class EveryPartition:
    """Finds the topics of a subscription, and has the fetcher fetch all their partitions."""

    __slots__ = ("_away", "_cluster", "_exclude_internal", "_fetcher", "_finding", "_topics")

    def __init__(self, cluster: Cluster, fetcher: Fetcher, *, exclude_internal: bool) -> None:
        """`exclude_internal` leaves out Kafka's own topics that match a pattern."""
        self._cluster = cluster
        self._fetcher = fetcher
        self._exclude_internal = exclude_internal
        self._topics: Topics = ()
        # Partitions that the metadata lack, and since when: a broker that lags behind knows no topic that is new.
        self._away: dict[TopicPartition, tuple[PartitionState, float]] = {}
        self._finding: asyncio.Task[None] | None = None

    async def assign(self, topics: Topics, deadline: float) -> None:
        """Assign the partitions of the topics that are known; others keep their state.

        Before the first, wait for the topics until the deadline, in the event loop's time. Raises KafkaError,
        CallTimedOut.
        """
        if topics != self._topics:
            await self.close()
            self._topics = topics
        if not await self._has_found(deadline):
            return
        cluster, states = self._cluster, self._fetcher.states
        if isinstance(topics, re.Pattern):
            names = {
                name
                for name, info in cluster.metadata.topics.items()
                if topics.fullmatch(name) is not None and not (info.is_internal and self._exclude_internal)
            }
        else:
            names = set(topics)
            self._look_for(names)
        found = [
            TopicPartition(name, each.partition)
            for name in sorted(names)
            if name in cluster.metadata.topics
            for each in cluster.metadata.topics[name].partitions
        ]
        if len(found) != len(states) or any(key not in states for key in found):
            self._replace(found)

    def _replace(self, found: Collection[TopicPartition]) -> None:
        """Assign these partitions, with the positions that they had if they were away for a short time."""
        now, before, away = asyncio.get_running_loop().time(), self._fetcher.states, self._away
        states = {key: before.get(key) or (away[key][0] if key in away else PartitionState(key)) for key in found}
        self._fetcher.assign(states)
        for key in before.keys() - states.keys():
            state = before[key]
            if state.has_position:
                state.seek(state.position, state.position_epoch)  # what waits is fetched again
                away[key] = state, now
            else:
                state.drop()
        self._away = {
            key: (state, since) for key, (state, since) in away.items() if key not in states and now - since < _AWAY_S
        }

    async def close(self) -> None:
        """Look for topics no longer."""
        self._away = {}
        task, self._finding = self._finding, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _has_found(self, deadline: float) -> bool:
        if self._finding is None:
            if self._fetcher.states or (isinstance(self._topics, re.Pattern) and self._cluster.metadata.version):
                return True
            self._finding = asyncio.get_running_loop().create_task(self._find())
        task = self._finding
        await asyncio.wait({task}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        if not task.done():
            return False
        self._finding = None
        if task.cancelled():
            raise ClientClosed("the consumer was closed")
        task.result()
        return True

    async def _find(self) -> None:
        cluster = self._cluster
        if isinstance(self._topics, re.Pattern):
            await cluster.retrying(cluster.refresh_metadata, "Metadata")
        else:
            for topic in self._topics:
                await cluster.topic(topic)

    def _look_for(self, topics: Collection[str]) -> None:
        """Look for topics that are missing from time to time, while others are read."""
        cluster = self._cluster
        for topic in topics:
            if topic not in cluster.metadata.topics:
                cluster.add_topic(topic)
                if cluster.metadata_age() * 1000 >= cluster.options["retry_backoff_max_ms"]:
                    cluster.want_metadata()
