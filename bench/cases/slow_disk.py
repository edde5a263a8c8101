"""A producer that waits for each answer, while the disk is saturated and a lagging reader reads what is not cached.

Two processes keep the file system of the broker's data busy: one writes and syncs without end, one makes pages dirty as
fast as the kernel lets it. A consumer reads a topic from its start whose files were dropped from the page cache, over
and over. Beside that, records of 100 bytes are produced one at a time, acks=1, as in `synchronous`, at most one every
millisecond. Apache Kafka does not sync either; what differs is who has to wait when a write or a read stalls.
"""

import contextlib
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.cases import topics
from bench.cases.synchronous import produce_request, record_batch, round_trips, wait_until_accepted
from bench.metrics import percentile
from bench.servers import Running, processes

SECONDS = 20.0
COLD_BYTES = 400_000_000
BALLAST_BYTES = 2_000_000_000
CHUNK = 4 << 20
SIZE = 100


def files_of(broker: Running, topic: str) -> list[Path]:
    """The log files of the topic's partition 0, found by what the broker has open."""
    for pid in processes(broker.pid):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                path = Path(os.readlink(descriptor))
                if path.parent.name == f"{topic}-0":
                    return sorted(path.parent.glob("*.log"))
    raise RuntimeError(f"the broker has no file of {topic} open")


def drop_from_cache(files: list[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_ballast(path: Path, limit: int, synced: bool, stop: Event) -> None:
    """Write the file from its start again and again, with a sync after each chunk or with none at all."""
    chunk = os.urandom(CHUNK)
    with path.open("wb", buffering=0) as file:
        while not stop.is_set():
            if file.tell() + CHUNK > limit:
                file.seek(0)
            file.write(chunk)
            if synced:
                os.fdatasync(file.fileno())


def read_cold(bootstrap: str, topic: str, files: list[Path], stop: Event) -> None:
    """The lagging reader. It restarts when it has caught up."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "lagging", "enable.auto.commit": False})
    while not stop.is_set():
        drop_from_cache(files)
        consumer.assign([TopicPartition(topic, 0, 0)])
        idle = 0
        while idle < 3 and not stop.is_set():
            idle = 0 if consumer.consume(10_000, 0.2) else idle + 1
    consumer.close()


@contextlib.contextmanager
def trouble(broker: Running, topic: str) -> Iterator[None]:
    """The saturated disk and the lagging reader."""
    files = files_of(broker, topic)
    os.sync()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    ballast = [files[0].parent.parent.with_name(f"ballast-{number}") for number in (0, 1)]
    workers = [
        context.Process(target=write_ballast, args=(path, BALLAST_BYTES // 2, synced, stop))
        for path, synced in zip(ballast, (True, False), strict=True)
    ]
    workers.append(context.Process(target=read_cold, args=(broker.bootstrap, topic, files, stop)))
    try:
        for worker in workers:
            worker.start()
        time.sleep(2)
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(60)
        for path in ballast:
            path.unlink(missing_ok=True)


def paced(sock: socket.socket, request: bytes, seconds: float) -> list[float]:
    """Milliseconds of each round trip, in ascending order."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        took.append(round_trips(sock, request, 1)[0] / 1000)
        time.sleep(0.001)
    return sorted(took)


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer, value = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}), b"x" * 10_000
    for _ in range(size // len(value)):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records not sent")


def run(broker: Running, scale: float) -> dict[str, float]:
    seconds = max(3.0, SECONDS * scale)
    with (
        topics.fresh(broker.bootstrap, 1) as topic,
        topics.fresh(broker.bootstrap, 1) as cold,
        socket.create_connection(broker.address(), 10) as sock,
    ):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = produce_request(topic, record_batch(b"x" * SIZE))
        wait_until_accepted(sock, request, topic)
        round_trips(sock, request, 3000)
        fill(broker.bootstrap, cold, max(50_000_000, int(COLD_BYTES * scale)))
        os.sync()
        quiet = paced(sock, request, seconds / 4)
        with trouble(broker, cold):
            busy = paced(sock, request, seconds)
    return {
        "quiet disk p99": percentile(quiet, 0.99),
        "slow disk p50": percentile(busy, 0.5),
        "slow disk p99": percentile(busy, 0.99),
        "slow disk p99.9": percentile(busy, 0.999),
        "slow disk max": busy[-1],
    }
