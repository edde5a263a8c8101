"""Three brokers, 6 partitions, three copies: throughput, latency, and how long producers cannot write when one stops.

Not one of the cases that share a single broker: clusters are started here. Producers are confluent-kafka's with
acks=all unless said otherwise; the synchronous one is a plain socket to a partition's leader. `write gap` is the
longest time between two acknowledgements of a partition whose leader is killed (-9), stopped (SIGTERM) or silent
(SIGSTOP).
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cases.synchronous import produce_request, record_batch
from bench.metrics import percentile
from bench.peers.broker import BrokerProcess
from bench.peers.cluster import ClusterProcess
from bench.servers import KAFKA, cpu_seconds, kernel_seconds, rss_mb

PARTITIONS = 6
COPIES = 3
SESSION_TIMEOUT_MS = 9_000
"""Apache's default, which ours shares."""


class RunningCluster(NamedTuple):
    bootstrap: str
    pids: Callable[[], dict[int, int]]
    start_seconds: float


@contextmanager
def odradek(home: Path, brokers: int) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": 0, "min.insync.replicas": 1}
    if brokers == 1:
        with BrokerProcess(home / "data", settings) as one:
            yield RunningCluster(one.bootstrap, lambda: {1: one.pid}, one.ready_seconds)
        return
    with ClusterProcess(home / "data", brokers, settings) as running:
        yield RunningCluster(running.bootstrap, running.pids, running.ready_seconds)


@contextmanager
def kafka(home: Path, brokers: int) -> Iterator[RunningCluster]:
    command = [
        sys.executable,
        str(KAFKA),
        "run",
        "--brokers",
        str(brokers),
        "--port",
        "0",
        "--dir",
        str(home / "kafka"),
    ]
    with subprocess.Popen([*command, "--for", "3600"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        if line[:1] != ["ready"]:
            raise RuntimeError("Apache Kafka did not start")
        values = dict(word.split("=", 1) for word in line[2:])
        pids = {i: int(pid) for i, pid in enumerate(values["pids"].split(","), 1)}
        try:
            yield RunningCluster(line[1], lambda: pids, float(values["seconds"]))
        finally:
            process.terminate()


Start = Callable[[Path, int], AbstractContextManager[RunningCluster]]
CLUSTERS: Mapping[str, Start] = {"odradek": odradek, "kafka": kafka}


def run_cluster(name: str, scale: float) -> dict[str, float]:
    """Every figure of one fresh cluster."""
    with fresh(name) as cluster:
        figures = {"cluster up": cluster.start_seconds}
        figures |= throughput(cluster, scale)
        figures |= synchronous(cluster, scale)
        figures["memory per broker"] = mean(rss_mb(pid) for pid in cluster.pids().values())
    for label, how in (("stop", signal.SIGTERM), ("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
        # Three controllers of Apache's that vote can do without one of them, and it does not start again.
        with fresh(name) as cluster:
            figures[f"write gap, {label}"] = write_gap(cluster, how)
    return figures


@contextmanager
def fresh(name: str, brokers: int = COPIES, clusters: Mapping[str, Start] = CLUSTERS) -> Iterator[RunningCluster]:
    home = Path(tempfile.mkdtemp(prefix=f"odradek-bench-{name}-"))
    os.sync()
    try:
        with clusters[name](home, brokers) as cluster:
            yield cluster
    finally:
        shutil.rmtree(home, ignore_errors=True)


def new_topic(cluster: RunningCluster, partitions: int = PARTITIONS, copies: int = COPIES) -> str:
    name = f"bench-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    config = {"min.insync.replicas": "1"}
    admin.create_topics([NewTopic(name, partitions, copies, config=config)])[name].result(30)
    time.sleep(1)
    return name


def produce(cluster: RunningCluster, topic: str, records: int, size: int, acks: int | str) -> float:
    """Seconds."""
    failed: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        failed.append(str(error))

    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 5, "batch.size": 1_000_000,
        "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000,
        "delivery.report.only.error": True, "on_delivery": report, "log_level": 2,
    })  # fmt: skip
    value, send = b"x" * size, producer.produce
    began = time.perf_counter()
    for i in range(records):
        try:
            send(topic, value, partition=i % PARTITIONS)
        except BufferError:
            while len(producer) > 400_000:
                producer.poll(0.005)
            send(topic, value, partition=i % PARTITIONS)
    left = producer.flush(300)
    if left or failed:
        raise RuntimeError(f"{left} records not sent, {len(failed)} failed: {failed[:1]}")
    return time.perf_counter() - began


def consume(cluster: RunningCluster, topic: str, records: int) -> float:
    """Seconds."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "bench", "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1, "log_level": 2,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    seen, began = 0, time.perf_counter()
    while seen < records:
        seen += len(consumer.consume(10_000, 0.2))
        if time.perf_counter() - began > 300:
            raise RuntimeError(f"only {seen} of {records} records came")
    consumer.close()
    return time.perf_counter() - began


def throughput(cluster: RunningCluster, scale: float) -> dict[str, float]:
    large, small = max(1000, int(300_000 * scale)), max(1000, int(1_000_000 * scale))
    topic = new_topic(cluster)
    cold = produce(cluster, topic, large, 1000, "all")
    pids = cluster.pids().values()
    before, of_kernel_before = sum(map(cpu_seconds, pids)), sum(map(kernel_seconds, pids))
    warm = produce(cluster, topic, large, 1000, "all")
    cpu, of_kernel = sum(map(cpu_seconds, pids)) - before, sum(map(kernel_seconds, pids)) - of_kernel_before
    read = consume(cluster, topic, 2 * large)
    topic = new_topic(cluster)
    produce(cluster, topic, small // 4, 100, "all")
    return {
        "acks=all, cold": large / 1000 / cold,
        "acks=all, warm": large / 1000 / warm,
        "CPU acks=all": cpu / (large / 1e6),
        "of it the kernel's": of_kernel / (large / 1e6),
        "cluster consume": 2 * large / 1000 / read,
        "100 B, acks=all": small / produce(cluster, topic, small, 100, "all"),
        "100 B, acks=1": small / produce(cluster, topic, small, 100, 1),
    }


def leader_of(cluster: RunningCluster, topic: str, partition: int = 0) -> tuple[int, str, int]:
    """(broker id, host, port)."""
    found = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2}).list_topics(topic, timeout=10)
    broker = found.brokers[found.topics[topic].partitions[partition].leader]
    assert broker.host is not None
    return broker.id, broker.host, broker.port


def synchronous(cluster: RunningCluster, scale: float) -> dict[str, float]:
    topic = new_topic(cluster, 1)
    _, host, port = leader_of(cluster, topic)
    request = bytearray(produce_request(topic, record_batch(b"x" * 100)))
    # acks lie behind the header (4 + 8 + 2 + 5) and the null transactional id
    struct.pack_into(">h", request, 4 + 10 + 5 + 2, -1)
    times = []
    with socket.create_connection((host, port), 30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        requests = max(200, int(5000 * scale))
        for number in range(requests + requests // 5):
            began = time.perf_counter()
            sock.sendall(request)
            answer = sock.recv(4096)
            (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
            if error:
                raise RuntimeError(f"the broker answers error {error}")
            if number >= requests // 5:
                times.append(time.perf_counter() - began)
    times.sort()
    return {
        "acks=all p50": percentile(times, 0.5) * 1e6,
        "acks=all p99": percentile(times, 0.99) * 1e6,
    }


class Writer:
    """Writes to a topic without pause, in a thread, and notes when records are acknowledged."""

    def __init__(self, bootstrap: str, topic: str, how: signal.Signals) -> None:
        """`how`: the signal that a leader is going to get."""
        self._topic = topic
        self._acknowledged: list[float] = []
        self._failed: list[str] = []
        self._ended = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0,
            "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 50,
            # A client waits for a silent broker as long as it likes; it is not to be measured here.
            "socket.timeout.ms": 1000 if how == signal.SIGSTOP else 60_000, "log_level": 2,
            "on_delivery": self._delivered,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._producer.flush(60) or self._failed:
            raise RuntimeError(f"records were not acknowledged: {self._failed[:1]}")

    def _delivered(self, error: Any, _message: Message) -> None:
        if error is None:
            self._acknowledged.append(time.perf_counter())
        else:
            self._failed.append(str(error))

    def _write(self) -> None:
        while not self._ended.is_set():
            self._producer.produce(self._topic, b"x")
            self._producer.poll(0.005)

    def wait_for_another_leader(self, began: float) -> None:
        """Until records are acknowledged again, and for a while more: a leader may change twice."""
        while time.perf_counter() - began < 40 and not (
            time.perf_counter() - began > 6 and self._acknowledged[-1] > time.perf_counter() - 1
        ):
            time.sleep(0.1)

    def longest_gap_ms(self, began: float) -> float:
        """Between two acknowledgements, of those since shortly before this time."""
        late = [each for each in self._acknowledged if each > began - 0.5]
        return max(after - before for before, after in pairwise(late)) * 1000


def write_gap(cluster: RunningCluster, how: signal.Signals) -> float:
    """The longest time in ms between acknowledgements of a partition whose leader gets the signal."""
    topic = new_topic(cluster, 1)
    broker, _, _ = leader_of(cluster, topic)
    with Writer(cluster.bootstrap, topic, how) as writer:
        time.sleep(2)
        pid = cluster.pids()[broker]
        began = time.perf_counter()
        os.kill(pid, how)
        writer.wait_for_another_leader(began)
        if how == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        time.sleep(2)
    return writer.longest_gap_ms(began)
