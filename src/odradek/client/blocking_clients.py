"""Producers for threads: the asyncio clients behind methods that wait.

Each method runs the asyncio client's method of the same name on a `Blocking`'s event loop, by default the process's
shared one; arguments, results and errors are the same. Many threads at once may use a producer.
`BlockingConsumer`, `BlockingShareConsumer` and `BlockingAdmin` stand beside the asyncio clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, Unpack

from odradek.client.arguments import keywords
from odradek.client.blocking import Blocking, loop_for
from odradek.client.config import ProducerOptions
from odradek.client.interceptors import ProducerInterceptor
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.model import OffsetAndMetadata, RecordMetadata
from odradek.client.network.metadata import PartitionInfo
from odradek.client.offsets import Member
from odradek.client.producer.accumulator import Delivery, OnDelivery
from odradek.client.producer.partitioners import Partitioner
from odradek.client.producer.producer import Producer, RecordHeaders
from odradek.client.producer.sequence_numbers import ProducerIdentity
from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.client.serializers import Serializer
from odradek.client.type_parameters import Key_contra, Value_contra
from odradek.records.topic_partition import PartitionKey, TopicPartition


class BlockingDelivery:
    """The outcome of one record that a thread sent.

    Example:

        with BlockingProducer(bootstrap_servers="127.0.0.1:9092") as producer:
            deliveries = [producer.send("orders", b"order %d" % number) for number in range(3)]
            print([each.result(timeout_s=30).offset for each in deliveries])
    """

    __slots__ = ("_blocking", "_delivery")

    def __init__(self, delivery: Delivery, blocking: Blocking) -> None:
        """`blocking` runs the delivery's event loop."""
        self._delivery = delivery
        self._blocking = blocking

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement. Raises the error that the record was lost with, TimeoutError."""
        return self._blocking.run(self._delivery, timeout_s)

    @property
    def topic_partition(self) -> PartitionKey:
        """As `Delivery.topic_partition`."""
        return self._delivery.topic_partition

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._delivery.done()

    def add_callback(self, callback: OnDelivery) -> None:
        """As `Delivery.add_callback`; the callback runs in the event loop's thread and must not block."""
        self._blocking.call(self._delivery.add_callback, callback)


class BlockingProducer(Generic[Key_contra, Value_contra]):
    """A producer for threads, `BlockingProducer[KeyType, ValueType]`. Many threads may use it at once.

    Example:

        with BlockingProducer(bootstrap_servers="127.0.0.1:9092") as producer:
            delivery = producer.send("orders", b"tea", key=b"anna")
            print(delivery.result(timeout_s=30).offset)
    """

    __slots__ = ("_blocking", "_producer")

    def __init__(
        self,
        *,
        key_serializer: Serializer[Key_contra] | None = None,
        value_serializer: Serializer[Value_contra] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        blocking: Blocking | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Arguments as of `Producer`; `blocking` is the event loop to use. Raises ConfigError."""
        self._producer: Producer[Key_contra, Value_contra] = Producer(
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            **options,
        )
        self._blocking = loop_for(blocking)

    @classmethod
    def wrap(cls, producer: Producer[Key_contra, Value_contra], blocking: Blocking | None = None) -> Self:
        """A blocking face of a producer that is not started yet."""
        made = cls.__new__(cls)
        made._producer = producer
        made._blocking = loop_for(blocking)
        return made

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """As `Producer.from_config`."""
        return cls(**keywords(config, arguments))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=error is None)

    @property
    def config(self) -> ProducerOptions:
        """All options as resolved."""
        return self._producer.config

    def metrics(self) -> Metrics:
        """As `Producer.metrics`."""
        return self._blocking.call(self._producer.metrics)

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Producer.register_metrics`."""
        self._blocking.call(self._producer.register_metrics, source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Producer.unregister_metrics`."""
        self._blocking.call(self._producer.unregister_metrics, source)

    def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """As `Producer.client_instance_id`."""
        return self._blocking.run(self._producer.client_instance_id(timeout_ms))

    def start(self) -> None:
        """As `Producer.start`."""
        self._blocking.open(self._producer)

    def send(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> BlockingDelivery:
        """As `Producer.send`: waits for metadata and memory, not for the acknowledgement."""
        sent = self._producer.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return BlockingDelivery(self._blocking.run(sent), self._blocking)

    def send_and_wait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """As `Producer.send_and_wait`."""
        return self._blocking.run(self._producer.send_and_wait(topic, value, key, headers, partition, timestamp_ms))

    def send_nowait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> BlockingDelivery:
        """As `Producer.send_nowait`: waits for neither metadata nor memory, only for its turn in the event loop."""
        send = self._producer.send_nowait
        sent = self._blocking.call(send, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return BlockingDelivery(sent, self._blocking)

    def send_batch(
        self, topic: str, partition: int, batches: Sequence[bytes | bytearray | memoryview], *, check_crc: bool = False
    ) -> list[BlockingDelivery]:
        """As `Producer.send_batch`."""
        sent = self._blocking.run(self._producer.send_batch(topic, partition, batches, check_crc=check_crc))
        return [BlockingDelivery(each, self._blocking) for each in sent]

    def send_table(
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
        """As `Producer.send_table`."""
        columns = {"value": value, "key": key, "headers": headers, "timestamp": timestamp, "partition": partition}
        return self._blocking.run(self._producer.send_table(data, topic, **columns))  # type: ignore[arg-type]

    def flush(self, timeout_s: float | None = None, *, on_progress: Callable[[int], object] | None = None) -> None:
        """As `Producer.flush`; `on_progress` is called in the thread of the event loop. Raises TimeoutError."""
        self._blocking.run(self._producer.flush(on_progress=on_progress), timeout_s)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """As `Producer.partitions_for`."""
        return self._blocking.run(self._producer.partitions_for(topic))

    def close(self, *, flush: bool = True) -> None:
        """As `Producer.close`."""
        self._blocking.forget(self._producer)
        self._blocking.run(self._producer.close(flush=flush))


class BlockingTransactionalProducer(Generic[Key_contra, Value_contra]):
    """A transactional producer for threads; several threads may send within one transaction.

    Example:

        with BlockingTransactionalProducer(transactional_id="cashier", bootstrap_servers="127.0.0.1:9092") as producer:
            with producer.transaction():
                producer.send("payments", b"7")
                producer.send("receipts", b"7")
    """

    __slots__ = ("_blocking", "_producer")

    def __init__(
        self,
        *,
        key_serializer: Serializer[Key_contra] | None = None,
        value_serializer: Serializer[Value_contra] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        blocking: Blocking | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Arguments as of `TransactionalProducer`; `blocking` is the event loop to use. Raises ConfigError."""
        self._producer: TransactionalProducer[Key_contra, Value_contra] = TransactionalProducer(
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            **options,
        )
        self._blocking = loop_for(blocking)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """As `TransactionalProducer.from_config`."""
        return cls(**keywords(config, arguments))

    @property
    def config(self) -> ProducerOptions:
        """All options as resolved."""
        return self._producer.config

    @property
    def transactional_id(self) -> str:
        """As `TransactionalProducer.transactional_id`."""
        return self._producer.transactional_id

    @property
    def state(self) -> State:
        """As `TransactionalProducer.state`."""
        return self._producer.state

    @property
    def identity(self) -> ProducerIdentity:
        """As `TransactionalProducer.identity`."""
        return self._producer.identity

    @property
    def is_unfinished(self) -> bool:
        """As `TransactionalProducer.is_unfinished`."""
        return self._producer.is_unfinished

    def start(self) -> None:
        """As `TransactionalProducer.start`."""
        self._blocking.open(self._producer)

    def __enter__(self) -> Self:
        self.start()
        try:
            self.initialize()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def initialize(self) -> ProducerIdentity:
        """As `TransactionalProducer.initialize`; `with` calls it."""
        return self._blocking.run(self._producer.initialize())

    def adopt(self, identity: ProducerIdentity, *, continue_transaction: bool = True) -> None:
        """As `TransactionalProducer.adopt`."""
        self._blocking.call(self._producer.adopt, identity, continue_transaction=continue_transaction)

    def metrics(self) -> Metrics:
        """As `Producer.metrics`."""
        return self._blocking.call(self._producer.metrics)

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Producer.register_metrics`."""
        self._blocking.call(self._producer.register_metrics, source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Producer.unregister_metrics`."""
        self._blocking.call(self._producer.unregister_metrics, source)

    def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """As `Producer.client_instance_id`."""
        return self._blocking.run(self._producer.client_instance_id(timeout_ms))

    def begin(self) -> None:
        """As `TransactionalProducer.begin`."""
        self._blocking.call(self._producer.begin)

    def commit(self) -> None:
        """As `TransactionalProducer.commit`."""
        self._blocking.run(self._producer.commit())

    def abort(self) -> None:
        """As `TransactionalProducer.abort`."""
        self._blocking.run(self._producer.abort())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin now, commit at the end of the block; abort and raise if the block or the commit fails."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            if self._producer.is_unfinished:
                self.abort()
            raise

    def send(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> BlockingDelivery:
        """As `TransactionalProducer.send`."""
        sent = self._producer.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return BlockingDelivery(self._blocking.run(sent), self._blocking)

    def send_table(
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
        """As `TransactionalProducer.send_table`."""
        columns = {"value": value, "key": key, "headers": headers, "timestamp": timestamp, "partition": partition}
        return self._blocking.run(self._producer.send_table(data, topic, **columns))  # type: ignore[arg-type]

    def send_and_wait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """As `TransactionalProducer.send_and_wait`."""
        return self._blocking.run(self._producer.send_and_wait(topic, value, key, headers, partition, timestamp_ms))

    def flush(self, timeout_s: float | None = None, *, on_progress: Callable[[int], object] | None = None) -> None:
        """As `BlockingProducer.flush`; `commit` does it, too."""
        self._blocking.run(self._producer.flush(on_progress=on_progress), timeout_s)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """As `Producer.partitions_for`."""
        return self._blocking.run(self._producer.partitions_for(topic))

    def send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], member: Member | None = None
    ) -> None:
        """As `TransactionalProducer.send_offsets`."""
        self._blocking.run(self._producer.send_offsets(group_id, offsets, member))

    def close(self) -> None:
        """As `TransactionalProducer.close`."""
        self._blocking.close_client(self._producer)
