"""The producer: `await producer.send(topic, value)` per record, batches underneath."""

from __future__ import annotations

import asyncio
import logging
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import index as whole_number
from types import TracebackType
from typing import Any, Final, Generic, Self, SupportsIndex, TypeVar, Unpack

from odradek.client.arguments import check_partitioner, check_ports, check_producer_interceptors, keywords
from odradek.client.config import ProducerOptions, resolve_producer
from odradek.client.consumer.columns import Columns, to_table
from odradek.client.errors import BufferExhausted, CallTimedOut, ClientClosed, IllegalState
from odradek.client.interceptors import ProducerInterceptor
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.metrics.push import MetricsPush, instance_id
from odradek.client.model import RecordMetadata
from odradek.client.network.cluster import Cluster, error_of
from odradek.client.network.metadata import MetadataCache, PartitionInfo, TopicInfo
from odradek.client.producer.accumulator import (
    KEYED_OVERHEAD,
    PLAIN_BYTES,
    PLAIN_OVERHEAD,
    PRESENT_MS,
    Accumulator,
    Batch,
    Delivery,
    OnDelivery,
    record_size,
)
from odradek.client.producer.partitioners import DefaultPartitioner, Partitioner
from odradek.client.producer.sender import Sender
from odradek.client.producer.sequences import Sequences
from odradek.client.serializers import Serializer, describe, with_topic
from odradek.client.surroundings import surroundings
from odradek.client.topic_names import check_topic_name
from odradek.client.type_parameters import Key_contra, Value_contra
from odradek.ports.clock import Clock
from odradek.ports.memory import keep_freed_memory
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.batch import parse_header, verify_crc
from odradek.records.compression import CODEC_NAMES
from odradek.records.headers import Headers, LazyHeaders
from odradek.records.section import encode_headers, encode_usual_headers
from odradek.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

T = TypeVar("T")
RecordHeaders = Headers | Mapping[str, bytes | None]
"""Headers of a record: pairs in order, whose names may repeat, or a mapping."""

_TURN_RECORDS: Final = 512
"""Records after which `send` lets the loop turn: the loop is what sends them. A batch that is closed counts as 128."""
_LATEST_MS: Final = (1 << 63) - 1
_KEPT_BYTES: Final = 1 << 22
"""Batches and requests are made and freed all the time: a few requests of `max_request_size` are kept as memory."""


class Producer(Generic[Key_contra, Value_contra]):
    """A producer for many tasks of one event loop, `Producer[KeyType, ValueType]`.

    Idempotent by default: retries neither duplicate nor reorder records. Keys and values are bytes unless serializers
    convert them: `Producer[str, Order]` accepts str and Order.

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092", compression_type="zstd") as producer:
            for number in range(1000):
                await producer.send("orders", b"order %d" % number)  # waits only for metadata and for buffer memory
            place = await producer.send_and_wait("orders", b"tea", key=b"anna")  # waits for its acknowledgement
            print(place.partition, place.offset)
            await producer.flush()  # waits for all; raises if one was lost that was not awaited
    """

    __slots__ = (
        "_accumulator", "_appended", "_clock", "_closed", "_cluster", "_config", "_interceptors", "_key_serializer",
        "_lost", "_metadata", "_network", "_now_ms", "_partition", "_partitioner", "_parts", "_plain_record", "_push",
        "_random", "_sender",
        "_since_turn", "_small_record", "_sticking", "_sticking_version", "_sticks", "_transforms", "_value_serializer",
    )  # fmt: skip

    def __init__(
        self,
        *,
        key_serializer: Serializer[Key_contra] | None = None,
        value_serializer: Serializer[Value_contra] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        network: Network | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Options are Kafka's with underscores for dots (`ProducerOptions`).

        Serializers take (object) or (topic, object). `network`, `random` and `clock` replace sockets, chance and time
        in tests. Raises ConfigError.
        """
        self._config = resolve_producer(options)
        check_partitioner(partitioner)
        check_producer_interceptors(interceptors)
        check_ports(network=network, random=random, clock=clock)
        self._key_serializer = with_topic("key_serializer", key_serializer)
        self._value_serializer = with_topic("value_serializer", value_serializer)
        self._small_record = self._config["max_request_size"] - 1024
        self._plain_record = min(self._small_record, PLAIN_BYTES)
        self._partitioner = partitioner
        self._interceptors = interceptors
        self._transforms = bool(interceptors) or key_serializer is not None or value_serializer is not None
        self._network = network
        self._random = random
        self._clock: Clock = clock or surroundings().clock
        self._now_ms = self._clock.now_ms
        # By topic, the batch that records without a key fill; chosen with this version of the metadata.
        self._sticking: dict[str, Batch] = {}
        self._sticking_version = -1
        self._sticks = False
        self._metadata = MetadataCache()
        self._cluster: Cluster | None = None
        self._appended: Callable[[str, int, int, bool], None] | None = None
        self._partition: Callable[[str, Any, int, Sequence[int]], int] | None = None
        self._accumulator: Accumulator | None = None
        # The three that every record needs, while the producer can be used.
        self._parts: tuple[Cluster, Accumulator, Sender] | None = None
        self._sender: Sender | None = None
        self._push: MetricsPush | None = None
        self._closed = False
        self._lost: Exception | None = None
        self._since_turn = 0

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names; `arguments` are the constructor's others. Raises ConfigError."""
        return cls(**keywords(config, arguments))

    async def start(self) -> None:
        """Prepare for sending, without a connection: the first record makes one."""
        if self._cluster is not None:
            return
        if self._closed:
            raise ClientClosed("the producer was closed")
        config = self._config
        keep_freed_memory(_KEPT_BYTES)
        cluster = self._cluster = Cluster(config, network=self._network, random=self._random)
        self._accumulator = Accumulator(
            config["batch_size"],
            config["buffer_memory"],
            CODEC_NAMES[config["compression_type"]],
            config["compression_level"],
            transactional=config["transactional_id"] is not None,
        )
        sequences = None
        if config["enable_idempotence"]:
            sequences = Sequences(transactional=config["transactional_id"] is not None)
        self._sender = Sender(cluster, self._accumulator, config, self._acknowledged, sequences)
        if self._partitioner is None:
            is_adaptive = config["partitioner_adaptive_partitioning_enable"]
            avoids_stuck = is_adaptive and config["partitioner_availability_timeout_ms"] > 0
            self._partitioner = DefaultPartitioner(
                cluster.random,
                config["batch_size"],
                load=self._waiting if is_adaptive else None,
                is_stuck=self._sender.stuck.is_stuck if avoids_stuck else None,
                ignore_keys=config["partitioner_ignore_keys"],
            )
        self._partition = self._partitioner.partition
        self._sticks = isinstance(self._partitioner, DefaultPartitioner)
        self._metadata = cluster.metadata
        self._appended = getattr(self._partitioner, "appended", None)
        self._parts = (cluster, self._accumulator, self._sender)
        if config["enable_metrics_push"]:
            labels = {"client_rack": config["client_rack"], "transactional_id": config["transactional_id"] or ""}
            given = {name: text for name, text in labels.items() if text}
            self._push = MetricsPush(cluster, self.metrics, lambda: given)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=error is None)

    @property
    def cluster(self) -> Cluster:
        """Connections and metadata. Raises IllegalState before `start`."""
        if self._cluster is None:
            raise IllegalState("the producer is not started: use it in `async with`, or call start()")
        return self._cluster

    @property
    def sender(self) -> Sender:
        """The part that sends the batches, for `TransactionalProducer`. Raises IllegalState before `start`."""
        if self._sender is None:
            raise IllegalState("the producer is not started: use it in `async with`, or call start()")
        return self._sender

    @property
    def config(self) -> ProducerOptions:
        """All options as resolved."""
        return self._config

    def metrics(self) -> Metrics:
        """What the producer has measured, under Java's names. Raises IllegalState before `start`."""
        from odradek.client.metrics.compute import producer_metrics

        sender = self.sender
        assert self._accumulator is not None
        return producer_metrics(
            self.cluster, sender.measures, self._accumulator, self._config["buffer_memory"], sender.requests_in_flight
        )

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Push an application's own metrics, too, where brokers ask for them (KIP-1076). Raises IllegalState.

        `source` is called on this client's event loop before each push.
        """
        _ = self.sender  # a producer that is not started pushes nothing
        if self._push is not None:
            self._push.add_source(source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """End what `register_metrics` began; without effect for an unknown source."""
        if self._push is not None:
            self._push.remove_source(source)

    async def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """The id that brokers gave this client (KIP-714), as Kafka writes ids. Raises IllegalState, CallTimedOut."""
        self.cluster.check_loop()
        return await instance_id(self._push, timeout_ms)

    # --- sending ---

    async def send(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue one record; await the Delivery for its RecordMetadata, or pass a callback.

        Waits up to max_block_ms for metadata and buffer memory: CallTimedOut, BufferExhausted. Raises TypeError for
        arguments that are not bytes (without serializers), ValueError for a negative timestamp or one beyond 63 bits,
        and for a partitioner that chooses a partition that the topic lacks, KafkaError (an invalid or missing topic,
        MESSAGE_TOO_LARGE beyond max_request_size), ClientClosed, IllegalState, ProducerFenced.
        """
        if self._transforms:
            key, value, headers = self._transform(topic, key, value, headers)
        delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        if delivery is None:
            delivery = await self._append_slowly(topic, value, key, headers, partition, timestamp_ms)
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        self._since_turn += 1
        if self._since_turn >= _TURN_RECORDS:
            self._since_turn = 0
            await asyncio.sleep(0)
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement. Raises as `send`, and what the record was lost with.

        One call at a time sends a batch per record: many tasks, or `send` and `flush`, are faster.
        """
        sender = self._sender
        if sender is None or self._transforms or not sender.is_idle:
            return await (await self.send(topic, value, key, headers, partition, timestamp_ms))
        # An idle sender has no open batch: no other way of appending would be faster.
        record = (topic, value, key, headers, partition, timestamp_ms)
        delivery = sender.send_within(self._append_anywhere, record)
        if delivery is None:
            delivery = await self._append_slowly(topic, value, key, headers, partition, timestamp_ms)
        return await delivery

    def send_nowait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """As `send`, but raises BufferExhausted where `send` would wait."""
        if self._transforms:
            key, value, headers = self._transform(topic, key, value, headers)
        delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        if delivery is None:
            if topic not in self.cluster.metadata.topics:
                self.cluster.add_topic(check_topic_name(topic))
                self.cluster.want_metadata()
                raise BufferExhausted(f"the metadata of topic {topic} is not known yet")
            self.sender.measures.sends.exhausted += 1
            raise BufferExhausted("buffer_memory is full of unacknowledged records")
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        return delivery

    async def send_batch(
        self, topic: str, partition: int, batches: Sequence[bytes | bytearray | memoryview], *, check_crc: bool = False
    ) -> list[Delivery]:
        """Queue encoded record batches (format v2, one each, base offset 0) unchanged.

        Producer id, epoch and sequence are filled in when they are sent. Each delivery is that of a batch; its offset
        is the first record's. Raises CorruptRecords, ValueError, and as `send`.
        """
        await self._find_partition(topic, partition)
        deliveries = []
        for each in batches:
            data = bytearray(each)
            header = parse_header(data)
            if header.size != len(data):
                raise ValueError(f"{len(data)} bytes hold more than one batch of {header.size}")
            if check_crc:
                verify_crc(memoryview(data), 0, header)
            self._check_size(topic, len(data))
            batch = await self._memory_for(partial(self._encoded, topic, partition, data, header.records_count))
            deliveries.append(Delivery(batch, 0, header.max_timestamp))
        return deliveries

    async def send_table(
        self,
        data: Any,
        topic: str,
        *,
        value: str | Sequence[str] = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
    ) -> int:
        """Write a table of pyarrow, pandas, polars or DuckDB, a record per row, and wait until all are acknowledged.

        The arguments name columns; `value` may be a list of them, which become JSON objects. Partitions follow from the
        column, else from the key as Kafka's clients choose them; rows without a key share one. Serializers and
        interceptors are not called. Returns the number of rows. Raises TypeError, ValueError, and as `send`.

        Example:

            flights = pa.table({"carrier": ["UA", "AA"], "delay": [31, 2]})
            async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
                rows = await producer.send_table(flights, "flights", key="carrier", value=["carrier", "delay"])
        """
        from odradek.client.producer.table_writer import write_table

        return await write_table(self, to_table(data), topic, Columns(value, key, headers, timestamp, partition))

    async def flush(self, *, on_progress: Callable[[int], object] | None = None) -> None:
        """Send the records queued so far without linger, and wait until each is acknowledged or lost.

        `on_progress` gets the number of these records that wait, at the beginning and whenever it has changed. Records
        that other tasks queue meanwhile are not waited for. Raises the first loss since the last flush of a
        record whose delivery was neither awaited nor given a callback; ClientClosed, IllegalState.
        """
        self.cluster.check_loop()
        with self.sender.measures.timing("flushing", self.cluster.loop.time):
            await self.sender.flush(on_progress)
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def forget_failure(self) -> None:
        """Forget losses so far: the next `flush` does not raise them."""
        self._lost = None

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions. Raises KafkaError, CallTimedOut."""
        return (await self._topic(topic)).partitions

    async def close(self, *, flush: bool = True) -> None:
        """Send queued records (or drop them), then close the connections. Raises as `flush`."""
        if self._closed:
            return
        self._closed = True
        self._parts = None
        self._sticking.clear()
        if self._cluster is None or self._sender is None:
            return
        try:
            if flush:
                await self.flush()
            if self._push is not None:
                await self._push.close()
        finally:
            await self._sender.close()
            await self._cluster.close()

    # --- inside ---

    def _append(
        self, topic: str, value: Any, key: Any, headers: RecordHeaders, partition: int | None, timestamp_ms: int | None
    ) -> Delivery | None:
        """The record's delivery, or None where its topic is unknown or memory is short."""
        batch = self._sticking.get(topic)
        if (
            batch is None
            or key is not None
            or value.__class__ is not bytes
            or partition is not None
            or timestamp_ms is not None
            or headers
        ):
            if key.__class__ is bytes and value.__class__ is bytes and partition is None and self._sticks:
                return self._append_keyed(topic, value, key, headers, timestamp_ms)
            return self._append_anywhere(topic, value, key, headers, partition, timestamp_ms)
        # The way of most records: no choice of a partition, no check that the batch's first record has passed.
        size = len(value)
        filled = batch.filled + size + PLAIN_OVERHEAD
        if filled > batch.limit or size > self._plain_record or self._metadata.version != self._sticking_version:
            return self._append_anywhere(topic, value, key, headers, partition, timestamp_ms)
        batch.filled = filled
        stamp = self._now_ms()
        batch.timestamps.append(stamp)
        if batch.keys is not None:
            batch.keys.append(None)
        values = batch.values
        index = len(values)
        values.append(value)
        return Delivery(batch, index, stamp)

    def _append_keyed(
        self, topic: str, value: bytes, key: bytes, headers: RecordHeaders, timestamp_ms: int | None
    ) -> Delivery | None:
        """As `_append`, for a record whose key chooses its partition: usually its open batch has others with keys."""
        info = self._metadata.topics.get(topic)
        if self._accumulator is None or self._partition is None or info is None:
            return self._append_anywhere(topic, value, key, headers, None, timestamp_ms)
        chosen = self._partition(topic, key, len(info.partitions), info.available)
        queue = self._accumulator.queues.get((topic, chosen))
        batch = None if queue is None else queue.open
        if batch is None or batch.keys is None:
            return self._append_anywhere(topic, value, key, headers, None, timestamp_ms)
        encoded = _encoded_headers(headers) if headers else b""
        if timestamp_ms is None:
            stamp = self._now_ms()
        else:
            if timestamp_ms.__class__ is not int or not 0 <= timestamp_ms <= _LATEST_MS:
                _check_place(None, timestamp_ms)
            stamp = timestamp_ms
        timestamps = batch.timestamps
        size = len(key) + len(value) + len(encoded)
        filled = batch.filled + size + KEYED_OVERHEAD
        if filled > batch.limit or size > self._plain_record or abs(stamp - timestamps[0]) > PRESENT_MS:
            return self._append_anywhere(topic, value, key, headers, None, timestamp_ms)
        batch.filled = filled
        timestamps.append(stamp)
        batch.keys.append(key)
        values = batch.values
        index = len(values)
        values.append(value)
        if encoded:
            batch.headers[index] = encoded
        return Delivery(batch, index, stamp)

    def _append_anywhere(
        self, topic: str, value: Any, key: Any, headers: RecordHeaders, partition: int | None, timestamp_ms: int | None
    ) -> Delivery | None:
        """As `_append`, for any record."""
        parts = self._parts
        if parts is None:
            self._raise_unusable()
            return None
        cluster, accumulator, sender = parts
        if sender.fatal is not None:
            raise sender.fatal
        if (value.__class__ is not bytes and value is not None) or (key.__class__ is not bytes and key is not None):
            _check_data(key, value)
        info = cluster.metadata.topics.get(topic)
        if info is None:
            return None
        encoded_headers = _encoded_headers(headers) if headers else b""
        size = (len(key) if key is not None else 0) + (len(value) if value is not None else 0) + len(encoded_headers)
        if size > self._small_record:
            self._check_size(topic, record_size(key, value, encoded_headers))
        if partition is not None or timestamp_ms is not None:
            _check_place(partition, timestamp_ms)
        self._report_sticking(topic)
        chosen, left = partition, False
        if chosen is None:
            assert self._partition is not None
            left = key is None and self._leave_full_batch(topic, value, encoded_headers)
            chosen = self._partition(topic, key, len(info.partitions), info.available)
        if not 0 <= chosen < len(info.partitions):
            _check_chosen(partition, chosen, info)
            # The topic may have grown since: the slow path refreshes, and raises in the end.
            return None
        stamp = self._now_ms() if timestamp_ms is None else timestamp_ms
        appended = accumulator.append((topic, chosen), stamp, key, value, encoded_headers, cluster.loop.time)
        if appended is None:
            return None
        batch, fresh, closed = appended
        if closed or left:
            self._since_turn += _TURN_RECORDS // 4
        if fresh:
            # Once per batch: asking for the running loop is a system call.
            if get_running_loop() is not cluster.loop:
                accumulator.withdraw(batch)
                cluster.check_loop()
            sender.added(batch, urgent=closed)
        if partition is None and self._appended is not None and (key is None or not self._sticks):
            self._appended(topic, chosen, size + 8, closed)
            if key is None and not closed and self._sticks:
                self._sticking[topic] = batch
        batch.reported = batch.filled
        return Delivery(batch, batch.count - 1, stamp)

    def _report_sticking(self, topic: str) -> None:
        """Report to the partitioner what was added to the topic's batch since; look again if the metadata changed."""
        batch = self._sticking.get(topic)
        if batch is not None and batch.filled > batch.reported:
            assert self._appended is not None
            self._appended(topic, batch.key[1], batch.filled - batch.reported, False)
            batch.reported = batch.filled
        if self._sticking_version != self._metadata.version:
            self._sticking_version = self._metadata.version
            self._sticking.clear()

    def _leave_full_batch(self, topic: str, value: Any, headers: bytes) -> bool:
        """Close the batch that records without a key fill, if this one does not fit and belongs elsewhere."""
        batch, partitioner = self._sticking.get(topic), self._partitioner
        if batch is None or not batch.limit or batch.has_room(None, value, headers):
            return False
        if not isinstance(partitioner, DefaultPartitioner) or not partitioner.leave(topic, len(value or b"")):
            return False
        assert self._parts is not None
        _, accumulator, sender = self._parts
        del self._sticking[topic]
        accumulator.queues[batch.key].close()
        sender.closed(batch)
        return True

    async def _append_slowly(
        self, topic: str, value: Any, key: Any, headers: RecordHeaders, partition: int | None, timestamp_ms: int | None
    ) -> Delivery:
        self.cluster.check_loop()
        # Before waiting for a broker; `_append` checks key and value first, and the rest only where it knows the topic.
        _header_pairs(headers or ())
        _check_place(partition, timestamp_ms)
        transaction = self.sender.transaction
        taking = 0 if transaction is None else transaction.taking
        await self._find_partition(topic, partition)

        def attempt() -> Delivery | None:
            if transaction is not None and transaction.taking != taking:
                raise IllegalState("the transaction ended before there was memory for the record")
            return self._append(topic, value, key, headers, partition, timestamp_ms)

        return await self._memory_for(attempt)

    async def _find_partition(self, topic: str, partition: int | None) -> None:
        """Wait for the topic's metadata. Raises KafkaError, also for a partition that it lacks, and CallTimedOut."""
        info = await self._topic(topic)
        if partition is not None and partition >= len(info.partitions):
            # The topic may have grown since.
            await self.cluster.refresh_metadata()
            info = await self._topic(topic)
        if partition is not None and not 0 <= partition < len(info.partitions):
            raise error_of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {len(info.partitions)} partitions, not {partition}"
            )

    async def _memory_for(self, attempt: Callable[[], T | None]) -> T:
        """Retry `attempt` until there is memory for it, for up to max_block_ms."""
        sender = self.sender
        try:
            async with asyncio.timeout(self._config["max_block_ms"] / 1000):
                while True:
                    done = attempt()
                    if done is not None:
                        return done
                    progress = sender.progress()
                    sender.wake()
                    with sender.measures.waiting_for_memory(self.cluster.loop.time):
                        await progress
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            sender.measures.sends.exhausted += 1
            raise BufferExhausted(
                f"no memory within {self._config['max_block_ms']} ms: buffer_memory is full of unacknowledged records"
            ) from None

    async def _topic(self, topic: str) -> TopicInfo:
        if self._closed:
            self._raise_unusable()
        known = self.cluster.metadata.topics.get(topic)
        if known is not None:
            return known
        with self.sender.measures.timing("metadata_wait", self.cluster.loop.time):
            return await self.cluster.topic(topic, self._config["max_block_ms"])

    def _raise_unusable(self) -> None:
        if self._closed:
            raise ClientClosed("the producer was closed")
        raise IllegalState("the producer is not started: use it in `async with`, or call start()")

    def _encoded(self, topic: str, partition: int, data: bytearray, count: int) -> Batch | None:
        assert self._accumulator is not None
        batch = self._accumulator.add_encoded((topic, partition), data, count, self.cluster.loop.time())
        if batch is not None:
            self.sender.added(batch, urgent=True)
        return batch

    def _check_size(self, topic: str, size: int) -> None:
        limit = min(self._config["max_request_size"], self._config["buffer_memory"])
        if size > limit:
            raise error_of(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes for {topic}, max_request_size allows {limit}")

    def _transform(self, topic: str, key: Any, value: Any, headers: RecordHeaders) -> tuple[Any, Any, RecordHeaders]:
        """Apply serializers, then interceptors; once per record. Nulls pass around serializers."""
        if self._key_serializer is not None and key is not None:
            key = self._key_serializer(topic, key)
        if self._value_serializer is not None and value is not None:
            value = self._value_serializer(topic, value)
        if self._interceptors and isinstance(headers, Mapping):
            headers = list(headers.items())
        for each in self._interceptors:
            on_send = getattr(each, "on_send", None)
            if on_send is not None:
                key, value, headers = on_send(topic, key, value, headers)
        return key, value, headers

    def _acknowledged(self, batch: Batch) -> None:
        if batch.error is not None and not batch.failure_seen and self._lost is None:
            self._lost = batch.error
        for each in self._interceptors:
            on_acknowledgement = getattr(each, "on_acknowledgement", None)
            if on_acknowledgement is None:
                continue
            for index, stamp in enumerate(batch.timestamps):
                try:
                    if batch.error is None:
                        on_acknowledgement(batch.metadata(index, stamp), None)
                    else:
                        on_acknowledgement(None, batch.error)
                except Exception as error:  # noqa: BLE001 - the user's code; the other records continue without it
                    loop = asyncio.get_running_loop()
                    loop.call_exception_handler({"message": f"interceptor {each!r} failed", "exception": error})

    def _waiting(self, topic: str, partition: int) -> int:
        assert self._accumulator is not None
        queue = self._accumulator.queues.get((topic, partition))
        return 0 if queue is None else len(queue.batches)


def _check_chosen(given: int | None, chosen: int, info: TopicInfo) -> None:
    """Raise ValueError for a partition that the topic lacks, unless the program has given it."""
    if given is None:
        raise ValueError(
            f"the partitioner chose partition {chosen} of topic {info.name}, which has {len(info.partitions)}"
        )


def _check_data(key: object, value: object) -> None:
    """Raise TypeError, naming the argument, for a key or value that is not bytes."""
    for name, given in (("value", value), ("key", key)):
        if given is None or isinstance(given, bytes | bytearray):
            continue
        if isinstance(given, memoryview) and given.nbytes == len(given):
            continue
        raise TypeError(f"{name}: expected bytes or None, got {describe(given)}; encode it, or set {name}_serializer")


def _check_place(partition: object, timestamp_ms: object) -> None:
    """Raise TypeError, naming the argument, for what is not a whole number; ValueError for an impossible time."""
    if (partition is None or partition.__class__ is int) and (
        timestamp_ms is None or (timestamp_ms.__class__ is int and 0 <= timestamp_ms <= _LATEST_MS)
    ):
        return  # isinstance of a protocol costs more than all else
    for name, given in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if given is not None and not isinstance(given, SupportsIndex):
            raise TypeError(f"{name}: expected int or None, got {describe(given)}")
    if timestamp_ms is not None and not 0 <= whole_number(timestamp_ms) <= _LATEST_MS:  # type: ignore[arg-type]
        raise ValueError(f"timestamp_ms: expected 0 to {_LATEST_MS} ms since the epoch, got {describe(timestamp_ms)}")


def _encoded_headers(headers: RecordHeaders) -> bytes:
    """Headers with their count. Raises TypeError, naming the argument."""
    if headers.__class__ is list:
        encoded = encode_usual_headers(headers)
        if encoded is not None:
            return encoded
    return encode_headers(_header_pairs(headers))


def _header_pairs(headers: object) -> Headers:
    """Headers as pairs. Raises TypeError, naming the argument."""
    pairs = headers if headers.__class__ is list or not isinstance(headers, Mapping) else list(headers.items())
    if not isinstance(pairs, list | tuple | LazyHeaders):
        raise TypeError(f"headers: expected a list of (name, bytes) pairs or a dict, got {describe(headers)}")
    for each in pairs:
        if each.__class__ is tuple and len(each) == 2 and each[0].__class__ is str and each[1].__class__ is bytes:
            continue  # as nearly all are
        if not isinstance(each, tuple | list) or len(each) != 2 or not isinstance(each[0], str):
            raise TypeError(f"headers: expected (str, bytes) pairs, got {describe(each)}")
        if each[1] is not None and not isinstance(each[1], bytes | bytearray | memoryview):
            raise TypeError(f"headers: expected bytes or None for {each[0]!r}, got {describe(each[1])}")
    return pairs
