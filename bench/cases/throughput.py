"""Throughput and the broker's CPU: 2 M records of 1,000 bytes into 4 partitions and out again, by confluent-kafka.

acks=1 linger.ms=5 batch.size=1000000. The consumer is assigned all partitions from the start and only counts.
"""

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.cases import topics
from bench.servers import Running, cpu_seconds

RECORDS = 2_000_000
WARM_UP_RECORDS = 100_000
SIZE = 1000
PARTITIONS = 4
PLAIN: Mapping[str, str] = {}
"""Client options for connections without TLS: none."""


def produce(bootstrap: str, topic: str, records: int, security: Mapping[str, str] = PLAIN) -> None:
    failed: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": report,
            **security,
        }
    )
    value, send = b"x" * SIZE, producer.produce
    for i in range(records):
        try:
            send(topic, value, partition=i & 3)
        except BufferError:
            producer.poll(0.01)
            while len(producer) > 400_000:
                producer.poll(0.005)
            send(topic, value, partition=i & 3)
    left = producer.flush(300)
    if left or failed:
        raise RuntimeError(f"{left} records not sent, {len(failed)} failed: {failed[:1]}")


def consume(bootstrap: str, topic: str, records: int, security: Mapping[str, str] = PLAIN) -> None:
    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **security}
    # with its default a consumer whose queue was once full asks for nothing more for a second, which is then measured
    consumer = Consumer(config | {"fetch.queue.backoff.ms": 1})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    seen, deadline = 0, time.monotonic() + 300
    while seen < records:
        messages = consumer.consume(10_000, 0.2)
        for message in messages[:1]:
            if error := message.error():
                raise KafkaException(error)
        seen += len(messages)
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {seen} of {records} records came")
    consumer.close()


def run(broker: Running, scale: float) -> dict[str, float]:
    records = max(1000, int(RECORDS * scale))
    with topics.fresh(broker.bootstrap, PARTITIONS) as warm_up:
        produce(broker.bootstrap, warm_up, WARM_UP_RECORDS)
        consume(broker.bootstrap, warm_up, WARM_UP_RECORDS)
    gigabytes = records * SIZE / 1e9
    with topics.fresh(broker.bootstrap, PARTITIONS) as topic:
        cpu_before, began = cpu_seconds(broker.pid), time.perf_counter()
        produce(broker.bootstrap, topic, records)
        cpu_between, between = cpu_seconds(broker.pid), time.perf_counter()
        consume(broker.bootstrap, topic, records)
        ended, cpu_after = time.perf_counter(), cpu_seconds(broker.pid)
    return {
        "produce": 1000 * gigabytes / (between - began),
        "CPU in": (cpu_between - cpu_before) / gigabytes,
        "consume": 1000 * gigabytes / (ended - between),
        "CPU out": (cpu_after - cpu_between) / gigabytes,
        "CPU in + out": (cpu_after - cpu_before) / gigabytes,
    }
