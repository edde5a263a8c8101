"""The work beside which a broker is watched, each kind in a process of its own until it is terminated.

produce BOOTSTRAP TOPIC RATE      records of 1,000 bytes, due at a fixed rate, acks=all
consume BOOTSTRAP TOPIC SECONDS   reads them, and prints count, p50, p99 and maximum of the latencies in ms per window
transactions BOOTSTRAP TOPIC      ten transactions of ten records a second, every tenth aborted
churn BOOTSTRAP TOPIC             topics, members of groups and connections that come and go
"""

import itertools
import json
import struct
import sys
import time
import uuid
from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.cases import topics
from bench.cases.transactions import new_producer
from bench.metrics import percentile

SIZE = 1000
PARTITIONS = 4
TRANSACTIONS_PER_SECOND = 10
TRANSACTION_RECORDS = 10
ABORT_EVERY = 10
CHURN_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
QUIET = 4
"""Warnings of librdkafka, and worse."""


def fail(error: KafkaError | None, _: Message) -> None:
    """Raise what a delivery failed with, from the next poll."""
    if error is not None:
        raise RuntimeError(str(error))


def produce(bootstrap: str, topic: str, rate: str) -> None:
    producer = Producer({
        "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "on_delivery": fail,
        "delivery.report.only.error": True, "log_level": QUIET,
    })  # fmt: skip
    padding, interval_ns, begun = b"x" * (SIZE - 8), 1e9 / float(rate), time.monotonic_ns()
    for i in itertools.count():
        due = begun + int(i * interval_ns)
        if (wait_ns := due - time.monotonic_ns()) > 0:
            producer.poll(0)
            time.sleep(wait_ns / 1e9)
        producer.produce(topic, struct.pack(">q", due) + padding, partition=i % PARTITIONS)


def consume(bootstrap: str, topic: str, seconds: str) -> None:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "soak", "enable.auto.commit": False, "log_level": QUIET,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, p, OFFSET_END) for p in range(PARTITIONS)])
    window = float(seconds)
    while True:
        took: list[float] = []
        until = time.monotonic() + window
        while (left := until - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is not None:
                if error := message.error():
                    raise RuntimeError(str(error))
                took.append((time.monotonic_ns() - struct.unpack_from(">q", message.value() or b"")[0]) / 1e6)
        took.sort()
        p50, p99, most = (percentile(took, share) for share in (0.5, 0.99, 1.0)) if took else (0.0, 0.0, 0.0)
        print(json.dumps({"records": len(took), "p50": p50, "p99": p99, "most": most}), flush=True)


def transactions(bootstrap: str, topic: str) -> None:
    producer, value = new_producer(bootstrap), b"x" * SIZE
    begun = time.monotonic()
    for i in itertools.count():
        time.sleep(max(0.0, begun + i / TRANSACTIONS_PER_SECOND - time.monotonic()))
        producer.begin_transaction()
        for number in range(TRANSACTION_RECORDS):
            producer.produce(topic, value, partition=number % PARTITIONS)
        if i % ABORT_EVERY:
            producer.commit_transaction(PATIENCE_SECONDS)
        else:
            producer.abort_transaction(PATIENCE_SECONDS)


def churn(bootstrap: str, _: str) -> None:
    while True:
        begun = time.monotonic()
        with topics.fresh(bootstrap, PARTITIONS) as topic:
            producer = Producer({"bootstrap.servers": bootstrap, "on_delivery": fail, "log_level": QUIET})
            producer.produce(topic, b"value")
            if producer.flush(PATIENCE_SECONDS):
                raise RuntimeError("a record was not sent")
            group = f"soak-{uuid.uuid4().hex[:12]}"
            consumer = Consumer({
                "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "log_level": QUIET,
            })  # fmt: skip
            consumer.subscribe([topic])
            if consumer.poll(PATIENCE_SECONDS) is None:
                raise RuntimeError("a member received no record")
            consumer.commit(asynchronous=False)
            consumer.close()
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": QUIET})
            admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
        time.sleep(max(0.0, begun + CHURN_SECONDS - time.monotonic()))


WORK: dict[str, Callable[..., None]] = {
    "produce": produce,
    "consume": consume,
    "transactions": transactions,
    "churn": churn,
}

if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
