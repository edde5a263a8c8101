"""The metrics of a client, computed from its numbers when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.client.metrics.counts import Counts
from odradek.client.metrics.measures import ConsumerMeasures, ProducerMeasures, ShareMeasures
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.metrics.names import (
    CONSUMED_IN_ALL,
    CONSUMED_OF_TOPIC,
    CONSUMER,
    CONSUMER_TIMES,
    COORDINATOR,
    FETCHES,
    GAUGES,
    NETWORK,
    NODE,
    PRODUCER,
    PRODUCER_BATCHES,
    PRODUCER_TOPIC,
    SHARE_COORDINATOR,
    SHARE_FETCHES,
    Kind,
    Name,
    Names,
)
from odradek.client.metrics.windows import Span, Windows

if TYPE_CHECKING:
    from odradek.client.consumer.positions import PartitionState
    from odradek.client.network.cluster import Cluster
    from odradek.client.producer.accumulator import Accumulator

_HOUR_S = 3_600
_BOOTSTRAP_NODE = "node--1"


class _Page:
    """The metrics so far."""

    def __init__(self, windows: Windows, client_id: str) -> None:
        self._windows = windows
        self._tags = {"client-id": client_id}
        self.metrics: list[Metric] = []

    def add(self, group: str, names: Names, counted: Iterable[Counts], **tags: str) -> None:
        span = self._windows.span(counted)
        labels = self._labels(tags)
        self.metrics += [
            Metric(each.name, group, labels, _value(each, span), each.kind is Kind.TOTAL, each.description)
            for each in names
        ]

    def gauge(self, group: str, name: str, value: float, **tags: str) -> None:
        self.metrics.append(Metric(name, group, self._labels(tags), float(value), False, GAUGES[name]))

    def _labels(self, tags: Mapping[str, str]) -> Mapping[str, str]:
        return {**self._tags, **{name.replace("_", "-"): value for name, value in tags.items()}}


def _value(name: Name, span: Span) -> float:
    if name.kind is Kind.TOTAL:
        return span.total(name.numbers) * name.scale
    if name.kind is Kind.RATE:
        return span.recent(name.numbers) / span.seconds
    if name.kind is Kind.HOURLY:
        return span.recent(name.numbers) / span.seconds * _HOUR_S
    happened = span.recent(name.per)
    if not happened:
        return math.nan
    if name.kind is Kind.AVERAGE:
        return span.recent(name.numbers) / happened * name.scale
    return span.high(name.numbers) * name.scale


def _network(page: _Page, cluster: Cluster, kind: str) -> None:
    traffic = cluster.connections.traffic
    page.add(f"{kind}-metrics", NETWORK, traffic.values())
    page.gauge(f"{kind}-metrics", "connection-count", cluster.connections.open_count)
    ids = {(each.host, each.port): f"node-{each.node_id}" for each in cluster.connections.brokers.values()}
    by_node: dict[str, list[Counts]] = {}
    for address, counted in traffic.items():
        by_node.setdefault(ids.get(address, _BOOTSTRAP_NODE), []).append(counted)
    for node, parts in by_node.items():
        page.add(f"{kind}-node-metrics", NODE, parts, node_id=node)


def admin_metrics(cluster: Cluster) -> Metrics:
    """The metrics of an admin client."""
    page = _Page(cluster.windows, cluster.options["client_id"])
    _network(page, cluster, "admin-client")
    return Metrics(page.metrics)


def producer_metrics(
    cluster: Cluster, measures: ProducerMeasures, accumulator: Accumulator, buffer_bytes: int, in_flight: int
) -> Metrics:
    """The metrics of a producer with this much buffer memory, and these produce requests in flight."""
    page = _Page(cluster.windows, cluster.options["client_id"])
    _network(page, cluster, "producer")
    page.add("producer-metrics", PRODUCER, [measures.sends])
    page.add("producer-metrics", PRODUCER_BATCHES, [measures.sends, *measures.by_topic.values()])
    page.gauge("producer-metrics", "requests-in-flight", in_flight)
    page.gauge("producer-metrics", "metadata-age", cluster.metadata_age())
    page.gauge("producer-metrics", "buffer-total-bytes", buffer_bytes)
    page.gauge("producer-metrics", "buffer-available-bytes", accumulator.free_bytes)
    page.gauge("producer-metrics", "waiting-threads", measures.waiting)
    for topic, counted in measures.by_topic.items():
        page.add("producer-topic-metrics", PRODUCER_TOPIC, [counted], topic=topic)
    return Metrics(page.metrics)


def consumer_metrics(
    cluster: Cluster,
    measures: ConsumerMeasures,
    states: Iterable[PartitionState],
    *,
    committed_only: bool,
    grouped: bool,
) -> Metrics:
    """The metrics of a consumer with these partitions.

    With `committed_only` a partition ends at its last stable offset; `grouped` adds the coordinator's metrics.
    """
    page = _Page(cluster.windows, cluster.options["client_id"])
    _network(page, cluster, "consumer")
    now = cluster.loop.time()
    page.add("consumer-metrics", CONSUMER + CONSUMER_TIMES, [measures.reads])
    page.gauge("consumer-metrics", "last-poll-seconds-ago", _ago(measures.last_poll, now))
    fetches = "consumer-fetch-manager-metrics"
    page.add(fetches, FETCHES, [measures.reads])
    page.add(fetches, CONSUMED_IN_ALL, [measures.reads, *measures.by_topic.values()])
    for topic, counted in measures.by_topic.items():
        page.add(fetches, CONSUMED_OF_TOPIC, [counted], topic=topic)
    assigned = list(states)
    lags, leads = _partitions(page, assigned, committed_only)
    if measures.reads.fetches and lags:
        lags.append(cluster.windows.span([measures.reads]).high(("most_lag",)))
    page.gauge(fetches, "records-lag-max", max(lags, default=math.nan))
    page.gauge(fetches, "records-lead-min", min(leads, default=math.nan))
    if grouped:
        coordinator = "consumer-coordinator-metrics"
        page.add(coordinator, COORDINATOR, [measures.group])
        page.gauge(coordinator, "assigned-partitions", len(assigned))
        page.gauge(coordinator, "last-heartbeat-seconds-ago", _ago(measures.last_heartbeat, now))
        page.gauge(coordinator, "last-rebalance-seconds-ago", _ago(measures.last_rebalance, now))
    return Metrics(page.metrics)


def share_consumer_metrics(cluster: Cluster, measures: ShareMeasures) -> Metrics:
    """The metrics of a share consumer."""
    kind, reads = "consumer-share", measures.consumer.reads
    page = _Page(cluster.windows, cluster.options["client_id"])
    _network(page, cluster, kind)
    now = cluster.loop.time()
    page.add(f"{kind}-metrics", CONSUMER, [reads])
    page.gauge(f"{kind}-metrics", "last-poll-seconds-ago", _ago(measures.consumer.last_poll, now))
    page.add(f"{kind}-fetch-manager-metrics", FETCHES, [reads])
    page.add(f"{kind}-fetch-manager-metrics", SHARE_FETCHES, [reads, measures.shared])
    page.add(f"{kind}-coordinator-metrics", SHARE_COORDINATOR, [measures.consumer.group])
    heartbeat = measures.consumer.last_heartbeat
    page.gauge(f"{kind}-coordinator-metrics", "last-heartbeat-seconds-ago", _ago(heartbeat, now))
    return Metrics(page.metrics)


def _partitions(page: _Page, states: Iterable[PartitionState], committed_only: bool) -> tuple[list[float], list[float]]:
    """Add the metrics of each partition that was fetched; all lags and leads."""
    group = "consumer-fetch-manager-metrics"
    lags: list[float] = []
    leads: list[float] = []
    for state in states:
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end < 0 or not state.has_position:
            continue
        tags = {"topic": state.key.topic, "partition": str(state.key.partition)}
        lags.append(max(0, end - state.position))
        leads.append(max(0, state.position - state.log_start_offset))
        page.gauge(group, "records-lag", lags[-1], **tags)
        page.gauge(group, "records-lead", leads[-1], **tags)
        page.gauge(group, "preferred-read-replica", state.preferred_replica, **tags)
    return lags, leads


def _ago(moment: float, now: float) -> float:
    return -1.0 if moment < 0 else now - moment
