"""One partition of `__consumer_offsets` and the shard of the group coordinator that lives in it.

Records that a request decides on are appended at once and replayed at once, so that the next request sees them;
answers wait until they are committed. Offset commits, which do not depend on each other, gather for one turn of the
event loop and share a batch. If an append is refused nothing has changed. If a leader is deposed before its append is
committed, the shard is thrown away, and the uncommitted state with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.broker.coordinator_shard import LogReplay, RefusedWrites, ShardClock, ShardTimer
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import CommitRequest, Continuation, Outcome, append_failure
from odradek.groups.offsets import NO_PRODUCER_ID
from odradek.groups.records import decode_record, encode_record
from odradek.groups.service import Reply
from odradek.groups.settings import GroupSettings
from odradek.log.partition_log import Origin
from odradek.records.batch import BatchHeader
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import ControlType, decode_control_record
from odradek.records.record import Record
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import EncodeError

log = logging.getLogger("odradek.groups")

_SHARED_BATCH_BYTES = 256 * 1024
"""Commits stop gathering at this size; one that is larger by itself goes alone."""

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

Encoded = list[tuple[bytes, bytes | None]]


class _Operation(NamedTuple):
    """A decided request on its way into the log."""

    outcome: Outcome
    encoded: Encoded
    size: int


class _Unsettled:
    """Operations of one batch, until it is committed, fails, or takes too long."""

    __slots__ = ("operations", "timer")

    def __init__(self, operations: list[_Operation]) -> None:
        self.operations = operations
        self.timer: asyncio.TimerHandle | None = None


def _smaller(operations: list[_Operation]) -> list[list[_Operation]]:
    """What is too large as one batch in several; nothing if it cannot be taken apart.

    What nobody waits for, as the offsets that expire at the same time, need not be one batch (nor is it in Kafka).
    """
    if len(operations) > 1:
        return [[operation] for operation in operations]
    outcome, encoded, size = operations[0]
    if outcome.replies or outcome.then is not None or len(encoded) < 2:
        return []
    middle = len(encoded) // 2
    return [
        [_Operation(Outcome(outcome.records[part]), encoded[part], size // 2)]
        for part in (slice(None, middle), slice(middle, None))
    ]


Decide = Callable[[GroupCoordinator, int, asyncio.Future[Any]], Outcome]
"""A request to the coordinator: (coordinator, now_ms, token of the answer) -> what it decides."""


class GroupShard:
    """Use `load` first; requests of a shard that is not ready raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""

    __slots__ = (
        "_clock",
        "_commits",
        "_commits_size",
        "_failure",
        "_last_offset",
        "_late_markers",
        "_late_news",
        "_loop",
        "_partition",
        "_refused",
        "_replay",
        "_settings",
        "_timer",
        "_unsettled",
        "coordinator",
        "on_failed",
    )

    def __init__(
        self,
        partition: Partition,
        coordinator: GroupCoordinator,
        settings: GroupSettings,
        clock: ShardClock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.coordinator = coordinator
        self.on_failed: Callable[[], None] = _nothing
        """Called when the log cannot be read now, and may be later: this shard is of no use then."""
        self._partition = partition
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._failure: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._refused = RefusedWrites(log, "group")
        self._last_offset = -1
        self._late_markers: list[tuple[int, bool]] = []
        self._late_news: list[Decide] = []
        self._commits: list[_Operation] = []
        self._commits_size = 0
        # In the order in which they came, which is that of their answers.
        self._unsettled: dict[_Unsettled, None] = {}
        self._timer = ShardTimer(clock, loop, self._expire)
        self._replay = LogReplay(self._replay_batch, self._replayed, loop)

    # --- requests ---

    def check(self) -> GroupCoordinator:
        """The coordinator; raises KafkaError while it cannot be asked."""
        if self._failure is not None:
            raise KafkaError(self._failure)
        return self.coordinator

    @property
    def is_loading(self) -> bool:
        return self._failure is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def run(self, decide: Decide) -> asyncio.Future[Any]:
        """Decide a request after everything that came before it; the future is its token. May raise KafkaError."""
        coordinator = self.check()
        self.flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._obey(decide(coordinator, self._clock.now_ms(), future))
        self._arm()
        return future

    def tell(self, decide: Decide) -> None:
        """As `run`, for news of the cluster that nobody waits for: a shard that loads takes them when it is there."""
        if self.is_loading:
            self._late_news.append(decide)
        elif self._failure is None:
            self.run(decide)

    def commit(self, request: CommitRequest, reply: Reply) -> None:
        """Decide an offset commit, which may share its batch with others of this turn of the loop."""
        outcome = self.check().commit_offsets(self._clock.now_ms(), reply, request)
        if not outcome.records:
            self._release(outcome.replies)
            return
        operation = self._encode(outcome)
        if operation is not None:
            if self._commits and self._commits_size + operation.size > _SHARED_BATCH_BYTES:
                self.flush()
            if not self._commits:
                self._loop.call_soon(self._gathered)
            self._commits.append(operation)
            self._commits_size += operation.size

    def commit_in_transaction(
        self,
        decide: Decide,
        producer_id: int,
        producer_epoch: int,
    ) -> asyncio.Future[Any]:
        """A commit whose batch belongs to a producer's transaction."""
        coordinator = self.check()
        self.flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        outcome = decide(coordinator, self._clock.now_ms(), future)
        fields = BatchFields(producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True)
        self._obey(outcome, fields)
        return future

    def transaction_ended(self, producer_id: int, last_offset: int, *, committed: bool) -> None:
        """The transaction's marker is in the log at `last_offset`."""
        if self.is_loading:
            # It came after the end that the loading goes up to.
            self._late_markers.append((producer_id, committed))
            self._last_offset = max(self._last_offset, last_offset)
        elif self._failure is None:
            self.flush()
            self.coordinator.replay_marker(producer_id, committed=committed)
            self._last_offset = max(self._last_offset, last_offset)

    def read(self, question: Callable[[GroupCoordinator], Any]) -> asyncio.Future[Any]:
        """Answer from the state as soon as all of it is committed."""
        coordinator = self.check()
        self.flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._reply([(future, question(coordinator))])
        return future

    # --- the way of a decision ---

    def flush(self) -> None:
        """Append the commits that have gathered; they are answered in the next turn of the loop.

        An answer lets a connection serve what it has held back, which must not happen in the midst of what flushes.
        """
        if self._commits:
            self._append(self._take_commits(), later=True)

    def _gathered(self) -> None:
        """This turn of the loop has no more commits: append and answer them."""
        if self._commits:
            self._append(self._take_commits())

    def _take_commits(self) -> list[_Operation]:
        operations, self._commits, self._commits_size = self._commits, [], 0
        return operations

    def _obey(self, outcome: Outcome, fields: BatchFields | None = None) -> None:
        self._release(outcome.now)
        if not outcome.records:
            if outcome.replies:
                self._reply(outcome.replies)
            return
        operation = self._encode(outcome)
        if operation is not None:
            self._append([operation], fields)

    def _reply(self, replies: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
        """Answer from the state as soon as all of it is committed: what somebody finds done must not be undone."""
        if self._partition.is_committed(self._last_offset):
            self._release(replies)
        else:
            self._settle_later(_Unsettled([_Operation(Outcome(replies=replies), [], 0)]), self._last_offset)

    def _encode(self, outcome: Outcome) -> _Operation | None:
        encoded: Encoded = []
        size = 0
        try:
            for record in outcome.records:
                key, value = pair = encode_record(record)
                encoded.append(pair)
                size += len(key) + 16
                if value is not None:
                    size += len(value)
        except EncodeError as error:
            log.warning("a group's record cannot be written: %s", error)
            self._fail(outcome, ErrorCode.UNKNOWN_SERVER_ERROR)
            return None
        return tuple.__new__(_Operation, (outcome, encoded, size))

    def _append(self, operations: list[_Operation], fields: BatchFields | None = None, *, later: bool = False) -> None:
        if self._failure is not None:
            self._end(operations, self._failure, later)
            return
        now_ms = self._clock.now_ms()
        records = [(now_ms, key, value, ()) for operation in operations for key, value in operation.encoded]
        batch = encode_batch(records, fields or BatchFields())
        try:
            result = self._partition.append(
                memoryview(batch), now_ms=now_ms, origin=Origin.COORDINATOR, all_in_sync=True
            )
        except KafkaError as error:
            parts = _smaller(operations) if error.code in _TOO_LARGE else ()
            if parts:
                for part in parts:
                    self._append(part, fields, later=True)
                return
            pause_seconds = self._refused.refused(self._name, error)
            if pause_seconds:
                self._loop.call_later(pause_seconds, self._end, operations, error.code, False)
            else:
                self._end(operations, error.code, later)
            return
        if self._refused.is_refusing:
            self._refused.written(self._name)
        offset = result.first_offset
        replay = self.coordinator.replay
        producer_id = NO_PRODUCER_ID if fields is None else fields.producer_id
        for operation in operations:
            for record in operation.outcome.records:
                replay(record, offset, producer_id)
                offset += 1
        self._last_offset = result.last_offset
        if self._partition.is_committed(result.last_offset):
            self._end(operations, None, later)
        else:
            self._settle_later(_Unsettled(operations), result.last_offset)

    def _settle_later(self, unsettled: _Unsettled, last_offset: int) -> None:
        self._unsettled[unsettled] = None
        timeout = self._settings.offset_commit_timeout_ms / 1000
        unsettled.timer = self._loop.call_later(timeout, self._settle, unsettled, ErrorCode.REQUEST_TIMED_OUT)
        self._partition.when_committed(last_offset, lambda: self._released(unsettled, last_offset))

    def _released(self, unsettled: _Unsettled, last_offset: int) -> None:
        # Waiters are called as well when the partition's leadership has gone elsewhere.
        committed = self._partition.is_committed(last_offset)
        self._settle(unsettled, None if committed else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _settle(self, unsettled: _Unsettled, error: ErrorCode | None) -> None:
        if unsettled not in self._unsettled:
            return  # it timed out, or the shard is gone
        del self._unsettled[unsettled]
        if unsettled.timer is not None:
            unsettled.timer.cancel()
        # Whoever made the high watermark move is in the midst of something.
        self._end(unsettled.operations, error, later=True)

    def _end(self, operations: list[_Operation], error: ErrorCode | None, later: bool) -> None:
        if later:
            self._loop.call_soon(self._end, operations, error, False)
            return
        for operation in operations:
            outcome = operation[0]
            if error is not None:
                self._fail(outcome, error)
                continue
            self._release(outcome.replies)
            if outcome.then is not None:
                self._continue(outcome.then, None)

    def _fail(self, outcome: Outcome, error: ErrorCode) -> None:
        told = append_failure(error)
        for token, _ in outcome.replies:
            if not token.done():
                token.set_exception(KafkaError(told))
        if outcome.then is not None:
            self._continue(outcome.then, error)

    def _continue(self, then: Continuation, error: ErrorCode | None) -> None:
        self._obey(self.coordinator.stored(then, error, self._clock.now_ms()))
        self._arm()

    def _release(self, replies: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
        for token, answer in replies:
            if not token.done():
                token.set_result(answer)

    # --- time ---

    def _arm(self) -> None:
        if self._failure is None:
            self._timer.arm(self.coordinator.next_deadline_ms())

    def _expire(self) -> None:
        if self._failure is None:
            self.flush()
            self._obey(self.coordinator.expire(self._clock.now_ms()))
            self._arm()

    # --- loading and unloading ---

    def load(self) -> None:
        """Replay the log, some of it per turn of the loop, and then serve."""
        self._last_offset = self._partition.log.next_offset - 1
        self._replay.start(self._partition)

    def _replay_batch(self, header: BatchHeader, records: list[Record]) -> None:
        if header.is_control:
            for record in records:
                control = decode_control_record(record)
                if control.is_end_transaction:
                    committed = control.type is ControlType.COMMIT
                    self.coordinator.replay_marker(header.producer_id, committed=committed)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            found = None if record.key is None else decode_record(record.key, record.value)
            if found is None:
                log.warning("%s: the record at offset %d is of an unknown kind and ignored", self._name, record.offset)
            else:
                self.coordinator.replay(found, record.offset, producer_id)

    def _replayed(self, error: Exception | None) -> None:
        if error is not None:
            log.error("%s: its groups cannot be loaded: %s", self._name, error)
            self._failure = ErrorCode.NOT_COORDINATOR
            if isinstance(error.__cause__, OSError) and not self._partition.log.is_offline:
                self.on_failed()
            return
        self._failure = None
        for producer_id, committed in self._late_markers:
            self.coordinator.replay_marker(producer_id, committed=committed)
        self._late_markers.clear()
        self._obey(self.coordinator.loaded(self._clock.now_ms()))
        self._arm()
        late, self._late_news = self._late_news, []
        for decide in late:
            self.run(decide)

    def unload(self) -> None:
        """This broker does not lead the partition any more: everybody who waits is told NOT_COORDINATOR."""
        if self._failure is None:
            self._release(self.coordinator.unload(self._clock.now_ms()).now)
        self._failure = ErrorCode.NOT_COORDINATOR
        self._replay.cancel()
        self.flush()
        for unsettled in list(self._unsettled):
            self._settle(unsettled, ErrorCode.NOT_COORDINATOR)
        self._timer.cancel()

    @property
    def _name(self) -> str:
        return f"{self._partition.topic}-{self._partition.index}"


def _nothing() -> None:
    """By default nobody loads another shard."""
