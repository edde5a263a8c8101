"""A follower's reaction to its leader's answers: append, truncate where histories diverge, restart elsewhere, wait.

Truncation is by the leader epochs that fetches carry (KIP-595): the leader names the end of the last epoch that both
have; the follower truncates there and fetches again, until nothing diverges. Pure but for the log.
Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread.
"""

from __future__ import annotations

from enum import IntEnum

from odradek.records.batch import HEADER_SIZE, BatchHeader, peek_header
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.fetch import FetchPartition
from odradek.wire.replica_fetch import FetchedReplica


class Next(IntEnum):
    """The next step for a partition."""

    FETCH = 0
    DELAY = 1
    """Fetch again after a pause."""
    OFFSETS = 2
    """Ask the leader where its log begins and ends, then `offsets_known`."""
    STOP = 3
    """Wait for another state from the controller."""


_STOPPING = frozenset((ErrorCode.FENCED_LEADER_EPOCH,))


class FollowedLog:
    """One partition that this broker follows under one leader epoch."""

    __slots__ = ("_leader_start", "failures", "leader_end_offset", "leader_epoch", "log", "partition", "problem")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.failures = 0
        """Answers in a row that could not be used."""
        self.problem = ""
        """The reason of the last of them."""
        self.leader_end_offset = -1
        """The high watermark that the leader sent last, as the best known approximation of its end offset."""
        self._leader_start = -1
        log = self.log = partition.log
        """The log with which following began; a move to another directory replaces that of the partition."""
        if log.history.leader_epochs.latest < 0 and log.end_offset > partition.high_watermark:
            # Without epochs it is unknown which uncommitted records the leader has, too.
            partition.replicated.truncate_to(partition.high_watermark)

    @property
    def is_current(self) -> bool:
        """Whether the partition is still followed under this leader epoch."""
        partition = self.partition
        return partition.leader_epoch == self.leader_epoch and not partition.is_leader and partition.leader >= 0

    @property
    def lag(self) -> int:
        """Records between this log's end and the high watermark that the leader sent last."""
        return max(0, self.leader_end_offset - self.partition.log.end_offset)

    def row(self, max_bytes: int) -> FetchPartition:
        """The partition's row of the next fetch."""
        partition = self.partition
        log = partition.log
        epoch = log.history.leader_epochs.latest
        return partition.index, self.leader_epoch, log.end_offset, epoch, partition.replicated.reported_start, max_bytes

    def received(self, answer: FetchedReplica, now_ms: int) -> Next:
        """Apply the leader's answer."""
        if not self.is_current:
            return Next.STOP
        try:
            following = self._take(answer, now_ms)
        except KafkaError as error:
            self.problem = error.message
            following = Next.STOP if self.partition.log.is_offline else Next.DELAY
        if following is Next.DELAY:
            self.failures += 1
        elif following is not Next.OFFSETS:  # only the next fetch shows whether the leader accepts what is found
            self.failures = 0
        return following

    def _take(self, answer: FetchedReplica, now_ms: int) -> Next:
        _, _, code, high_watermark, log_start_offset, records, diverging, _ = answer
        if code:
            self.problem = f"the leader answers {error_code(code).name}"
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return Next.OFFSETS
            return Next.STOP if code in _STOPPING else Next.DELAY
        if diverging is not None:
            return self._truncate(*diverging)
        partition = self.partition
        if len(records) >= HEADER_SIZE:
            first = peek_header(records)
            if first.base_offset < partition.log.end_offset:
                if not self._has_none_before(first, log_start_offset):
                    # The answer to a request that was sent before an earlier answer had come.
                    return Next.FETCH
                partition.replicated.restart_at(first.base_offset)
            partition.replicated.append(records, self.leader_epoch, now_ms)
        self.leader_end_offset = high_watermark
        self._leader_start = log_start_offset
        partition.replicated.advance(high_watermark, log_start_offset)
        return Next.FETCH

    def written(self) -> None:
        """Queued batches are in their file: take over what the leader said of them. Raises KafkaError."""
        if self.leader_end_offset >= 0 and self.is_current:
            self.partition.replicated.advance(self.leader_end_offset, self._leader_start)

    def _has_none_before(self, batch: BatchHeader, leader_start: int) -> bool:
        """Whether both logs begin inside of the batch, after DeleteRecords, so that it can replace all of this one.

        This log is empty, or has only records that the leader has deleted. Those may be other ones than the leader's at
        these offsets: it forgets the epochs before its log start, so that its answers show no divergence there.
        """
        log = self.partition.log
        return log.end_offset <= max(log.log_start_offset, leader_start) and log.end_offset <= batch.last_offset

    def _truncate(self, epoch: int, end_offset: int) -> Next:
        """The leader's history departs from this one's at the end of the epoch."""
        partition = self.partition
        log = partition.log
        before, last_epoch = log.end_offset, log.history.leader_epochs.latest
        if end_offset < 0:
            target = partition.high_watermark
        else:
            own_epoch, own_end_offset = log.history.leader_epochs.end_offset_for(epoch, before)
            if own_end_offset < 0:
                target = end_offset
            elif own_epoch != epoch:
                # That epoch is unknown here: cut what came after the last one before it, and ask again.
                target = own_end_offset
            else:
                target = min(own_end_offset, end_offset)
        # Below the log start, too, as after an unclean election: what the leader wrote there is to be copied.
        partition.replicated.truncate_to(min(target, before))
        if log.end_offset == before and log.history.leader_epochs.latest == last_epoch:
            self.problem = f"the leader parts at {end_offset} of epoch {epoch}, where there is nothing to cut"
            return Next.DELAY
        return Next.FETCH

    def offsets_known(self, earliest: int, latest: int) -> Next:
        """After OFFSETS: the leader's log goes from `earliest` to `latest`."""
        if not self.is_current:
            return Next.STOP
        partition = self.partition
        end_offset = partition.log.end_offset
        try:
            if latest < end_offset:
                # Only an unclean election makes a leader with less than its followers have.
                partition.replicated.truncate_to(latest)
            elif earliest > end_offset:
                partition.replicated.restart_at(earliest)
        except KafkaError as error:
            self.problem = error.message
            return Next.STOP if partition.log.is_offline else Next.DELAY
        return Next.FETCH
