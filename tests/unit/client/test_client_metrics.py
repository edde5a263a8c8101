"""Metrics of producers, consumers and admin clients: names, values, windows, text for Prometheus."""

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import DeliveryTimedOut, IllegalState
from odradek.client.metrics.counts import NodeTraffic, Sends, TopicReads
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.metrics.names import GROUPS
from odradek.client.metrics.prometheus import prometheus_text
from odradek.client.metrics.windows import Windows
from odradek.client.producer.producer import Producer
from odradek.client.share.share_consumer import ShareConsumer
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from tests.unit.client.consumers import filled, read
from tests.unit.client.consumers import run as run_consumer
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster, fail_produce, silent
from tests.unit.client.test_client_producer import run as run_producer


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_spreads_over_missing_windows() -> None:
    time = Time()
    windows = Windows(time, 30, 2)
    counted = windows.track(TopicReads())
    counted.records = 62
    time.now += 1
    span = windows.span([counted])
    assert span.recent(("records",)) == 62
    assert span.seconds == 31


def test_rate_forgets_what_happened_before_the_windows() -> None:
    time = Time()
    windows = Windows(time, 30, 2)
    counted = windows.track(TopicReads())
    for amount in (10, 20, 40):
        counted.records += amount
        time.now += 30
        windows.roll()
    counted.records += 5
    span = windows.span([counted])
    assert span.recent(("records",)) == 45
    assert span.total(("records",)) == 75
    assert span.seconds == 30


def test_highest_value_leaves_with_its_window() -> None:
    time = Time()
    windows = Windows(time, 30, 2)
    counted = windows.track(Sends())
    counted.largest_batch = 900
    windows.roll()
    counted.largest_batch = 7
    assert windows.span([counted]).high(("largest_batch",)) == 900
    windows.roll()
    assert windows.span([counted]).high(("largest_batch",)) == 7


def test_span_adds_several_objects() -> None:
    windows = Windows(Time(), 30, 2)
    first, second = windows.track(NodeTraffic()), windows.track(NodeTraffic())
    first.requests, second.requests = 2, 3
    first.largest_request, second.largest_request = 10, 20
    span = windows.span([first, second])
    assert span.total(("requests",)) == 5
    assert span.high(("largest_request",)) == 20


def test_producer_counts_what_it_sends() -> None:
    cluster = FakeCluster(topics={"t": 1, "u": 1})

    async def body(producer: Producer) -> None:
        for _ in range(10):
            await producer.send("t", b"x" * 100)
        await producer.send("u", b"y")
        await producer.flush()
        metrics = producer.metrics()
        assert metrics.value("record-send-total") == 11
        assert metrics.value("record-send-total", topic="t") == 10
        assert metrics.value("record-send-rate", topic="u") > 0
        assert metrics.value("byte-total", topic="t") > 1000
        assert 1 <= metrics.value("record-size-avg") <= 200
        assert metrics.value("batch-size-max") >= metrics.value("batch-size-avg") > 60
        assert metrics.value("compression-rate-avg") == pytest.approx(1.0, abs=0.2)
        assert metrics.value("request-latency-max") >= metrics.value("request-latency-avg") > 0
        assert metrics.value("requests-in-flight") == 0
        assert metrics.value("buffer-available-bytes") == metrics.value("buffer-total-bytes")
        assert metrics.value("connection-count") == 1
        assert metrics.value("flush-time-ns-total") > 0
        assert metrics.value("record-error-total") == metrics.value("record-retry-total") == 0
        assert {each.tags["client-id"] for each in metrics} == {producer.config["client_id"]}

    run_producer(cluster, body)


def test_producer_counts_retries() -> None:
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, fail_produce(ErrorCode.NOT_ENOUGH_REPLICAS))

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        assert producer.metrics().value("record-retry-total") == 1
        assert producer.metrics().value("record-send-total", topic="t") == 2

    run_producer(cluster, body)


def test_producer_counts_lost_records() -> None:
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, *[silent] * 20)

    async def body(producer: Producer) -> None:
        with pytest.raises(DeliveryTimedOut):
            await producer.send_and_wait("t", b"x")
        assert producer.metrics().value("record-error-total") == 1
        assert producer.metrics().value("record-error-total", topic="t") == 1

    run_producer(cluster, body, delivery_timeout_ms=300, request_timeout_ms=100)


def test_consumer_counts_what_it_returns() -> None:
    cluster = filled(FakeCluster(), batches=3, per_batch=4)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 10)
        metrics = consumer.metrics()
        assert metrics.value("records-consumed-total", topic="t") == metrics.value("records-consumed-total") >= 10
        assert metrics.value("bytes-consumed-total") > 100
        assert metrics.value("fetch-total") >= 1
        assert metrics.value("fetch-size-max") >= metrics.value("fetch-size-avg") > 0
        assert metrics.value("records-lag-max") >= 0
        assert metrics.value("last-poll-seconds-ago") >= 0

    run_consumer(cluster, body, "t")


@pytest.mark.parametrize("way", ["iterate", "batches"])
def test_consumer_counts_records_of_each_way_to_read(way: str) -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), batches=3, per_batch=4)

    async def body(consumer: Consumer) -> None:
        seen = 0
        if way == "iterate":
            async for _ in consumer:
                seen += 1
                if seen == 12:
                    break
        else:
            async for batch in consumer.batches():
                seen += len(batch)
                if seen == 12:
                    break
        assert consumer.metrics().value("records-consumed-total") == 12

    run_consumer(cluster, body, "t")


def test_consumer_reports_the_lag_of_each_partition() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), batches=2, per_batch=5)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 5)
        metrics = consumer.metrics()
        assert metrics.value("records-lag", topic="t", partition="0") == 5
        assert metrics.value("records-lead", topic="t", partition="0") == 5
        assert metrics.value("records-lead-min") == 5
        assert metrics.value("records-lag-max") == 10  # at the first fetch, in the same window

    run_consumer(cluster, body, "t", max_poll_records=5)


def test_admin_counts_requests_by_node() -> None:
    async def main() -> None:
        async with Admin(network=FakeCluster(), **OPTIONS) as admin:  # type: ignore[arg-type]
            await admin.list_topics()
            metrics = admin.metrics()
            assert metrics.value("request-total") >= 2
            assert metrics.value("request-total") == sum(each.value for each in metrics if of_a_node(each))
            assert {each.group for each in metrics} == {"admin-client-metrics", "admin-client-node-metrics"}

    def of_a_node(metric: Metric) -> bool:
        return metric.name == "request-total" and "node-id" in metric.tags

    asyncio.run(main())


def test_average_is_nan_while_nothing_happened() -> None:
    async def body(producer: Producer) -> None:
        assert math.isnan(producer.metrics().value("batch-size-avg"))

    run_producer(FakeCluster(), body)


def test_unknown_metric_raises_key_error() -> None:
    with pytest.raises(KeyError, match="no metric 'nothing' with the tags"):
        Metrics([]).value("nothing", topic="t")


def test_metrics_before_start_raise_illegal_state() -> None:
    clients: list[Any] = [Producer(), Consumer(), Admin(), ShareConsumer(group_id="g")]
    for client in clients:
        with pytest.raises(IllegalState):
            client.metrics()


def test_names_are_unique_within_a_client() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        await read(consumer, 1)
        keys = [(each.name, each.group, *each.tags.items()) for each in consumer.metrics()]
        assert len(keys) == len(set(keys))

    run_consumer(cluster, body, "t")


JAVA_METRICS = Path(__file__).with_name("metrics_of_java_clients_4_3.txt")
"""What `metrics()` of Kafka 4.3's producer, consumers of both protocols and admin have: group, tags, name."""
ABSENT = re.compile(
    "(io-|select-|(application|background)-event|unsent-requests-|time-between-network-thread-poll-).*"
    "|record-size-max|txn-(begin|prepare)-time-ns-total"
    "|successful-authentication-no-reauth-total"
)
"""What the client's guide lists as absent."""


def test_names_are_those_of_java_clients() -> None:
    ours = set()
    for group, tags, rows in GROUPS:
        kinds = group[1:].partition(")")[0].split(", ") if group.startswith("(") else [""]
        for kind in kinds:
            named = f"{kind}{group.partition(')')[2]}" if kind else group
            ours |= {(named, ",".join(sorted(tags)) or "-", name) for name, _ in rows}
    java = [line.split() for line in JAVA_METRICS.read_text().splitlines()]
    missing = [
        (group, tags, name)
        for group, tags, name in java
        if group not in ("app-info", "kafka-metrics-count")
        and (group, tags, name) not in ours
        and not ABSENT.fullmatch(name)
        and not (tags == "partition,topic" and re.fullmatch("records-(lag|lead)-(avg|max|min)", name))
    ]
    assert len(java) > 200
    assert not missing


def test_consumer_counts_answers_by_topic() -> None:
    cluster = filled(FakeCluster(topics={"t": 1, "u": 1}), batches=3, per_batch=4)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 24)
        metrics = consumer.metrics()
        for topic in ("t", "u"):
            assert metrics.value("fetch-size-max", topic=topic) >= metrics.value("fetch-size-avg", topic=topic) > 0
            assert metrics.value("records-per-request-avg", topic=topic) > 0

    run_consumer(cluster, body, "t", "u")


def test_logins_within_a_connection_are_counted() -> None:
    traffic = NodeTraffic()
    traffic.reauthenticated(0.25)
    traffic.reauthenticated(0.125)
    assert (traffic.reauthentications, traffic.reauthentication_time) == (2, 0.375)
    assert traffic.longest_reauthentication == 0.25


SHARE_NAMES = {
    "consumer-share-metrics": {
        "last-poll-seconds-ago", "time-between-poll-avg", "time-between-poll-max", "poll-idle-ratio-avg",
    },
    "consumer-share-fetch-manager-metrics": {
        "fetch-size-avg", "fetch-size-max", "bytes-consumed-rate", "bytes-consumed-total", "records-per-request-avg",
        "records-per-request-max", "records-consumed-rate", "records-consumed-total", "acknowledgements-send-rate",
        "acknowledgements-send-total", "acknowledgements-error-rate", "acknowledgements-error-total",
        "fetch-latency-avg", "fetch-latency-max", "fetch-rate", "fetch-total", "fetch-throttle-time-avg",
        "fetch-throttle-time-max",
    },
    "consumer-share-coordinator-metrics": {
        "heartbeat-response-time-max", "heartbeat-rate", "heartbeat-total", "last-heartbeat-seconds-ago",
        "rebalance-total", "rebalance-rate-per-hour",
    },
}  # fmt: skip
"""Those of Java's ShareFetchMetricsRegistry and its managers, in Kafka 4.3."""


def test_share_consumer_has_the_names_of_java() -> None:
    async def main() -> None:
        async with ShareConsumer("t", group_id="g", network=FakeCluster(), **OPTIONS) as consumer:  # type: ignore[arg-type]
            found = {(each.group, each.name) for each in consumer.metrics()}
            assert found >= {(group, name) for group, names in SHARE_NAMES.items() for name in names}

    asyncio.run(main())


def test_producer_counts_the_time_that_sends_wait_for_memory() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        assert producer.metrics().value("waiting-threads") == 0
        sends = [asyncio.ensure_future(producer.send("t", b"x" * 900)) for _ in range(3)]
        await asyncio.gather(*sends)
        metrics = producer.metrics()
        assert metrics.value("bufferpool-wait-time-ns-total") > 0
        assert metrics.value("bufferpool-wait-ratio") > 0
        assert metrics.value("waiting-threads") == 0

    run_producer(cluster, body, buffer_memory=2_000, batch_size=1_000)


def test_consumer_counts_the_time_of_commits() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        await read(consumer, 1)
        await consumer.commit()
        await consumer.committed(consumer.assignment())
        metrics = consumer.metrics()
        assert metrics.value("commit-sync-time-ns-total") > 0
        assert metrics.value("committed-time-ns-total") > 0

    run_consumer(cluster, body, "t", group_id="g")


def test_prometheus_text_escapes_and_types() -> None:
    metrics = [
        Metric("records-lag-max", "consumer-fetch-manager-metrics", {"client-id": 'a"b'}, 3.0, False, "Lag"),
        Metric("fetch-total", "consumer-fetch-manager-metrics", {"client-id": "c"}, 7.0, True, "Fetches"),
        Metric("fetch-latency-avg", "consumer-fetch-manager-metrics", {"client-id": "c"}, math.nan, False, "Time"),
    ]
    assert prometheus_text(metrics) == (
        "# HELP kafka_consumer_fetch_manager_metrics_records_lag_max Lag\n"
        "# TYPE kafka_consumer_fetch_manager_metrics_records_lag_max gauge\n"
        'kafka_consumer_fetch_manager_metrics_records_lag_max{client_id="a\\"b"} 3.0\n'
        "# HELP kafka_consumer_fetch_manager_metrics_fetch_total Fetches\n"
        "# TYPE kafka_consumer_fetch_manager_metrics_fetch_total counter\n"
        'kafka_consumer_fetch_manager_metrics_fetch_total{client_id="c"} 7.0\n'
    )
