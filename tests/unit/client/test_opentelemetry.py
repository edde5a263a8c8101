"""Spans, context in headers, and metrics of the clients for OpenTelemetry."""

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from odradek.client import Consumer, Producer
from odradek.client.metrics.opentelemetry import instrument_name, observe_clients
from odradek.client.tracing import (
    TracingConsumerInterceptor,
    TracingProducerInterceptor,
    extract_context,
    inject_context,
    process_span,
)
from tests.unit.client.consumers import read
from tests.unit.client.consumers import run as run_consumer
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_client_producer import run as run_producer


class Spans:
    """A provider that keeps its spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[Any]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]


def send_one(spans: Spans, cluster: FakeCluster, **record: Any) -> None:
    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"value", **record)

    interceptor = TracingProducerInterceptor(client_id="c", tracer_provider=spans.provider)
    run_producer(cluster, body, interceptors=[interceptor])


def test_send_is_a_span_of_the_caller() -> None:
    spans, cluster = Spans(), FakeCluster()
    with trace.get_tracer("test", tracer_provider=spans.provider).start_as_current_span("work"):
        send_one(spans, cluster, key=b"k")
    [sent], [work] = spans.named("send t"), spans.named("work")
    assert sent.parent.span_id == work.context.span_id
    assert sent.kind is SpanKind.PRODUCER
    assert dict(sent.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "c",
        "messaging.destination.name": "t",
        "messaging.kafka.message.key": "k",
        "messaging.message.body.size": 5,
    }


def test_processing_continues_the_trace_of_the_record() -> None:
    spans, cluster = Spans(), FakeCluster()
    send_one(spans, cluster, headers={"own": b"1"})

    async def body(consumer: Consumer) -> None:
        [record] = await read(consumer, 1)
        names = [name for name, _ in record.headers]
        assert names == ["own", "traceparent"]
        with process_span(record, group_id="g", tracer_provider=spans.provider):
            pass

    run_consumer(cluster, body, "t")
    [sent], [processed] = spans.named("send t"), spans.named("process t")
    assert processed.parent.span_id == sent.context.span_id
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.attributes["messaging.kafka.offset"] == 0
    assert processed.attributes["messaging.consumer.group.name"] == "g"


def test_poll_links_to_the_spans_that_sent_the_records() -> None:
    spans, cluster = Spans(), FakeCluster()
    send_one(spans, cluster)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 1)

    interceptor = TracingConsumerInterceptor(group_id="g", tracer_provider=spans.provider)
    run_consumer(cluster, body, "t", interceptors=[interceptor])
    [sent], [polled] = spans.named("send t"), spans.named("poll t")
    assert [each.context.span_id for each in polled.links] == [sent.context.span_id]
    assert polled.attributes["messaging.batch.message_count"] == 1


def test_failed_processing_names_its_error() -> None:
    spans, cluster = Spans(), FakeCluster()
    send_one(spans, cluster)

    async def body(consumer: Consumer) -> None:
        [record] = await read(consumer, 1)
        with pytest.raises(LookupError), process_span(record, tracer_provider=spans.provider):
            raise LookupError

    run_consumer(cluster, body, "t")
    [processed] = spans.named("process t")
    assert processed.attributes["error.type"] == "LookupError"
    assert not processed.status.is_ok


def test_injected_context_replaces_an_older_one() -> None:
    spans = Spans()
    old = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("other", b"x")]
    with trace.get_tracer("test", tracer_provider=spans.provider).start_as_current_span("work") as work:
        headers = inject_context(old)
    assert [name for name, _ in headers] == ["other", "traceparent"]
    found = trace.get_current_span(extract_context(headers)).get_span_context()
    assert found.span_id == work.get_span_context().span_id


@pytest.mark.parametrize("value", [b"nonsense", b"\xff\xfe", None])
def test_broken_context_is_ignored(value: bytes | None) -> None:
    span = trace.get_current_span(extract_context([("traceparent", value)]))
    assert not span.get_span_context().is_valid


def test_metrics_are_observed_with_their_tags() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def points(name: str) -> list[Any]:
        data: Any = reader.get_metrics_data()
        found = data.resource_metrics[0].scope_metrics[0].metrics
        return [point for each in found if each.name == name for point in each.data.data_points]

    async def body(producer: Producer) -> None:
        observe_clients(producer, meter_provider=provider)
        for total in (1, 2):
            await producer.send_and_wait("t", b"x")
            # The exporter of a program runs in a thread of its own.
            [topic] = await asyncio.to_thread(points, "kafka.producer_topic.record_send_total")
            assert (topic.value, topic.attributes["topic"]) == (total, "t")
        assert points("kafka.producer.connection_count")[0].value == 1

    run_producer(FakeCluster(), body)
    provider.shutdown()


def test_instrument_names_follow_kafkas() -> None:
    name = instrument_name("consumer-fetch-manager-metrics", "records-lag-max")
    assert name == "kafka.consumer_fetch_manager.records_lag_max"
