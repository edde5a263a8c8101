"""What tests of KRaft clusters share: waiting, topics, work under way meanwhile, and what is there in the end."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.records.batch import split_batches
from tests.interop.kraft_nodes import KraftNodes


def until(condition: Callable[[], bool], what: str, at_most_seconds: float = 60) -> None:
    end = time.monotonic() + at_most_seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def create(admin: AdminClient, topic: str, partitions: int = 4, replicas: int = 3, **settings: str) -> None:
    """Create a topic once all brokers are unfenced: librdkafka gives up where Apache's broker knows no other yet."""

    def are_known() -> bool:
        try:
            found = admin.list_topics(timeout=10)
        except KafkaException:
            return False
        return len(found.brokers) >= replicas and found.controller_id in found.brokers

    until(are_known, "not all brokers are unfenced")
    admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].result(60)


def number_of(message: Any) -> int:
    return int(message.value())


def in_sync(nodes: KraftNodes, node: int) -> bool:
    """Whether the broker is in the ISR of all partitions."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    try:
        topics = admin.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False
    partitions = [each for topic in topics for each in topic.partitions.values()]
    return bool(partitions) and all(node in each.isrs for each in partitions)


def seconds_since_unfenced(nodes: KraftNodes, node: int) -> float:
    """How long ago the newest process of Odradek on this node noted that the controller had unfenced it."""
    line = [each for each in nodes.output(node).splitlines() if "the controller has unfenced this broker" in each][-1]
    return (datetime.now().astimezone() - datetime.fromisoformat(line[:23]).astimezone()).total_seconds()


class Load:
    """Writes numbers: idempotently to one topic, in transactions to another, and a group reads the first."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self.acknowledged: list[int] = []
        self.committed: list[int] = []
        self.failures: list[str] = []
        self.read: list[int] = []
        works = (self._write, self._transact, self._read)
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)

    def has_written(self, plain: int, transacted: int) -> bool:
        return len(self.acknowledged) > plain and len(self.committed) > transacted

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(f"{work.__name__}: {error!r}")

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged.append(number_of(message))

        number = 0
        while not self._ended.is_set():
            producer.produce("plain", str(number), key=str(number), on_delivery=delivered)
            number += 1
            producer.poll(0.005)
        producer.flush(60)

    def _transact(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "mover", "transaction.timeout.ms": 60000}
        producer = Producer(settings)
        producer.init_transactions(60)
        number = 0
        while not self._ended.is_set():
            producer.begin_transaction()
            wanted = list(range(number, number + 5))
            for each in wanted:
                producer.produce("transacted", str(each), key=str(each))
            number += 5
            try:
                producer.commit_transaction(60)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(60)
                continue
            self.committed.extend(wanted)

    def _read(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["plain"])
        while not self._ended.is_set():
            for message in consumer.consume(500, 0.2):
                if not message.error():
                    self.read.append(number_of(message))
        consumer.close()


def everything(bootstrap: str, topic: str) -> list[int]:
    """All committed numbers of a topic."""
    return [number_of(each) for each in _messages(bootstrap, topic)]


def _messages(bootstrap: str, topic: str) -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    found: list[Any] = []
    for index in partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, index), 30)
        consumer.assign([TopicPartition(topic, index, 0)])
        while consumer.position([TopicPartition(topic, index)])[0].offset < end:
            found.extend(each for each in consumer.consume(1000, 0.5) if not each.error())
    consumer.close()
    return found


def assert_nothing_is_lost(nodes: KraftNodes, load: Load) -> None:
    """What was acknowledged or committed is there, and nothing twice.

    Beside brokers of Apache Kafka, librdkafka may write a number again in a new epoch. A broker of theirs that begins
    to lead answers the first of two batches in flight with NOT_LEADER_OR_FOLLOWER and the second one with
    OUT_OF_ORDER_SEQUENCE_NUMBER. Then librdkafka gives all partitions a new epoch, in which it also writes what waits
    to be sent again elsewhere and was written. Odradek answers the second one like the first (`refused_batches`).
    """
    assert not load.failures
    written = _messages(nodes.bootstrap, "plain")
    epochs = _producer_epochs(nodes, "plain") if nodes.had_apache_brokers else {}
    copies = Counter((number_of(each), epochs.get((each.partition(), each.offset()), 0)) for each in written)
    assert [each for each, count in copies.items() if count > 1] == []
    plain = {number for number, _ in copies}
    assert sorted(plain) == sorted(load.acknowledged)
    assert sorted(everything(nodes.bootstrap, "transacted")) == load.committed
    assert set(load.read) <= plain


def _producer_epochs(nodes: KraftNodes, topic: str) -> dict[tuple[int, int], int]:
    """The epoch of the producer by partition and offset, from the files of all brokers."""
    found = {}
    for path in nodes.directory.glob(f"data-*/{topic}-*/*.log"):
        index = int(path.parent.name.rpartition("-")[2])
        for _, batch in split_batches(path.read_bytes(), allow_partial_tail=True):
            offsets = range(batch.base_offset, batch.last_offset + 1)
            found.update({(index, offset): batch.producer_epoch for offset in offsets})
    return found


def has_joined(nodes: KraftNodes, node: int) -> bool:
    """Whether a controller leads, or has the leader's log."""
    ends = nodes.quorum_ends()
    return bool(ends) and ends.get(node, -1) >= max(ends.values()) - 20


def start_cluster(nodes: KraftNodes, *, odradek: tuple[int, ...] = (), apache: tuple[int, ...]) -> None:
    """Start the controllers, then the brokers, and make the topics of `Load`."""
    for controllers in (True, False):
        chosen = [[each for each in kind if (each in nodes.controllers) is controllers] for kind in (odradek, apache)]
        nodes.start_odradek(*chosen[0])
        nodes.start_apache(*chosen[1])
        nodes.wait_until_serving(*chosen[0], *chosen[1])
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    create(admin, "plain")
    create(admin, "transacted")


def kill_active(nodes: KraftNodes, load: Load) -> int:
    """Kill the controller that leads, and wait for another one and for progress."""
    killed = led_by(nodes)
    nodes.stop(killed, how=signal.SIGKILL)
    led_by(nodes)
    progress(load)
    return killed


def led_by(nodes: KraftNodes) -> int:
    """The active controller, once there is one."""
    found: list[int] = []

    def is_known() -> bool:
        active = nodes.active_controller()
        found.extend([] if active is None else [active])
        return active is not None

    until(is_known, "no controller is active")
    return found[0]


def progress(load: Load) -> None:
    """Wait for more records and transactions."""
    plain, transacted = len(load.acknowledged), len(load.committed)
    until(lambda: load.has_written(plain + 100, transacted + 10), f"no progress: {load.failures}")
