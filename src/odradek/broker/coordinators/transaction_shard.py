"""Requests of one partition of `__transaction_state`, decided by the transaction coordinator's state machine.

Markers wait for the commit of the records that decide them, as answers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.broker.coordinators.context import CoordinatorContext
from odradek.broker.coordinators.shard import Operation
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.transactions.connections import NewestConnections
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.events import Markers, TransactionDecision, TransactionDescription, append_failure
from odradek.transactions.markers import MarkerSender
from odradek.transactions.records import TransactionRecord
from odradek.transactions.settings import TransactionSettings
from odradek.transactions.states import IDLE, PREPARED
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.transactions")

_RETRY_SECONDS = 0.5
"""After which a completion is written again that the log rejected."""

Decide = Callable[[TransactionCoordinator, int], TransactionDecision]
"""A request to the coordinator: (coordinator, now_ms) -> what it decides."""
Answer = asyncio.Future[Any]


class _Decision(NamedTuple):
    """An outcome with the future of the client that waits for it, if one does."""

    records: Sequence[TransactionRecord]
    outcome: TransactionDecision
    answer: Answer | None


class TransactionShard:
    """A `CoordinatorShard`. While it is not ACTIVE, requests raise KafkaError as `CoordinatorContext.check` does."""

    __slots__ = (
        "_clock",
        "_completions",
        "_context",
        "_epoch",
        "_loop",
        "_markers",
        "_settings",
        "_waiting",
        "connections",
        "coordinator",
    )

    def __init__(
        self,
        context: CoordinatorContext[Any, TransactionRecord],
        coordinator: TransactionCoordinator,
        settings: TransactionSettings,
        markers: MarkerSender,
        clock: CoordinatorClock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.coordinator = coordinator
        self.connections = NewestConnections()
        self._context = context
        self._settings = settings
        self._markers = markers
        self._clock = clock
        self._loop = loop
        self._epoch = context.partition.leader_epoch
        # In the order in which the requests came.
        self._waiting: dict[Answer, None] = {}
        self._completions: dict[str, list[asyncio.Future[None]]] = {}

    # --- requests ---

    def active_coordinator(self) -> TransactionCoordinator:
        """The state machine. Raises KafkaError while the partition is not ACTIVE."""
        self._context.check()
        return self.coordinator

    @property
    def is_loading(self) -> bool:
        """Whether the log is still being replayed."""
        return self._context.is_loading

    def run(self, decide: Decide) -> Answer:
        """Decide a request; the answer is done at once where its records are committed. May raise KafkaError."""
        outcome = decide(self.active_coordinator(), self._clock.now_ms())
        answer: Answer = self._loop.create_future()
        self._execute(outcome, answer)
        return answer

    def is_idle(self, transactional_id: str) -> bool:
        """Whether the id has neither an open transaction nor one that is being ended."""
        found = self.coordinator.transactions.get(transactional_id)
        return found is not None and found.state in IDLE

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Of a transaction that is being ended the partitions whose marker is still to be written, as in Kafka."""
        found = self.active_coordinator().describe(transactional_id)
        transaction = self.coordinator.transactions.get(transactional_id)
        if transaction is None or transaction.state not in PREPARED:
            return found
        pending = self._markers.pending(transactional_id)
        return found if pending is None else found._replace(partitions=found.partitions & pending)

    def completion(self, transactional_id: str) -> asyncio.Future[None]:
        """Done when the transaction that is being ended, if one is, is complete, or the partition is closed."""
        future: asyncio.Future[None] = self._loop.create_future()
        found = self.active_coordinator().transactions.get(transactional_id)
        if found is not None and found.state in PREPARED:
            self._completions.setdefault(transactional_id, []).append(future)
        else:
            future.set_result(None)
        return future

    # --- executing decisions ---

    def _execute(self, outcome: TransactionDecision, answer: Answer | None) -> None:
        context = self._context
        decision = _Decision(outcome.records, outcome, answer)
        if outcome.records:
            operation = context.encode(decision)
            waits = operation is not None and context.write([operation])
        else:
            waits = context.complete_when_committed(decision)
        if waits and answer is not None:
            self._limit_wait(answer)
        context.arm_timer()

    def _limit_wait(self, answer: Answer) -> None:
        """A client that waits too long for the in-sync replicas gets an error; the markers are sent all the same."""
        self._waiting[answer] = None
        timer = self._loop.call_later(self._settings.append_timeout_ms / 1000, self._fail, answer)
        answer.add_done_callback(lambda _: timer.cancel())

    def halves(self, _decision: _Decision) -> None:
        """See `CoordinatorShard`. No decision of this coordinator is too large for a batch."""

    def complete(self, operations: Sequence[Operation], error: ErrorCode | None, delay: float | None) -> None:
        """See `CoordinatorShard`. Futures answer in a later turn of the event loop by themselves."""
        for operation in operations:
            _, outcome, answer = operation.decision
            if error is None:
                self._committed(outcome, answer)
            elif answer is not None and delay:
                self._waiting[answer] = None
                self._loop.call_later(delay, self._fail, answer, error)
            elif answer is not None:
                self._fail(answer, error)

    def _fail(self, answer: Answer, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        self._waiting.pop(answer, None)
        if not answer.done():
            answer.set_exception(KafkaError(append_failure(error)))

    def _committed(self, outcome: TransactionDecision, answer: Answer | None) -> None:
        if answer is not None:
            self._waiting.pop(answer, None)
            if not answer.done():
                answer.set_result(outcome.reply)
        for markers in outcome.markers:
            if answer is not None and outcome.reply.error is ErrorCode.NONE:
                # The answer leaves first; the client's next request finds the transaction complete all the same.
                # A client that has to retry (InitProducerId) gains more from having it complete at once.
                self._loop.call_soon(self._send, markers)
            else:
                self._send(markers)

    def _send(self, markers: Markers) -> None:
        if markers.partitions:
            self._markers.send(markers, self._epoch, self._is_active, lambda: self._complete_transaction(markers))
        else:
            self._complete_transaction(markers)

    def _is_active(self) -> bool:
        return self._context.is_active

    def _complete_transaction(self, markers: Markers) -> None:
        """All markers are written: write so in the log, and retry until the log takes it."""
        if not self._context.is_active:
            return
        outcome = self.coordinator.markers_written(markers, self._clock.now_ms())
        before = self._context.last_written_offset
        self._execute(outcome, None)
        if outcome.records and self._context.last_written_offset == before:
            self._loop.call_later(_RETRY_SECONDS, self._complete_transaction, markers)

    # --- what the runtime calls ---

    def replay(self, record: TransactionRecord, _record_offset: int, _producer_id: int) -> None:
        """See `CoordinatorShard`."""
        self.coordinator.replay(record)
        transactional_id, value = record
        if value is None:
            self.connections.forget(transactional_id)
        if self._completions and (value is None or value.state not in PREPARED):
            for future in self._completions.pop(transactional_id, ()):
                if not future.done():
                    future.set_result(None)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """See `CoordinatorShard`. No transaction writes to `__transaction_state`."""

    def next_deadline_ms(self) -> int | None:
        """See `CoordinatorShard`."""
        return self.coordinator.next_deadline_ms()

    def expire(self) -> None:
        """See `CoordinatorShard`."""
        for outcome in self.coordinator.expire(self._clock.now_ms()):
            for transactional_id, value in outcome.records:
                if value is not None:
                    logger.info(
                        "aborting the transaction of %s: it is open for longer than its timeout of %d ms",
                        transactional_id,
                        value.timeout_ms,
                    )
            self._execute(outcome, None)

    def on_loading(self) -> None:
        """See `CoordinatorShard`."""

    def on_loaded(self) -> None:
        """See `CoordinatorShard`."""
        is_uncertain = self._context.partition.log.after_crash
        markers = tuple(self.coordinator.loaded(self._clock.now_ms(), uncertain=is_uncertain))
        # Other partitions may only learn of what is committed.
        self._execute(TransactionDecision(markers=markers), None)

    def on_leadership_lost(self) -> None:
        """See `CoordinatorShard`."""
        for answer in list(self._waiting):
            self._fail(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_closed(self) -> None:
        """See `CoordinatorShard`."""
        self.on_leadership_lost()
        for futures in self._completions.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)
        self._completions.clear()
