"""Metrics of clients as text for Prometheus (format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from odradek.client.metrics.metric import Metric
from odradek.metrics.definition import Family, counter, gauge, label, several
from odradek.metrics.exposition import TextFormat, portions

CONTENT_TYPE = TextFormat.PROMETHEUS.value
"""The media type of the text."""


def prometheus_text(*clients: Iterable[Metric]) -> str:
    """The metrics of some clients, each with another `client_id`: `prometheus_text(producer.metrics(), ...)`.

    Names are those of JMX exporters: `kafka_consumer_fetch_manager_metrics_records_lag_max`. NaN is left out.

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            await producer.send_and_wait("orders", b"tea")
            print(prometheus_text(producer.metrics()))
    """
    families: dict[tuple[str, bool], list[Metric]] = {}
    for client in clients:
        for each in client:
            if not math.isnan(each.value):
                name = f"kafka_{each.group}_{each.name}".replace("-", "_")
                families.setdefault((name, each.is_total), []).append(each)
    return "".join(portions(_families(families), TextFormat.PROMETHEUS))


def _families(families: dict[tuple[str, bool], list[Metric]]) -> Iterator[Family]:
    for (name, is_total), metrics in families.items():
        labels = tuple(tag.replace("-", "_") for tag in metrics[0].tags)
        declare = counter if is_total else gauge
        declared = declare(name.removesuffix("_total") if is_total else name, metrics[0].description, labels=labels)
        yield several(declared, ((_labels(each), each.value) for each in metrics))


def _labels(metric: Metric) -> str:
    return ",".join(label(tag.replace("-", "_"), text) for tag, text in metric.tags.items())
