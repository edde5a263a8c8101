"""The changes that a follower makes to its log: append the leader's batches, truncate, restart, advance both ends.

Source: the follower's side of Kafka's `Partition` (`appendRecordsToFollowerOrFutureReplica`, `truncateTo`,
`truncateFullyAndStartAt`) and `ReplicaFetcherThread.processPartitionData`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.log.append import Origin
from odradek.log.partition_log import PartitionLog
from odradek.metrics.invariants import Invariant, InvariantCounters
from odradek.metrics.traffic import TopicTraffic
from odradek.replication.readers import MANY_BYTES, PartitionReaders


class FollowingReplica(Protocol):
    """The partition, as far as its replicated log depends on it."""

    topic: str
    index: int
    log: PartitionLog
    leader_epoch: int
    high_watermark: int

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        ...


class ReplicatedLog:
    """The log of a partition as a copy of its leader's log."""

    __slots__ = ("_invariants", "_partition", "_persist_start", "_persisted_start", "_readers", "_traffic")

    def __init__(
        self,
        partition: FollowingReplica,
        readers: PartitionReaders,
        traffic: TopicTraffic,
        invariants: InvariantCounters,
        persist_start: Callable[[int], None],
    ) -> None:
        """`persist_start` writes a new log start offset to the disk, then calls `start_persisted`."""
        self._partition = partition
        self._readers = readers
        self._traffic = traffic
        self._invariants = invariants
        self._persist_start = persist_start
        # When the log was opened, its start was read from the disk.
        self._persisted_start = partition.log.log_start_offset

    def append(self, batches: memoryview, leader_epoch: int, now_ms: int) -> bool:
        """Append batches from the leader of that epoch, up to the first batch of a later epoch.

        Where the disk does not keep up, the log queues them, and its end follows once they are written.
        Returns False if this broker no longer follows that leader. Raises KafkaError INVALID_RECORD, CORRUPT_MESSAGE
        or KAFKA_STORAGE_ERROR, and then nothing was appended.
        """
        partition = self._partition
        if leader_epoch != partition.leader_epoch or partition.is_leader:
            return False
        partition.log.append(batches, leader_epoch=leader_epoch, now_ms=now_ms, origin=Origin.REPLICATION)
        self._traffic.replication_bytes_in += len(batches)
        return True

    def advance(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark, as far as the log goes here, and its log start offset.

        The high watermark of a follower may go back with its leader's: a new leader begins with the one it knows.
        """
        partition = self._partition
        log = partition.log
        known = min(high_watermark, log.end_offset)
        if known != partition.high_watermark and known >= log.log_start_offset:
            partition.high_watermark = known
            # Ended transactions of a partition that no client reads here would stay in memory otherwise.
            log.history.producers.on_high_watermark(known)
            if self._readers.waiting:
                self._readers.wake(MANY_BYTES)
        start = min(log_start_offset, log.end_offset)
        if log.advance_log_start(start):
            self._persist_start(start)

    @property
    def reported_start(self) -> int:
        """The log start offset that the leader may learn: the one that a crash does not take back."""
        log = self._partition.log
        return max(log.segments[0].base_offset, min(self._persisted_start, log.log_start_offset))

    def start_persisted(self, offset: int) -> None:
        """Note that this log start offset is on the disk. One that a truncation has taken back since is not."""
        self._persisted_start = max(self._persisted_start, min(offset, self._partition.log.log_start_offset))

    def truncate_to(self, offset: int) -> None:
        """Remove the records from the offset on, which the leader does not have. Raises KAFKA_STORAGE_ERROR."""
        partition = self._partition
        log = partition.log
        if offset < partition.high_watermark:
            place = f"{partition.topic}-{partition.index}"
            found = f"truncation to {offset}, below the high watermark {partition.high_watermark}"
            self._invariants.violated(Invariant.COMMITTED_RECORDS_KEPT, place, found)
        log.truncate_to(offset)
        self._persisted_start = min(self._persisted_start, log.log_start_offset)
        # In its last epochs this broker may have led and written nothing: the leader does not know those epochs. Their
        # file forgets them, too: after a restart they would claim the records that the leader sends next.
        log.history.truncate_epochs_from_end()
        partition.high_watermark = min(partition.high_watermark, log.end_offset)

    def restart_at(self, offset: int) -> None:
        """Remove all records and continue at the offset, where the leader's log begins. Raises KAFKA_STORAGE_ERROR."""
        partition = self._partition
        partition.log.truncate_fully_and_start_at(offset)
        self._persisted_start = min(self._persisted_start, partition.log.log_start_offset)
        partition.high_watermark = offset
