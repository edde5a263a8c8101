"""Throttled replication (KIP-73) of this broker: rates from its configuration, replicas from the topics'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.image import ClusterImage
from odradek.metadata.topic_changes import changed_topics, deleted_topics
from odradek.quotas.replication_quotas import FOLLOWER_REPLICAS, LEADER_REPLICAS, ReplicationQuota
from odradek.replication.follower import FollowedLog
from odradek.replication.partition import Partition
from odradek.replication.replica_sessions import ReplicaSessions

_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_NONE: Final[Mapping[str, str]] = {}


class ReplicationThrottles:
    """Both sides of it. While nothing is throttled, the sessions of followers have no throttle."""

    __slots__ = ("_config", "_now_ms", "_sessions", "follower", "leader")

    def __init__(
        self, config: BrokerConfig, now_ms: Callable[[], int], sessions: ReplicaSessions, image: ClusterImage
    ) -> None:
        windows = config.number("replication.quota.window.num")
        window_ms = config.number("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationQuota(LEADER_REPLICAS, config.node_id, windows, window_ms)
        self.follower = ReplicationQuota(FOLLOWER_REPLICAS, config.node_id, windows, window_ms)
        self._config = config
        self._now_ms = now_ms
        self._sessions = sessions
        self._set_rates(frozenset())
        # Later images name only what differs.
        self.apply(ClusterImage(), image)
        config.on_change((_LEADER_RATE, _FOLLOWER_RATE), self._set_rates)

    def _set_rates(self, _names: frozenset[str]) -> None:
        self.leader.set_rate(self._config.number(_LEADER_RATE))
        self.follower.set_rate(self._config.number(_FOLLOWER_RATE))
        self._switch()

    def _switch(self) -> None:
        self._sessions.apply_throttle(self if self.leader.is_active else None)

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Take over which replicas are throttled."""
        changed = [(topic.name, _NONE) for topic in deleted_topics(old, new)]
        for topic, before in changed_topics(old, new):
            if topic.configs != (_NONE if before is None else before.configs):
                changed.append((topic.name, topic.configs))
        for name, configs in changed:
            self.leader.set_topic(name, configs)
            self.follower.set_topic(name, configs)
        if changed:
            self._switch()

    # --- the leader's side ---

    def holds_back(self, partition: Partition, broker_id: int) -> bool:
        """Whether a throttled replica outside the ISR gets no records for now."""
        return (
            broker_id not in partition.isr
            and self.leader.covers(partition.topic, partition.index)
            and self.leader.is_exceeded(self._now_ms())
        )

    def sent(self, partition: Partition, size: int) -> None:
        """Record bytes that were sent to a follower."""
        # All followers count: those in sync are not delayed, but the rate bounds all that this broker sends.
        if self.leader.covers(partition.topic, partition.index):
            self.leader.record(size, self._now_ms())

    # --- the follower's side ---

    def pauses(self, followed: FollowedLog) -> bool:
        """Whether this follower pauses fetching throttled replicas."""
        partition = followed.partition
        return (
            (followed.lag > 0 or followed.leader_end_offset < 0)
            and self.follower.covers(partition.topic, partition.index)
            and self.follower.is_exceeded(self._now_ms())
        )

    def received(self, partition: Partition, size: int) -> None:
        """Record bytes that were fetched from the leader."""
        if self.follower.covers(partition.topic, partition.index):
            self.follower.record(size, self._now_ms())
