"""kill -9 of the real broker process in the middle of producing loses no acknowledged record."""

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess

TOPIC = "faults"
PARTITIONS = 2


class Load:
    """One idempotent producer that runs through crashes and remembers what was acknowledged, and where."""

    def __init__(self, bootstrap: str, value_bytes: int) -> None:
        self._padding = b"x" * value_bytes
        self.acked: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 2,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 60000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
            }
        )

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error:
                self.failed.append(str(error))
            else:
                self.acked[number] = (message.partition() or 0, message.offset() or 0)

        return note

    def send_until_acked(self, count: int) -> None:
        """Keeps some hundred records in flight until `count` more are acknowledged."""
        wanted, deadline = len(self.acked) + count, time.monotonic() + 60
        while len(self.acked) < wanted and time.monotonic() < deadline:
            if self.sent - len(self.acked) - len(self.failed) < 500:
                value = b"%d:" % self.sent + self._padding
                self._producer.produce(
                    TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered(self.sent)
                )
                self.sent += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
        assert len(self.acked) >= wanted, f"{len(self.acked)} of {wanted} acknowledged, failed: {self.failed[:3]}"

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


def read_all(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """Every record of the topic: its number, and where it lies."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    found: dict[int, list[tuple[int, int]]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            error, partition = message.error(), message.partition() or 0
            if error and error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
                continue
            assert not error, error
            number = int((message.value() or b"").partition(b":")[0])
            found.setdefault(number, []).append((partition, message.offset() or 0))
    consumer.close()
    assert len(ended) == PARTITIONS, "the partitions were not read to their end"
    return found


def crash_and_check(broker: BrokerProcess, rounds: int, seed: int, value_bytes: int = 200) -> None:
    chance = random.Random(seed)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    load = Load(broker.bootstrap, value_bytes)
    for _ in range(rounds):
        load.send_until_acked(chance.randrange(1, 3000))
        broker.kill()
        broker.start()
    load.send_until_acked(100)
    load.finish()
    assert not load.failed, load.failed[:3]
    found = read_all(broker.bootstrap)
    lost = sorted(set(load.acked) - set(found))
    assert not lost, f"{len(lost)} acknowledged records are lost: {lost[:10]}"
    moved = [n for n, place in load.acked.items() if place not in found[n]]
    assert not moved, f"{len(moved)} acknowledged records lie elsewhere than said: {moved[:10]}"
    duplicates = [n for n, times in Counter({n: len(p) for n, p in found.items()}).items() if times > 1]
    assert not duplicates, f"an idempotent producer's records are there twice: {duplicates[:10]}"
    for partition in range(PARTITIONS):
        in_order = [n for n, places in sorted(found.items(), key=lambda f: f[1]) if places[0][0] == partition]
        assert in_order == sorted(in_order), f"partition {partition} is out of order"


def test_ten_crashes_lose_nothing(make_broker: Callable[..., BrokerProcess]) -> None:
    crash_and_check(make_broker(), rounds=10, seed=1)


def test_crashes_with_small_segments_lose_nothing(make_broker: Callable[..., BrokerProcess]) -> None:
    crash_and_check(make_broker({"log.segment.bytes": 1048576}), rounds=5, seed=2, value_bytes=4000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 8))
def test_many_crashes_lose_nothing(make_broker: Callable[..., BrokerProcess], seed: int) -> None:
    crash_and_check(make_broker({"log.segment.bytes": 1048576}), rounds=40, seed=seed)


def committed(config: dict[str, object]) -> list[int]:
    """The group's offsets, asked for until the coordinator has loaded its log."""
    consumer, deadline = Consumer(config), time.monotonic() + 30
    loading = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
    while True:
        try:
            stored = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], 30)
        except KafkaException as error:
            if error.args[0].code() not in loading or time.monotonic() > deadline:
                raise
        else:
            consumer.close()
            return [p.offset for p in stored]


def test_committed_offsets_survive(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker({"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "survivors",
        "enable.auto.commit": False,
        "log_level": 2,
    }
    for round_number in range(3):
        consumer = Consumer(config)
        wanted = [TopicPartition(TOPIC, p, 10 * round_number + p + 1) for p in range(PARTITIONS)]
        consumer.commit(offsets=wanted, asynchronous=False)
        broker.kill()
        broker.start()
        consumer.close()
        assert committed(config) == [p.offset for p in wanted]
