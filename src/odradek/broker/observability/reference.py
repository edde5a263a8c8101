"""Writes `docs/METRICS.md`: `python -m odradek.broker.observability.reference > docs/METRICS.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from odradek.broker.observability.audit_metrics import AuditMetrics
from odradek.broker.observability.client_telemetry import ClientTelemetry
from odradek.broker.observability.cluster_metrics import ClusterMetrics
from odradek.broker.observability.connection_metrics import ConnectionMetrics
from odradek.broker.observability.exporter import OWN_METRICS
from odradek.broker.observability.group_metrics import GroupMetrics
from odradek.broker.observability.partition_metrics import PartitionMetrics
from odradek.broker.observability.process_metrics import ProcessMetrics
from odradek.broker.observability.quorum_metrics import QuorumMetrics
from odradek.broker.observability.request_metrics import RequestMetrics
from odradek.broker.observability.storage_metrics import StorageMetrics
from odradek.broker.observability.topic_metrics import TopicMetrics
from odradek.metrics.definition import Metric

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Process", ProcessMetrics.metrics),
    ("Connections and requests that wait", ConnectionMetrics.metrics),
    ("Requests", RequestMetrics.metrics),
    ("Records and bytes", TopicMetrics.metrics),
    ("Partitions and replicas", PartitionMetrics.metrics),
    ("Controller and cluster", ClusterMetrics.metrics),
    ("Quorum, of controllers with `process.roles=controller`", QuorumMetrics.metrics),
    ("Log directories", StorageMetrics.metrics),
    ("Groups", GroupMetrics.metrics),
    ("Clients (KIP-714, with the extra `telemetry`)", ClientTelemetry.metrics),
    ("Audit topic (`odradek.audit.topic.enable`)", AuditMetrics.metrics),
    ("Scrapes", OWN_METRICS),
)
"""All metrics by subject, in the order of a scrape."""

NOT_OFFERED: tuple[tuple[str, str], ...] = (
    (
        "kafka_network_requestmetrics_requestqueuetimems",
        (
            "No queue: the event loop serves a request as soon as it has read it. "
            "`kafka_network_requestchannel_requestqueuesize` counts those that wait for their connection"
        ),
    ),
    (
        "kafka_network_requestmetrics_responsequeuetimems",
        (
            "No queue: the event loop sends an answer when it is ready. "
            "`kafka_network_requestchannel_responsequeuesize` counts those that wait for an earlier answer"
        ),
    ),
    (
        "kafka_network_requestmetrics_responsesendtimems",
        "Not measured: answers of several requests leave in one system call",
    ),
    ("kafka_network_requestmetrics_messageconversionstimems", "Brokers never convert records between formats"),
    ("kafka_network_requestmetrics_temporarymemorybytes", "Records are served out of the receive buffer"),
    ("kafka_server_brokertopicmetrics_producemessageconversions", "Brokers never convert records between formats"),
    ("kafka_server_brokertopicmetrics_fetchmessageconversions", "Brokers never convert records between formats"),
    (
        "kafka_server_replicafetchermanager_maxlag",
        "The leader knows how far its followers lag: `odradek_replica_lag_records`",
    ),
    (
        "kafka_controller_controllereventmanager_eventqueuetimems",
        "`odradek_event_loop_delay_seconds` shows how long events wait, the controller's among them",
    ),
)
"""Metrics of Kafka brokers that dashboards ask for and that have no counterpart here: (name, reason)."""

_INTRODUCTION = """# Metrics

Every metric that `GET /metrics` of a node may answer, made from the declarations in `broker/observability` by
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
    yield "## Not offered\n"
    yield "These names of Kafka's brokers are absent from every scrape.\n"
    yield "| name | reason |"
    yield "|---|---|"
    for name, reason in NOT_OFFERED:
        yield f"| `{name}` | {reason} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()).rstrip() + "\n")
