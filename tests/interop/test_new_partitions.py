"""Records in a new partition that are written before a consumer with `auto.offset.reset=latest` sees the partition.

On Apache Kafka 4.3 such a consumer loses them, whatever its group's protocol (KAFKA-12478, KIP-1327). Here the group
has offset 0 in a new partition of a topic that it reads.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaConsumer

NEW = 100
TIMEOUT_SECONDS = 150


class Librdkafka:
    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"group-{topic}",
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 3_000,
                **config,
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        return [m.value() or b"" for m in self.consumer.consume(500, 0.1) if not m.error()]

    def partitions(self) -> int:
        return len(self.consumer.assignment())

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"group-{topic}",
            auto_offset_reset="latest",
            enable_auto_commit=False,
            metadata_max_age_ms=3_000,
        )

    def poll(self) -> list[bytes]:
        # An assignment that comes after the end of the poll that asked for it is lost on this client: it has joined,
        # takes nothing, and sends no heartbeat until its session is over.
        return [record.value for records in self.consumer.poll(5_000).values() for record in records]

    def partitions(self) -> int:
        return len(self.consumer.assignment())

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


CLIENTS: dict[str, Callable[[str, str], Librdkafka | KafkaPython]] = {
    "librdkafka-classic": Librdkafka,
    "librdkafka-consumer": lambda bootstrap, topic: Librdkafka(bootstrap, topic, **{"group.protocol": "consumer"}),
    "kafka-python": KafkaPython,
}


def until(condition: Callable[[], bool], step: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        step()


def lost_records(bootstrap: str, client: str, topic: str) -> int:
    """How many of the records that a new partition got at once the group never read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = CLIENTS[client](bootstrap, topic)
    read: set[bytes] = set()

    def write_and_read(value: bytes, partition: int) -> None:
        producer.produce(topic, value, partition=partition)
        producer.flush(60)
        read.update(consumer.poll())

    try:
        until(lambda: consumer.partitions() == 1, lambda: read.update(consumer.poll()))
        # `latest` may be decided a moment after the assignment: write until something comes.
        until(lambda: bool(read), lambda: write_and_read(b"first", 0))
        consumer.commit()
        writer = threading.Thread(target=grow_and_write, args=(bootstrap, topic))
        writer.start()
        writer.join()
        until(lambda: consumer.partitions() == 2, lambda: read.update(consumer.poll()))
        # What comes after this is read by everybody, and shows that all before has been read.
        producer = Producer({"bootstrap.servers": bootstrap})
        until(lambda: b"last" in read, lambda: write_and_read(b"last", 1))
    finally:
        consumer.close()
    return NEW - sum(f"new-{i}".encode() in read for i in range(NEW))


def grow_and_write(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(NEW):
        producer.produce(topic, f"new-{i}", partition=1)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_is_lost(bootstrap: str, unique_name: Callable[[str], str], client: str) -> None:
    assert lost_records(bootstrap, client, unique_name("grows")) == 0


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
def test_apache_kafka_loses_them(apache_kafka: str, unique_name: Callable[[str], str], client: str) -> None:
    assert lost_records(apache_kafka, client, unique_name("grows")) == NEW
