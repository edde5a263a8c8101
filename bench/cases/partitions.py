"""1,000 partitions of ten segments each: memory and descriptors for them, and starts after a stop and after kill -9.

A start is timed to the first answer, and to when every partition has returned its end offset. The broker under
measurement is not this case's: it runs its own, on its own data.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.servers import SERVERS, Kafka, Odradek, Running, rss_mb

PARTITIONS = 1000
SEGMENTS = 10
TOPIC = "many"


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def fill(bootstrap: str, partitions: int) -> None:
    """One record for each segment: each is older than `segment.ms` to the next one."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5})
    now_ms = int(time.time() * 1000) - SEGMENTS * 60_000
    for segment in range(SEGMENTS):
        for partition in range(partitions):
            producer.produce(TOPIC, b"x" * 1000, partition=partition, timestamp=now_ms + segment * 60_000)
            producer.poll(0)
        if left := producer.flush(120):
            raise RuntimeError(f"{left} records not sent")


def all_led_seconds(bootstrap: str, partitions: int, began: float) -> float:
    """When the last partition has returned its end."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = set(range(partitions))
    while wanted:
        asked = {TopicPartition(TOPIC, partition): OffsetSpec.latest() for partition in wanted}
        for place, future in admin.list_offsets(asked, request_timeout=30).items():
            if future.exception() is None:
                if future.result().offset != SEGMENTS:
                    raise RuntimeError(f"{place} ends at {future.result().offset}")
                wanted.discard(place.partition)
        if time.perf_counter() - began > 120:
            raise RuntimeError(f"{len(wanted)} partitions have no leader")
    return time.perf_counter() - began


def restarted(server: Odradek | Kafka, partitions: int) -> tuple[Running, float, float]:
    began = time.perf_counter()
    running = server.start()
    return running, server.start_seconds, all_led_seconds(running.bootstrap, partitions, began)


def run(broker: Running, scale: float) -> dict[str, float]:
    partitions = int(PARTITIONS * scale)
    home = Path(tempfile.mkdtemp(prefix="odradek-bench-partitions-"))
    server = SERVERS[broker.name](home)
    running = server.start()
    try:
        time.sleep(2)
        memory, files = rss_mb(running.pid), descriptors(running.pid)
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, partitions, 1, config={"segment.ms": "10000"})])[TOPIC].result(60)
        time.sleep(2)
        idle = rss_mb(running.pid) - memory
        fill(running.bootstrap, partitions)
        figures = {
            "memory per partition": idle * 1000 / partitions,
            "memory per used partition": (rss_mb(running.pid) - memory) * 1000 / partitions,
            "descriptors per partition": (descriptors(running.pid) - files) / partitions,
        }
        server.kill()
        running, figures["start, killed"], figures["all led, killed"] = restarted(server, partitions)
        server.stop()
        running, figures["start, stopped"], figures["all led, stopped"] = restarted(server, partitions)
        return figures
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)
