"""The producer: `await producer.send(topic, value)` per record, batches underneath.

async with Producer(bootstrap_servers="127.0.0.1:9092", compression_type="zstd") as producer:
    for line in lines:
        await producer.send("lines", line)              # cheap: waits only for metadata and for buffer memory
    where = await (await producer.send("lines", b"x"))  # waits for the acknowledgement of this record
    await producer.flush()                              # waits for all; raises if any was lost unnoticed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, Unpack

from odradek.client.accumulator import Accumulator, Batch, Delivery, record_size
from odradek.client.cluster import Cluster, error_of
from odradek.client.config import ProducerOptions, resolve_producer
from odradek.client.errors import BufferExhausted, CallTimedOut, ClientClosed, IllegalState
from odradek.client.metadata import PartitionInfo, TopicInfo
from odradek.client.model import RecordMetadata
from odradek.client.partitioners import DefaultPartitioner, Partitioner
from odradek.client.sender import Sender
from odradek.client.sequences import Sequences
from odradek.ports.clock import Clock, SystemClock
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.batch import parse_header, verify_crc
from odradek.records.compression import CODEC_NAMES
from odradek.records.record import Headers
from odradek.wire.errors import ErrorCode

Serializer = Callable[[str, Any], bytes | None]
"""(topic, object) -> bytes; None stays a null (a tombstone, for a value)."""

T = TypeVar("T")

_TURN_RECORDS: Final = 512
"""After so many records without a pause, let the loop turn: it is what sends them."""


class ProducerInterceptor(Protocol):
    """Sees every record on its way (Kafka's ProducerInterceptor). Either method may be missing from an interceptor."""

    def on_send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """What is to be sent instead."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Once per record: where it lies, or why it was lost."""
        ...


class Producer:
    """A producer for many tasks of one event loop. Idempotent by default: no duplicates, no reordering on retries."""

    __slots__ = (
        "_accumulator", "_appended", "_clock", "_closed", "_cluster", "_config", "_interceptors", "_key_serializer",
        "_lost", "_network", "_partitioner", "_random", "_sender", "_since_turn", "_transforms",
        "_value_serializer",
    )  # fmt: skip

    def __init__(
        self,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        network: Network | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Options as in Kafka, underscores for dots. Raises ConfigError."""
        self._config = resolve_producer(options)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._interceptors = interceptors
        self._transforms = bool(interceptors) or key_serializer is not None or value_serializer is not None
        self._network = network
        self._random = random
        self._clock: Clock = clock or SystemClock()
        self._cluster: Cluster | None = None
        self._appended: Callable[[str, int, int, bool], None] | None = None
        self._accumulator: Accumulator | None = None
        self._sender: Sender | None = None
        self._closed = False
        self._lost: Exception | None = None
        self._since_turn = 0

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names; `arguments` are the constructor's others (serializers, ...)."""
        return cls(**arguments, **{name.replace(".", "_"): value for name, value in config.items()})

    async def start(self) -> None:
        """Make ready to send; brokers are asked only when the first record needs them."""
        if self._cluster is not None:
            return
        if self._closed:
            raise ClientClosed("the producer was closed")
        config = self._config
        cluster = self._cluster = Cluster(config, network=self._network, random=self._random)
        self._accumulator = Accumulator(
            config["batch_size"],
            config["buffer_memory"],
            CODEC_NAMES[config["compression_type"]],
            config["compression_level"],
            keep_timestamps=bool(self._interceptors),
        )
        self._accumulator.transactional = config["transactional_id"] is not None
        sequences = None
        if config["enable_idempotence"]:
            sequences = Sequences(transactional=config["transactional_id"] is not None)
        self._sender = Sender(cluster, self._accumulator, config, self._acknowledged, sequences)
        if self._partitioner is None:
            self._partitioner = DefaultPartitioner(
                cluster.random, config["batch_size"], load=self._waiting, ignore_keys=config["partitioner_ignore_keys"]
            )
        self._appended = getattr(self._partitioner, "appended", None)

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
        """What sends the batches: the transactional producer is built on it. Raises IllegalState before `start`."""
        if self._sender is None:
            raise IllegalState("the producer is not started: use it in `async with`, or call start()")
        return self._sender

    @property
    def config(self) -> ProducerOptions:
        """All options as resolved."""
        return self._config

    # --- sending ---

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record; await the result for its RecordMetadata.

        Waits up to max_block_ms for metadata and buffer memory: CallTimedOut, BufferExhausted. Raises KafkaError for a
        topic that cannot be (and MESSAGE_TOO_LARGE beyond max_request_size), ClientClosed, ProducerFenced.
        """
        if self._transforms:
            key, value, headers = self._transform(topic, key, value, headers)
        delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        if delivery is None:
            delivery = await self._append_slowly(topic, value, key, headers, partition, timestamp_ms)
        self._since_turn += 1
        if self._since_turn >= _TURN_RECORDS:
            self._since_turn = 0
            await asyncio.sleep(0)
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """As `send`, but BufferExhausted at once where `send` would wait."""
        if self._transforms:
            key, value, headers = self._transform(topic, key, value, headers)
        delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        if delivery is None:
            self.cluster.add_topic(topic)
            if topic not in self.cluster.metadata.topics:
                self.cluster.want_metadata()
                raise BufferExhausted(f"topic {topic} is not known yet")
            raise BufferExhausted("buffer_memory is full")
        return delivery

    async def send_batch(
        self, topic: str, partition: int, batches: Sequence[bytes | bytearray | memoryview], *, check_crc: bool = False
    ) -> list[Delivery]:
        """Queue ready-made record batches (format v2, one each, base offset 0) as they are.

        Producer id, epoch and sequence are patched in when they are sent. A delivery stands for a batch: its offset is
        that of the first record. Raises CorruptRecords, and what `send` raises.
        """
        await self._topic(topic)
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

    async def flush(self) -> None:
        """Send all records queued so far and wait for their outcome.

        Raises the first failure since the last flush of a record whose delivery nobody awaited.
        """
        await self.sender.flush()
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def forget_failure(self) -> None:
        """What was lost so far is known: the next `flush` does not raise it."""
        self._lost = None

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions. Raises KafkaError, CallTimedOut."""
        return (await self._topic(topic)).partitions

    async def close(self, *, flush: bool = True) -> None:
        """Send what is queued (or drop it), then end. What was lost unnoticed is raised, as by `flush`."""
        if self._closed:
            return
        self._closed = True
        if self._cluster is None or self._sender is None:
            return
        try:
            if flush:
                await self.flush()
        finally:
            await self._sender.close()
            await self._cluster.close()

    # --- inside ---

    def _append(
        self, topic: str, value: Any, key: Any, headers: Headers, partition: int | None, timestamp_ms: int | None
    ) -> Delivery | None:
        """The record's delivery, or None where its topic is unknown or memory is short."""
        cluster, accumulator, sender = self._cluster, self._accumulator, self._sender
        if cluster is None or accumulator is None or sender is None or self._closed:
            self._refuse()
            return None
        if sender.fatal is not None:
            raise sender.fatal
        info = cluster.metadata.topics.get(topic)
        if info is None:
            return None
        size = (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        if size + 1024 > self._config["max_request_size"] or headers:
            self._check_size(topic, record_size(key, value, headers))
        chosen = partition
        if chosen is None:
            assert self._partitioner is not None
            chosen = self._partitioner.partition(topic, key, len(info.partitions), info.available)
        if not 0 <= chosen < len(info.partitions):
            # The topic may have grown since: the slow path refreshes, and refuses in the end.
            return None
        stamp = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        now = self._clock.monotonic()
        appended = accumulator.append((topic, chosen), stamp, key, value, headers, now)
        if appended is None:
            return None
        batch, fresh, closed = appended
        if fresh:
            sender.added(urgent=closed)
            if closed:
                self._since_turn = _TURN_RECORDS
        if partition is None and self._appended is not None:
            self._appended(topic, chosen, size + 8, closed)
        return Delivery(batch, batch.count - 1, stamp)

    async def _append_slowly(
        self, topic: str, value: Any, key: Any, headers: Headers, partition: int | None, timestamp_ms: int | None
    ) -> Delivery:
        transaction = self.sender.transaction
        taking = 0 if transaction is None else transaction.taking
        info = await self._topic(topic)
        if partition is not None and partition >= len(info.partitions):
            await self.cluster.refresh_metadata()
            info = await self._topic(topic)
        if partition is not None and not 0 <= partition < len(info.partitions):
            raise error_of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {len(info.partitions)} partitions, not {partition}"
            )

        def attempt() -> Delivery | None:
            if transaction is not None and transaction.taking != taking:
                raise IllegalState("the transaction ended before there was room for the record")
            return self._append(topic, value, key, headers, partition, timestamp_ms)

        return await self._memory_for(attempt)

    async def _memory_for(self, attempt: Callable[[], T | None]) -> T:
        """Call until there is memory for what it adds, max_block_ms at most."""
        sender = self.sender
        try:
            async with asyncio.timeout(self._config["max_block_ms"] / 1000):
                while True:
                    done = attempt()
                    if done is not None:
                        return done
                    progress = sender.progress()
                    sender.wake()
                    await progress
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise BufferExhausted(
                f"no memory within {self._config['max_block_ms']} ms: buffer_memory is full of unacknowledged records"
            ) from None

    async def _topic(self, topic: str) -> TopicInfo:
        if self._closed:
            self._refuse()
        known = self.cluster.metadata.topics.get(topic)
        return known if known is not None else await self.cluster.topic(topic, self._config["max_block_ms"])

    def _refuse(self) -> None:
        if self._closed:
            raise ClientClosed("the producer was closed")
        raise IllegalState("the producer is not started: use it in `async with`, or call start()")

    def _encoded(self, topic: str, partition: int, data: bytearray, count: int) -> Batch | None:
        assert self._accumulator is not None
        batch = self._accumulator.add_encoded((topic, partition), data, count, self._clock.monotonic())
        if batch is not None:
            self.sender.added(urgent=True)
        return batch

    def _check_size(self, topic: str, size: int) -> None:
        limit = min(self._config["max_request_size"], self._config["buffer_memory"])
        if size > limit:
            raise error_of(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes for {topic}, max_request_size allows {limit}")

    def _transform(
        self, topic: str, key: Any, value: Any, headers: Headers
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """Serializers, then interceptors; once per record."""
        if self._key_serializer is not None:
            key = self._key_serializer(topic, key)
        if self._value_serializer is not None:
            value = self._value_serializer(topic, value)
        for each in self._interceptors:
            on_send = getattr(each, "on_send", None)
            if on_send is not None:
                key, value, headers = on_send(topic, key, value, headers)
        return key, value, headers

    def _acknowledged(self, batch: Batch) -> None:
        if batch.error is not None and not batch.failure_seen and self._lost is None:
            self._lost = batch.error
        for each in self._interceptors:
            heard = getattr(each, "on_acknowledgement", None)
            if heard is None or batch.timestamps is None:
                continue
            for index, stamp in enumerate(batch.timestamps):
                try:
                    if batch.error is None:
                        heard(batch.metadata(index, stamp), None)
                    else:
                        heard(None, batch.error)
                except Exception as error:  # noqa: BLE001 - the user's code; what is left to do is not to suffer from it
                    loop = asyncio.get_running_loop()
                    loop.call_exception_handler({"message": f"{each!r} failed", "exception": error})

    def _waiting(self, topic: str, partition: int) -> int:
        assert self._accumulator is not None
        queue = self._accumulator.queues.get((topic, partition))
        return 0 if queue is None else len(queue.batches)
