"""Client libraries under a quota: they receive the throttle time, wait, and lose no records."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.wire.messages import alter_client_quotas
from tests.integration.conftest import RawClient

RATE = 100_000
VALUE = bytes(10_000)
COUNT = 25


def limit(bootstrap: str, client_id: str, **quotas: float) -> None:
    made = alter_client_quotas
    entity = [made.AlterClientQuotasRequestEntity("client-id", client_id)]
    operations = [made.AlterClientQuotasRequestOp(key, value) for key, value in quotas.items()]
    client = RawClient(bootstrap)
    answer = client.call(made.AlterClientQuotasRequest([made.AlterClientQuotasRequestEntry(entity, operations)]), 1)
    client.close()
    assert [entry.error_code for entry in answer.entries] == [0]


def test_librdkafka_waits_when_throttled_and_loses_nothing(make_broker: Callable[..., Any]) -> None:
    broker = make_broker({"quota.window.num": 2, "group.initial.rebalance.delay.ms": 0}).start()
    topic, name = f"t-{uuid.uuid4().hex[:8]}", "limited"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    limit(broker.bootstrap, name, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    pauses: list[float] = []
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": name,
        "throttle_cb": lambda event: pauses.append(event.throttle_time),
    }
    failures: list[Any] = []
    producer = Producer({**settings, "batch.num.messages": 5, "linger.ms": 5})
    for _ in range(COUNT):
        producer.produce(topic, VALUE, on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures
    assert any(pause > 0 for pause in pauses), "250 kB at 100 kB a second"
    pauses.clear()
    consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    offsets: list[int | None] = []
    while len(offsets) < COUNT:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(COUNT))
    assert any(pause > 0 for pause in pauses)
