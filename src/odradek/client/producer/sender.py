"""Sends batches from the accumulator to their leaders, and completes them with the answers (Kafka's Sender).

It runs on events (a batch closed, a linger expired, an answer arrived), never by polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Protocol

from odradek.client.config import ProducerOptions
from odradek.client.errors import (
    ClientClosed,
    ClientError,
    DeliveryTimedOut,
    Disconnected,
    IllegalState,
    ProducerFenced,
    TransactionAborted,
    TransportError,
)
from odradek.client.metrics.measures import ProducerMeasures
from odradek.client.network.cluster import BRIEF_FAILURES, Cluster, error_of, is_retriable, is_stale_metadata
from odradek.client.network.connection import Connection
from odradek.client.network.connections import retrieve_failure
from odradek.client.network.failure_log import FailureLog
from odradek.client.producer.accumulator import Accumulator, Batch, Delivery, Queue
from odradek.client.producer.sequence_numbers import NO_SEQUENCE, ProducerIdentity
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.silent_leaders import LOOK_S, SentTo, SilentLeaders
from odradek.client.producer.stuck_leaders import StuckLeaders
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.primitives import ZERO_UUID
from odradek.wire.produce import ProducedPartition
from odradek.wire.produced import BatchesRequest, ProduceAnswer, TopicBatches

logger = logging.getLogger(__name__)

_REFRESH_S: Final = 1.0
"""While old metadata cannot be refreshed, the sender looks again after this time."""
_TOPIC_IDS_FROM: Final = 13
_IMPLICIT_ADD_FROM: Final = 12
_SUCCESS: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_SEQUENCE_ERRORS: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_MAYBE_WRITTEN: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Errors that a leader may also return for a batch in its log: it was deposed, or replicas or the disk failed."""
_UNCONFIRMED: Final = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,)
"""The leader may have been deposed before it could confirm the batch."""
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_BEING_ADDED: Final = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)
"""In a transaction: another request with new partitions of it was under way to the coordinator.

Apache's broker (AddPartitionsToTxnManager) has one at a time for each producer, and rejects the batches of the other.
"""

Acknowledged = Callable[[Batch], None]


class Transaction(Protocol):
    """A transactional producer as its sender sees it (see `transactions`)."""

    transactional_id: str
    """The id that produce requests carry."""

    @property
    def is_open(self) -> bool:
        """Whether batches may be sent, or retried: false as soon as the transaction is to be aborted."""
        ...

    @property
    def taking(self) -> int:
        """The number of the transaction that accepts records now, 0 for none."""
        ...

    def may_send(self, key: PartitionKey) -> bool:
        """Whether the partition belongs to the transaction; if not, it is being added, and `wake` follows."""
        ...

    def failed(self, error: Exception) -> None:
        """A batch was lost: the transaction can only be aborted."""
        ...


class Sender:
    """Owns a batch from its `append` to its outcome."""

    __slots__ = (
        "_accumulator",
        "_acknowledged",
        "_acks",
        "_cluster",
        "_config",
        "_connecting",
        "_failures",
        "_flushes",
        "_flying",
        "_identifying",
        "_in_flight",
        "_linger_s",
        "_loop",
        "_max_age_s",
        "_max_in_flight",
        "_request_timeout_ms",
        "_scheduled",
        "_silent",
        "_timeout_s",
        "_timer",
        "_timer_at",
        "_unfinished",
        "_waiters",
        "fatal",
        "measures",
        "sequences",
        "stuck",
        "transaction",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        config: ProducerOptions,
        acknowledged: Acknowledged,
        sequences: Sequences | None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._acknowledged = acknowledged
        self.sequences = sequences
        self.measures = ProducerMeasures(cluster.windows)
        """What `Producer.metrics` is computed from."""
        self.transaction: Transaction | None = None
        self._loop = asyncio.get_running_loop()
        self._acks = int(config["acks"])
        self._request_timeout_ms = config["request_timeout_ms"]
        self._linger_s = config["linger_ms"] / 1000
        self._max_age_s = config["metadata_max_age_ms"] / 1000
        self._timeout_s = config["delivery_timeout_ms"] / 1000
        self._max_in_flight = config["max_in_flight_requests_per_connection"]
        self._in_flight: dict[int, int] = {}
        self._flying: dict[Batch, SentTo] = {}
        # Only the leader of an idempotent producer's batch knows whether it was written before.
        self._silent = None if sequences is None else SilentLeaders(cluster, self._flying, self.wake)
        self._connecting: dict[int, asyncio.Task[None]] = {}
        timeout_s = config["partitioner_availability_timeout_ms"] / 1000
        self.stuck = StuckLeaders(timeout_s, cluster.metadata.leader, self._loop.time)
        """Leaders that accept no batches."""
        self._identifying: asyncio.Task[None] | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._flushes = 0
        self._unfinished = 0
        self._waiters: list[asyncio.Future[None]] = []
        self.fatal: Exception | None = None
        """The error that ended this producer, or None."""
        self._failures = FailureLog(logger, self._loop.time, {"client_id": config["client_id"]})

    def send_in(self, transaction: Transaction) -> None:
        """Send batches within the transactions of this object, which learns of each that is lost."""
        self.transaction = transaction

    # --- events ---

    def added(self, batch: Batch, *, urgent: bool) -> None:
        """A batch was begun; `urgent` when that closed an earlier one, which can be sent at once."""
        self._unfinished += 1
        if urgent or self._linger_s <= 0:
            self.closed(batch)
        else:
            self._wake_at(self._loop.time() + self._linger_s)

    def closed(self, batch: Batch) -> None:
        """A batch of the partition can be sent at once."""
        if self._scheduled:
            return
        in_flight = self._in_flight.get(self._cluster.metadata.leader(*batch.key), 0)
        # A leader that has as many requests as it may wakes the sender with its next answer. A run before finds nothing
        # to do but to note that the leader is not free.
        if in_flight < self._max_in_flight or self.stuck.is_watching:
            self.wake()

    def wake(self) -> None:
        """Run with the next turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    @property
    def is_idle(self) -> bool:
        """Whether a batch that is begun now need not wait: none is unfinished, and there is no linger."""
        return not self._unfinished and not self._scheduled and self._linger_s <= 0

    def send_within(self, add: Callable[..., Delivery | None], record: tuple[Any, ...]) -> Delivery | None:
        """Call `add` with the record, and send within this call the batch that it begins, while the sender is idle.

        It takes a turn of the loop less, and no look at the queues of other partitions: they are empty.
        """
        self._scheduled = True  # `added` is not to schedule a run
        try:
            delivery = add(*record)
        finally:
            self._scheduled = False
        if delivery is not None:
            self._run_only(self._accumulator.queues[delivery.topic_partition])
        return delivery

    def progress(self) -> asyncio.Future[None]:
        """A future that is done when a batch is finished (memory was freed) or the producer has failed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    @property
    def unfinished(self) -> int:
        """Batches without an outcome."""
        return self._unfinished

    async def flush(self, on_progress: Callable[[int], object] | None = None) -> None:
        """Send all batches without linger, and wait until each has its outcome.

        `on_progress` gets the number of records without one, at the beginning and whenever it has changed.
        """
        self._flushes += 1
        try:
            # Batches that other tasks add meanwhile are not waited for.
            pending = [each for queue in self._accumulator.queues.values() for each in queue.batches]
            pending += self._flying
            self.wake()
            if on_progress is not None:
                await _report_outcomes(self, pending, on_progress)
                return
            while pending:
                batch = pending.pop()
                while not batch.done:
                    if batch.parts is not None:
                        pending += batch.parts
                        break
                    progress = self.progress()
                    await progress
        finally:
            self._flushes -= 1

    def fail_all(self, error: Exception) -> None:
        """Fail every batch that has no outcome."""
        for batch in self._accumulator.take_all():
            self._finish(batch, error)
        for batch in list(self._flying):
            self._finish(batch, error)

    def drop_all(self, error: Exception) -> None:
        """Fail batches in flight and queued ones; answers to the former are ignored."""
        for batch in list(self._flying):
            batch.failure_seen = True
            self._finish(batch, error)
        self.drop_queued(error)

    def drop_queued(self, error: Exception) -> None:
        """Fail the batches that are not in flight."""
        for batch in self._accumulator.take_all():
            if self.sequences is not None:
                self.sequences.failed(batch, outcome_known=batch.attempts == 0)
            batch.failure_seen = True
            self._finish(batch, error)
            if batch.attempts and self.transaction is not None:
                self.transaction.failed(error)

    @property
    def requests_in_flight(self) -> int:
        """Requests without an answer."""
        return sum(self._in_flight.values())

    def set_fatal(self, error: Exception) -> None:
        """Fail all batches; later sends raise `error`."""
        if self.fatal is None:
            self.fatal = error
            if self.transaction is not None:
                self.transaction.failed(error)
        self.fail_all(error)

    async def close(self) -> None:
        """Fail the batches that have no outcome, and stop."""
        self.fatal = self.fatal or ClientClosed("the producer was closed")
        self.fail_all(self.fatal)
        if self._timer is not None:
            self._timer.cancel()
        tasks = [each for each in (self._identifying, *self._connecting.values()) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the run ---

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._run()

    def _run(self) -> None:
        self._scheduled = False
        if self.fatal is not None:
            self.fail_all(self.fatal)
            return
        now = self._loop.time()
        self._expire(now)
        if self._silent is not None and self._flying:
            self._silent.look(now)
        sequences = self.sequences
        if sequences is not None:
            if sequences.transactional and self.transaction is None:
                self.set_fatal(IllegalState("transactional_id is set: use TransactionalProducer"))
                return
            if sequences.bump_wanted and not sequences.transactional and not sequences.needs_identity:
                sequences.bump_epoch()
            if sequences.needs_identity:
                if self._unfinished and not sequences.transactional:
                    self._identify()
                self._set_timer(now)
                return
        if self._cluster.metadata_is_old(now) and self._cluster.metadata.version:
            self._cluster.want_metadata()
        due_by_node = self._due_by_node(now)
        self.stuck.keep(due_by_node)
        for node_id, due in due_by_node.items():
            self._serve(node_id, due, now)
        self._set_timer(now)

    def _run_only(self, queue: Queue) -> None:
        """As `_run`, where only this queue has a batch."""
        sequences, cluster = self.sequences, self._cluster
        leader = cluster.metadata.leader(*queue.key)
        now = self._loop.time()
        if (
            self.fatal is not None
            or not (sequences is None or sequences.is_settled)
            or leader < 0
            or cluster.metadata_is_old(now)
        ):
            self._run()
            return
        connection = cluster.connections.opened(leader)
        (batch,) = queue.batches
        if (
            connection is None
            or connection.throttled_until > now
            or self._in_flight.get(leader)
            or not (sequences is None or sequences.may_send(batch))
        ):
            self._serve(leader, [queue], now)
        else:
            self._take(queue, batch)
            self._send(leader, connection, [batch], now)
            self.stuck.note(leader, is_free=True, now=now)
        if queue.batches:
            self._set_timer(now)
        else:
            self._wake_at(now + (self._timeout_s if self._silent is None else LOOK_S))

    def _expire(self, now: float) -> None:
        for batch in self._accumulator.expired(now, self._timeout_s):
            self._give_up(batch, outcome_known=batch.attempts == 0)
        for batch in [each for each in self._flying if now - each.created_at >= self._timeout_s]:
            self._flying.pop(batch, None)
            self._give_up(batch, outcome_known=False)

    def _give_up(self, batch: Batch, *, outcome_known: bool) -> None:
        topic, partition = batch.key
        error = DeliveryTimedOut(
            f"{batch.count} records for {topic}-{partition} were not acknowledged within "
            f"{self._config['delivery_timeout_ms']} ms"
        )
        if self.sequences is not None:
            self.sequences.failed(batch, outcome_known=outcome_known)
        self._finish(batch, error)
        if self.transaction is not None:
            self.transaction.failed(error)

    @property
    def _is_forced(self) -> bool:
        """Whether batches go without linger: a flush, or a send that waits for memory."""
        return self._flushes > 0 or bool(self._waiters)

    def _due_by_node(self, now: float) -> dict[int, list[Queue]]:
        """Queues by leader, of the leaders that have at least one due batch.

        The request may carry batches of the leader's other queues, too.
        """
        accumulator, metadata = self._accumulator, self._cluster.metadata
        force = self._is_forced
        by_node: dict[int, list[Queue]] = {}
        due_nodes: set[int] = set()
        for queue in accumulator.queues.values():
            if not queue.batches:
                continue
            leader = metadata.leader(*queue.key)
            if leader < 0:
                self._cluster.add_topic(queue.key[0])
                self._find_leaders()
                continue
            by_node.setdefault(leader, []).append(queue)
            if accumulator.is_due(queue, now, self._linger_s, force=force):
                due_nodes.add(leader)
        return {node: queues for node, queues in by_node.items() if node in due_nodes}

    def _find_leaders(self) -> None:
        if -1 in self._connecting:
            return

        async def refresh() -> None:
            with contextlib.suppress(ClientError, KafkaError):
                await self._cluster.refresh_metadata()
            await asyncio.sleep(self._cluster.options["retry_backoff_ms"] / 1000)

        self._in_background(-1, refresh())

    def _serve(self, node_id: int, queues: list[Queue], now: float) -> None:
        connection = self._cluster.connections.opened(node_id)
        is_open = connection is not None and connection.throttled_until <= now
        is_free = is_open and self._in_flight.get(node_id, 0) < self._max_in_flight
        self.stuck.note(node_id, is_free=is_free, now=now)
        if connection is None:
            if node_id not in self._connecting:
                self._in_background(node_id, self._connect(node_id))
            return
        if connection.throttled_until > now:
            self._wake_at(connection.throttled_until)
            return
        if not is_free:
            return
        while self._has_due(queues, now) and self._in_flight.get(node_id, 0) < self._max_in_flight:
            batches = self._drain(queues, now)
            if not batches:
                return
            self._send(node_id, connection, batches, now)
            if connection.closed is not None:
                return

    def _has_due(self, queues: Iterable[Queue], now: float) -> bool:
        accumulator, linger_s, force = self._accumulator, self._linger_s, self._is_forced
        return any(each.batches and accumulator.is_due(each, now, linger_s, force=force) for each in queues)

    async def _connect(self, node_id: int) -> None:
        """Open the connection; while that takes long, see whether another broker leads: this one may stand still."""
        attempt = self._loop.create_task(self._cluster.connections.get(node_id))
        attempt.add_done_callback(retrieve_failure)
        try:
            while not (await asyncio.wait({attempt}, timeout=LOOK_S))[0]:
                with contextlib.suppress(ClientError, KafkaError):
                    await self._cluster.refresh_metadata()
                self.wake()
            await attempt
        except ClientError:
            await self._cluster.pause_after_failed_connection(node_id)
        finally:
            attempt.cancel()

    def _in_background(self, key: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._connecting[key] = task

        def over(_: asyncio.Task[None]) -> None:
            self._connecting.pop(key, None)
            self.wake()

        task.add_done_callback(over)

    def _drain(self, queues: list[Queue], now: float) -> list[Batch]:
        """The first batch of each queue that may go now, up to max_request_size bytes in all."""
        sequences, transaction = self.sequences, self.transaction
        limit = self._config["max_request_size"]
        accumulator, linger_s, force = self._accumulator, self._linger_s, self._is_forced
        drained: list[Batch] = []
        size = 0
        for queue in queues:
            if not queue.batches or (self._max_in_flight == 1 and queue.in_flight):
                continue
            batch = queue.batches[0]
            if batch.retry_at > now or (drained and size + batch.size > limit):
                continue
            if not accumulator.is_due(queue, now, linger_s, force=force) and not accumulator.may_join(
                queue, now, linger_s
            ):
                continue
            if transaction is not None and not transaction.may_send(queue.key):
                continue
            if sequences is not None and not sequences.may_send(batch):
                continue
            self._take(queue, batch)
            size += batch.size
            drained.append(batch)
        if drained:
            # The next drain begins with another queue, so that none starves behind a full request.
            queues.append(queues.pop(0))
        return drained

    def _take(self, queue: Queue, batch: Batch) -> None:
        """Take the first batch of a queue, for a request."""
        if self.sequences is not None and batch.base_sequence == NO_SEQUENCE:
            self.sequences.assign(batch)
        queue.take()
        queue.in_flight += 1
        batch.encode()

    def _set_timer(self, now: float) -> None:
        """Wake again for the earliest linger, retry or expiry."""
        earliest = float("inf")
        for queue in self._accumulator.queues.values():
            if not queue.batches:
                continue
            batch = queue.batches[0]
            if batch.retry_at > now:
                earliest = min(earliest, batch.retry_at)
            elif batch is queue.open:
                due = batch.created_at + self._linger_s
                if due > now:
                    earliest = min(earliest, due)
            earliest = min(earliest, batch.created_at + self._timeout_s)
        for batch in self._flying:
            earliest = min(earliest, batch.created_at + self._timeout_s)
        if self._silent is not None and self._flying:
            earliest = min(earliest, self._silent.next_look(now))
        if self._cluster.metadata.version:
            # Without records, too: the first one after a pause must go to the partition that its key has by then.
            due = self._cluster.metadata.updated_at + self._max_age_s
            earliest = min(earliest, max(due, now + min(self._max_age_s, _REFRESH_S)))
        if earliest < float("inf"):
            self._wake_at(max(earliest, now + 0.0005))

    # --- requests and answers ---

    def _send(self, node_id: int, connection: Connection, batches: list[Batch], now: float) -> None:
        acks, transaction = self._acks, self.transaction
        # With the ids of the request: by the time of the answer the topic may be forgotten, or another one.
        topics: dict[str, TopicBatches] = {}
        at_most = 0x7FFF
        for batch in batches:
            batch.attempts += 1
            topic, partition = batch.key
            found = topics.get(topic)
            if found is None:
                topic_id = self._cluster.metadata.topic_id(topic)
                found = topics[topic] = TopicBatches(topic, topic_id, [])
                if topic_id == ZERO_UUID:
                    at_most = _TOPIC_IDS_FROM - 1
            found.batches.append((partition, batch.encode()))
        transactional_id = None
        if transaction is not None:
            transactional_id = transaction.transactional_id
            if connection.features.get("transaction.version", 0) < 2:
                at_most = min(at_most, _IMPLICIT_ADD_FROM - 1)
        request = BatchesRequest(transactional_id, acks, self._request_timeout_ms, list(topics.values()))

        def answered(result: ProduceAnswer | ClientError) -> None:
            self._in_flight[node_id] -= 1
            if not isinstance(result, ClientError):
                self.measures.answered(connection.used_at - now, result.throttle_time_ms)
            self._answered(batches, result, topics)
            if self._waiters:
                self._notify_waiters()
            # Last: where one task waits, it continues in here.
            for batch in batches:
                if batch.done:
                    batch.wake_waiters(at_once=len(batches) == 1)

        try:
            version = connection.version_of(ProduceRequest, at_most)
            expected = None if acks == 0 else ProduceAnswer
            connection.send(request, expected, version, self._request_timeout_ms, answered)
        except ClientError as error:
            self._answered(batches, error, topics)
            return
        # After the request is on its way: the broker works meanwhile.
        self.measures.requested(batches, now)
        if acks == 0:
            for batch in batches:
                self._landed(batch)
                batch.complete(-1, -1)
                self._finish(batch, None)
            return
        self._flying.update(dict.fromkeys(batches, SentTo(node_id, connection)))
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1

    def _answered(
        self, batches: Iterable[Batch], result: ProduceAnswer | ClientError, topics: Mapping[str, TopicBatches]
    ) -> None:
        if isinstance(result, ClientError):
            self._cluster.want_metadata()
            for batch in batches:
                self._landed(batch)
                if not batch.done:
                    self._retry_or_fail(batch, result, None)
            self.wake()
            return
        rows = {(topic, row.partition): row for topic, row in result.partitions}
        for batch in batches:
            self._landed(batch)
            if batch.done:
                continue  # it expired while it was in flight
            topic, partition = batch.key
            answer = rows.get((topics[topic].topic_id, partition)) or rows.get((topic, partition))
            if answer is None:
                self._retry_or_fail(batch, error_of(ErrorCode.UNKNOWN_TOPIC_ID, "no answer for the partition"), None)
            elif answer.error_code in _SUCCESS:
                if self.sequences is not None:
                    self.sequences.acknowledged(batch, answer.base_offset)
                batch.complete(answer.base_offset, answer.log_append_time_ms)
                self._finish(batch, None, wakes=False)
            else:
                self._retry_or_fail(batch, _error(answer), answer)
        if self._unfinished:
            self.wake()

    def _landed(self, batch: Batch) -> None:
        self._flying.pop(batch, None)
        self._accumulator.queues[batch.key].in_flight -= 1

    def _retry_or_fail(self, batch: Batch, error: Exception, answer: ProducedPartition | None) -> None:
        code = error.code if isinstance(error, KafkaError) else None
        if isinstance(error, TransportError) or code in _MAYBE_WRITTEN:
            batch.may_be_written = True
        # Parts of an aborted transaction would wait for the next one, and be sent in it.
        is_open = self.transaction is None or self.transaction.is_open
        if code == ErrorCode.MESSAGE_TOO_LARGE and is_open and self._split(batch):
            return
        if code is not None and (is_stale_metadata(code) or code in _UNCONFIRMED):
            self._stale(batch, answer)
        is_brief = self.transaction is not None and code in _BEING_ADDED and batch.brief_failures < BRIEF_FAILURES
        batch.brief_failures += is_brief
        if self.fatal is None and self._retriable(batch, error, answer):
            pause = (
                self._cluster.brief_backoff(batch.brief_failures)
                if is_brief
                else self._cluster.backoff(batch.attempts - batch.brief_failures)
            )
            batch.retry_at = self._loop.time() + pause
            self.measures.of_topic(batch.key[0]).retries += batch.count
            if not isinstance(error, Disconnected):  # logged for the connection
                self._failures.failed(f"producing to {batch.key[0]}-{batch.key[1]}", error, "retrying", quiet_s=1.0)
            self._accumulator.queues[batch.key].put_back(batch)
            return
        sequences = self.sequences
        if sequences is not None:
            # This error says nothing about the earlier attempts.
            sequences.failed(batch, outcome_known=not batch.may_be_written)
            if code in _FENCED and sequences.transactional:
                error = ProducerFenced(str(error))
                self._finish(batch, error)
                self.set_fatal(error)
                return
        self._finish(batch, error)
        if self.transaction is not None:
            self.transaction.failed(error)

    def _stale(self, batch: Batch, answer: ProducedPartition | None) -> None:
        leader = answer.current_leader if answer is not None else None
        if leader is None or not self._cluster.metadata.update_leader(*batch.key, *leader):
            self._cluster.want_metadata()

    def _retriable(self, batch: Batch, error: Exception, answer: ProducedPartition | None) -> bool:
        if batch.attempts - batch.brief_failures > self._config["retries"]:
            return False
        if self.transaction is not None and not self.transaction.is_open:
            return False
        if self._loop.time() - batch.created_at >= self._timeout_s:
            return False
        sequences = self.sequences
        if sequences is not None and isinstance(error, KafkaError) and error.code in _SEQUENCE_ERRORS:
            return sequences.can_retry(batch, error.code, answer.log_start_offset if answer is not None else -1)
        return is_retriable(error)

    def _split(self, batch: Batch) -> bool:
        """Replace a batch that is too large for the broker with smaller ones (KIP-126)."""
        parts = self._accumulator.split(batch)
        if len(parts) < 2:
            return False
        if self.sequences is not None:
            self.sequences.replaced(batch, parts)
        self.measures.sends.splits += 1
        queue = self._accumulator.queues[batch.key]
        batch.parts = parts
        # Each is put in front of the others, so the last one first.
        for part in reversed(parts):
            queue.put_back(part)
        self._unfinished += len(parts) - 1
        batch.wake_waiters()
        self._notify_waiters()
        return True

    def _finish(self, batch: Batch, error: Exception | None, *, wakes: bool = True) -> None:
        if error is not None and not batch.done:
            batch.fail(error)
            self.measures.of_topic(batch.key[0]).errors += batch.count
            if not isinstance(error, ClientClosed | TransactionAborted):
                what = f"producing to {batch.key[0]}-{batch.key[1]}"
                self._failures.forget(what)
                self._failures.failed(what, error, f"{batch.count} records are lost; their deliveries raise this error")
        elif self._failures:
            self._failures.succeeded(f"producing to {batch.key[0]}-{batch.key[1]}")
        self._flying.pop(batch, None)
        self._accumulator.release(batch)
        self._unfinished -= 1
        self._acknowledged(batch)
        if self._waiters:
            self._notify_waiters()
        if wakes:
            batch.wake_waiters()

    def _notify_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- identity ---

    def _identify(self) -> None:
        if self._identifying is None:
            self._identifying = self._loop.create_task(self._ask_identity())

    async def _ask_identity(self) -> None:
        assert self.sequences is not None
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)

        async def ask() -> ProducerIdentity:
            response = await self._cluster.request_any(request, InitProducerIdResponse)
            if response.error_code:
                raise error_of(response.error_code)
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        try:
            identity = await self._cluster.retrying(ask, "InitProducerId", self._config["max_block_ms"])
        except (ClientError, KafkaError) as error:
            if isinstance(error, KafkaError) or not isinstance(error, TimeoutError):
                self.set_fatal(error)
        else:
            self.sequences.adopt(identity)
        finally:
            self._identifying = None
            self.wake()


def _error(answer: ProducedPartition) -> KafkaError:
    details = "; ".join(f"record {index}: {message}" for index, message in answer.record_errors)
    return error_of(answer.error_code, answer.error_message or details or None)


async def _report_outcomes(sender: Sender, pending: list[Batch], on_progress: Callable[[int], object]) -> None:
    """Wait until each of the batches has its outcome, and report how many records have none."""
    reported = -1
    while reported:
        batches, pending = pending, []
        for batch in batches:
            pending += batch.parts if batch.parts is not None else [] if batch.done else [batch]
        if any(each.parts is not None for each in pending):
            continue
        left = sum(each.count for each in pending)
        if left != reported:
            reported = left
            on_progress(left)
        if left:
            await sender.progress()
