"""Fetches what assigned partitions need, one long poll per broker at a time, ahead of the consumer's polls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.client.config import ConsumerOptions
from odradek.client.consumer.fetch_session import FINAL_EPOCH, FetchPlan, FetchSession, FetchTarget
from odradek.client.consumer.positions import Chunk, PartitionState
from odradek.client.errors import ClientError, TransportError
from odradek.client.metrics.measures import ConsumerMeasures
from odradek.client.model import READ_COMMITTED, READ_UNCOMMITTED, AbortedTransaction, OffsetAndMetadata, RawFetch
from odradek.client.network.cluster import Cluster, error_of, is_stale_metadata
from odradek.client.network.connection import Connection
from odradek.client.offsets import Positions
from odradek.records.errors import CorruptRecords
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from odradek.wire.primitives import ZERO_UUID

_TOPIC_IDS_FROM: Final = 13
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_RAW: Final = "raw"
_GLANCE_S: Final = 0.02
"""How often partitions without new records are fetched while others of their broker have more than is being read.

A fetch of the former alone would wait at the broker, and the others, read to their end meanwhile, could not be fetched.
"""


class _Node:
    __slots__ = ("connecting", "fetching", "glance_at", "session")

    def __init__(self) -> None:
        self.glance_at = 0.0
        self.session = FetchSession()
        self.fetching = False
        self.connecting: asyncio.Task[None] | None = None


class Fetcher:
    """Keeps the buffers of `states` filled. The owner changes `states` and calls `poke`."""

    __slots__ = (
        "_closed", "_cluster", "_config", "_isolation", "_loop", "_nodes", "_out_of_range", "_retry", "_retry_due",
        "_waiter",
        "failure", "measures", "states",
    )  # fmt: skip

    def __init__(self, cluster: Cluster, config: ConsumerOptions) -> None:
        self._cluster = cluster
        self._config = config
        self._isolation = READ_COMMITTED if config["isolation_level"] == "read_committed" else READ_UNCOMMITTED
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[int, _Node] = defaultdict(_Node)
        self._waiter: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_due = 0.0
        self._closed = False
        self._out_of_range: dict[TopicPartition, int] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.measures = ConsumerMeasures(cluster.windows)
        """What `Consumer.metrics` is computed from."""
        self.failure: Exception | None = None
        """The error that the next poll must raise."""

    @property
    def isolation_level(self) -> int:
        """READ_UNCOMMITTED or READ_COMMITTED."""
        return self._isolation

    def take_out_of_range(self) -> dict[TopicPartition, int]:
        """Offsets out of range since the last call; the partitions may have other positions by now."""
        taken, self._out_of_range = self._out_of_range, {}
        return taken

    def assign(self, states: dict[TopicPartition, PartitionState]) -> None:
        """Fetch exactly these partitions from now on."""
        self.states = states

    def forget_partitions(self) -> None:
        """Read none of the partitions any longer; an `async for` may stand in the middle of their records."""
        for state in self.states.values():
            state.drop()
        self.states.clear()

    def positions(self) -> Positions:
        """The known positions, except those in topics that were deleted and created again since."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        topic_ids: dict[str, bytes] = {}
        for key, state in self.states.items():
            now = self._cluster.metadata.topic_id(key.topic)
            if state.has_position and state.is_of(now):
                found[key] = OffsetAndMetadata(state.position, "", state.position_epoch)
                if topic_ids.get(key.topic, ZERO_UUID) == ZERO_UUID:
                    topic_ids[key.topic] = now if state.topic_id == ZERO_UUID else state.topic_id
        return Positions(found, topic_ids)

    async def wait(self, timeout_s: float) -> None:
        """Wait until records arrive, a fetch fails, or the time is over."""
        if self.failure is not None:
            return
        self._waiter = self._loop.create_future()
        begun = self._loop.time()
        handle = self._loop.call_later(max(0.0, timeout_s), self.wake_waiter)
        try:
            await self._waiter
        finally:
            handle.cancel()
            self._waiter = None
            self.measures.reads.idle += self._loop.time() - begun

    def wake_waiter(self) -> None:
        """End a `wait`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def poke(self) -> None:
        """Send a fetch to every leader of fetchable partitions that has no fetch in flight."""
        if self._closed:
            return
        now = self._loop.time()
        metadata = self._cluster.metadata
        wanted: dict[int, list[PartitionState]] = {}
        full: set[int] = set()
        earliest = float("inf")
        for state in self.states.values():
            if not state.may_fetch(now):
                if state.is_full:
                    full.add(self._replica_for(state, now))
                if state.retry_at > now:
                    earliest = min(earliest, state.retry_at)
                continue
            if not state.observe_topic(metadata.topic_id(state.key.topic)) or state.needs_validation(
                metadata.leader_epoch(*state.key)
            ):
                self.wake_waiter()  # the owner's next poll looks the position up, or asks the new leader
                continue
            node_id = self._replica_for(state, now)
            if node_id < 0:
                self._cluster.add_topic(state.key.topic)
                self._cluster.want_metadata()
                earliest = min(earliest, now + self._cluster.options["retry_backoff_ms"] / 1000)
                continue
            wanted.setdefault(node_id, []).append(state)
        for node_id, states in wanted.items():
            node = self._nodes[node_id]
            if node.fetching or node.connecting is not None:
                continue
            waits = node_id not in full or not all(state.is_at_end for state in states)
            if not waits and now < node.glance_at:
                earliest = min(earliest, node.glance_at)
                continue
            connection = self._cluster.connections.opened(node_id)
            if connection is None:
                node.connecting = self._loop.create_task(self._connect(node_id, node))
            elif connection.throttled_until > now:
                earliest = min(earliest, connection.throttled_until)
            else:
                node.glance_at = now + _GLANCE_S
                self._fetch(node_id, node, connection, states, self._config["fetch_max_wait_ms"] if waits else 0)
        if earliest < float("inf"):
            self._poke_at(earliest)
        if self._cluster.metadata_is_old(now) and metadata.version:
            self._cluster.want_metadata()

    async def close(self) -> None:
        """Stop fetching; answers in flight are ignored."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        tasks = [node.connecting for node in self._nodes.values() if node.connecting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.wake_waiter()

    async def fetch_raw(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int, min_bytes: int = 1
    ) -> RawFetch:
        """One request outside of any session; not retried. Raises KafkaError, ClientError."""
        cluster = self._cluster
        info = await cluster.leader(topic, partition)
        key = TopicPartition(topic, partition)
        target = FetchTarget(offset, max_bytes, info.leader_epoch, cluster.metadata.topic_id(topic))
        plan = FetchPlan(0, FINAL_EPOCH, {key: target}, [])
        with_ids = target.topic_id != ZERO_UUID
        request = self._request(plan)
        request.max_wait_ms, request.min_bytes, request.max_bytes = max_wait_ms, min_bytes, max_bytes
        try:
            response = await cluster.request(
                info.leader, request, FetchResponse, purpose=_RAW, at_most=0x7FFF if with_ids else _TOPIC_IDS_FROM - 1
            )
        except TransportError:
            cluster.want_metadata()
            raise
        if response.error_code:
            raise error_of(response.error_code, str(key))
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            if is_stale_metadata(answer.error_code):
                await cluster.refresh_metadata()
            raise error_of(answer.error_code, f"{key} at offset {offset}")
        aborted = [
            AbortedTransaction(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        ]
        return RawFetch(
            memoryview(answer.records or b""),
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            aborted,
        )

    # --- inside ---

    def _replica_for(self, state: PartitionState, now: float) -> int:
        """The follower that the leader named (KIP-392) while that holds, else the leader."""
        if state.preferred_replica >= 0:
            if state.preferred_until > now and state.preferred_replica in self._cluster.metadata.brokers:
                return state.preferred_replica
            state.preferred_replica = -1
        return self._cluster.metadata.leader(*state.key)

    def _poke_at(self, when: float) -> None:
        if self._retry is not None:
            # A uvloop handle that is already due does not report its time.
            if self._retry_due <= when and not self._retry.cancelled():
                return
            self._retry.cancel()

        def again() -> None:
            self._retry = None
            self.poke()

        self._retry_due = when
        self._retry = self._loop.call_at(when, again)

    async def _connect(self, node_id: int, node: _Node) -> None:
        try:
            await self._cluster.connections.get(node_id)
        except TransportError:
            await self._cluster.pause_after_failed_connection(node_id)
        except ClientError as error:
            self._fail(error)
            return
        finally:
            node.connecting = None
        self.poke()

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
        self.wake_waiter()

    def _fetch(
        self, node_id: int, node: _Node, connection: Connection, states: Sequence[PartitionState], max_wait_ms: int
    ) -> None:
        metadata = self._cluster.metadata
        targets = {
            state.key: FetchTarget(
                state.fetch_offset,
                self._config["max_partition_fetch_bytes"],
                metadata.leader_epoch(*state.key),
                metadata.topic_id(state.key.topic),
            )
            for state in states
        }
        with_ids = all(each.topic_id != ZERO_UUID for each in targets.values())
        try:
            version = connection.version_of(FetchRequest, 0x7FFF if with_ids else _TOPIC_IDS_FROM - 1)
            plan = node.session.plan(targets, with_ids=version >= _TOPIC_IDS_FROM)

            sent_at = self._loop.time()

            def answered(result: FetchResponse | ClientError) -> None:
                node.fetching = False
                if not isinstance(result, ClientError):
                    size = sum(len(each.records or b"") for topic in result.responses for each in topic.partitions)
                    self.measures.fetched(self._loop.time() - sent_at, size, result.throttle_time_ms)
                self._answered(node_id, node, targets, result)

            node.fetching = True
            timeout_ms = self._config["request_timeout_ms"] + self._config["fetch_max_wait_ms"]
            request = self._request(plan)
            request.max_wait_ms = max_wait_ms
            connection.send(request, FetchResponse, version, timeout_ms, answered)
        except ClientError as error:
            node.fetching = False
            if isinstance(error, TransportError):
                self._poke_at(self._loop.time() + self._cluster.options["reconnect_backoff_ms"] / 1000)
            else:
                self._fail(error)

    def _request(self, plan: FetchPlan) -> FetchRequest:
        topics: dict[str, FetchRequestTopic] = {}
        for (name, partition), target in plan.targets.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchRequestTopic(name, target.topic_id, [])
            topic.partitions.append(
                FetchRequestPartition(
                    partition, target.leader_epoch, target.offset, partition_max_bytes=target.max_bytes
                )
            )
        forgotten: dict[tuple[str, bytes], FetchRequestForgottenTopic] = {}
        for (name, partition), topic_id in plan.forgotten:
            each = forgotten.get((name, topic_id))
            if each is None:
                each = forgotten[name, topic_id] = FetchRequestForgottenTopic(name, topic_id, [])
            each.partitions.append(partition)
        return FetchRequest(
            max_wait_ms=self._config["fetch_max_wait_ms"],
            min_bytes=self._config["fetch_min_bytes"],
            max_bytes=self._config["fetch_max_bytes"],
            isolation_level=self._isolation,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
            rack_id=self._config["client_rack"],
        )

    def _answered(
        self,
        node_id: int,
        node: _Node,
        targets: Mapping[TopicPartition, FetchTarget],
        result: FetchResponse | ClientError,
    ) -> None:
        if self._closed:
            return
        if isinstance(result, ClientError):
            node.session.failed(unknown_session=False)
            self._cluster.want_metadata()
            self._poke_at(self._loop.time() + self._cluster.options["reconnect_backoff_ms"] / 1000)
            return
        if result.error_code:
            node.session.failed(unknown_session=result.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if result.error_code not in _SESSION_LOST:
                self._cluster.want_metadata()
                if not error_of(result.error_code).retriable:
                    self._fail(error_of(result.error_code, f"fetch from broker {node_id}"))
            self._poke_at(self._loop.time() + self._cluster.options["retry_backoff_ms"] / 1000)
            return
        node.session.answered(result.session_id)
        names = self._cluster.metadata.names_by_id
        for topic in result.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            size = sum(len(each.records or b"") for each in topic.partitions)
            if size:
                self.measures.of_topic(name).fetched(size)
            for answer in topic.partitions:
                key = TopicPartition(name, answer.partition_index)
                state, target = self.states.get(key), targets.get(key)
                # After a seek or a new assignment, the answer is obsolete.
                if (
                    state is not None
                    and target is not None
                    and state.has_position
                    and state.fetch_offset == target.offset
                ):
                    self._take(node_id, state, answer)
        self.wake_waiter()
        self.poke()

    def _take(self, node_id: int, state: PartitionState, answer: FetchResponsePartition) -> None:
        now = self._loop.time()
        code = answer.error_code
        if not code:
            state.high_watermark = answer.high_watermark
            state.last_stable_offset = answer.last_stable_offset
            state.log_start_offset = answer.log_start_offset
            if answer.preferred_read_replica >= 0:
                state.preferred_replica = answer.preferred_read_replica
                state.preferred_until = now + self._cluster.options["metadata_max_age_ms"] / 1000
            if answer.records:
                self._buffer(state, answer)
            return
        state.preferred_replica = -1
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if node_id == self._cluster.metadata.leader(*state.key):
                self._out_of_range[state.key] = state.fetch_offset
            # A follower may only lag behind; the leader is asked next.
        elif is_stale_metadata(code):
            leader = answer.current_leader
            if not self._cluster.metadata.update_leader(*state.key, leader.leader_id, leader.leader_epoch):
                self._cluster.want_metadata()
        elif not error_of(code).retriable:
            self._fail(error_of(code, f"fetch of {state.key} at offset {state.fetch_offset}"))
        state.retry_at = now + self._cluster.options["retry_backoff_ms"] / 1000

    def _buffer(self, state: PartitionState, answer: FetchResponsePartition) -> None:
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = [
                AbortedTransaction(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
            ]
        try:
            chunk = Chunk(memoryview(answer.records or b""), aborted, state.fetch_offset)
        except CorruptRecords as error:
            self._fail(KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{state.key}: {error}"))
            state.retry_at = self._loop.time() + self._cluster.options["retry_backoff_ms"] / 1000
            return
        if chunk:
            self.measures.lagged(state.high_watermark - state.fetch_offset)
            state.reads = self.measures.of_topic(state.key.topic)
            state.chunks.append(chunk)
            state.fetch_offset = chunk.next_offset
