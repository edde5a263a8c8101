"""Metrics that Java's clients push to a broker that asks for them (KIP-714)."""

from __future__ import annotations

import urllib.request
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import MakeBroker

SUBSCRIPTION = "metrics=org.apache.kafka.producer.,interval.ms=200,match=[client_software_name=apache-kafka-java]"
"""The interval is the shortest that leaves some pushes in a run of seconds; the last push is made at the end."""


def test_producer_pushes_its_metrics_to_a_scrape_and_to_a_topic(java_tools: Any, make_broker: MakeBroker) -> None:
    broker = make_broker({"odradek.http.listener": "127.0.0.1:0", "odradek.telemetry.topic": "pushes"})
    broker.start()
    address = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient({**address})
    for created in admin.create_topics([NewTopic("pushes", 1), NewTopic("orders", 1)]).values():
        created.result(30)
    java_tools.run(
        "configs", "--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "client-metrics",
        "--entity-name", "java", "--add-config", SUBSCRIPTION,
    )  # fmt: skip
    java_tools.run(
        "producer-perf-test", "--bootstrap-server", broker.bootstrap, "--topic", "orders", "--num-records", "200",
        "--record-size", "100", "--throughput", "50", "--command-property", "client.id=java-producer",
    )  # fmt: skip
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    pushed = [line for line in text.splitlines() if line.startswith("odradek_client_metric{")]
    assert pushed
    assert all('client_software_name="apache-kafka-java"' in line for line in pushed)
    assert any('metric="org.apache.kafka.producer.' in line for line in pushed)
    consumer = Consumer({**address, "group.id": "readers"})
    consumer.assign([TopicPartition("pushes", 0, 0)])
    (record,) = consumer.consume(1, 60)
    consumer.close()
    assert dict(record.headers() or ())["client_id"] == b"java-producer"
