"""The consumer: assigned partitions or a group, read with `async for` or in lists with `poll`.

One task at a time reads. Heartbeats and fetches run beside it on the same loop. Keys and values are bytes unless
deserializers convert them: `Consumer[str, Order]` returns `ConsumerRecord[str, Order]`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack

from odradek.client.arguments import (
    check_consumer_interceptors,
    check_listener,
    check_ports,
    check_topics,
    keywords,
)
from odradek.client.config import ConsumerOptions, resolve_consumer
from odradek.client.consumer.avro_columns import AvroValues, UnknownSchemaId
from odradek.client.consumer.columns import ROWS_AT_ONCE, ColumnReader, concatenated
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.positions import PartitionState, RecordReader
from odradek.client.consumer.record_batches import RecordBatch, take_batch
from odradek.client.consumer.resets import OffsetReset, PositionLookUp, reset_out_of_range
from odradek.client.consumer.turns import Turns
from odradek.client.consumer.without_group import EveryPartition
from odradek.client.errors import (
    CallTimedOut,
    ClientClosed,
    ClientError,
    IllegalState,
)
from odradek.client.group.consumer_group_driver import ConsumerGroupDriver
from odradek.client.group.group_consumer import GroupDriver
from odradek.client.group.rebalance_listener import AnyListener, RebalanceListener
from odradek.client.interceptors import ConsumerInterceptor
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.metrics.push import MetricsPush, instance_id
from odradek.client.model import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    GroupMembershipOperation,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawFetch,
)
from odradek.client.network.cluster import Cluster
from odradek.client.network.connections import retrieve_failure
from odradek.client.network.metadata import PartitionInfo
from odradek.client.offsets import Member, Positions, fetch_committed, list_offsets
from odradek.client.serializers import Deserializer, with_topic
from odradek.client.surroundings import surroundings
from odradek.client.topic_names import check_topic_name
from odradek.client.type_parameters import Key_co, Value_co
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "RebalanceListener"]

logger = logging.getLogger(__name__)

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], None]
"""(offsets, what the commit failed with or None)."""

_IDLE_S: Final = 1.0
_TURN_S: Final = 0.002
"""How long `batches` returns what was fetched before it lets the loop turn, unless it has read an answer to its end."""


class Consumer(Generic[Key_co, Value_co]):
    """A consumer for one task of one event loop, `Consumer[KeyType, ValueType]`.

    Not for use by several tasks or threads at once; `commit` and position look-ups may run beside a poll.

    Example:

        consumer = Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="readers", enable_auto_commit=False)
        async with consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.value)
                await consumer.commit()
    """

    __slots__ = (
        "_closed", "_closing", "_cluster", "_commits", "_config", "_every", "_fetcher", "_group", "_interceptors",
        "_listener", "_network", "_pattern", "_positions", "_push", "_random", "_reader", "_reset", "_topics", "_turns",
    )  # fmt: skip

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[Key_co] | None = None,
        value_deserializer: Deserializer[Value_co] | None = None,
        listener: AnyListener | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        network: Network | None = None,
        random: Random | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Subscribe to the topics. Options are Kafka's with underscores for dots (`ConsumerOptions`).

        Deserializers take (bytes) or (topic, bytes). `network` and `random` replace sockets and chance in tests.
        Raises ConfigError, and KafkaError (INVALID_TOPIC_EXCEPTION).
        """
        self._config = resolve_consumer(options)
        check_listener(listener)
        check_consumer_interceptors(interceptors)
        check_ports(network=network, random=random)
        self._interceptors = interceptors
        self._reader = RecordReader(
            check_crcs=self._config["check_crcs"],
            key_deserializer=with_topic("key_deserializer", key_deserializer),
            value_deserializer=with_topic("value_deserializer", value_deserializer),
            interceptors=interceptors,
        )
        self._reset = OffsetReset(self._config["auto_offset_reset"], surroundings().clock)
        self._listener = listener
        self._network = network
        self._random = random
        self._topics: set[str] = check_topics(topics)
        self._pattern: re.Pattern[str] | None = None
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None
        self._push: MetricsPush | None = None
        self._group: GroupDriver | ConsumerGroupDriver | None = None
        self._every: EveryPartition | None = None
        self._positions: PositionLookUp | None = None
        self._commits: asyncio.Task[None] | None = None
        self._turns = Turns()
        self._closed = False
        self._closing: asyncio.Task[Any] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *topics: str, **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names; `arguments` are the constructor's others. Raises ConfigError."""
        return cls(*topics, **keywords(config, arguments))

    async def start(self) -> None:
        """Prepare for reading, without a connection: the first call that needs a broker makes one."""
        if self._cluster is not None:
            return
        if self._closed:
            raise ClientClosed("the consumer was closed")
        config = self._config
        cluster = self._cluster = Cluster(
            config,
            network=self._network,
            random=self._random,
            allow_auto_create_topics=config["allow_auto_create_topics"],
        )
        self._fetcher = Fetcher(cluster, config)
        self._every = EveryPartition(cluster, self._fetcher, exclude_internal=config["exclude_internal_topics"])
        self._positions = PositionLookUp(cluster, self._fetcher, config["group_id"], self._reset)
        if config["group_id"] is not None:
            driver = ConsumerGroupDriver if config["group_protocol"] == "consumer" else GroupDriver
            self._group = driver(cluster, config, self._fetcher, self._committed)
        if config["enable_metrics_push"]:
            self._push = MetricsPush(cluster, self._measured, self._labels)
        if self._topics:
            self.subscribe(self._topics, listener=self._listener)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(
        self,
        *,
        timeout_ms: float | None = None,
        membership: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit (with enable_auto_commit), leave the group or remain in it (KIP-1092), close the connections.

        The listener's `on_partitions_revoked` is called before, and may still commit. After `timeout_ms` the
        connections are closed although the group was not left: it removes this member when its session ends.
        """
        operation = GroupMembershipOperation(membership)
        if self._closed:
            return
        self._closed, self._closing = True, asyncio.current_task()
        if self._cluster is None or self._fetcher is None:
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._leave(operation)
        except TimeoutError as error:
            if isinstance(error, ClientError):
                raise
            logger.warning(
                "consumer of group %s is closed before it has left: not done within %g ms; its session ends later",
                self._config["group_id"], timeout_ms, extra={"client_id": self._config["client_id"]},
            )  # fmt: skip
        finally:
            self._closing = None
            for state in self._fetcher.states.values():
                state.drop()
            await self._fetcher.close()
            await self._cluster.close()

    async def _leave(self, operation: GroupMembershipOperation) -> None:
        if self._commits is not None:
            await asyncio.gather(self._commits, return_exceptions=True)
        if self._every is not None:
            await self._every.close()
        if self._positions is not None:
            await self._positions.close()
        if self._group is not None:
            await self._group.close(operation)
        if self._push is not None:
            await self._push.close()

    @property
    def cluster(self) -> Cluster:
        """Connections and metadata. Raises IllegalState before `start`."""
        if self._cluster is None:
            raise IllegalState("the consumer is not started: use it in `async with`, or call start()")
        return self._cluster

    @property
    def config(self) -> ConsumerOptions:
        """All options as resolved."""
        return self._config

    def metrics(self) -> Metrics:
        """What the consumer has measured, under Java's names. Raises IllegalState before `start`, ClientClosed."""
        self._started()
        return self._measured()

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Push an application's own metrics, too, where brokers ask for them (KIP-1076).

        `source` is called on this client's event loop before each push. Raises IllegalState, ClientClosed.
        """
        self._started()
        if self._push is not None:
            self._push.add_source(source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """End what `register_metrics` began; without effect for an unknown source."""
        if self._push is not None:
            self._push.remove_source(source)

    async def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """The id that brokers gave this client (KIP-714), as Kafka writes ids. Raises IllegalState, CallTimedOut."""
        self._started()[1].check_loop()
        return await instance_id(self._push, timeout_ms)

    def _measured(self) -> Metrics:
        from odradek.client.metrics.compute import consumer_metrics

        fetcher, cluster = self._fetcher, self._cluster
        assert fetcher is not None
        assert cluster is not None
        return consumer_metrics(
            cluster,
            fetcher.measures,
            fetcher.states.values(),
            committed_only=self._config["isolation_level"] == "read_committed",
            grouped=self._group is not None,
        )

    def _labels(self) -> dict[str, str]:
        """What describes this consumer where its metrics are pushed."""
        config = self._config
        labels = {
            "client_rack": config["client_rack"],
            "group_id": config["group_id"] or "",
            "group_instance_id": config["group_instance_id"] or "",
            "group_member_id": "" if self._group is None else self._group.member.member_id,
        }
        return {name: text for name, text in labels.items() if text}

    # --- what to read ---

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: AnyListener | None = None,
    ) -> None:
        """Read these topics, or those whose complete name matches the pattern; the group shares their partitions.

        Without a group_id all partitions are read. Replaces the previous subscription or assignment. Raises TypeError,
        ValueError, KafkaError (INVALID_TOPIC_EXCEPTION).
        """
        fetcher, cluster = self._started()
        if isinstance(topics, str):
            raise TypeError(f"topics: expected a list of names, got the str {topics!r}")
        names = {check_topic_name(each) for each in topics}
        if names and pattern is not None:
            raise ValueError("subscribe takes topics or a pattern, not both")
        self._topics = names
        self._pattern = re.compile(pattern) if isinstance(pattern, str) else pattern
        self._listener = listener or self._listener
        if self._group is None:
            fetcher.forget_partitions()
        else:
            self._group.subscribe(self._topics, self._pattern, self._listener)
        is_new = cluster.follow_topics(None if self._pattern is not None else self._topics)
        if is_new and cluster.metadata.version:
            # Otherwise the first poll asks.
            cluster.want_new_topics()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them; partitions that stay keep their positions.

        Raises KafkaError (INVALID_TOPIC_EXCEPTION), IllegalState, ClientClosed.
        """
        fetcher, cluster = self._started()
        wanted = [TopicPartition(*each) for each in partitions]
        for name in {each.topic for each in wanted}:
            check_topic_name(name)
        self._topics, self._pattern = set(), None
        if self._group is not None:
            self._group.unsubscribe()
        before = fetcher.states
        fetcher.assign({key: before.get(key) or PartitionState(key) for key in wanted})
        for key, state in before.items():
            if key not in fetcher.states:
                state.drop()  # an `async for` may stand in the middle of its records
        cluster.follow_topics({key.topic for key in wanted})
        fetcher.wake_waiter()

    def unsubscribe(self) -> None:
        """End the subscription or assignment; the next poll leaves the group, later ones raise IllegalState."""
        self.assign(())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._with_group()[0].states)

    def subscription(self) -> set[str]:
        """The topics subscribed to by name."""
        return set(self._topics)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`. Raises IllegalState if one is not assigned."""
        for state in self._states(partitions):
            state.pause = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End the pause of these partitions. Raises IllegalState if one is not assigned."""
        for state in self._states(partitions):
            state.pause = False
        self._started()[0].wake_waiter()

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        return {key for key, state in self._started()[0].states.items() if state.pause}

    # --- reading ---

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ConsumerRecord[Key_co, Value_co]]:
        """Buffered records, at most max_records (default max_poll_records), or the first that arrive in timeout_ms.

        Raises IllegalState without a subscription or assignment, KafkaError, NoOffsetForPartition, OffsetOutOfRange,
        DeserializationError, CorruptRecords, ClientError.
        """
        fetcher, _ = self._started()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        limit = max_records or self._config["max_poll_records"]
        while True:
            wait_s = await self._prepare(deadline)
            records = self._turns.take(fetcher.states, limit, self._reader)
            fetcher.poke()
            if records:
                return records
            left = deadline - loop.time()
            if left <= 0:
                # A poll that never waits must still let the loop turn, or no answer would ever arrive.
                await asyncio.sleep(0)
                return []
            await fetcher.wait(min(left, wait_s))

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[Key_co, Value_co]]:
        """Records as they arrive, without end; breaking out of the loop loses none. Raises as `poll`."""
        fetcher, _ = self._started()
        loop = asyncio.get_running_loop()
        while not self._closed:
            wait_s = await self._prepare(loop.time() + _IDLE_S)
            busy = False
            for key, state in list(fetcher.states.items()):
                if state.pause or not state.has_records or not state.has_position:
                    continue
                for record in state.each(self._reader):
                    busy = True
                    yield record
                # Between batches, heartbeats, rebalances and other partitions get their turn.
                if fetcher.states.get(key) is not state:
                    break
            fetcher.poke()
            if busy:
                await asyncio.sleep(0)
            else:
                await fetcher.wait(wait_s)

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """Fetched batches, without end: what producers sent together, decoded only where the program looks at it.

        The position is behind a batch while it is in use. Deserializers and interceptors are not called. Raises as
        `poll`.
        """
        fetcher, _ = self._started()
        loop = asyncio.get_running_loop()
        while not self._closed:
            begun = loop.time()
            wait_s = await self._prepare(begun + _IDLE_S)
            busy = False
            for key, state in list(fetcher.states.items()):
                while not state.pause and state.has_position and fetcher.states.get(key) is state:
                    answers = len(state.chunks)
                    batch = take_batch(state, check_crcs=self._config["check_crcs"])
                    if batch is None:
                        break
                    busy = True
                    yield batch
                    if len(state.chunks) < answers or loop.time() - begun > _TURN_S:
                        break  # others get their turn, and the next fetch is sent
            fetcher.poke()
            if busy:
                await asyncio.sleep(0)
            else:
                await fetcher.wait(wait_s)

    async def arrow(
        self,
        batch_rows: int = ROWS_AT_ONCE,
        *,
        include_headers: bool = False,
        values: pa.Schema | AvroValues | None = None,
    ) -> AsyncGenerator[pa.Table, None]:
        """Records as Arrow tables, without end: topic, partition, key, value, offset, timestamp, perhaps headers.

        A table has what was fetched meanwhile, up to the answer with which it has `batch_rows` rows. `values` is the
        schema of values in JSON, which become structs, or an `AvroValues`. Deserializers and interceptors are not
        called. The positions are behind a table while it is in use. Raises as `poll`, and ValueError for values that do
        not fit the schema.

        Example:

            async for table in consumer.arrow(values=pa.schema([("article", pa.string()), ("count", pa.int64())])):
                print(table.column("value").to_pylist())
        """
        fetcher, _ = self._started()
        loop = asyncio.get_running_loop()
        reader = ColumnReader(check_crcs=self._config["check_crcs"], include_headers=include_headers, values=values)
        while not self._closed:
            wait_s = await self._prepare(loop.time() + _IDLE_S)
            try:
                tables = self._turns.take_tables(fetcher.states, batch_rows, reader)
            except UnknownSchemaId as unknown:
                assert isinstance(values, AvroValues)
                await asyncio.to_thread(values.look_up, unknown)
                continue
            fetcher.poke()
            if tables:
                yield tables[0] if len(tables) == 1 else concatenated(tables)
                await asyncio.sleep(0)
            else:
                await fetcher.wait(wait_s)

    async def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = 1_048_576,
        *,
        max_wait_ms: int = 500,
        timeout_ms: float | None = None,
    ) -> RawFetch:
        """Record batches as the log stores them, of any partition; empty if none arrive within max_wait_ms.

        The first batch may begin before the offset, and is complete even if it is larger than max_bytes. Batches stay
        compressed, CRCs unchecked. With read_committed they end at the last stable offset, and `aborted` lists the
        producers whose batches the caller must skip. Raises KafkaError, CallTimedOut.
        """
        fetcher, cluster = self._started()
        return await cluster.retrying(
            lambda: fetcher.fetch_raw(topic, partition, offset, max_bytes, max_wait_ms),
            f"fetch of {topic}-{partition}",
            timeout_ms,
        )

    # --- positions ---

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at an offset. Raises IllegalState unless the partition is assigned, ValueError."""
        at = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if at.offset < 0:
            raise ValueError(f"offset {at.offset} is negative")
        for state in self._states([partition]):
            state.seek(at.offset, at.leader_epoch)
            if at.leader_epoch >= 0:
                # The position may be one that the leader's log has lost.
                state.validated_epoch = -1

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the first offset of these partitions (by default of all that are assigned)."""
        for state in self._states(partitions or self.assignment()):
            state.want_reset(EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the end: read only records that are appended from now on."""
        for state in self._states(partitions or self.assignment()):
            state.want_reset(LATEST)

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record to return. Raises IllegalState, CallTimedOut, NoOffsetForPartition."""
        state = self._states([partition])[0]
        assert self._positions is not None
        wait_ms = self._config["default_api_timeout_ms"] if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not state.has_position:
                    await self._positions.wait_for_change()
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(f"position of {partition}: not known within {wait_ms:g} ms") from None
        return state.position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The known positions of the assigned partitions, as `commit` commits them.

        Committed as they are, they do not count in a topic that is created later with the name of a deleted one.
        """
        return self._with_group()[0].positions()

    def high_watermark(self, partition: TopicPartition) -> int:
        """The partition's high watermark in the last answer, -1 before the first."""
        return self._states([partition])[0].high_watermark

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end that this isolation level reads; None before the first fetch."""
        state = self._states([partition])[0]
        end = state.last_stable_offset if self._config["isolation_level"] == "read_committed" else state.high_watermark
        return max(0, end - state.position) if end >= 0 and state.has_position else None

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are omitted. Raises IllegalState without a group."""
        group_id, fetcher = self._group_id(), self._with_group()[0]
        with fetcher.measures.timing("asking_committed", self.cluster.loop.time):
            return await fetch_committed(self.cluster, group_id, partitions)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit these offsets, or the positions of all assigned partitions, after what `commit_async` has begun.

        Raises CommitFailed when the group has rebalanced without this member, KafkaError, CallTimedOut, IllegalState.
        """
        self._group_id()
        assert self._group is not None
        fetcher, cluster = self._with_group()
        with fetcher.measures.timing("committing", cluster.loop.time):
            if self._commits is not None:
                # A retry of an earlier commit must not undo this one.
                await asyncio.wait({self._commits})
            await self._group.commit(None if offsets is None else _complete(offsets))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> asyncio.Task[None]:
        """Commit these offsets, or the positions of this moment, without waiting; await the task, or pass a callback.

        Commits reach the coordinator in the order of the calls; `close` waits for them. A failure is raised where the
        task is awaited, passed to the callback, and logged where there is no callback. Raises IllegalState.
        """
        self._group_id()
        self._started()
        assert self._group is not None
        given = _complete(offsets) if offsets is not None else self.positions()
        previous, group, member = self._commits, self._group, self._group.member

        async def commit() -> None:
            failure: Exception | None = None
            try:
                if previous is not None:
                    await asyncio.wait({previous})
                await group.commit(given, member)
            except (KafkaError, ClientError) as error:
                failure = error
                if callback is None:
                    logger.warning("cannot commit offsets of group %s: %s", self._config["group_id"], error)
                raise
            finally:
                if callback is not None:
                    callback(given, failure)

        self._commits = asyncio.get_running_loop().create_task(commit())
        self._commits.add_done_callback(retrieve_failure)
        return self._commits

    def group_metadata(self) -> Member:
        """The membership of this consumer, for `TransactionalProducer.send_offsets` (KIP-447). Raises IllegalState."""
        self._group_id()
        self._with_group()
        assert self._group is not None
        return self._group.member

    def enforce_rebalance(self, reason: str = "") -> None:
        """Rejoin the group with the next poll; the coordinator logs the reason (KIP-568, KIP-800).

        It then rebalances if this member is the group's leader, or an assignor changed this member's user data. Raises
        IllegalState without a group or subscription, and with group_protocol=consumer: the coordinator assigns there.
        """
        self._group_id()
        self._started()
        assert self._group is not None
        if not self._group.active:
            raise IllegalState("the consumer is not in its group: it has no subscription")
        self._group.enforce_rebalance(reason)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """First offsets of partitions, assigned or not. Raises KafkaError, CallTimedOut."""
        found = await list_offsets(self.cluster, dict.fromkeys(partitions, EARLIEST))
        return {key: at.offset for key, at in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets after the last record that this isolation level can read. Raises KafkaError, CallTimedOut."""
        fetcher, cluster = self._started()
        wanted = dict.fromkeys(partitions, LATEST)
        found = await list_offsets(cluster, wanted, isolation_level=fetcher.isolation_level)
        return {key: at.offset for key, at in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms since the epoch), or None. Raises KafkaError, CallTimedOut."""
        fetcher, cluster = self._started()
        found = await list_offsets(cluster, timestamps, isolation_level=fetcher.isolation_level)
        return {key: at if at.offset >= 0 else None for key, at in found.items()}

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions. Raises KafkaError, CallTimedOut."""
        return (await self.cluster.topic(topic)).partitions

    # --- inside ---

    def _started(self) -> tuple[Fetcher, Cluster]:
        if self._closed:
            raise ClientClosed("the consumer was closed")
        return self._with_group()

    def _with_group(self) -> tuple[Fetcher, Cluster]:
        """As `_started`, and in the task that closes the consumer also until it has left its group: for listeners."""
        if self._closed and (self._closing is None or asyncio.current_task() is not self._closing):
            raise ClientClosed("the consumer was closed")
        if self._fetcher is None or self._cluster is None:
            raise IllegalState("the consumer is not started: use it in `async with`, or call start()")
        return self._fetcher, self._cluster

    def _group_id(self) -> str:
        group_id = self._config["group_id"]
        if group_id is None:
            raise IllegalState("the consumer has no group_id")
        return group_id

    def _states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        states = self._with_group()[0].states
        found = []
        for key in partitions:
            state = states.get(TopicPartition(*key))
            if state is None:
                raise IllegalState(f"{TopicPartition(*key)} is not assigned")
            found.append(state)
        return found

    def _committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._interceptors:
            on_commit = getattr(each, "on_commit", None)
            if on_commit is not None:
                try:
                    on_commit(offsets)
                except Exception:  # the user's code: the commit has succeeded without it
                    logger.exception("interceptor %r failed on a commit of group %s", each, self._config["group_id"])

    async def _prepare(self, deadline: float) -> float:
        """Attend to membership, positions and failures; return the seconds until they may need attention again."""
        fetcher, cluster = self._started()
        cluster.check_loop()
        fetcher.measures.polled(cluster.loop.time())
        if fetcher.failure is not None:
            failure, fetcher.failure = fetcher.failure, None
            raise failure
        wait_s = _IDLE_S
        if self._group is not None and (self._group.active or self._group.is_member):
            wait_s = min(wait_s, await self._group.drive(deadline))
        elif self._group is None and (self._topics or self._pattern is not None):
            assert self._every is not None
            await self._every.assign(self._pattern or self._topics, deadline)
        elif not fetcher.states:
            raise IllegalState(
                "the consumer has no subscription and no assigned partitions: pass topics to Consumer(...), or call "
                "subscribe() or assign()"
            )
        cluster.check_topics(self._topics)
        reset_out_of_range(fetcher, self._reset)
        assert self._positions is not None
        self._positions.attend()
        return wait_s


def _complete(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    if isinstance(offsets, Positions):
        return offsets
    return {k: OffsetAndMetadata(v) if isinstance(v, int) else v for k, v in offsets.items()}
