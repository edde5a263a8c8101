"""Metrics of records and bytes, of the broker and by topic (Kafka's `BrokerTopicMetrics`)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from odradek.metrics.definition import Family, Metric, counter, label, several, single
from odradek.metrics.traffic import BrokerTraffic, TopicTraffic

_TOPIC: Final = ("topic",)
_STEP: Final = 64
"""Topics that are added up in one step."""


def _of_topics(name: str, meaning: str) -> Metric:
    counterpart = f"kafka.server:type=BrokerTopicMetrics,name={name}"
    stem = name.removesuffix("PerSec").lower()
    return counter(
        f"kafka_server_brokertopicmetrics_{stem}", f"{meaning}; without a label: of all topics", counterpart, _TOPIC
    )


BY_SLOT: Final = {
    "messages_in": _of_topics("MessagesInPerSec", "Records appended by this broker as the leader"),
    "bytes_in": _of_topics("BytesInPerSec", "Bytes of records appended as the leader, as they are stored"),
    "bytes_out": _of_topics("BytesOutPerSec", "Bytes of records sent to consumers"),
    "replication_bytes_in": _of_topics("ReplicationBytesInPerSec", "Bytes of records appended as a follower"),
    "replication_bytes_out": _of_topics("ReplicationBytesOutPerSec", "Bytes of records sent to followers"),
    "produces": _of_topics("TotalProduceRequestsPerSec", "Appends to partitions; a request counts for each of them"),
    "failed_produces": _of_topics("FailedProduceRequestsPerSec", "Appends to partitions that were rejected"),
    "fetches": _of_topics("TotalFetchRequestsPerSec", "Reads of partitions for consumers"),
    "failed_fetches": _of_topics("FailedFetchRequestsPerSec", "Reads of partitions for consumers that failed"),
}
COLD_READS: Final = counter("odradek_cold_reads", "Reads of partitions for consumers that had to wait for the device")
ISR_SHRINKS: Final = counter(
    "kafka_server_replicamanager_isrshrinks",
    "Changes by which the ISR of a partition led here lost members",
    "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
)
ISR_EXPANDS: Final = counter(
    "kafka_server_replicamanager_isrexpands",
    "Changes by which the ISR of a partition led here gained members",
    "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
)


class TopicMetrics:
    """Reads the traffic of a broker."""

    __slots__ = ("_most_topics", "_traffic")

    metrics = (*BY_SLOT.values(), COLD_READS, ISR_SHRINKS, ISR_EXPANDS)
    """See `Collector`."""

    def __init__(self, traffic: BrokerTraffic, most_topics: Callable[[], int]) -> None:
        """`most_topics`: how many topics have series of their own; those with the most bytes."""
        self._traffic = traffic
        self._most_topics = most_topics

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        total = TopicTraffic()
        total.add(self._traffic.gone)
        topics = list(self._traffic.topics.items())
        for start in range(0, len(topics), _STEP):
            for _, traffic in islice(topics, start, start + _STEP):
                total.add(traffic)
            yield None
        shown = topics
        most = self._most_topics()
        if len(topics) > most:
            shown = heapq.nlargest(most, topics, key=lambda each: each[1].bytes_in + each[1].bytes_out)
        rows = [(label("topic", topic), traffic) for topic, traffic in shown]
        for slot, metric in BY_SLOT.items():
            yield several(metric, _values(slot, total, rows))
        yield single(COLD_READS, total.cold_reads)
        yield single(ISR_SHRINKS, total.isr_shrinks)
        yield single(ISR_EXPANDS, total.isr_expands)


def _values(slot: str, total: TopicTraffic, rows: list[tuple[str, TopicTraffic]]) -> Iterator[tuple[str, float]]:
    yield "", getattr(total, slot)
    for labels, traffic in rows:
        yield labels, getattr(traffic, slot)
