"""Interceptors see every record on its way, as Kafka's ProducerInterceptor and ConsumerInterceptor do.

An interceptor is an object with any of the methods below; those it lacks are not called. An exception that one raises
is logged, and the record continues its way, except in `on_send`, where it reaches the caller of `send`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from odradek.client.model import ConsumerRecord, OffsetAndMetadata, RecordMetadata
from odradek.client.type_parameters import Data
from odradek.records.headers import Headers
from odradek.records.topic_partition import TopicPartition


class OnSend(Protocol):
    """Changes records before they are sent.

    Example:

        class Marking:
            def on_send(
                self, topic: str, key: Data | None, value: Data | None, headers: Headers
            ) -> tuple[Data | None, Data | None, Headers]:
                return key, value, [*headers, ("from", b"shop")]

        async with Producer(bootstrap_servers="127.0.0.1:9092", interceptors=[Marking()]) as producer:
            await producer.send_and_wait("orders", b"tea")
    """

    def on_send(
        self, topic: str, key: Data | None, value: Data | None, headers: Headers
    ) -> tuple[Data | None, Data | None, Headers]:
        """Return the key, value and headers to send; called in `send`, after the serializers."""
        ...


class OnAcknowledgement(Protocol):
    """Observes outcomes of records."""

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called once per record with its place, or with the error that it was lost with."""
        ...


class OnConsume(Protocol):
    """Changes records before they are returned."""

    def on_consume(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Sequence[ConsumerRecord[Any, Any]]:
        """Return the records to hand out, in order of offsets; called once per fetched batch of one partition."""
        ...


class OnCommit(Protocol):
    """Observes commits."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after each successful commit, the automatic ones too."""
        ...


ProducerInterceptor = OnSend | OnAcknowledgement
"""An object with `on_send`, `on_acknowledgement`, or both."""
ConsumerInterceptor = OnConsume | OnCommit
"""An object with `on_consume`, `on_commit`, or both."""
