"""OpenTelemetry's metrics in protobuf, as clients push them. Needs the package opentelemetry-proto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

MOST_SERIES: Final = 500
"""Series that are kept of one client."""
_NAME_CHARACTERS: Final = 200
_LABELS: Final = {"node.id": "node", "node_id": "node", "node-id": "node", "topic": "topic", "partition": "partition"}
"""Attributes that become labels; others of the same series are left out."""


class ClientSeries(NamedTuple):
    """One value of a client."""

    name: str
    """As the client gives it, for instance `org.apache.kafka.producer.record.send.total`."""
    labels: tuple[tuple[str, str], ...]
    value: float


def decode_metrics(data: bytes) -> Sequence[ClientSeries]:
    """The first MOST_SERIES values of a MetricsData message. Raises ValueError for other bytes."""
    message = MetricsData()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    distinct = {(series.name, series.labels): series for series in islice(_series(message), MOST_SERIES)}
    return list(distinct.values())


def _series(message: Any) -> Iterator[ClientSeries]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _of_metric(metric)


def _of_metric(metric: Any) -> Iterator[ClientSeries]:
    name = metric.name[:_NAME_CHARACTERS]
    kind = metric.WhichOneof("data")
    if kind in ("gauge", "sum"):
        for point in getattr(metric, kind).data_points:
            value = point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
            yield ClientSeries(name, _labels(point.attributes), value)
    elif kind in ("histogram", "exponential_histogram", "summary"):
        for point in getattr(metric, kind).data_points:
            labels = _labels(point.attributes)
            yield ClientSeries(f"{name}.count", labels, float(point.count))
            yield ClientSeries(f"{name}.sum", labels, float(point.sum))


def _labels(attributes: Any) -> tuple[tuple[str, str], ...]:
    found = {}
    for attribute in attributes:
        known = _LABELS.get(attribute.key)
        if known is not None:
            kind = attribute.value.WhichOneof("value")
            found[known] = str(getattr(attribute.value, kind))[:_NAME_CHARACTERS] if kind else ""
    return tuple(sorted(found.items()))
