"""Produce requests of one record each, 1,000 in flight on one connection: requests per second, by confluent-kafka."""

import time

from confluent_kafka import KafkaError, Message, Producer

from bench.cases import topics
from bench.servers import Running

REQUESTS = 150_000
WARM_UP_REQUESTS = 20_000
IN_FLIGHT = 1000
SIZE = 100


def produce(bootstrap: str, topic: str, requests: int) -> None:
    failed: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": IN_FLIGHT,
            "delivery.report.only.error": True,
            "on_delivery": report,
        }
    )
    value = b"x" * SIZE
    for i in range(requests):
        while len(producer) >= IN_FLIGHT:
            producer.poll(0.0005)
        producer.produce(topic, value, partition=i & 3)
    left = producer.flush(300)
    if left or failed:
        raise RuntimeError(f"{left} records not sent, {len(failed)} failed: {failed[:1]}")


def run(broker: Running, scale: float) -> dict[str, float]:
    requests = max(1000, int(REQUESTS * scale))
    with topics.fresh(broker.bootstrap, 4) as topic:
        produce(broker.bootstrap, topic, WARM_UP_REQUESTS)
        began = time.perf_counter()
        produce(broker.bootstrap, topic, requests)
        return {"one-record requests": requests / (time.perf_counter() - began)}
