"""Three brokers on one machine, for the tests of several modules: topics on all of them, what is written and read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from bench.peers.cluster import ClusterProcess
from tests.integration.waiting import PATIENCE, until

QUICK: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
}


@contextmanager
def sound_cluster(directory: Path, settings: Mapping[str, object]) -> Iterator[ClusterProcess]:
    """Three brokers that end well, whatever the tests did to them, and without a traceback."""
    with ClusterProcess(directory / "data", 3, settings) as running:
        yield running
        assert running.stop() == 0, running.log()
        assert "Traceback" not in running.log_path.read_text(), running.log()


def new_topic(admin: AdminClient, partitions: int = 3) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    wanted = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[name].result(30)
    return name


def described(client: AdminClient | Consumer, topic: str) -> TopicMetadata:
    """What a broker says of the topic; asked again where one has just been killed, or does not know the topic yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            found = client.list_topics(topic, timeout=60).topics[topic]
            if found.error is None:
                return found
            raise KafkaException(found.error)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def states(admin: AdminClient, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Partition -> (leader, in-sync replicas)."""
    found = described(admin, topic).partitions
    return {index: (partition.leader, sorted(partition.isrs)) for index, partition in found.items()}


def wait_until_balanced(admin: AdminClient, topic: str) -> None:
    """All brokers live and in sync again."""
    until(lambda: all(isr == [1, 2, 3] for _, isr in states(admin, topic).values()), f"{topic} is in sync")


def read_all(cluster: ClusterProcess, topic: str, count: int, **options: Any) -> list[bytes]:
    """At least `count` records, and whatever comes after them until the end of each partition."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "enable.partition.eof": True, **options,
    })  # fmt: skip
    consumer.subscribe([topic])
    partitions = set(described(consumer, topic).partitions)
    ended: set[int | None] = set()
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while (len(found) < count or ended != partitions) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            else:
                ended.discard(message.partition())
                value = message.value()
                assert value is not None
                found.append(value)
    consumer.close()
    return found


class Writer:
    """An idempotent producer that notes what was acknowledged."""

    def __init__(self, cluster: ClusterProcess, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self.next = 0
        self._producer = Producer({
            "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0,
            "retry.backoff.ms": 50, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
        })  # fmt: skip

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, b"%d" % self.next, partition=self.next % 3, on_delivery=self._told)
            self.next += 1
            self._producer.poll(0)

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(str(error))

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE) == 0
