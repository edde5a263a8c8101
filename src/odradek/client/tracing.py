"""Spans of records for OpenTelemetry, and their context in record headers. Needs the extra `otel`.

    async with Producer(interceptors=[TracingProducerInterceptor()], ...) as producer: ...

    async with Consumer("orders", interceptors=[TracingConsumerInterceptor(group_id="workers")], ...) as consumer:
        async for record in consumer:
            with process_span(record):
                ...

Names and attributes are those of OpenTelemetry's semantic conventions for messaging (`messaging.*`). The program's
propagator carries the context; it is W3C Trace Context unless it was changed. Without an SDK nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from odradek.client.model import ConsumerRecord
from odradek.client.type_parameters import Data
from odradek.records.headers import Headers
from odradek.version import __version__

_SCOPE: Final = "odradek.client"
_ERROR_KEY: Final = "error.type"


class _HeaderGetter(Getter[Headers]):
    """Reads a propagator's fields from record headers; the last of several with one name counts."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """The field's value, None without one."""
        found = None
        for name, value in carrier:
            if name == key and value is not None:
                found = bytes(value).decode("utf-8", "replace")
        return None if found is None else [found]

    def keys(self, carrier: Headers) -> list[str]:
        """All names."""
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


def extract_context(headers: Headers) -> Context:
    """The context that a record's headers carry; an empty one without."""
    return propagate.extract(headers, context=Context(), getter=_GETTER)


def inject_context(headers: Headers, context: Context | None = None) -> Headers:
    """The headers with a context (default: the current one) instead of the context that they have."""
    fields: dict[str, str] = {}
    propagate.inject(fields, context=context)
    kept = [(name, value) for name, value in headers if name not in fields]
    return [*kept, *((name, text.encode()) for name, text in fields.items())]


class TracingProducerInterceptor:
    """A span `send TOPIC` for each record, as a child of the caller's, whose context the record carries.

    The span ends when the record is queued, not when it is acknowledged.

    Example:

        tracing = TracingProducerInterceptor(client_id="shop")
        async with Producer(bootstrap_servers="127.0.0.1:9092", interceptors=[tracing]) as producer:
            await producer.send_and_wait("orders", b"tea", key=b"anna")
    """

    __slots__ = ("_attributes", "_tracer")

    def __init__(self, *, client_id: str | None = None, tracer_provider: TracerProvider | None = None) -> None:
        """`client_id` becomes an attribute; without a provider the program's global one is used."""
        self._tracer = _tracer(tracer_provider)
        self._attributes = _common("send", "send", client_id, None)

    def on_send(
        self, topic: str, key: Data | None, value: Data | None, headers: Headers
    ) -> tuple[Data | None, Data | None, Headers]:
        """See `OnSend`."""
        attributes = {**self._attributes, "messaging.destination.name": topic, **_of_message(key, value)}
        with self._tracer.start_as_current_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes):
            return key, value, inject_context(headers)


class TracingConsumerInterceptor:
    """A span `poll TOPIC` for each fetched batch, with a link to the context of each of its records.

    Example:

        tracing = TracingConsumerInterceptor(group_id="tracers")
        consumer = Consumer(
            "orders", bootstrap_servers="127.0.0.1:9092", group_id="tracers", interceptors=[tracing]
        )
        async with consumer:
            async for record in consumer:
                with process_span(record, group_id="tracers") as span:
                    print(span.get_span_context().trace_id)
    """

    __slots__ = ("_attributes", "_tracer")

    def __init__(
        self,
        *,
        client_id: str | None = None,
        group_id: str | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        """`client_id` and `group_id` become attributes; without a provider the program's global one is used."""
        self._tracer = _tracer(tracer_provider)
        self._attributes = _common("poll", "receive", client_id, group_id)

    def on_consume(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Sequence[ConsumerRecord[Any, Any]]:
        """See `OnConsume`."""
        if records:
            first = records[0]
            contexts = (trace.get_current_span(extract_context(each.headers)) for each in records if each.headers)
            links = [Link(span.get_span_context()) for span in contexts if span.get_span_context().is_valid]
            attributes = {
                **self._attributes,
                "messaging.destination.name": first.topic,
                "messaging.destination.partition.id": str(first.partition),
                "messaging.batch.message_count": len(records),
            }
            self._tracer.start_span(
                f"poll {first.topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links
            ).end()
        return records


@contextmanager
def process_span(
    record: ConsumerRecord[Any, Any],
    *,
    client_id: str | None = None,
    group_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """A span `process TOPIC` around the work on a record, as a child of the span that sent it.

    An exception is recorded and raised.
    """
    attributes = {
        **_common("process", "process", client_id, group_id),
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
        **_of_message(record.key, record.value),
    }
    with _tracer(tracer_provider).start_as_current_span(
        f"process {record.topic}",
        context=extract_context(record.headers),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute(_ERROR_KEY, type(error).__qualname__)
            raise


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer(_SCOPE, __version__, provider)


def _common(name: str, kind: str, client_id: str | None, group_id: str | None) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if client_id is not None:
        attributes["messaging.client.id"] = client_id
    if group_id is not None:
        attributes["messaging.consumer.group.name"] = group_id
    return attributes


def _of_message(key: object, value: object) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    if isinstance(key, bytes | bytearray | memoryview):
        key = bytes(key).decode("utf-8", "backslashreplace")
    if key is not None:
        attributes["messaging.kafka.message.key"] = str(key)
    if value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    elif isinstance(value, bytes | bytearray | memoryview):
        attributes["messaging.message.body.size"] = len(value)
    return attributes
