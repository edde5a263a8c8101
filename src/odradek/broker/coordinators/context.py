"""One partition of a coordinator's topic, from loading to closing (Kafka: CoordinatorRuntime.CoordinatorContext).

Records that a request decides on are appended at once and replayed at once, so that the next request sees them.
Answers wait until the records are committed. Operations that do not depend on each other may gather for one turn of the
event loop and share a batch. If the log rejects an append, nothing has changed. If the leader is deposed before an
append is committed, the shard is discarded, and the uncommitted state with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from odradek.broker.coordinators.loader import CoordinatorLoader
from odradek.broker.coordinators.shard import CoordinatorState, Decision, Operation, Record, RecordCodec, Shard
from odradek.broker.coordinators.timers import CoordinatorClock, CoordinatorTimer
from odradek.broker.coordinators.writer import CoordinatorWriter
from odradek.records.batch import NO_PRODUCER_ID, BatchHeader
from odradek.records.builder import DEFAULT_FIELDS, BatchFields, encode_batch
from odradek.records.control import ControlType, decode_control_record
from odradek.records.record import Record as LogRecord
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import EncodeError

_SHARED_BATCH_BYTES = 256 * 1024
"""Operations stop gathering at this size; a larger one gets a batch of its own."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

REJECTED_BACKOFF_MS = 100
"""How long deadlines that are over wait for another try while the log rejects writes."""
UNENCODABLE_BACKOFF_MS = 1000
"""Between two attempts at a deadline whose records cannot be encoded: that does not pass by itself."""
_NEVER_COMMITTED = (1 << 63) - 1
"""An offset that no log reaches."""

_LOADING = CoordinatorState.LOADING
_ACTIVE = CoordinatorState.ACTIVE
_CLOSED = CoordinatorState.CLOSED


@dataclass(frozen=True, slots=True)
class CoordinatorEnvironment:
    """What the partitions of one coordinator share."""

    name: str
    """`group` or `transaction`, in log lines."""
    logger: logging.Logger
    clock: CoordinatorClock
    loop: asyncio.AbstractEventLoop
    write_timeout_ms: int | None = None
    """After which a write that is not committed fails with REQUEST_TIMED_OUT; None waits without a limit."""


class _PendingBatch:
    """Operations of one batch, until it is committed, fails, or times out."""

    __slots__ = ("operations", "timer")

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.timer: asyncio.TimerHandle | None = None


class CoordinatorContext(Generic[Shard, Record]):
    """Runs one shard: loads it, writes its records, completes its operations, and closes it."""

    __slots__ = (
        "_codec",
        "_encode_failures",
        "_environment",
        "_gathered",
        "_gathered_bytes",
        "_loader",
        "_loop",
        "_markers_while_loading",
        "_on_failed",
        "_pending",
        "_timer",
        "_timer_backoff_ms",
        "_writer",
        "partition",
        "shard",
        "state",
    )

    def __init__(
        self,
        partition: Partition,
        codec: RecordCodec[Record],
        open_shard: Callable[[CoordinatorContext[Any, Record]], Shard],
        environment: CoordinatorEnvironment,
        on_failed: Callable[[CoordinatorContext[Any, Record]], None],
    ) -> None:
        """`on_failed` is called when the log cannot be read now but perhaps later: this context is useless then."""
        loop = environment.loop
        self.partition = partition
        self.state = _LOADING
        self._codec = codec
        self._environment = environment
        self._loop = loop
        self._on_failed = on_failed
        self._writer = CoordinatorWriter(partition, environment.name, environment.logger)
        self._gathered: list[Operation] = []
        self._gathered_bytes = 0
        self._encode_failures = 0
        self._timer_backoff_ms = 0
        # In the order in which they were written, which is that of their answers.
        self._pending: dict[_PendingBatch, None] = {}
        self._markers_while_loading: list[tuple[int, bool]] = []
        self.shard: Shard = open_shard(self)
        self._timer = CoordinatorTimer(environment.clock, loop, self._expire)
        self._loader = CoordinatorLoader(self._replay_batch, self._on_replayed, loop)

    # --- state ---

    def check(self) -> None:
        """Raise KafkaError unless the state is ACTIVE, and this broker may act as the leader now."""
        if self.state is not _ACTIVE:
            raise KafkaError(self._unavailable())
        if not self.partition.may_lead:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def check_state(self) -> None:
        """Raise KafkaError unless the state is ACTIVE: for what no client waits for."""
        if self.state is not _ACTIVE:
            raise KafkaError(self._unavailable())

    def _unavailable(self) -> ErrorCode:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.state is _LOADING else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        """Whether the log is still being replayed."""
        return self.state is _LOADING

    @property
    def is_active(self) -> bool:
        """Whether requests are served."""
        return self.state is _ACTIVE

    @property
    def is_closed(self) -> bool:
        """Whether this broker has lost the partition, or stops."""
        return self.state is _CLOSED

    @property
    def last_written_offset(self) -> int:
        """The offset of the last record that the shard's state rests on."""
        return self._writer.last_written_offset

    # --- writing ---

    def encode(self, decision: Decision[Record]) -> Operation | None:
        """The decision as an operation; None if a record cannot be written: then it is completed with an error."""
        encoded: list[tuple[bytes, bytes | None]] = []
        size = 0
        encode = self._codec.encode
        try:
            for record in decision.records:
                key, value = pair = encode(record)
                encoded.append(pair)
                size += len(key) + 16
                if value is not None:
                    size += len(value)
        except EncodeError as error:
            self._encode_failures += 1
            self._environment.logger.warning(
                "%s: cannot encode a record of the %s coordinator: %s; the request fails",
                self._writer.name,
                self._environment.name,
                error,
            )
            self.shard.complete([Operation(decision, [], 0)], ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return None
        operation: Operation = tuple.__new__(Operation, (decision, encoded, size))
        return operation

    def gather(self, decision: Decision[Record]) -> None:
        """Write the decision in one batch with the others of this turn of the event loop."""
        operation = self.encode(decision)
        if operation is None:
            return
        if self._gathered and self._gathered_bytes + operation.size > _SHARED_BATCH_BYTES:
            self.flush()
        if not self._gathered:
            self._loop.call_soon(self._write_gathered)
        self._gathered.append(operation)
        self._gathered_bytes += operation.size

    def _write_gathered(self) -> None:
        if self._gathered:
            self.write(self._take_gathered())

    def flush(self) -> None:
        """Write the operations that have gathered; they are answered in the next turn of the event loop.

        An answer lets a connection serve requests that wait behind it, which must not happen in the midst of the
        request that flushes.
        """
        if self._gathered:
            self.write(self._take_gathered(), later=True)

    def _take_gathered(self) -> list[Operation]:
        operations, self._gathered, self._gathered_bytes = self._gathered, [], 0
        return operations

    def write(self, operations: list[Operation], fields: BatchFields = DEFAULT_FIELDS, *, later: bool = False) -> bool:
        """Append the operations as one batch and replay it; whether their completion waits for the commit.

        `later`: complete them not before the next turn of the event loop.
        """
        delay = 0 if later else None
        if self.state is not _ACTIVE:
            self.shard.complete(operations, self._unavailable(), delay)
            return False
        now_ms = self._environment.clock.now_ms()
        records = [(now_ms, key, value, ()) for operation in operations for key, value in operation.encoded]
        try:
            result = self._writer.append(encode_batch(records, fields), now_ms)
        except KafkaError as error:
            parts = self._smaller(operations) if error.code in _TOO_LARGE else ()
            for part in parts:
                self.write(part, fields, later=True)
            if not parts:
                self.shard.complete(operations, error.code, self._writer.reject(error) or delay)
            return False
        offset = result.first_offset
        producer_id = fields.producer_id
        replay = self.shard.replay
        for operation in operations:
            for record in operation.decision.records:
                replay(record, offset, producer_id)
                offset += 1
        return self._complete_when_committed(operations, delay)

    def _smaller(self, operations: list[Operation]) -> list[list[Operation]]:
        """The operations of a batch that is too large as several batches; none if it cannot be divided."""
        if len(operations) > 1:
            return [[operation] for operation in operations]
        decision, encoded, size = operations[0]
        halves = self.shard.halves(decision) if len(encoded) > 1 else None
        if halves is None:
            return []
        middle = len(encoded) // 2
        return [
            [Operation(halves[0], encoded[:middle], size // 2)],
            [Operation(halves[1], encoded[middle:], size // 2)],
        ]

    def is_committed(self) -> bool:
        """Whether all of the state is committed. A client must not be answered from a state that may be undone."""
        return self.partition.is_committed(self._writer.last_written_offset)

    def complete_when_committed(self, decision: Any) -> bool:
        """Complete a decision without records as soon as `is_committed`. Returns whether it has to wait."""
        return self._complete_when_committed([Operation(decision, [], 0)], None)

    def _complete_when_committed(self, operations: list[Operation], delay: float | None) -> bool:
        if self.is_committed():
            self.shard.complete(operations, None, delay)
            return False
        pending = _PendingBatch(operations)
        self._pending[pending] = None
        timeout_ms = self._environment.write_timeout_ms
        if timeout_ms is not None:
            pending.timer = self._loop.call_later(
                timeout_ms / 1000, self._complete_pending, pending, ErrorCode.REQUEST_TIMED_OUT
            )
        self._writer.when_committed(
            lambda committed: self._complete_pending(pending, None if committed else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )
        return True

    def _complete_pending(self, pending: _PendingBatch, error: ErrorCode | None) -> None:
        if pending not in self._pending:
            return  # it has timed out, or the context is closed
        del self._pending[pending]
        if pending.timer is not None:
            pending.timer.cancel()
        # The caller that advanced the high watermark is in the midst of another request.
        self.shard.complete(pending.operations, error, 0)

    # --- time ---

    def arm_timer(self) -> None:
        """Let the timer fire at the shard's next deadline, or later while the log rejects what deadlines decide.

        What a deadline decides is written; as long as that fails, the deadline stands, and is over.
        """
        if self.state is _ACTIVE:
            deadline_ms = self.shard.next_deadline_ms()
            backoff_ms = REJECTED_BACKOFF_MS if self._writer.is_rejecting else self._timer_backoff_ms
            if backoff_ms and deadline_ms is not None:
                deadline_ms = max(deadline_ms, self._environment.clock.now_ms() + backoff_ms)
            self._timer.arm(deadline_ms)

    def _expire(self) -> None:
        if self.state is _ACTIVE:
            self.flush()
            failures = self._encode_failures
            self.shard.expire()
            self._timer_backoff_ms = UNENCODABLE_BACKOFF_MS if self._encode_failures > failures else 0
            self.arm_timer()

    # --- loading and closing ---

    def load(self) -> None:
        """Replay the log, one slice per turn of the event loop, then serve."""
        self._writer.start_after(self.partition.log.next_offset - 1)
        self._loader.start(self.partition)

    def _replay_batch(self, header: BatchHeader, records: list[LogRecord]) -> None:
        shard = self.shard
        if header.is_control:
            for record in records:
                control = decode_control_record(record)
                if control.is_end_transaction:
                    shard.replay_marker(header.producer_id, committed=control.type is ControlType.COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        decode = self._codec.decode
        for record in records:
            found = None if record.key is None else decode(record.key, record.value)
            if found is None:
                self._environment.logger.warning(
                    "%s: ignoring the record at offset %d: its type is unknown", self._writer.name, record.offset
                )
            else:
                shard.replay(found, record.offset, producer_id)

    def _on_replayed(self, error: Exception | None) -> None:
        if error is not None:
            environment = self._environment
            environment.logger.error(
                "%s: cannot load the partition of the %s coordinator: %s; its clients get NOT_COORDINATOR",
                self._writer.name,
                environment.name,
                error,
            )
            self.state = CoordinatorState.FAILED
            # A log that is offline may be about to be opened in another log directory.
            if isinstance(error.__cause__, OSError) or self.partition.log.is_offline:
                self._on_failed(self)
            return
        self.state = _ACTIVE
        for producer_id, committed in self._markers_while_loading:
            self.shard.replay_marker(producer_id, committed=committed)
        self._markers_while_loading.clear()
        self.shard.on_loaded()
        self._watch_leadership()

    def _watch_leadership(self) -> None:
        """Wait as a client's write does, which is released where this broker may no longer act as the leader."""
        self.partition.when_committed(_NEVER_COMMITTED, self._on_released, is_client=True)

    def _on_released(self) -> None:
        # A partition that moves to another broker is closed.
        if self.state is _ACTIVE and self.partition.is_leader:
            self.shard.on_leadership_lost()
            self._watch_leadership()

    def end_transaction(self, producer_id: int, last_offset: int, *, committed: bool) -> None:
        """Replay a transaction's marker, which is in the log at `last_offset`."""
        if self.state is _LOADING:
            # The marker came after the end that loading goes up to.
            self._markers_while_loading.append((producer_id, committed))
        elif self.state is _ACTIVE:
            self.flush()
            self.shard.replay_marker(producer_id, committed=committed)
        self._writer.note_written(last_offset)

    def close(self) -> None:
        """This broker has lost the partition, or stops: answer every client that waits with NOT_COORDINATOR."""
        self.state = _CLOSED
        self._loader.cancel()
        self.shard.on_closed()
        self.flush()
        for pending in list(self._pending):
            self._complete_pending(pending, ErrorCode.NOT_COORDINATOR)
        self._timer.cancel()
