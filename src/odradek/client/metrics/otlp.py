"""Metrics of a client as OpenTelemetry's protobuf, as brokers receive them. Needs the package opentelemetry-proto.

Names and attributes are those of Kafka's `TelemetryMetricNamingConvention`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from odradek.client.metrics.metric import Metric
from odradek.version import __version__

_PREFIX = "org.apache.kafka."


def telemetry_name(metric: Metric) -> str:
    """For instance `org.apache.kafka.consumer.fetch.manager.records.lag.max`."""
    group = metric.group.removesuffix("-metrics")
    return f"{_PREFIX}{group}.{metric.name}".replace("-", ".")


class OtlpEncoder:
    """Encodes one push after the other; with delta temporality, totals are what has come since the last one."""

    __slots__ = ("_before", "_begun_ms")

    def __init__(self, now_ms: int) -> None:
        """`now_ms`: since when the totals count."""
        self._begun_ms = now_ms
        self._before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def encode(self, metrics: Iterable[Metric], labels: Mapping[str, str], now_ms: int, *, is_delta: bool) -> bytes:
        """A MetricsData message: `labels` describe the client. NaN is left out, and `client-id`, which brokers know."""
        data = MetricsData()
        resource = data.resource_metrics.add()
        for name, text in labels.items():
            resource.resource.attributes.add(key=name).value.string_value = text
        scope = resource.scope_metrics.add()
        scope.scope.name = "odradek"
        scope.scope.version = __version__
        start_ms = self._begun_ms
        for each in metrics:
            if math.isnan(each.value):
                continue
            value = each.value
            name = telemetry_name(each)
            tags = tuple((tag, text) for tag, text in each.tags.items() if tag != "client-id")
            made = scope.metrics.add(name=name)
            if each.is_total:
                if is_delta:
                    value -= self._before.get((name, tags), 0.0)
                    self._before[name, tags] = each.value
                made.sum.is_monotonic = True
                made.sum.aggregation_temporality = (
                    AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
                    if is_delta
                    else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
                )
                point = made.sum.data_points.add(start_time_unix_nano=start_ms * 1_000_000)
            else:
                point = made.gauge.data_points.add()
            point.time_unix_nano = now_ms * 1_000_000
            point.as_double = value
            for tag, text in tags:
                point.attributes.add(key=tag.replace("-", "_")).value.string_value = text
        if is_delta:
            self._begun_ms = now_ms
        encoded: bytes = data.SerializeToString()
        return encoded
