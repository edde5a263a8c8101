"""Writes `docs/METRICS.md`: `python -m odradek.broker.observability.reference > docs/METRICS.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from odradek.broker.observability.client_telemetry import ClientTelemetry
from odradek.broker.observability.cluster_metrics import ClusterMetrics
from odradek.broker.observability.exporter import OWN_METRICS
from odradek.broker.observability.group_metrics import GroupMetrics
from odradek.broker.observability.partition_metrics import PartitionMetrics
from odradek.broker.observability.process_metrics import ProcessMetrics
from odradek.broker.observability.request_metrics import RequestMetrics
from odradek.broker.observability.storage_metrics import StorageMetrics
from odradek.broker.observability.topic_metrics import TopicMetrics
from odradek.metrics.definition import Metric

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Process and connections", ProcessMetrics.metrics),
    ("Requests", RequestMetrics.metrics),
    ("Records and bytes", TopicMetrics.metrics),
    ("Partitions and replicas", PartitionMetrics.metrics),
    ("Controller and cluster", ClusterMetrics.metrics),
    ("Log directories", StorageMetrics.metrics),
    ("Groups", GroupMetrics.metrics),
    ("Clients (KIP-714, with the extra `telemetry`)", ClientTelemetry.metrics),
    ("Scrapes", OWN_METRICS),
)
"""All metrics by subject, in the order of a scrape."""

_INTRODUCTION = """# Metrics

Every metric that `GET /metrics` of a broker may answer, made from the declarations in `broker/observability` by
`./dev run python -m odradek.broker.observability.reference > docs/METRICS.md`. How to set the listener, and what to
look at: [OBSERVABILITY.md](OBSERVABILITY.md). A summary has the quantiles 0.5, 0.75, 0.95, 0.98, 0.99 and 0.999 of the
last minute or more, `_sum` and `_count`; a histogram has `_bucket`, `_sum` and `_count`.
"""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield _INTRODUCTION
    for title, metrics in SECTIONS:
        yield f"## {title}\n"
        yield "| name | type | labels | meaning | counterpart |"
        yield "|---|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{name}`" for name in metric.labels)
            counterpart = f"`{metric.counterpart}`" if metric.counterpart else ""
            yield f"| `{metric.sample_name}` | {metric.kind.value} | {labels} | {metric.meaning} | {counterpart} |"
        yield ""


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()).rstrip() + "\n")
