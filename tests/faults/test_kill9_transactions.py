"""kill -9 of the broker process among transactions: the committed are there whole and once, the aborted never."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess
from tests.integration.conftest import RawClient
from tests.integration.raw_transactions import await_markers

TOPIC = "faults"
PARTITIONS = 3
MakeBroker = Callable[..., BrokerProcess]


class Load(threading.Thread):
    """Transactions of one record to each partition, one after the other, until `stop` is set."""

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        super().__init__(name=name)
        self.random = random.Random(seed)
        self.bootstrap = bootstrap
        self.stop = threading.Event()
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        self.failure: BaseException | None = None
        self.producer = self._producer()

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": 30_000,
                "message.timeout.ms": 30_000,
                "linger.ms": 0,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
            }
        )
        producer.init_transactions(60)
        return producer

    def run(self) -> None:
        try:
            number = 0
            while not self.stop.is_set():
                self._transaction(f"{self.name}:{number}")
                number += 1
        except BaseException as error:
            self.failure = error

    def _transaction(self, value: str) -> None:
        commit = self.random.random() < 0.7
        try:
            self.producer.begin_transaction()
            for partition in range(PARTITIONS):
                self.producer.produce(TOPIC, value, partition=partition)
            if commit:
                self._insist(lambda: self.producer.commit_transaction(60))
                self.committed.append(value)
            else:
                self.producer.flush(60)
                self._insist(lambda: self.producer.abort_transaction(60))
                self.aborted.append(value)
        except KafkaException as refused:
            error = refused.args[0]
            if error.txn_requires_abort():
                self._insist(lambda: self.producer.abort_transaction(60))
                self.aborted.append(value)
            else:
                self.unknown.append(value)
                self.producer = self._producer()

    def _insist(self, call: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                call()
                return
            except KafkaException as refused:
                if not refused.args[0].retriable() or time.monotonic() > deadline:
                    raise


def read_committed(bootstrap: str) -> list[list[str]]:
    """The values of each partition, in their order."""
    client = RawClient(bootstrap)
    await_markers(client, TOPIC, PARTITIONS)
    client.close()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None, "nothing more came"
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                found[partition].append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
    finally:
        consumer.close()
    return found


def check(broker: BrokerProcess, loads: list[Load]) -> None:
    found = read_committed(broker.bootstrap)
    for values in found:
        assert len(values) == len(set(values)), "a record is there twice"
    everywhere = set(found[0])
    for values in found[1:]:
        assert set(values) == everywhere, "a transaction is there in part"
    for load in loads:
        missing = set(load.committed) - everywhere
        assert not missing, f"committed and lost: {sorted(missing)[:5]}"
        surplus = set(load.aborted) & everywhere
        assert not surplus, f"aborted and read: {sorted(surplus)[:5]}"
        numbers = [int(value.split(":")[1]) for value in found[0] if value.startswith(load.name + ":")]
        assert numbers == sorted(numbers), "the order of transactions changed"


def run_rounds(make_broker: MakeBroker, rounds: int, seed: int) -> None:
    broker = make_broker({"group.initial.rebalance.delay.ms": 0}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    loads = [Load(broker.bootstrap, f"producer-{number}", seed + number) for number in range(3)]
    chance = random.Random(seed)
    for load in loads:
        load.start()
    try:
        for _ in range(rounds):
            done = sum(len(load.committed) for load in loads)
            wanted = done + chance.randrange(20, 80)
            deadline = time.monotonic() + 60
            while sum(len(load.committed) for load in loads) < wanted:
                assert time.monotonic() < deadline, "no progress"
                assert all(load.is_alive() for load in loads), [load.failure for load in loads]
                time.sleep(0.005)
            broker.kill()
            broker.start()
    finally:
        for load in loads:
            load.stop.set()
        for load in loads:
            load.join(120)
    assert [load.failure for load in loads] == [None] * len(loads)
    check(broker, loads)


def test_transactions_survive_kill_9(make_broker: MakeBroker) -> None:
    run_rounds(make_broker, rounds=3, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 105))
def test_transactions_survive_kill_9_many_times(make_broker: MakeBroker, seed: int) -> None:
    run_rounds(make_broker, rounds=12, seed=seed)
