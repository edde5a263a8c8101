"""The share consumer for threads, which wait in its methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

from odradek.client.arguments import keywords
from odradek.client.blocking import Blocking, loop_for
from odradek.client.config import ShareConsumerOptions
from odradek.client.errors import ClientClosed, IllegalState
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.serializers import Deserializer
from odradek.client.share.acknowledgements import AcknowledgeType
from odradek.client.share.records import ShareRecord
from odradek.client.share.share_consumer import AcknowledgementCallback, CommitOutcome, ShareConsumer
from odradek.client.type_parameters import Key_co, Value_co
from odradek.records.topic_partition import TopicPartition

T = TypeVar("T")

_POLL_MS: Final = 1_000


class BlockingShareConsumer(Generic[Key_co, Value_co]):
    """A share consumer for one thread at a time, `BlockingShareConsumer[KeyType, ValueType]`; others may `close` it.

    Example:

        with BlockingShareConsumer("jobs", bootstrap_servers="127.0.0.1:9092", group_id="workers") as consumer:
            for record in consumer:
                print(record.value)
    """

    __slots__ = ("_blocking", "_closed", "_consumer", "_in_use")

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[Key_co] | None = None,
        value_deserializer: Deserializer[Value_co] | None = None,
        on_acknowledgement: AcknowledgementCallback | None = None,
        blocking: Blocking | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Arguments as of `ShareConsumer`; `blocking` is the event loop to use. Raises ConfigError, KafkaError.

        `on_acknowledgement` runs in the event loop's thread: it must not block.
        """
        self._consumer: ShareConsumer[Key_co, Value_co] = ShareConsumer(
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_acknowledgement=on_acknowledgement,
            **options,
        )
        self._blocking = loop_for(blocking)
        self._in_use = threading.Lock()
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *topics: str, **arguments: Any) -> Self:
        """As `ShareConsumer.from_config`."""
        return cls(*topics, **keywords(config, arguments))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def config(self) -> ShareConsumerOptions:
        """All options as resolved."""
        return self._consumer.config

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """As `ShareConsumer.acquisition_lock_timeout_ms`."""
        return self._consumer.acquisition_lock_timeout_ms

    def metrics(self) -> Metrics:
        """As `ShareConsumer.metrics`."""
        return self._blocking.call(self._consumer.metrics)

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `ShareConsumer.register_metrics`."""
        self._blocking.call(self._consumer.register_metrics, source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `ShareConsumer.unregister_metrics`."""
        self._blocking.call(self._consumer.unregister_metrics, source)

    def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """As `ShareConsumer.client_instance_id`."""
        return self._blocking.run(self._consumer.client_instance_id(timeout_ms))

    def start(self) -> None:
        """As `ShareConsumer.start`."""
        self._blocking.open(self._consumer)

    def close(self) -> None:
        """As `ShareConsumer.close`; from another thread it ends a `for` loop over this consumer."""
        if self._closed:
            return
        self._closed = True
        self._blocking.close_client(self._consumer)

    def __iter__(self) -> Iterator[ShareRecord[Key_co, Value_co]]:
        """Records as they arrive, until `close`; acknowledged as in `ShareConsumer.__aiter__`. Raises as `poll`."""
        while not self._closed:
            try:
                records = self.poll(_POLL_MS, 1)
            except ClientClosed:
                return
            yield from records

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ShareRecord[Key_co, Value_co]]:
        """As `ShareConsumer.poll`."""
        with self._alone():
            return self._blocking.run(self._consumer.poll(timeout_ms, max_records))

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """As `ShareConsumer.acknowledge`."""
        self._call(lambda: self._consumer.acknowledge(record, kind))

    def acknowledge_offset(
        self, partition: TopicPartition, offset: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """As `ShareConsumer.acknowledge_offset`."""
        self._call(lambda: self._consumer.acknowledge_offset(partition, offset, kind))

    def commit(self, timeout_ms: float | None = None) -> CommitOutcome:
        """As `ShareConsumer.commit`."""
        with self._alone():
            return self._blocking.run(self._consumer.commit(timeout_ms))

    def commit_async(self) -> None:
        """As `ShareConsumer.commit_async`."""
        self._call(self._consumer.commit_async)

    def subscribe(self, topics: Iterable[str]) -> None:
        """As `ShareConsumer.subscribe`."""
        self._call(lambda: self._consumer.subscribe(topics))

    def unsubscribe(self) -> None:
        """As `ShareConsumer.unsubscribe`."""
        with self._alone():
            self._blocking.run(self._consumer.unsubscribe())

    def subscription(self) -> set[str]:
        """As `ShareConsumer.subscription`."""
        return self._consumer.subscription()

    def assignment(self) -> set[TopicPartition]:
        """As `ShareConsumer.assignment`."""
        return self._call(self._consumer.assignment)

    def _call(self, function: Callable[[], T]) -> T:
        with self._alone():
            return self._blocking.call(function)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._in_use.acquire(blocking=False):
            raise IllegalState("another thread is using this share consumer: give each thread its own")
        try:
            yield
        finally:
            self._in_use.release()
