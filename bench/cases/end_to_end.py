"""Open-loop latency from producer to consumer: 10,000 records of 1 KB a second into 4 partitions.

acks=all, idempotent and linger.ms=0, so that at most five requests are in flight and the rest is batched meanwhile.

A record's latency counts from the moment it was due to be sent, not from when the producer got round to it, so that a
stall of the broker is paid by every record that was due meanwhile (no coordinated omission). Producer and consumer are
processes of their own and share the machine's monotonic clock.
"""

import struct
import subprocess
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from bench.cases import topics
from bench.metrics import percentile
from bench.servers import Running

PER_SECOND = 10_000
SECONDS = 20.0
WARM_UP_SECONDS = 5.0
SIZE = 1000
PARTITIONS = 4
QUEUED_MOST = 50_000
"""Records in the producer's queue when it takes more again, after it was full."""
SLOWEST_PER_SECOND = 10_000
"""Without a rate, or with a higher one, what is expected at least."""


def send(bootstrap: str, topic: str, records: int, per_second: float) -> None:
    """With a rate of 0, as fast as the producer takes records; each is due when it is sent then."""
    failed: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "delivery.report.only.error": True,
            "on_delivery": report,
        }
    )
    padding = b"x" * (SIZE - 8)
    begun = time.monotonic_ns() + 100_000_000
    interval_ns = 1e9 / per_second if per_second else 0.0
    for i in range(records):
        due = begun + int(i * interval_ns) if per_second else time.monotonic_ns()
        wait_ns = due - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        try:
            producer.produce(topic, struct.pack(">q", due) + padding, partition=i & 3)
        except BufferError:
            while len(producer) > QUEUED_MOST:
                producer.poll(0.001)
            producer.produce(topic, struct.pack(">q", due) + padding, partition=i & 3)
        if not i & 1023:
            producer.poll(0)
    left = producer.flush(60)
    if left or failed:
        raise RuntimeError(f"{left} records not sent, {len(failed)} failed: {failed[:1]}")


def receive(bootstrap: str, topic: str, records: int, per_second: float = PER_SECOND) -> list[tuple[int, int]]:
    """When each record was due, and its latency, both in ns. Starts the sender once it reads the empty topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    # A broker that is busy may answer late where the end of a partition is: behind the first records by then.
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    consumer.poll(1.0)
    arguments = [bootstrap, topic, str(records), str(per_second)]
    sender = subprocess.Popen([sys.executable, "-m", "bench.cases.end_to_end", *arguments])
    seen: list[tuple[int, int]] = []
    deadline = time.monotonic() + records / min(per_second or SLOWEST_PER_SECOND, SLOWEST_PER_SECOND) + 60
    while len(seen) < records and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            if error := message.error():
                raise RuntimeError(str(error))
            now = time.monotonic_ns()
            (due,) = struct.unpack_from(">q", message.value() or b"")
            seen.append((due, now - due))
    consumer.close()
    if sender.wait(60) or len(seen) != records:
        raise RuntimeError(f"{len(seen)} of {records} records came")
    return seen


def run(broker: Running, scale: float) -> dict[str, float]:
    seconds = max(3.0, SECONDS * scale) + WARM_UP_SECONDS
    with topics.fresh(broker.bootstrap, PARTITIONS) as topic:
        seen = receive(broker.bootstrap, topic, int(seconds * PER_SECOND))
    measured_from = min(due for due, _ in seen) + int(WARM_UP_SECONDS * 1e9)
    took = sorted(latency / 1e6 for due, latency in seen if due >= measured_from)
    return {f"end to end p{share:g}": percentile(took, share / 100) for share in (50, 99, 99.9)}


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
