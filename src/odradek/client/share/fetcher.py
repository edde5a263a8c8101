"""Fetches and acknowledgements of a share consumer: one request at a time to each leader (KIP-932)."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from odradek.client.config import ShareConsumerOptions
from odradek.client.consumer.positions import RecordReader
from odradek.client.errors import ClientError, TransportError, UnsupportedByBroker
from odradek.client.metrics.measures import ShareMeasures
from odradek.client.network.cluster import Cluster, error_of, is_retriable, is_stale_metadata
from odradek.client.share.acknowledgements import (
    GAP,
    Acknowledgements,
    AcknowledgeType,
    Source,
    Taken,
    offset_ranges,
)
from odradek.client.share.records import ShareRecord, Unreadable, read_acquired
from odradek.client.share.session import FINAL_EPOCH, ShareSession
from odradek.records.topic_partition import TopicIdPartition, TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgementBatch,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
    ShareAcknowledgeResponse,
)
from odradek.wire.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestAcknowledgementBatch,
    ShareFetchRequestForgottenTopic,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
    ShareFetchResponse,
    ShareFetchResponsePartition,
)

Acknowledged = Callable[[TopicPartition, frozenset[int], Exception | None], None]
"""(partition, offsets, None or what the acknowledgement failed with)."""

_MODES: Final[Mapping[str, int]] = {"batch_optimized": 0, "record_limit": 1}
_RENEW_SINCE: Final = 2
_CLOSE_MS: Final = 5_000
_SESSION_OVER: Final = "the session that acquired the records is over; the broker has released them"


class _Buffered(NamedTuple):
    """A record that waits for a poll until its lock expires."""

    source: Source
    record: ShareRecord[Any, Any] | Unreadable
    deadline: float


class _Node:
    __slots__ = ("acknowledges", "retry_at", "session", "task")

    def __init__(self) -> None:
        self.session = ShareSession()
        self.task: asyncio.Task[None] | None = None
        self.acknowledges = False
        self.retry_at = 0.0


class ShareFetcher:
    """Keeps acquired records until a poll, and acknowledgements until a request."""

    __slots__ = (
        "_acknowledged", "_buffer", "_cluster", "_config", "_loop", "_measures", "_member_id", "_nodes", "_reader",
        "_waiter", "acknowledgements", "assignment", "failure", "lock_timeout_ms",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerOptions,
        reader: RecordReader,
        member_id: str,
        acknowledged: Acknowledged,
        measures: ShareMeasures,
    ) -> None:
        """`acknowledged` learns of the outcome of every acknowledgement of the program's."""
        self._measures = measures
        self._cluster = cluster
        self._config = config
        self._reader = reader
        self._member_id = member_id
        self._acknowledged = acknowledged
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[int, _Node] = defaultdict(_Node)
        self._buffer: deque[_Buffered] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.acknowledgements = Acknowledgements()
        self.assignment: frozenset[TopicIdPartition] = frozenset()
        """The partitions to fetch."""
        self.failure: Exception | None = None
        """The error that the next poll must raise."""
        self.lock_timeout_ms: int | None = None
        """How long a broker keeps a record for this member, None before the first answer."""

    # --- records ---

    @property
    def has_records(self) -> bool:
        """Whether acquired records wait for a poll."""
        return bool(self._buffer)

    def take(self, limit: int) -> list[ShareRecord[Any, Any]]:
        """Hand up to `limit` buffered records to the program.

        Raises DeserializationError at a record that no deserializer could read; it is released.
        """
        now = self._loop.time()
        taken: list[ShareRecord[Any, Any]] = []
        buffer, acknowledgements = self._buffer, self.acknowledgements
        while buffer and len(taken) < limit:
            source, record, deadline = buffer[0]
            if deadline <= now:
                buffer.popleft()  # the broker has given the record to others by now
            elif (source.topic_id, source.partition) not in self.assignment:
                buffer.popleft()
                acknowledgements.resolve(source, [record.offset], AcknowledgeType.RELEASE)
            elif isinstance(record, Unreadable):
                if taken:
                    break
                buffer.popleft()
                acknowledgements.resolve(source, [record.offset], AcknowledgeType.RELEASE)
                raise record.error
            else:
                buffer.popleft()
                acknowledgements.deliver(source, record.offset)
                taken.append(record)
        return taken

    def release_buffered(self) -> None:
        """Give back the records that no poll has returned."""
        for source, record, _ in self._buffer:
            self.acknowledgements.resolve(source, [record.offset], AcknowledgeType.RELEASE)
        self._buffer.clear()

    async def wait(self, timeout_s: float) -> None:
        """Wait until an answer arrives, the assignment changes, or the time is over."""
        self._waiter = self._loop.create_future()
        begun = self._loop.time()
        handle = self._loop.call_later(max(0.0, timeout_s), self.wake)
        try:
            await self._waiter
        finally:
            handle.cancel()
            self._waiter = None
            self._measures.consumer.reads.idle += self._loop.time() - begun

    def wake(self) -> None:
        """End a `wait`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- requests ---

    def fetch(self, max_records: int) -> None:
        """Send a fetch, with the acknowledgements that wait, to every leader that has no request in flight."""
        now = self._loop.time()
        for node_id, partitions in self._wanted_by_node().items():
            node = self._nodes[node_id]
            if node.task is None and node.retry_at <= now:
                self._run(node, self._fetch(node_id, node, partitions, max_records))
        self.send_acknowledgements()

    def send_acknowledgements(self) -> None:
        """Send the acknowledgements that wait to every broker that has no request in flight."""
        for node_id in self.acknowledgements.pending_nodes():
            node = self._nodes[node_id]
            if node.task is None:
                self._run(node, self._acknowledge_pending(node_id, node))

    @property
    def is_acknowledging(self) -> bool:
        """Whether acknowledgements wait or are in flight."""
        return bool(self.acknowledgements.pending_nodes()) or any(each.acknowledges for each in self._nodes.values())

    async def close(self) -> None:
        """Send the acknowledgements that wait, and end the sessions: the brokers release what is left."""
        for node in self._nodes.values():
            if node.task is not None:
                await asyncio.wait([node.task], timeout=_CLOSE_MS / 1000)
        self.release_buffered()
        endings = []
        for node_id, node in self._nodes.items():
            if node.task is not None:
                node.task.cancel()
            taken = self.acknowledgements.take(node_id)
            if not node.session.is_new:
                node.session.epoch = FINAL_EPOCH
            elif not taken:
                continue
            endings.append(self._acknowledge(node_id, node, taken, timeout_ms=_CLOSE_MS))
        await asyncio.gather(*endings, return_exceptions=True)

    def _wanted_by_node(self) -> dict[int, set[TopicIdPartition]]:
        metadata = self._cluster.metadata
        wanted: dict[int, set[TopicIdPartition]] = {}
        for topic_id, partition in self.assignment:
            name = metadata.names_by_id.get(topic_id)
            leader = -1 if name is None else metadata.leader(name, partition)
            if leader < 0:
                self._cluster.want_metadata()
            else:
                wanted.setdefault(leader, set()).add((topic_id, partition))
        return wanted

    def _run(self, node: _Node, work: Coroutine[Any, Any, None]) -> None:
        node.task = self._loop.create_task(work)

        def over(task: asyncio.Task[None]) -> None:
            node.task, node.acknowledges = None, False
            if not task.cancelled() and task.exception() is not None:
                self.failure = self.failure or task.exception()  # type: ignore[assignment]  # not a BaseException alone
            self.wake()

        node.task.add_done_callback(over)

    async def _acknowledge_pending(self, node_id: int, node: _Node) -> None:
        taken = self.acknowledgements.take(node_id)
        if taken:
            node.acknowledges = True
            await self._acknowledge(node_id, node, taken)

    async def _fetch(self, node_id: int, node: _Node, wanted: set[TopicIdPartition], max_records: int) -> None:
        taken = self.acknowledgements.take(node_id)
        node.acknowledges = bool(taken)
        apart = {
            source: sent
            for source, sent in taken.items()
            if (source.topic_id, source.partition) not in wanted
            or node.session.is_new
            or AcknowledgeType.RENEW in sent.values()
        }
        if apart:
            await self._acknowledge(node_id, node, apart)
            taken = {source: sent for source, sent in taken.items() if source not in apart}
            if node.session.is_new and taken:
                # The broker rejects acknowledgements in the first request of a session, with the whole request.
                self._complete(taken, error_of(ErrorCode.SHARE_SESSION_NOT_FOUND, _SESSION_OVER))
                taken = {}
        request = self._fetch_request(node, wanted, taken, max_records)
        sent_at = self._loop.time()
        try:
            response = await self._cluster.request(
                node_id, request, ShareFetchResponse,
                timeout_ms=self._config["request_timeout_ms"] + self._config["fetch_max_wait_ms"],
            )  # fmt: skip
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
        except (KafkaError, ClientError) as error:
            self._complete(taken, error)
            self._failed(node_id, node, error)
            return
        node.session.fetched()
        self._measure(response, self._loop.time() - sent_at)
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
        answered: dict[Source, Exception | None] = {}
        names = self._cluster.metadata.names_by_id
        for topic in response.responses:
            for each in topic.partitions:
                source = Source(node_id, names.get(topic.topic_id, ""), topic.topic_id, each.partition_index)
                if each.acknowledge_error_code:
                    answered[source] = error_of(each.acknowledge_error_code, each.acknowledge_error_message)
                if each.error_code:
                    self._partition_failed(node, source, each)
                elif source.topic:
                    self._receive(source, each)
        for source, sent in taken.items():
            self._complete({source: sent}, answered.get(source))

    def _measure(self, response: ShareFetchResponse, latency_s: float) -> None:
        partitions = [each for topic in response.responses for each in topic.partitions]
        size = sum(len(each.records or b"") for each in partitions)
        acquired = sum(
            each.last_offset - each.first_offset + 1 for part in partitions for each in part.acquired_records
        )
        self._measures.consumer.fetched(latency_s, size, response.throttle_time_ms)
        self._measures.acquired(acquired, size)

    def _fetch_request(
        self, node: _Node, wanted: set[TopicIdPartition], taken: Taken, max_records: int
    ) -> ShareFetchRequest:
        plan = node.session.plan(wanted)
        topics: dict[bytes, dict[int, list[ShareFetchRequestAcknowledgementBatch]]] = {}
        for topic_id, partition in plan.added:
            topics.setdefault(topic_id, {})[partition] = []
        for source, sent in taken.items():
            topics.setdefault(source.topic_id, {})[source.partition] = [
                ShareFetchRequestAcknowledgementBatch(*each) for each in offset_ranges(sent)
            ]
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, partition in plan.forgotten:
            forgotten.setdefault(topic_id, []).append(partition)
        return ShareFetchRequest(
            group_id=self._config["group_id"],
            member_id=self._member_id,
            share_session_epoch=plan.epoch,
            max_wait_ms=self._config["fetch_max_wait_ms"],
            min_bytes=self._config["fetch_min_bytes"],
            max_bytes=self._config["fetch_max_bytes"],
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=_MODES[self._config["share_acquire_mode"]],
            topics=[
                ShareFetchRequestTopic(
                    topic_id, [ShareFetchRequestPartition(index, batches) for index, batches in partitions.items()]
                )
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=[ShareFetchRequestForgottenTopic(each, found) for each, found in forgotten.items()],
        )

    async def _acknowledge(self, node_id: int, node: _Node, taken: Taken, timeout_ms: float | None = None) -> None:
        if node.session.is_new:
            self._complete(taken, error_of(ErrorCode.SHARE_SESSION_NOT_FOUND, _SESSION_OVER))
            return
        renews = any(AcknowledgeType.RENEW in sent.values() for sent in taken.values())
        topics: dict[bytes, list[ShareAcknowledgeRequestPartition]] = {}
        for source, sent in taken.items():
            batches = [ShareAcknowledgeRequestAcknowledgementBatch(*each) for each in offset_ranges(sent)]
            topics.setdefault(source.topic_id, []).append(ShareAcknowledgeRequestPartition(source.partition, batches))
        request = ShareAcknowledgeRequest(
            group_id=self._config["group_id"],
            member_id=self._member_id,
            share_session_epoch=node.session.epoch,
            is_renew_ack=renews,
            topics=[ShareAcknowledgeRequestTopic(topic_id, each) for topic_id, each in topics.items()],
        )
        try:
            connection = await self._cluster.connections.get(node_id)
            if renews and connection.version_of(ShareAcknowledgeRequest) < _RENEW_SINCE:
                raise UnsupportedByBroker("the broker cannot renew records of share groups (KIP-1222)")
            response = await self._cluster.ask(connection, request, ShareAcknowledgeResponse, timeout_ms=timeout_ms)
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
        except UnsupportedByBroker as error:
            self._complete(taken, error)
            return
        except (KafkaError, ClientError) as error:
            self._complete(taken, error)
            self._failed(node_id, node, error)
            return
        if node.session.epoch != FINAL_EPOCH:
            node.session.acknowledged()
        errors = {
            (topic.topic_id, each.partition_index): error_of(each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
            if each.error_code
        }
        for source, sent in taken.items():
            self._complete({source: sent}, errors.get((source.topic_id, source.partition)))

    # --- answers ---

    def _receive(self, source: Source, answer: ShareFetchResponsePartition) -> None:
        if not answer.acquired_records:
            return
        found = read_acquired(
            source.topic_partition, memoryview(answer.records or b""), answer.acquired_records, self._reader
        )
        if found.gaps:
            self.acknowledgements.resolve(source, found.gaps, GAP)
        if found.corruption is not None:
            self.acknowledgements.resolve(source, found.corrupt, AcknowledgeType.REJECT)
            self.failure = self.failure or found.corruption
        deadline = self._loop.time() + (self.lock_timeout_ms or 30_000) / 1000
        self._buffer.extend(_Buffered(source, each, deadline) for each in found.records)

    def _partition_failed(self, node: _Node, source: Source, answer: ShareFetchResponsePartition) -> None:
        code, leader = answer.error_code, answer.current_leader
        if is_stale_metadata(code):
            if not source.topic or not self._cluster.metadata.update_leader(
                source.topic, source.partition, leader.leader_id, leader.leader_epoch
            ):
                self._cluster.want_metadata()
        elif not error_of(code).retriable:
            self.failure = self.failure or error_of(code, f"{source.topic_partition}: {answer.error_message or ''}")
        node.retry_at = self._loop.time() + self._cluster.options["retry_backoff_ms"] / 1000

    def _failed(self, node_id: int, node: _Node, error: Exception) -> None:
        """A request failed: its session is over, and the broker releases what it gave.

        Records in the program's hands stay there: the outcome of their acknowledgement says that they are lost.
        """
        node.session.reset()
        self._buffer = deque(each for each in self._buffer if each.source.node_id != node_id)
        self._complete(self.acknowledgements.take(node_id), error)
        node.retry_at = self._loop.time() + self._cluster.backoff(1)
        if isinstance(error, TransportError):
            self._cluster.want_metadata()
        code = getattr(error, "code", None)
        if code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            node.retry_at = 0.0
        elif not is_retriable(error):
            self.failure = self.failure or error
            self.wake()

    def _complete(self, taken: Taken, error: Exception | None) -> None:
        for source, sent in taken.items():
            self.acknowledgements.completed(source, sent, error)
            offsets = frozenset(offset for offset, kind in sent.items() if kind != GAP)
            if offsets:
                self._measures.acknowledged(len(offsets), failed=error is not None)
                self._acknowledged(source.topic_partition, offsets, error)
