"""Requests of one partition of `__consumer_offsets`, decided by the group coordinator's state machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from odradek.broker.coordinators.context import CoordinatorContext
from odradek.broker.coordinators.shard import Operation
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import CommitRequest, Continuation, GroupDecision, TopicOffsetsDeleted, append_failure
from odradek.groups.records import GroupRecord
from odradek.groups.service import Reply
from odradek.records.builder import DEFAULT_FIELDS, BatchFields
from odradek.wire.errors import ErrorCode, KafkaError

Decide = Callable[[GroupCoordinator, int, asyncio.Future[Any]], GroupDecision]
"""A request to the coordinator: (coordinator, now_ms, token of the answer) -> what it decides."""

_IMAGE_RETRY_SECONDS = 1.0
"""How often a partition that was elected looks whether this broker knows all topics."""


class GroupShard:
    """A `CoordinatorShard`. While it is not ACTIVE, requests raise KafkaError as `CoordinatorContext.check` does."""

    __slots__ = ("_clock", "_context", "_deferred", "_knows_all_topics", "_loop", "coordinator", "replay")

    def __init__(
        self,
        context: CoordinatorContext[Any, GroupRecord],
        coordinator: GroupCoordinator,
        clock: CoordinatorClock,
        loop: asyncio.AbstractEventLoop,
        knows_all_topics: Callable[[], bool],
    ) -> None:
        """`knows_all_topics`: whether a topic outside the image does not exist; else the image may be incomplete."""
        self.coordinator = coordinator
        self.replay: Callable[[GroupRecord, int, int], None] = coordinator.replay
        """See `CoordinatorShard`."""
        self._context = context
        self._clock = clock
        self._loop = loop
        self._knows_all_topics = knows_all_topics
        self._deferred: list[Decide] = []
        """Changes of the cluster that came while the log was replayed."""

    # --- requests ---

    def active_coordinator(self) -> GroupCoordinator:
        """The state machine. Raises KafkaError while the partition is not ACTIVE."""
        self._context.check()
        return self.coordinator

    @property
    def is_loading(self) -> bool:
        """Whether the log is still being replayed."""
        return self._context.is_loading

    def flush(self) -> None:
        """Write the commits that have gathered, so that the state has them."""
        self._context.flush()

    def arm_timer(self) -> None:
        """Let the timer fire at the next deadline, which may be a new one."""
        self._context.arm_timer()

    def run(self, decide: Decide) -> asyncio.Future[Any]:
        """Decide a request after every earlier one; the future is its token. May raise KafkaError."""
        self._context.check()
        return self._run(decide)

    def _run(self, decide: Decide) -> asyncio.Future[Any]:
        context = self._context
        context.check_state()
        context.flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._execute(decide(self.coordinator, self._clock.now_ms(), future))
        context.arm_timer()
        return future

    def run_when_loaded(self, decide: Decide) -> None:
        """As `run`, for changes of the cluster, which have no client: they wait while the partition is LOADING."""
        if self._context.is_loading:
            self._deferred.append(decide)
        elif self._context.is_active:
            self._run(decide)

    def commit(self, request: CommitRequest, reply: Reply) -> None:
        """Decide an offset commit, which may share its batch with others of this turn of the event loop."""
        context = self._context
        context.check()
        outcome = self.coordinator.commit_offsets(self._clock.now_ms(), reply, request)
        if outcome.records:
            context.gather(outcome)
        else:
            self._release(outcome.replies)

    def commit_in_transaction(self, decide: Decide, producer_id: int, producer_epoch: int) -> asyncio.Future[Any]:
        """Decide an offset commit whose batch belongs to a producer's transaction."""
        context = self._context
        context.check()
        context.flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        outcome = decide(self.coordinator, self._clock.now_ms(), future)
        fields = BatchFields(producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True)
        self._execute(outcome, fields)
        return future

    def read(self, query: Callable[[GroupCoordinator], Any]) -> asyncio.Future[Any]:
        """Answer from the state as soon as all of it is committed."""
        context = self._context
        context.check()
        context.flush()
        future: asyncio.Future[Any] = self._loop.create_future()
        answer = query(self.coordinator)
        if context.is_committed():
            future.set_result(answer)
        else:
            context.complete_when_committed(GroupDecision(replies=[(future, answer)]))
        return future

    # --- executing decisions ---

    def _execute(self, outcome: GroupDecision, fields: BatchFields = DEFAULT_FIELDS) -> None:
        self._release(outcome.now)
        if outcome.records:
            operation = self._context.encode(outcome)
            if operation is not None:
                self._context.write([operation], fields)
        elif outcome.replies:
            if self._context.is_committed():
                self._release(outcome.replies)
            else:
                self._context.complete_when_committed(outcome)

    def halves(self, decision: GroupDecision) -> tuple[GroupDecision, GroupDecision] | None:
        """See `CoordinatorShard`. Records that no client waits for need not be one batch (nor are they in Kafka)."""
        then = decision.then
        if decision.replies or not (then is None or isinstance(then, TopicOffsetsDeleted)):
            return None
        middle = len(decision.records) // 2
        return GroupDecision(decision.records[:middle], then=then), GroupDecision(decision.records[middle:], then=then)

    def complete(self, operations: Sequence[Operation], error: ErrorCode | None, delay: float | None) -> None:
        """See `CoordinatorShard`."""
        if delay is not None:
            if delay:
                self._loop.call_later(delay, self.complete, operations, error, None)
            else:
                self._loop.call_soon(self.complete, operations, error, None)
            return
        for operation in operations:
            outcome: GroupDecision = operation[0]
            if error is None:
                self._release(outcome.replies)
            else:
                self._fail(outcome.replies, append_failure(error))
            if outcome.then is not None:
                self._continue(outcome.then, error)

    def _continue(self, then: Continuation, error: ErrorCode | None) -> None:
        self._execute(self.coordinator.stored(then, error, self._clock.now_ms()))
        self._context.arm_timer()

    def _release(self, replies: Sequence[tuple[Any, Any]]) -> None:
        for token, answer in replies:
            if not token.done():
                token.set_result(answer)

    def _fail(self, replies: Sequence[tuple[Any, Any]], error: ErrorCode) -> None:
        for token, _ in replies:
            if not token.done():
                token.set_exception(KafkaError(error))

    # --- what the runtime calls ---

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """See `CoordinatorShard`."""
        self.coordinator.replay_marker(producer_id, committed=committed)

    def next_deadline_ms(self) -> int | None:
        """See `CoordinatorShard`."""
        return self.coordinator.next_deadline_ms()

    def expire(self) -> None:
        """See `CoordinatorShard`."""
        self._execute(self.coordinator.expire(self._clock.now_ms()))

    def on_loading(self) -> None:
        """See `CoordinatorShard`."""
        self._look_for_missed_deletions()

    def _look_for_missed_deletions(self) -> None:
        """Delete the offsets of topics that were deleted while no broker could write so in this partition.

        A broker learns what it leads before it learns of every topic.
        """
        if self._context.is_closed:
            return
        if self._knows_all_topics():
            self.run_when_loaded(lambda coordinator, _now_ms, _token: coordinator.topics_missed())
        else:
            self._loop.call_later(_IMAGE_RETRY_SECONDS, self._look_for_missed_deletions)

    def on_loaded(self) -> None:
        """See `CoordinatorShard`."""
        self._execute(self.coordinator.loaded(self._clock.now_ms()))
        self._context.arm_timer()
        deferred, self._deferred = self._deferred, []
        for decide in deferred:
            self._run(decide)

    def on_leadership_lost(self) -> None:
        """See `CoordinatorShard`."""
        self._release(self.coordinator.release_waiting(self._clock.now_ms()).now)
        self._context.arm_timer()

    def on_closed(self) -> None:
        """See `CoordinatorShard`."""
        self._release(self.coordinator.unload(self._clock.now_ms()).now)
