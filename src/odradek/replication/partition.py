"""One replica of one partition on this broker: leadership, high watermark, and writes that wait for it.

Source: Kafka's `Partition`. State changes come from the controller (`become_leader`, `become_follower`), appends and
the followers' progress; time comes in as an argument and all I/O is the log's.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from odradek.log.append import AppendResult, Examined, Origin
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.reading import LogRead
from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.metrics.invariants import Invariant, InvariantCounters
from odradek.metrics.traffic import TopicTraffic
from odradek.ports.disk import FileRange
from odradek.records.topic_partition import PartitionKey
from odradek.replication.followers import Followers
from odradek.replication.in_sync import (
    DEFAULT_MAX_LAG_MS,
    committed_offset,
)
from odradek.replication.leadership import Leadership
from odradek.replication.readers import MANY_BYTES, PartitionReaders
from odradek.replication.record_deletion import RecordDeletion
from odradek.replication.refused_batches import SENT_AGAIN, RefusedBatches
from odradek.replication.replicated_log import ReplicatedLog
from odradek.wire.errors import ErrorCode, KafkaError

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NO_EPOCH = -1
NO_OFFSET = -1

# Members of enumerations are found by a slow search in Python 3.11: 50 ns, at every append.
_CLIENT: Final = Origin.CLIENT


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
    preferred_read_replica: int = -1
    """The broker from which the reader should fetch instead (KIP-392)."""


def _no_time() -> int:
    return 0


def _eligible(_broker_id: int, _broker_epoch: int) -> bool:
    return True


def _nothing(_partition: Partition) -> None:
    return None


def _appended(partition: weakref.ref[Partition], size: int) -> None:
    """Queued bytes are written, if the partition is still there."""
    if (found := partition()) is not None:
        found.appended(size)


def _persist_start(partition: weakref.ref[Partition], persist: Callable[[Partition, int], None], offset: int) -> None:
    if (found := partition()) is not None:
        persist(found, offset)


def _at_once(partition: Partition, offset: int) -> None:
    partition.replicated.start_persisted(offset)


class PartitionEnvironment(NamedTuple):
    """What all partitions of a broker share, made before them. The defaults are those of a lone broker."""

    now_ms: Callable[[], int] = _no_time
    """Milliseconds of the monotonic clock."""
    is_eligible: Callable[[int, int], bool] = _eligible
    """Whether a broker, by the epoch that its fetches carry, may join an ISR: alive and not restarted since."""
    propose: Callable[[Partition], None] = _nothing
    """Ask the controller for the ISR in the `proposal` of a partition."""
    persist_start: Callable[[Partition, int], None] = _at_once
    """Persist the new log start offset of a followed partition, then call `start_persisted`."""
    max_lag_ms: int = DEFAULT_MAX_LAG_MS
    """`replica.lag.time.max.ms`."""
    leadership: Leadership | None = None
    """The broker's right to act as a leader; None: it always may."""
    invariants: InvariantCounters = InvariantCounters()
    """The broker's count of violated invariants."""


_ALONE = PartitionEnvironment()


class Partition:
    """The leader or a follower of a partition.

    The parts that concern one role only are objects of their own. The writes that wait for the high watermark are kept
    here, in the order of their offsets.
    """

    __slots__ = (
        "__weakref__",
        "_commit_order",
        "_environment",
        "_leadership",
        "_refused",
        "commit_waiters",
        "deletion",
        "followers",
        "high_watermark",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "local_id",
        "log",
        "partition_epoch",
        "readers",
        "replicas",
        "replicated",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        local_id: int,
        log: PartitionLog,
        environment: PartitionEnvironment = _ALONE,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.local_id = local_id
        self.log = log
        self.traffic = TopicTraffic() if traffic is None else traffic
        """Records and bytes of the topic on this broker."""
        # Its parts know the partition weakly: with its last user it is freed at once, and its log, without a search for
        # garbage cycles.
        own: Partition = weakref.proxy(self)
        log.durability.watch_writes(partial(_appended, weakref.ref(self)))
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = NO_OFFSET
        """Where the log ended when this broker began to lead it."""
        self.partition_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.high_watermark = log.log_start_offset
        self._environment = environment
        self._leadership = environment.leadership
        self.readers = PartitionReaders()
        """Fetches that wait for records, and the fetch sessions of followers."""
        self.followers = Followers(own, environment)
        """The other replicas, empty unless this broker leads."""
        persist_start = partial(_persist_start, weakref.ref(self), environment.persist_start)
        self.replicated = ReplicatedLog(own, self.readers, self.traffic, environment.invariants, persist_start)
        """The log as a follower changes it."""
        self.deletion = RecordDeletion(own, self.followers, self.readers, self.replicated)
        """The deletion of the oldest records, by the leader."""
        self.commit_waiters: list[tuple[int, int, Callable[[], None], bool]] = []
        """Writes that wait: a heap of offset, order, callback, and whether a client made it."""
        self._commit_order = 0
        self._refused: RefusedBatches | None = None

    def replace_log(self, log: PartitionLog) -> None:
        """Continue with another log of the same content: the replica has moved to another log directory."""
        self.log = log
        log.durability.watch_writes(partial(_appended, weakref.ref(self)))

    def restore_high_watermark(self, offset: int) -> None:
        """Start from the checkpointed high watermark, limited to the offsets of the log."""
        self.high_watermark = max(self.log.log_start_offset, min(offset, self.log.end_offset))

    def expect(self, refused: RefusedBatches | None) -> None:
        """Note batches that were rejected before this replica could be opened: later batches wait for them."""
        self._refused = refused

    # --- what the controller says ---

    def apply_state(self, state: PartitionState) -> None:
        """Take over leadership and replicas from the cluster image, unless the known state is newer."""
        if state.leader_epoch < self.leader_epoch:
            return
        if state.leader_epoch == self.leader_epoch:
            known = self.partition_epoch
            if state.leader != self.leader and state.leader >= 0 <= self.leader:
                found = f"brokers {self.leader} and {state.leader} in leader epoch {self.leader_epoch}"
                _violated(self, self._environment.invariants, Invariant.ONE_LEADER_PER_EPOCH, found)
            # An answer to AlterPartition brings epochs of which the replicas are not known yet.
            unchanged = (
                state.partition_epoch == known and state.leader == self.leader and state.replicas == self.replicas
            )
            if self.replicas and (unchanged or state.partition_epoch < known):
                # An answer of the controller may be faster than its image.
                if unchanged and self.followers.apply_offline(state.offline_replicas):
                    self.followers.reconsider()
                return
        was_leader = self.is_leader
        new_epoch = state.leader_epoch > self.leader_epoch
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.followers.apply_offline(state.offline_replicas)
        isr_before, self.isr = self.isr, state.isr
        self.followers.drop_outdated_proposal(state.partition_epoch, new_epoch=new_epoch)
        if self.is_leader:
            if not set(state.isr).issubset(state.replicas):
                found = f"ISR {state.isr}, replicas {state.replicas}"
                _violated(self, self._environment.invariants, Invariant.ISR_WITHIN_REPLICAS, found)
            if was_leader:
                self.traffic.isr_shrinks += len(isr_before) > len(state.isr)
                self.traffic.isr_expands += len(isr_before) < len(state.isr)
            self._lead(was_leader, new_epoch, isr_before)
        else:
            self._follow()

    def _lead(self, was_leader: bool, new_epoch: bool, isr_before: tuple[int, ...]) -> None:
        if new_epoch or not was_leader:
            self.leader_epoch_start_offset = self.log.next_offset
            with suppress(KafkaError):  # the disk has failed: every later use of the log says so to whom it concerns
                self.log.history.assign_leader_epoch(self.leader_epoch)
        self.followers.begin(isr_before, continues=was_leader and not new_epoch)
        if new_epoch or not was_leader:
            self.readers.appended(MANY_BYTES)
        self.advance_high_watermark(MANY_BYTES)
        self.followers.take_in()

    def _follow(self) -> None:
        self.followers.end()
        self._dismiss()

    def retire(self) -> None:
        """End the replica, which this broker no longer has: release all that wait on it."""
        self.leader = NO_LEADER
        self._follow()

    def _dismiss(self) -> None:
        """Release all that wait for this leader: each of them looks at the partition again."""
        waiters, self.commit_waiters = self.commit_waiters, []
        for _, _, callback, _ in waiters:
            callback()
        self.deletion.release()
        self.readers.wake(MANY_BYTES)
        self.readers.appended(MANY_BYTES)

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the leader by the controller's newest state."""
        return self.leader == self.local_id

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the request is for this
        leader, and this leader may act now.
        """
        if current_leader_epoch != NO_EPOCH:
            self.check_epoch(current_leader_epoch)
        leadership = self._leadership
        if self.leader != self.local_id or (leadership is not None and not leadership.may_lead(self)):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_fetched_leader(self, current_leader_epoch: int) -> None:
        """As `check_leader`, for followers: they fetch from a leader that may not act, and bring it up to date."""
        self.check_epoch(current_leader_epoch)
        if self.leader != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def may_lead(self) -> bool:
        """Whether this broker may act as the leader now, if it is the leader: see `Leadership`."""
        leadership = self._leadership
        return leadership is None or leadership.may_lead(self)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the request is for this leader epoch or any (-1)."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            fenced = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)

    # --- in-sync replicas ---

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def counted_replicas(self) -> frozenset[int]:
        """Members of the ISR, and of the one that is proposed: all that the high watermark waits for."""
        return self.followers.counted

    def propose(self) -> None:
        """Have the controller asked for the ISR in the proposal of the followers."""
        self._environment.propose(self)

    # --- write ---

    def append(
        self,
        batches: memoryview,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        all_in_sync: bool = False,
        examined: Examined | None = None,
    ) -> AppendResult:
        """Append as the leader: the write is dispatched when this returns; see `when_committed` for acked.

        Unless it is acked already, it is written when `log.end_offset` is past it; see `LogDurability.when_written`.
        `batches` is patched in place; PartitionLog says of what use `examined` is. Raises KafkaError:
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (only with `all_in_sync`), or the errors of the log.
        """
        log = self.log
        leadership = self._leadership
        try:
            if self.leader != self.local_id or (
                leadership is not None and origin is _CLIENT and not leadership.may_lead(self)
            ):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if all_in_sync and len(self.isr) < min(log.config.min_insync_replicas, len(self.replicas)):
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            if self._refused is not None:
                self._refused.check(batches, log.history.producers, now_ms)
            result = log.append(
                batches, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, examined=examined
            )
        except KafkaError as error:
            self.traffic.failed_produces += 1
            if origin is _CLIENT:
                self.refuse(batches, error.code, now_ms)
            raise
        traffic = self.traffic
        traffic.produces += 1
        first_offset, last_offset, _, _, is_duplicate = result
        if not is_duplicate:
            size = len(batches)
            traffic.bytes_in += size
            traffic.messages_in += last_offset - first_offset + 1
            if last_offset < log.end_offset:
                self.appended(size)
        return result

    def refuse(self, batches: memoryview, code: ErrorCode, now_ms: int) -> None:
        """Note that a client's batch was rejected: if clients send it again, later batches wait for it."""
        if code in SENT_AGAIN:
            self._refused = self._refused or RefusedBatches()
            self._refused.note(batches, code, self.log.history.producers, now_ms)

    def appended(self, size: int) -> None:
        """Note bytes that can be read now: those of an append at once, unless the log had to queue it."""
        if self.followers.progress:
            self.readers.appended(size)
        self.advance_high_watermark(size)

    def advance_high_watermark(self, appended_bytes: int) -> None:
        """Recompute the leader's high watermark after an append or a follower's progress; wake writes and readers."""
        if self.leader != self.local_id:
            return
        if self.followers.progress:
            if not self._commit_with_followers():
                return
            appended_bytes = MANY_BYTES
        else:
            end_offset = self.log.end_offset
            if end_offset < self.high_watermark:
                found = f"{end_offset} after {self.high_watermark} in leader epoch {self.leader_epoch}"
                _violated(self, self._environment.invariants, Invariant.HIGH_WATERMARK_MONOTONIC, found)
            self.high_watermark = end_offset
        waiters = self.commit_waiters
        while waiters and waiters[0][0] < self.high_watermark:
            heapq.heappop(waiters)[2]()
        if self.readers.waiting:
            self.readers.wake(appended_bytes)

    def _commit_with_followers(self) -> bool:
        """Advance the high watermark to the offset that all counted replicas have; return whether it moved.

        It stays while the ISR is below `min.insync.replicas`: records could be committed on one broker only (KIP-966).
        """
        if len(self.isr) < min(self.log.config.min_insync_replicas, len(self.replicas)):
            return False
        environment = self._environment
        offset = committed_offset(
            self.log.end_offset,
            self.followers.progress,
            self.followers.counted,
            environment.max_lag_ms,
            environment.now_ms(),
            self.followers.is_eligible,
        )
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        for session in self.readers.sessions:
            session.committed()
        return True

    def is_committed(self, last_offset: int) -> bool:
        """Whether the high watermark is past the offset."""
        return last_offset < self.high_watermark

    def commit_error(self, last_offset: int, otherwise: ErrorCode) -> ErrorCode:
        """The error of a write with acks=all that waits no longer: NONE if it is committed, `otherwise` if it is not,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if it is committed on fewer replicas than `min.insync.replicas`.
        """
        if last_offset >= self.high_watermark:
            return otherwise
        return ErrorCode.NONE if len(self.isr) >= self.min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def when_committed(self, last_offset: int, callback: Callable[[], None], *, is_client: bool = False) -> None:
        """Call back once the high watermark is past the offset, or this broker no longer leads.

        A client's write does not wait for a leader that may not act, either: see `release_clients`.
        """
        if last_offset < self.high_watermark or not self.is_leader:
            callback()
        else:
            self._commit_order += 1
            heapq.heappush(self.commit_waiters, (last_offset, self._commit_order, callback, is_client))

    # --- read ---

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins, at most the high watermark."""
        return self.log.history.last_stable_offset(self.high_watermark)

    def upper_offset(self, isolation: int) -> int:
        """The end of the records that a consumer of that isolation level may read."""
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    def read(
        self, offset: int, max_bytes: int, *, isolation: int = READ_UNCOMMITTED, min_one_batch: bool = False
    ) -> PartitionRead:
        """Complete batches from the one with `offset` up to the end that the isolation level lets a consumer see.

        Raises KafkaError OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR.
        """
        log = self.log
        high_watermark = self.high_watermark
        stable = log.history.last_stable_offset(high_watermark)
        upper = stable if isolation == READ_COMMITTED else high_watermark
        found = log.reader.read(offset, max_bytes, upper_offset=upper, min_one_batch=min_one_batch)
        aborted = None
        if isolation == READ_COMMITTED:
            aborted = log.reader.aborted_transactions(offset, found.next_offset) if found.size else []
        # The constructor of a NamedTuple takes three times as long.
        fields = (found.ranges, found.size, high_watermark, stable, log.log_start_offset, aborted, None, -1)
        return tuple.__new__(PartitionRead, fields)

    def diverging_epoch(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the history of a reader at `offset`, whose last batch is of the given epoch, departs from this log."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.log.history.leader_epochs.end_offset_for(last_fetched_epoch, self.log.end_offset)
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def read_uncommitted(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> LogRead:
        """Read for a follower, up to the log's end. Raises KafkaError OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR."""
        log = self.log
        return log.reader.read(offset, max_bytes, upper_offset=log.end_offset, min_one_batch=min_one_batch)


def check_offsets(partition: Partition, invariants: InvariantCounters) -> None:
    """Count a leader's offsets that contradict each other, for those who look at all partitions anyway."""
    log, mark = partition.log, partition.high_watermark
    if partition.is_leader and not log.log_start_offset <= mark <= log.end_offset and not log.is_offline:
        found = f"high watermark {mark}, log from {log.log_start_offset} to {log.end_offset}"
        _violated(partition, invariants, Invariant.HIGH_WATERMARK_WITHIN_LOG, found)


def _violated(partition: Partition, invariants: InvariantCounters, invariant: Invariant, found: str) -> None:
    invariants.violated(invariant, f"{partition.topic}-{partition.index}", found)


def release_clients(partitions: Iterable[Partition]) -> None:
    """Release the clients that wait for partitions of which this broker may not act as the leader.

    Its successor may confirm their writes, and clients repeat them there sooner than their request times out.
    """
    for partition in partitions:
        waiters = partition.commit_waiters
        if not waiters or partition.may_lead:
            continue
        released = [waiter for waiter in waiters if waiter[3]]
        partition.commit_waiters = [waiter for waiter in waiters if not waiter[3]]
        heapq.heapify(partition.commit_waiters)
        for _, _, callback, _ in released:
            callback()


def take_in_followers(partitions: Iterable[Partition], begun: Container[PartitionKey]) -> None:
    """Let followers of leaders that have just begun join the ISR: those that caught up before may do so only now."""
    for partition in partitions:
        if (partition.topic, partition.index) in begun:
            partition.followers.take_in()
