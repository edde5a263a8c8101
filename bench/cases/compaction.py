"""Compaction of a 2 GB log of 1,000-byte values under 100,000 keys, and what a producer beside it feels.

MB/s are bytes of the log by the time from allowing compaction to the last segment's replacement. The producer sends
100 bytes at a time, acks=1, one after the other.
"""

import os
import random
import threading
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.cases import topics
from bench.cases.log_sizes import topic_bytes
from bench.metrics import percentile
from bench.servers import Running

RECORDS = 2_000_000
KEYS = 100_000
SIZE = 1000
SETTLED_SECONDS = 3.0


def alter(admin: AdminClient, kind: ResourceType, name: str, **settings: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    (done,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    done.result(30)


def fill(bootstrap: str, topic: str, records: int) -> None:
    chance, padding = random.Random(7), os.urandom(SIZE)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 500_000, "acks": 1})
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, padding, b"key-%d" % chance.randrange(KEYS), 0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records not sent")


class Beside:
    """A producer that sends one record after the other until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.latencies: list[float] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            self._producer.produce(self._topic, b"x" * 100, partition=0)
            self._producer.flush(30)
            self.latencies.append(time.perf_counter() - began)

    def stop(self) -> list[float]:
        self._stop.set()
        self._thread.join()
        return sorted(self.latencies)


def run(broker: Running, scale: float) -> dict[str, float]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 4})
    alter(admin, ConfigResource.Type.BROKER, "1", log_cleaner_backoff_ms="100")
    name = f"compacted-{os.getpid()}"
    segment = max(1 << 20, int((100 << 20) * scale))
    config = {"segment.bytes": str(segment), "min.compaction.lag.ms": "0", "file.delete.delay.ms": "0"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    fill(broker.bootstrap, name, int(RECORDS * scale))
    with topics.fresh(broker.bootstrap, 1) as other:
        beside = Beside(broker.bootstrap, other)
        size = before = topic_bytes(broker, name)
        began = changed = time.perf_counter()
        alter(admin, ConfigResource.Type.TOPIC, name, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        while size == before or time.perf_counter() - changed < SETTLED_SECONDS:
            if time.perf_counter() - began > 300:
                raise RuntimeError("the log was not compacted within five minutes")
            time.sleep(0.02)
            now = topic_bytes(broker, name)
            if now != size:
                size, changed = now, time.perf_counter()
        latencies = beside.stop()
    admin.delete_topics([name])[name].result(30)
    return {
        "compaction": (before - segment / 2) / 1e6 / (changed - began),
        "compacting p99": percentile(latencies, 0.99) * 1e3,
        "compacting max": latencies[-1] * 1e3,
    }
