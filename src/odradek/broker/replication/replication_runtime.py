"""Replication as this broker takes part in it: which leaders it follows, with a fetcher for each.

It receives every image, after `Partitions`. Where nothing is replicated there is neither a timer nor a connection.
Source: Kafka's ReplicaManager, ReplicaFetcherManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.replication.led_partitions import LedPartitions
from odradek.broker.replication.replica_fetcher import Connect, FetchSettings, ReplicaFetcher
from odradek.broker.replication.replication_parts import ReplicationParts
from odradek.broker.replication.replication_throttles import ReplicationThrottles
from odradek.broker.storage.partitions import Partitions
from odradek.broker.task_failures import logs_failure
from odradek.log.turns import TURN_SECONDS
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.topic_changes import deleted_topics, partition_changes
from odradek.ports.clock import Clock
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.replication.follower import FollowedLog
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.replication")
_log_failure = logs_failure(logger, "in-sync replicas cannot be changed")

_REOPEN_SECONDS: Final = 0.2


class ReplicationRuntime:
    """The follower's side of all partitions of a broker; the leaders' is in `LedPartitions` and `IsrChanges`."""

    __slots__ = (
        "_closed",
        "_config",
        "_fetchers",
        "_followed",
        "_image",
        "_led",
        "_loop",
        "_partitions",
        "_parts",
        "_reopening",
        "_settings",
        "_throttles",
        "_to_follow",
        "_unopened",
        "_working",
        "clock",
        "node_id",
        "peers",
        "unreachable",
    )

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        peers: Connect,
        parts: ReplicationParts,
        clock: Clock,
        image: Callable[[], ClusterImage],
    ) -> None:
        self.node_id = config.node_id
        self.peers = peers
        self.clock = clock
        self.unreachable: set[int] = set()
        """Leaders whose processes seem to be gone, though the controller has not reported it yet."""
        environment = parts.environment
        self._config = config
        self._partitions = partitions
        self._parts = parts
        self._image = image
        self._loop = asyncio.get_running_loop()
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._followed = parts.followed.by_place
        self._to_follow: dict[PartitionKey, None] = {}
        self._unopened: dict[PartitionKey, None] = {}
        self._reopening: asyncio.TimerHandle | None = None
        self._working = False
        self._closed = False
        self._settings = _fetch_settings(config)
        self._throttles = ReplicationThrottles(config, environment.now_ms, parts.sessions, image())
        self._led = LedPartitions(
            config.node_id, partitions, parts.sessions, environment.now_ms, environment.max_lag_ms
        )

    def close(self) -> None:
        """Follow no leader and ask for nothing, whatever the controller says."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()
        self._to_follow.clear()
        self._unopened.clear()
        self._parts.starts.close()
        self._parts.isr_changes.close()
        self._led.close()
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    # --- for the fetchers ---

    def broker_epoch(self) -> int:
        """Implements FetcherHost."""
        own = self._image().brokers.get(self.node_id)
        return -1 if own is None else own.epoch

    def settings(self) -> FetchSettings:
        """Implements FetcherHost."""
        return self._settings

    def is_throttled(self, followed: FollowedLog) -> bool:
        """Implements FetcherHost."""
        return self._throttles.follower.is_active and self._throttles.pauses(followed)

    def appended(self, partition: Partition, size: int) -> None:
        """Implements FetcherHost."""
        if self._throttles.follower.is_active:
            self._throttles.received(partition, size)

    def suspect(self, leader_id: int, *, gone: bool) -> None:
        """Implements FetcherHost."""
        # Clients whose connections broke, too, learn that there is no leader, and retry soon.
        if gone:
            self.unreachable.add(leader_id)
        else:
            self.unreachable.discard(leader_id)

    # --- whom to follow ---

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Take over a new image; `Partitions` has it already."""
        if self._closed:
            return
        if new.topics is not old.topics:
            for topic in deleted_topics(old, new):
                for index in range(len(topic.partitions)):
                    self._unfollow((topic.id, index))
            for change in partition_changes(old, new):
                self._take_over(change.topic, change.partition, change.state)
            self._throttles.apply(old, new)
        if new.brokers is not old.brokers:
            for broker_id in list(self.unreachable):
                if new.brokers.get(broker_id) != old.brokers.get(broker_id):
                    self.unreachable.discard(broker_id)
        self._led.apply(old, new)
        if self._to_follow and not self._working:
            self._follow_some()

    def _take_over(self, topic: Topic, index: int, state: PartitionState) -> None:
        if self.node_id in state.replicas and state.leader >= 0 and state.leader != self.node_id:
            self._to_follow[topic.name, index] = None
        else:
            self._unfollow((topic.id, index))

    def directory_failed(self) -> None:
        """Stop following partitions whose log is out of reach: the leader would read records in vain."""
        for place, (_, followed) in list(self._followed.items()):
            if followed.partition.log.is_offline:
                self._unfollow(place)

    def replica_moved(self, topic: str, index: int) -> None:
        """Follow with the log in the other directory. It may have been opened late, for want of descriptors: meanwhile
        the log was offline, and an answer of the leader ended the fetches.
        """
        if not self._closed:
            self._to_follow[topic, index] = None
            if not self._working:
                self._follow_some()

    def _unfollow(self, place: TopicIdPartition) -> None:
        found = self._followed.pop(place, None)
        if found is not None:
            found[0].unfollow(place)
            self._drop_idle(found[0])

    def _drop_idle(self, fetcher: ReplicaFetcher) -> None:
        if fetcher.is_idle:
            fetcher.close()
            self.unreachable.discard(fetcher.leader_id)
            for key, each in list(self._fetchers.items()):
                if each is fetcher:
                    del self._fetchers[key]

    def _follow_some(self) -> None:
        """Open the partitions to follow, some of them in this turn of the loop."""
        self._working = False
        ends = self.clock.monotonic() + TURN_SECONDS
        while self._to_follow:
            key = next(iter(self._to_follow))
            del self._to_follow[key]
            try:
                self._follow(*key)
            except KafkaError as error:
                # Its log is being checked after a crash; or its directory is offline, which only a restart ends.
                logger.debug("%s-%d cannot be followed yet: %s", *key, error.message)
                if not self._partitions.is_offline(*key):
                    self._unopened[key] = None
            if self.clock.monotonic() >= ends:
                break
        if self._unopened and self._reopening is None:
            self._reopening = self._loop.call_later(_REOPEN_SECONDS, self._reopen)
        if self._to_follow:
            self._working = True
            self._loop.call_soon(self._follow_some)

    def _reopen(self) -> None:
        self._reopening = None
        self._to_follow.update(self._unopened)
        self._unopened.clear()
        if not self._working:
            self._follow_some()

    def _follow(self, name: str, index: int) -> None:
        topic = self._image().topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return
        partition = self._partitions.find(name, index)
        place = (topic.id, index)
        if (
            partition is None
            or partition.is_leader
            or partition.leader < 0
            or partition.topic_id != topic.id
            or partition.log.is_offline
        ):
            self._unfollow(place)
            return
        leader_id = partition.leader
        found = self._followed.get(place)
        if found is not None:
            fetcher, followed = found
            is_same = followed.partition is partition and followed.log is partition.log
            if is_same and followed.is_current and fetcher.leader_id == leader_id:
                return
            if self._fetchers.get((leader_id, self._slot(place))) is not fetcher:
                # Of another leader; or there are more fetchers now, or fewer.
                self._unfollow(place)
        followed = FollowedLog(partition)
        fetcher = self._fetcher(leader_id, place)
        self._followed[place] = fetcher, followed
        fetcher.follow(place, followed)

    def _slot(self, place: TopicIdPartition) -> int:
        return (31 * int.from_bytes(place[0][-4:], "big") + place[1]) % self._config.number("num.replica.fetchers")

    def _fetcher(self, leader_id: int, place: TopicIdPartition) -> ReplicaFetcher:
        slot = self._slot(place)
        fetcher = self._fetchers.get((leader_id, slot))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, slot] = ReplicaFetcher(leader_id, self, self._loop, slot)
        return fetcher


def _fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        config.number("replica.fetch.wait.max.ms"),
        config.number("replica.fetch.min.bytes"),
        config.number("replica.fetch.response.max.bytes"),
        config.number("replica.fetch.max.bytes"),
        config.number("replica.fetch.backoff.ms"),
        config.number("replica.socket.timeout.ms"),
    )
