"""One replica of one partition on this broker: leadership, high watermark, and who waits for it to move.

Source: Kafka's `Partition`. State changes come from the controller (`become_leader`, `become_follower`), appends and
the followers' progress; time comes in as an argument and all I/O is the log's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

from odradek.log.partition_log import AppendResult, Origin, PartitionLog
from odradek.metadata.image import PartitionState
from odradek.ports.disk import FileRange
from odradek.wire.errors import ErrorCode, KafkaError

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NO_EPOCH = -1
NO_OFFSET = -1

MANY_BYTES = 1 << 62
"""What a change other than an append counts for: whoever waits has to look again."""


class PartitionRead(NamedTuple):
    """What a fetch of one partition answers; `ranges` lie whole in the log's files."""

    ranges: list[FileRange]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of aborted transactions in the range; None unless read_committed."""
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's history departs from the log (KIP-595)."""


class AppendWatcher(Protocol):
    def __call__(self, partition: Partition, appended_bytes: int, /) -> None: ...


class Partition:
    """The leader or a follower of a partition.

    Everything that waits is kept here: writes that wait for the high watermark, in the order of their offsets, and
    readers that wait for more bytes.
    """

    __slots__ = (
        "_commit_order",
        "_commit_waiters",
        "_readers",
        "high_watermark",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "local_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, local_id: int, log: PartitionLog) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.local_id = local_id
        self.log = log
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.high_watermark = log.log_start_offset
        self._commit_waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._commit_order = 0
        self._readers: list[AppendWatcher] = []

    # --- what the controller says ---

    def apply_state(self, state: PartitionState) -> None:
        """Take over leadership and replicas as the cluster image has them."""
        if state.leader_epoch < self.leader_epoch:
            return
        became_leader = state.leader == self.local_id and state.leader_epoch > self.leader_epoch
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.isr = state.isr
        if became_leader:
            self.log.assign_leader_epoch(state.leader_epoch)
        if self.is_leader:
            self.advance_high_watermark(MANY_BYTES)
        else:
            self._release_waiters()
            self._wake_readers(MANY_BYTES)

    def retire(self) -> None:
        """The partition is gone from this broker: whoever waits on it looks again and is told so."""
        self.leader = -1
        self._release_waiters()
        self._wake_readers(MANY_BYTES)

    def _release_waiters(self) -> None:
        """Nothing more is committed here: those who wait are called and see for themselves (`is_committed`)."""
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, _, callback in waiters:
            callback()

    @property
    def is_leader(self) -> bool:
        return self.leader == self.local_id

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the request is for this
        leader.
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            fenced = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.leader != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- write ---

    def append(
        self, batches: memoryview, *, now_ms: int, origin: Origin = Origin.CLIENT, all_in_sync: bool = False
    ) -> AppendResult:
        """Append as the leader: the write is dispatched when this returns; see `when_committed` for acked.

        `batches` is patched in place. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (only with
        `all_in_sync`), or what the log refuses.
        """
        if self.leader != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if all_in_sync and len(self.isr) < min(log.config.min_insync_replicas, len(self.replicas)):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
        if not result.duplicate:
            self.advance_high_watermark(len(batches))
        return result

    def advance_high_watermark(self, appended_bytes: int) -> None:
        """Recompute the high watermark after an append or a follower's progress, and wake who waits for it."""
        if len(self.isr) <= 1:
            self.high_watermark = self.log.end_offset
        waiters = self._commit_waiters
        while waiters and waiters[0][0] < self.high_watermark:
            heapq.heappop(waiters)[2]()
        if self._readers:
            self._wake_readers(appended_bytes)

    def _wake_readers(self, appended_bytes: int) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            reader(self, appended_bytes)

    def is_committed(self, last_offset: int) -> bool:
        return last_offset < self.high_watermark

    def when_committed(self, last_offset: int, callback: Callable[[], None]) -> None:
        """Call back once the high watermark is past the offset; at once when it is."""
        if last_offset < self.high_watermark:
            callback()
        else:
            self._commit_order += 1
            heapq.heappush(self._commit_waiters, (last_offset, self._commit_order, callback))

    def delete_records(self, offset: int) -> int:
        """Forget the records below the offset (-1 for the high watermark) as the leader; the new log start offset.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic that is compacted only,
        OFFSET_OUT_OF_RANGE past the high watermark.
        """
        self.check_leader()
        log = self.log
        if log.config.compact and not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic}-{self.index} cannot be deleted: its cleanup.policy is compact only",
            )
        if offset == NO_OFFSET:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.index} has offsets up to {self.high_watermark}, not {offset}",
            )
        log.advance_log_start(offset)
        return log.log_start_offset

    # --- read ---

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def upper_offset(self, isolation: int) -> int:
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    def read(
        self, offset: int, max_bytes: int, *, isolation: int = READ_UNCOMMITTED, min_one_batch: bool = False
    ) -> PartitionRead:
        """Whole batches from the one that holds `offset` up to what the isolation lets a consumer see.

        Raises KafkaError OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR.
        """
        log = self.log
        high_watermark = self.high_watermark
        stable = self.last_stable_offset
        upper = stable if isolation == READ_COMMITTED else high_watermark
        found = log.read(offset, max_bytes, upper_offset=upper, min_one_batch=min_one_batch)
        aborted = None
        if isolation == READ_COMMITTED:
            aborted = log.aborted_transactions(offset, found.next_offset) if found.size else []
        return PartitionRead(found.ranges, found.size, high_watermark, stable, log.log_start_offset, aborted)

    def diverging_epoch(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the history of a reader at `offset`, whose last batch is of the given epoch, departs from this log."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.log.leader_epochs.end_offset_for(last_fetched_epoch, self.log.end_offset)
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def watch_appends(self, callback: AppendWatcher) -> None:
        """Call back once, on the next append or move of the high watermark."""
        self._readers.append(callback)

    def unwatch_appends(self, callback: AppendWatcher) -> None:
        if callback in self._readers:
            self._readers.remove(callback)
