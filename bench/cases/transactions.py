"""Transactions by one confluent-kafka producer, and reading them with read_committed.

Transactions of 1, 10 and 100 records of 100 bytes into one partition, one after the other: how many per second, and how
long from `begin_transaction` to the return of `commit_transaction`. Before those, both brokers get the same 1,000
transactions of one record to warm up; how fast these went is a figure of its own, because Apache Kafka's are several
times slower until its code is compiled. librdkafka waits a millisecond before it registers a transaction's first
partition: about 700 transactions per second are the most that one producer can do at any broker.

Then a topic of 4 partitions, written in transactions of 1,000 records of 1,000 bytes of which every fifth is aborted,
is read from its start; only records that are delivered count. The first pass is the warm-up.
"""

import time
import uuid

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.cases import topics
from bench.metrics import percentile
from bench.servers import Running, cpu_seconds

SIZES = (1, 10, 100)
TRANSACTIONS = 1000
WARM_UP_TRANSACTIONS = 1000
SIZE = 100
READ_TRANSACTIONS = 250
READ_RECORDS = 1000
READ_SIZE = 1000
READ_PARTITIONS = 4
ABORT_EVERY = 5


def new_producer(bootstrap: str) -> Producer:
    config = {"transactional.id": uuid.uuid4().hex, "linger.ms": 0, "log_level": 4}
    producer = Producer({"bootstrap.servers": bootstrap} | config)
    producer.init_transactions(60)
    return producer


def commit(producer: Producer, topic: str, count: int, records: int, partition: int = 0) -> list[float]:
    """Milliseconds of each of `count` transactions."""
    took, value = [], b"x" * SIZE
    for _ in range(count):
        began = time.perf_counter_ns()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=partition)
        producer.commit_transaction(60)
        took.append((time.perf_counter_ns() - began) / 1e6)
    return took


def write(bootstrap: str, topic: str, transactions: int) -> int:
    """Fill the topic; how many records are committed."""
    producer, value, committed = new_producer(bootstrap), b"x" * READ_SIZE, 0
    for number in range(transactions):
        producer.begin_transaction()
        for i in range(READ_RECORDS):
            producer.produce(topic, value, partition=i % READ_PARTITIONS)
        if number % ABORT_EVERY == ABORT_EVERY - 1:
            producer.flush(60)  # an abort drops what is not sent yet
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += READ_RECORDS
    return committed


def read(bootstrap: str, topic: str, records: int) -> float:
    """Seconds until all committed records have come."""
    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    # see throughput.py for the back-off
    consumer = Consumer(config | {"isolation.level": "read_committed", "fetch.queue.backoff.ms": 1})
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(READ_PARTITIONS)])
    seen, deadline = 0, time.monotonic() + 120
    while seen < records:
        messages = consumer.consume(10_000, 0.2)
        for message in messages[:1]:
            if error := message.error():
                raise KafkaException(error)
        seen += len(messages)
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {seen} of {records} committed records came")
    took = time.perf_counter() - began
    consumer.close()
    if seen > records:
        raise RuntimeError(f"{seen} records came, {records} are committed")
    return took


def run(broker: Running, scale: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    count = max(100, int(TRANSACTIONS * scale))
    with topics.fresh(broker.bootstrap, 1) as topic:
        producer = new_producer(broker.bootstrap)
        began = time.perf_counter()
        commit(producer, topic, WARM_UP_TRANSACTIONS, 1)
        figures["first transactions"] = WARM_UP_TRANSACTIONS / (time.perf_counter() - began)
        for size in SIZES:
            cpu, began = cpu_seconds(broker.pid), time.perf_counter()
            took = sorted(commit(producer, topic, count, size))
            figures[f"transactions of {size}"] = count / (time.perf_counter() - began)
            figures[f"transaction of {size} p50"] = percentile(took, 0.5)
            figures[f"transaction of {size} p99"] = percentile(took, 0.99)
            figures[f"CPU per transaction of {size}"] = (cpu_seconds(broker.pid) - cpu) / count * 1000
    with topics.fresh(broker.bootstrap, READ_PARTITIONS) as topic:
        committed = write(broker.bootstrap, topic, max(20, int(READ_TRANSACTIONS * scale)))
        read(broker.bootstrap, topic, committed)
        figures["consume committed"] = committed * READ_SIZE / 1e6 / read(broker.bootstrap, topic, committed)
    return figures
