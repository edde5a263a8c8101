"""Deletion of the oldest records of one partition (DeleteRecords), which ends when the followers have deleted them.

Source: Kafka's `Partition.deleteRecordsOnLeader`, `lowWatermarkIfLeader` and DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.log.partition_log import PartitionLog
from odradek.replication.followers import Followers
from odradek.replication.readers import PartitionReaders
from odradek.replication.replicated_log import ReplicatedLog
from odradek.wire.errors import ErrorCode, KafkaError

TO_HIGH_WATERMARK = -1
"""The offset in a request that stands for the high watermark."""


class LedPartition(Protocol):
    """The partition, as far as deletions depend on it."""

    topic: str
    index: int
    log: PartitionLog
    high_watermark: int

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        ...

    def check_leader(self) -> None:
        """Raise KafkaError NOT_LEADER_OR_FOLLOWER unless this broker may act as the leader now."""
        ...


class RecordDeletion:
    """Deletes records as the leader, and keeps the requests that wait for followers."""

    __slots__ = ("_followers", "_partition", "_readers", "_replicated", "waiters")

    def __init__(
        self, partition: LedPartition, followers: Followers, readers: PartitionReaders, replicated: ReplicatedLog
    ) -> None:
        self._partition = partition
        self._followers = followers
        self._readers = readers
        self._replicated = replicated
        self.waiters: list[tuple[int, Callable[[], None]]] = []
        """Deletions that wait for followers: the offset, and the callback."""

    def check(self, offset: int) -> int:
        """Where the log would start if the records below the offset (-1 for the high watermark) were deleted now.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic that is compacted only,
        OFFSET_OUT_OF_RANGE past the high watermark.
        """
        partition = self._partition
        partition.check_leader()
        log = partition.log
        if log.config.compact and not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {partition.topic}-{partition.index} cannot be deleted: its cleanup.policy is compact only",
            )
        if offset == TO_HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.topic}-{partition.index} has offsets up to {partition.high_watermark}, not {offset}",
            )
        return max(offset, log.log_start_offset)

    def delete(self, offset: int) -> int:
        """Delete the records below the offset as the leader; return the new log start offset.

        The caller has persisted that log start offset. Raises as `check`.
        """
        log = self._partition.log
        log.advance_log_start(self.check(offset))
        self._replicated.start_persisted(log.log_start_offset)
        for session in self._readers.sessions:
            session.started_later()
        return log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the replicas that may lead next, and of all others that live and follow.

        A member of the ISR counts even before it has fetched from this leader.
        """
        lowest = self._partition.log.log_start_offset
        followers = self._followers
        for broker_id, follower in followers.progress.items():
            if follower.log_start_offset < lowest and (
                broker_id in followers.counted or followers.is_eligible(broker_id, follower.broker_epoch)
            ):
                lowest = follower.log_start_offset
        return lowest

    def when_deleted(self, offset: int, callback: Callable[[], None]) -> None:
        """Call back once the low watermark has reached the offset, or this broker is no longer the leader.

        If either is so already, call back at once.
        """
        if not self._partition.is_leader or self.low_watermark >= offset:
            callback()
        else:
            self.waiters.append((offset, callback))

    def release(self) -> None:
        """Call back the deletions that are complete."""
        waiters, self.waiters = self.waiters, []
        for offset, callback in waiters:
            self.when_deleted(offset, callback)
