"""The console in front of Apache Kafka 4.3 and of our own broker: every page that reads, and the forms that change."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from starlette.testclient import TestClient

from odradek.console import clusters
from tests.integration.console.consoles import AT, console, post


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(clusters, "TOPICS_FRESH_S", -1.0)
    with console(server, allow_changes=True) as opened:
        yield opened


def test_console_shows_and_changes_a_cluster(client: TestClient, server: str) -> None:
    topic, group = f"console-{uuid4().hex[:8]}", f"group-{uuid4().hex[:8]}"
    created = post(client, f"{AT}/create-topic", topic=topic, partitions="2", replicas="1")
    assert created.status_code == 200, created.text
    producer = Producer({"bootstrap.servers": server})
    producer.produce(topic, b'{"city": "Prague"}', b"k", partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": server, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = None
    while message is None:
        message = consumer.poll(1)
    consumer.commit(message=message, asynchronous=False)
    consumer.close()

    pages = {
        "": "controller",
        f"/topics?q={topic}": topic,
        f"/topics/{topic}": topic,
        f"/topics/{topic}/settings?all=yes": "retention.ms",
        f"/topics/{topic}/messages/stream?from=oldest": "Prague",
        f"/groups?q={group}": group,
        f"/group?name={group}": topic,
        "/transactions": "Transactions",
        "/reassignment": "Reassignment",
        "/access": "Quotas",
    }
    for path, text in pages.items():
        response = client.get(AT + path)
        assert response.status_code == 200, (path, response.text)
        assert text in response.text, path
