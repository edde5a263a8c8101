"""The consumer for threads, which wait in its methods.

One thread at a time may use it, and only `close` is for others.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack

from odradek.client.arguments import keywords
from odradek.client.blocking import Blocking, loop_for
from odradek.client.config import ConsumerOptions
from odradek.client.consumer.columns import ROWS_AT_ONCE
from odradek.client.consumer.consumer import CommitCallback, Consumer
from odradek.client.consumer.record_batches import RecordBatch
from odradek.client.errors import ClientClosed, IllegalState
from odradek.client.group.rebalance_listener import AnyListener
from odradek.client.interceptors import ConsumerInterceptor
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.model import (
    ConsumerRecord,
    GroupMembershipOperation,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawFetch,
)
from odradek.client.network.metadata import PartitionInfo
from odradek.client.offsets import Member
from odradek.client.serializers import Deserializer
from odradek.client.type_parameters import Key_co, Value_co
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.consumer.avro_columns import AvroValues

T = TypeVar("T")

_POLL_MS: Final = 1_000


class BlockingConsumer(Generic[Key_co, Value_co]):
    """A consumer for threads, `BlockingConsumer[KeyType, ValueType]`: one thread at a time; any thread may close it.

    Example:

        with BlockingConsumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="readers") as consumer:
            for record in consumer:
                print(record.offset, record.value)
    """

    __slots__ = ("_blocking", "_closed", "_consumer", "_in_use", "_ready")

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[Key_co] | None = None,
        value_deserializer: Deserializer[Value_co] | None = None,
        listener: AnyListener | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        blocking: Blocking | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Arguments as of `Consumer`; `blocking` is the event loop to use. Raises ConfigError, KafkaError.

        Methods of the listener and the interceptors run in the event loop's thread: they must not block.
        """
        consumer: Consumer[Key_co, Value_co] = Consumer(
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            listener=listener,
            interceptors=interceptors,
            **options,
        )
        self._prepare(consumer, blocking)

    @classmethod
    def wrap(cls, consumer: Consumer[Key_co, Value_co], blocking: Blocking | None = None) -> Self:
        """A blocking face of a consumer that is not started yet."""
        made = cls.__new__(cls)
        made._prepare(consumer, blocking)
        return made

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *topics: str, **arguments: Any) -> Self:
        """As `Consumer.from_config`."""
        return cls(*topics, **keywords(config, arguments))

    def _prepare(self, consumer: Consumer[Key_co, Value_co], blocking: Blocking | None) -> None:
        self._consumer = consumer
        self._blocking = loop_for(blocking)
        self._in_use = threading.Lock()
        self._closed = False
        # Records that `__iter__` has polled and not yet yielded.
        self._ready: deque[ConsumerRecord[Key_co, Value_co]] = deque()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def config(self) -> ConsumerOptions:
        """All options as resolved."""
        return self._consumer.config

    def metrics(self) -> Metrics:
        """As `Consumer.metrics`."""
        return self._blocking.call(self._consumer.metrics)

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Consumer.register_metrics`."""
        self._blocking.call(self._consumer.register_metrics, source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Consumer.unregister_metrics`."""
        self._blocking.call(self._consumer.unregister_metrics, source)

    def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """As `Consumer.client_instance_id`."""
        return self._blocking.run(self._consumer.client_instance_id(timeout_ms))

    def start(self) -> None:
        """As `Consumer.start`."""
        self._blocking.open(self._consumer)

    def close(
        self,
        *,
        timeout_ms: float | None = None,
        membership: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """As `Consumer.close`; from another thread it ends a `for` loop over this consumer."""
        if self._closed:
            return
        self._closed = True
        if self._in_use.acquire(blocking=False):
            try:
                self._blocking.call(self._return_unread)
            finally:
                self._in_use.release()
        self._blocking.forget(self._consumer)
        self._blocking.run(self._consumer.close(timeout_ms=timeout_ms, membership=membership))

    # --- reading ---

    def __iter__(self) -> Iterator[ConsumerRecord[Key_co, Value_co]]:
        """Records as they arrive, until `close`; breaking out of the loop loses none. Raises as `Consumer.poll`."""
        return self.iterate()

    def iterate(self, idle_timeout_s: float | None = None) -> Iterator[ConsumerRecord[Key_co, Value_co]]:
        """Records as they arrive, until `close`, or until none arrived for idle_timeout_s. Raises as `Consumer.poll`.

        `commit` within the loop commits up to the current record.
        """
        wait_ms = _POLL_MS if idle_timeout_s is None else idle_timeout_s * 1000
        while not self._closed:
            while self._ready and not self._closed:
                yield self._ready.popleft()
            try:
                records = self.poll(wait_ms)
            except ClientClosed:
                return
            self._ready.extend(records)
            if not records and idle_timeout_s is not None:
                return

    def arrow(
        self,
        batch_rows: int = ROWS_AT_ONCE,
        *,
        include_headers: bool = False,
        values: pa.Schema | AvroValues | None = None,
    ) -> Iterator[pa.Table]:
        """As `Consumer.arrow`, until `close`. Raises IllegalState while records of a loop are not read yet."""
        yield from self._each(self._consumer.arrow(batch_rows, include_headers=include_headers, values=values))

    def batches(self) -> Iterator[RecordBatch]:
        """As `Consumer.batches`, until `close`. Raises IllegalState while records of a loop are not read yet."""
        yield from self._each(self._consumer.batches())

    def _each(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        if self._ready:
            raise IllegalState(f"{len(self._ready)} records that were read are not returned yet: read them first")
        try:
            while not self._closed:
                try:
                    yield self._alone(anext(source))
                except (ClientClosed, StopAsyncIteration):
                    return
        finally:
            self._blocking.run(source.aclose())

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord[Key_co, Value_co]]:
        """As `Consumer.poll`."""
        if self._ready:
            count = min(len(self._ready), max_records or len(self._ready))
            return [self._ready.popleft() for _ in range(count)]
        return self._alone(self._consumer.poll(timeout_ms, max_records))

    def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = 1_048_576,
        *,
        max_wait_ms: int = 500,
        timeout_ms: float | None = None,
    ) -> RawFetch:
        """As `Consumer.fetch_raw`."""
        fetch = self._consumer.fetch_raw(
            topic, partition, offset, max_bytes, max_wait_ms=max_wait_ms, timeout_ms=timeout_ms
        )
        return self._blocking.run(fetch)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: AnyListener | None = None,
    ) -> None:
        """As `Consumer.subscribe`."""
        self._change(lambda: self._consumer.subscribe(topics, pattern=pattern, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._change(lambda: self._consumer.assign(partitions))

    def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        self._change(self._consumer.unsubscribe)

    def assignment(self) -> set[TopicPartition]:
        """As `Consumer.assignment`."""
        return self._blocking.call(self._consumer.assignment)

    def subscription(self) -> set[str]:
        """As `Consumer.subscription`."""
        return self._blocking.call(self._consumer.subscription)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        self._change(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        self._change(lambda: self._consumer.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """As `Consumer.paused`."""
        return self._blocking.call(self._consumer.paused)

    # --- positions ---

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """As `Consumer.seek`."""
        self._change(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._change(lambda: self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """As `Consumer.seek_to_end`."""
        self._change(lambda: self._consumer.seek_to_end(partitions))

    def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """As `Consumer.position`."""
        unread = self._unread().get(TopicPartition(*partition))
        return unread.offset if unread else self._alone(self._consumer.position(partition, timeout_ms=timeout_ms))

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `Consumer.positions`; in a `for` loop after the current record."""
        return self._blocking.call(self._to_commit)

    def high_watermark(self, partition: TopicPartition) -> int:
        """As `Consumer.high_watermark`."""
        return self._blocking.call(self._consumer.high_watermark, partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """As `Consumer.lag`, counted from the records that `poll` has returned."""
        return self._blocking.call(self._consumer.lag, partition)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """As `Consumer.commit`; in a `for` loop up to the current record."""
        self._alone(self._commit(offsets))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """As `Consumer.commit_async`; the callback runs in the event loop's thread and must not block."""

        def begin() -> None:
            self._consumer.commit_async(self._to_commit() if offsets is None and self._ready else offsets, callback)

        self._blocking.call(begin)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `Consumer.committed`."""
        return self._blocking.run(self._consumer.committed(partitions))

    def group_metadata(self) -> Member:
        """As `Consumer.group_metadata`."""
        return self._blocking.call(self._consumer.group_metadata)

    def enforce_rebalance(self, reason: str = "") -> None:
        """As `Consumer.enforce_rebalance`."""
        self._blocking.call(self._consumer.enforce_rebalance, reason)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return self._blocking.run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return self._blocking.run(self._consumer.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`."""
        return self._blocking.run(self._consumer.offsets_for_times(timestamps))

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """As `Consumer.partitions_for`."""
        return self._blocking.run(self._consumer.partitions_for(topic))

    # --- inside ---

    def _alone(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine unless another thread runs one."""
        if not self._in_use.acquire(blocking=False):
            work.close()
            raise IllegalState("the consumer is in use by another thread: a consumer is for one thread at a time")
        try:
            return self._blocking.run(work)
        finally:
            self._in_use.release()

    def _change(self, change: Any) -> None:
        """Call a method that changes what is read, or from where."""

        async def changed() -> None:
            self._return_unread()
            change()

        self._alone(changed())

    def _unread(self) -> dict[TopicPartition, ConsumerRecord[Key_co, Value_co]]:
        """The first record of each partition that is polled and not yet yielded."""
        first: dict[TopicPartition, ConsumerRecord[Key_co, Value_co]] = {}
        for record in self._ready:
            first.setdefault(record.topic_partition, record)
        return first

    def _return_unread(self) -> None:
        """Have unread records fetched again: their positions go back."""
        unread = self._unread()
        self._ready.clear()
        for partition in unread.keys() & self._consumer.assignment():
            self._consumer.seek(
                partition, OffsetAndMetadata(unread[partition].offset, "", unread[partition].leader_epoch)
            )

    def _to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        unread = self._unread()
        offsets = self._consumer.positions()
        for partition in unread.keys() & offsets.keys():
            record = unread[partition]
            offsets[partition] = OffsetAndMetadata(record.offset, "", record.leader_epoch)
        return offsets

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> None:
        await self._consumer.commit(self._to_commit() if offsets is None and self._ready else offsets)
