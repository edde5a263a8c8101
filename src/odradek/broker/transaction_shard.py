"""One partition of `__transaction_state` and the shard of the transaction coordinator that lives in it.

Records that a request decides on are appended at once and replayed at once, so that the next request sees them;
answers and markers wait until they are committed. If an append is refused nothing has changed. If a leader is deposed
before its append is committed, the shard is thrown away, and the uncommitted state with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek.broker.coordinator_shard import LogReplay, RefusedWrites, ShardClock, ShardTimer
from odradek.log.partition_log import Origin
from odradek.records.batch import BatchHeader
from odradek.records.builder import encode_batch
from odradek.records.record import Record
from odradek.replication.partition import Partition
from odradek.transactions.connections import NewestConnections
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.events import Markers, Outcome, TransactionDescription, append_failure
from odradek.transactions.markers import MarkerSender
from odradek.transactions.records import TransactionRecord, decode_record, encode_record
from odradek.transactions.settings import TransactionSettings
from odradek.transactions.states import PREPARED, SETTLED
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import EncodeError

log = logging.getLogger("odradek.transactions")

_RETRY_SECONDS = 0.5
"""After which a completion that the log refused is tried again."""

Decide = Callable[[TransactionCoordinator, int], Outcome]
Answer = asyncio.Future[Any]


class TransactionShard:
    """Use `load` first; requests of a shard that is not ready raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""

    __slots__ = (
        "_clock",
        "_completions",
        "_epoch",
        "_failure",
        "_last_offset",
        "_load",
        "_loop",
        "_markers",
        "_partition",
        "_refused",
        "_settings",
        "_timer",
        "_waiting",
        "connections",
        "coordinator",
        "on_failed",
    )

    def __init__(
        self,
        partition: Partition,
        coordinator: TransactionCoordinator,
        settings: TransactionSettings,
        markers: MarkerSender,
        clock: ShardClock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.coordinator = coordinator
        self.on_failed: Callable[[], None] = _nothing
        """Called when the log cannot be read now, and may be later: this shard is of no use then."""
        self.connections = NewestConnections()
        self._partition = partition
        self._settings = settings
        self._markers = markers
        self._clock = clock
        self._loop = loop
        self._epoch = partition.leader_epoch
        self._failure: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._refused = RefusedWrites(log, "transaction")
        self._last_offset = -1
        # In the order in which they came.
        self._waiting: dict[Answer, None] = {}
        self._completions: dict[str, list[asyncio.Future[None]]] = {}
        self._timer = ShardTimer(clock, loop, self._expire)
        self._load = LogReplay(self._replay_batch, self._loaded, loop)

    # --- requests ---

    def check(self) -> TransactionCoordinator:
        """The coordinator; raises KafkaError while it cannot be asked."""
        if self._failure is not None:
            raise KafkaError(self._failure)
        return self.coordinator

    @property
    def is_loading(self) -> bool:
        return self._failure is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def run(self, decide: Decide) -> Answer:
        """Decide a request; the answer is done at once where its records are committed. May raise KafkaError."""
        coordinator = self.check()
        outcome = decide(coordinator, self._clock.now_ms())
        answer: Answer = self._loop.create_future()
        self._obey(outcome, answer)
        return answer

    def is_settled(self, transactional_id: str) -> bool:
        """Whether the id has neither an open transaction nor one that is being ended."""
        found = self.coordinator.transactions.get(transactional_id)
        return found is not None and found.state in SETTLED

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Of a transaction that is being ended the partitions whose marker is still to be written, as in Kafka."""
        found = self.check().describe(transactional_id)
        transaction = self.coordinator.transactions.get(transactional_id)
        if transaction is None or transaction.state not in PREPARED:
            return found
        pending = self._markers.pending(transactional_id)
        return found if pending is None else found._replace(partitions=found.partitions & pending)

    def completion(self, transactional_id: str) -> asyncio.Future[None]:
        """Done when the transaction that is being ended, if one is, is complete, or the shard is gone."""
        future: asyncio.Future[None] = self._loop.create_future()
        found = self.check().transactions.get(transactional_id)
        if found is not None and found.state in PREPARED:
            self._completions.setdefault(transactional_id, []).append(future)
        else:
            future.set_result(None)
        return future

    # --- the way of a decision ---

    def _obey(self, outcome: Outcome, answer: Answer | None) -> None:
        try:
            if outcome.records:
                self._append(outcome)
        except (KafkaError, EncodeError) as error:
            code = append_failure(error.code) if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            pause_seconds = self._refused.refused(self._name, error)
            if answer is not None and pause_seconds and isinstance(error, KafkaError):
                self._waiting[answer] = None
                self._loop.call_later(pause_seconds, self._refuse, answer, error.code)
            elif answer is not None:
                answer.set_exception(KafkaError(code))
        else:
            if self._partition.is_committed(self._last_offset):
                self._committed(outcome, answer)
            else:
                self._settle_later(outcome, answer)
        self._timer.arm(self.coordinator.next_deadline_ms())

    def _append(self, outcome: Outcome) -> None:
        if self._failure is not None:
            raise KafkaError(self._failure)
        now_ms = self._clock.now_ms()
        version = self._settings.transaction_version()
        records = []
        for record in outcome.records:
            key, value = encode_record(record, version)
            records.append((now_ms, key, value, ()))
        batch = memoryview(encode_batch(records))
        result = self._partition.append(batch, now_ms=now_ms, origin=Origin.COORDINATOR, all_in_sync=True)
        if self._refused.is_refusing:
            self._refused.written(self._name)
        self._last_offset = result.last_offset
        for record in outcome.records:
            self._replay(record)

    def _replay(self, record: TransactionRecord) -> None:
        self.coordinator.replay(record)
        transactional_id, value = record
        if value is None:
            self.connections.forget(transactional_id)
        if self._completions and (value is None or value.state not in PREPARED):
            for future in self._completions.pop(transactional_id, ()):
                if not future.done():
                    future.set_result(None)

    def _settle_later(self, outcome: Outcome, answer: Answer | None) -> None:
        """A client that waits too long for the in-sync replicas is told so; the markers go all the same."""
        if answer is not None:
            self._waiting[answer] = None
            timer = self._loop.call_later(self._settings.append_timeout_ms / 1000, self._refuse, answer)
            answer.add_done_callback(lambda _: timer.cancel())
        offset = self._last_offset

        def settled() -> None:
            # Waiters are released as well when the partition leaves this broker.
            if self._partition.is_committed(offset):
                self._committed(outcome, answer)
            elif answer is not None:
                self._refuse(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._partition.when_committed(offset, settled)

    def _refuse(self, answer: Answer, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        self._waiting.pop(answer, None)
        if not answer.done():
            answer.set_exception(KafkaError(append_failure(error)))

    def _committed(self, outcome: Outcome, answer: Answer | None) -> None:
        if self._failure is not None:
            return
        if answer is not None:
            self._waiting.pop(answer, None)
            if not answer.done():
                answer.set_result(outcome.reply)
        for markers in outcome.markers:
            if answer is not None and outcome.reply.error is ErrorCode.NONE:
                # The answer leaves first; what the client asks for next finds the transaction complete all the same.
                # Who is told to come again (InitProducerId) is helped more by having it complete at once.
                self._loop.call_soon(self._send, markers)
            else:
                self._send(markers)

    def _send(self, markers: Markers) -> None:
        if markers.partitions:
            self._markers.send(markers, self._epoch, self._is_serving, lambda: self._complete(markers))
        else:
            self._complete(markers)

    def _is_serving(self) -> bool:
        return self._failure is None

    def _complete(self, markers: Markers) -> None:
        """All markers are written: say so in the log, however often that takes."""
        if self._failure is not None:
            return
        before = self._last_offset
        outcome = self.coordinator.markers_written(markers, self._clock.now_ms())
        self._obey(outcome, None)
        if outcome.records and self._last_offset == before:
            self._loop.call_later(_RETRY_SECONDS, self._complete, markers)

    # --- time ---

    def _expire(self) -> None:
        if self._failure is None:
            for outcome in self.coordinator.expire(self._clock.now_ms()):
                for transactional_id, value in outcome.records:
                    if value is not None:
                        log.info("the transaction of %s took longer than its timeout and is aborted", transactional_id)
                self._obey(outcome, None)
            self._timer.arm(self.coordinator.next_deadline_ms())

    # --- loading and unloading ---

    def load(self) -> None:
        """Replay the log, some of it per turn of the loop, then serve and go on where the log stops."""
        self._last_offset = self._partition.log.next_offset - 1
        self._load.start(self._partition)

    def _replay_batch(self, header: BatchHeader, records: list[Record]) -> None:
        if header.is_control:
            return
        for record in records:
            found = None if record.key is None else decode_record(record.key, record.value)
            if found is None:
                log.warning("%s: the record at offset %d is of an unknown kind and ignored", self._name, record.offset)
            else:
                self.coordinator.replay(found)

    def _loaded(self, error: Exception | None) -> None:
        if error is not None:
            log.error("%s: its transactions cannot be loaded: %s", self._name, error)
            self._failure = ErrorCode.NOT_COORDINATOR
            if isinstance(error.__cause__, OSError) and not self._partition.log.is_offline:
                self.on_failed()
            return
        self._failure = None
        now_ms = self._clock.now_ms()
        markers = tuple(self.coordinator.loaded(now_ms, uncertain=self._partition.log.after_crash))
        # Only what is committed may be told to other partitions.
        self._obey(Outcome(markers=markers), None)

    def unload(self) -> None:
        """This broker does not lead the partition any more: everybody who waits is told NOT_COORDINATOR."""
        self._failure = ErrorCode.NOT_COORDINATOR
        self._load.cancel()
        self._timer.cancel()
        for answer in list(self._waiting):
            self._refuse(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for futures in self._completions.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)
        self._completions.clear()

    @property
    def _name(self) -> str:
        return f"{self._partition.topic}-{self._partition.index}"


def _nothing() -> None:
    """By default nobody loads another shard."""
