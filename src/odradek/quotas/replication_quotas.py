"""How fast replicas that are named for it may be copied (KIP-73). Pure: time comes in as an argument.

One object for each side: a leader holds back what it sends to throttled followers outside of the ISR, a follower what
it asks of throttled partitions that it lags behind in. Source: Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.quotas.windowed_rate import WindowedRate

UNLIMITED: Final = 9223372036854775807
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_ALL: Final = "*"


class ReplicationQuota:
    """Bytes per second of one side, over the windows of `replication.quota.window.*`."""

    __slots__ = ("_bytes_per_second", "_node_id", "_rate", "_setting", "_throttled", "_window_ms")

    def __init__(self, setting: str, node_id: int, windows: int, window_ms: int) -> None:
        """`setting` names the topic's configuration that lists the throttled replicas."""
        self._setting = setting
        self._node_id = node_id
        self._rate = WindowedRate(windows, window_ms)
        self._window_ms = window_ms
        self._bytes_per_second = UNLIMITED
        # Topic -> its throttled partitions; None for all of them.
        self._throttled: dict[str, frozenset[int] | None] = {}

    @property
    def is_active(self) -> bool:
        """Whether there are both a rate and throttled replicas."""
        return bool(self._throttled) and self._bytes_per_second != UNLIMITED

    def set_rate(self, bytes_per_second: int) -> None:
        """Set the rate of all throttled replicas together."""
        self._bytes_per_second = bytes_per_second

    def set_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """The topic's configuration as it is now; of one that is gone, an empty one."""
        words = [word.strip() for word in configs.get(self._setting, "").split(",") if word.strip()]
        if _ALL in words:
            self._throttled[topic] = None
            return
        own = (word.partition(":") for word in words)
        partitions = frozenset(int(index) for index, _, broker in own if broker == str(self._node_id))
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    def covers(self, topic: str, partition: int) -> bool:
        """Whether the partition's replica is throttled."""
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def record(self, size: int, now_ms: float) -> None:
        """So many bytes of throttled replicas were copied."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: float) -> bool:
        """Whether throttled replicas are copied faster than the rate."""
        return self._rate.simple_per_second(now_ms) > self._bytes_per_second
