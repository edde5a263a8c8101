"""Three brokers, three copies, more and more partitions: what they cost while unused, and when a broker dies.

Not one of the cases that share a single broker: clusters are started here. Every partition gets a record, so that all
logs are open. `all led` is the time from the death (-9) of the leader of 2,000 partitions until every one of them
has returned its end from its new leader; `a new controller` that from the death of the controller until a topic exists.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cases.cluster import COPIES, RunningCluster, fresh
from bench.servers import cpu_seconds, rss_mb
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

STEPS = (10, 100, 1000, 5000)
PARTITIONS_OF_A_TOPIC = 100
FAILED_OVER = 2000
SETTLE_SECONDS = 4
TIDY_SECONDS = 62
"""Logs without a write for `odradek.idle.check.interval.ms` are synced, once: after that a broker is idle."""
IDLE_SECONDS = 10
PATIENCE_SECONDS = 60
LATEST = -1
T = TypeVar("T")


def run_growth(name: str, scale: float) -> dict[str, float]:
    """Every figure, of two fresh clusters."""
    figures: dict[str, float] = {}
    with abandoned(name) as cluster:
        figures |= idle(cluster, scale)
    with abandoned(name) as cluster:
        figures |= a_leader_dies(cluster, scale)
        if name == "odradek":  # Apache's broker is not started again, and Metadata does not name its controller
            figures |= the_controller_dies(cluster)
    return figures


@contextmanager
def abandoned(name: str) -> Iterator[RunningCluster]:
    """A fresh cluster that is killed at the end: a graceful one syncs thousands of logs, which is not measured here."""
    with fresh(name) as cluster:
        if name != "odradek":
            yield cluster
            return
        first = next(iter(cluster.pids().values()))
        supervisor = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
        yield cluster
        os.kill(supervisor, signal.SIGSTOP)  # it would start them again
        brokers = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for pid in (*map(int, brokers), supervisor):
            os.kill(pid, signal.SIGKILL)


# --- idle ---


def idle(cluster: RunningCluster, scale: float) -> dict[str, float]:
    time.sleep(SETTLE_SECONDS)
    pids = cluster.pids()
    empty = mean(rss_mb(pid) for pid in pids.values())
    figures: dict[str, float] = {}
    partitions = 0
    for label in STEPS:
        step = max(1, int(label * scale))
        began = time.perf_counter()
        make(cluster, step - partitions, f"step-{label}")
        partitions = step
        made = time.perf_counter() - began
        time.sleep(TIDY_SECONDS if step >= 1000 else SETTLE_SECONDS)
        before = {pid: cpu_seconds(pid) for pid in pids.values()}
        time.sleep(IDLE_SECONDS)
        busy = mean(cpu_seconds(pid) - before[pid] for pid in before) / IDLE_SECONDS
        figures[f"idle CPU, {label:,} partitions"] = busy * 100
        memory = mean(rss_mb(pid) for pid in pids.values())
        figures[f"memory, {label:,} partitions"] = memory
        if label == STEPS[-1]:
            # Every broker has a replica of each.
            figures["memory per replica"] = (memory - empty) * 1000 / partitions
            figures["idle CPU per 1,000 replicas"] = busy * 100 * 1000 / partitions
            figures[f"made {label - STEPS[-2]:,} partitions"] = made
    return figures


def make(cluster: RunningCluster, partitions: int, prefix: str, assignment: Sequence[int] | None = None) -> list[str]:
    """Topics with so many partitions in all, and a record in each."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    sizes = [PARTITIONS_OF_A_TOPIC] * (partitions // PARTITIONS_OF_A_TOPIC)
    if rest := partitions % PARTITIONS_OF_A_TOPIC:
        sizes.append(rest)
    wanted = {f"{prefix}-{number}": size for number, size in enumerate(sizes)}
    topics = [
        NewTopic(topic, size, COPIES)
        if assignment is None
        else NewTopic(topic, size, replica_assignment=[list(assignment)] * size)
        for topic, size in wanted.items()
    ]
    for made in admin.create_topics(topics, operation_timeout=60, request_timeout=120).values():
        made.result(120)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 50, "log_level": 0})
    for topic, size in wanted.items():
        for partition in range(size):
            producer.produce(topic, b"x" * 100, partition=partition)
        producer.poll(0)
    if left := producer.flush(PATIENCE_SECONDS):
        raise RuntimeError(f"{left} records not sent")
    return list(wanted)


# --- deaths ---


class Address(NamedTuple):
    host: str
    port: int


class Line:
    """A socket to one broker: requests, one at a time."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, 5)
        self._socket.settimeout(10)
        self._number = 0

    def ask(self, request: Any, response: type[T], version: int) -> T:
        """Raises OSError."""
        self._number += 1
        out = bytearray(4)
        encode_request_header(out, request.API_KEY, version, self._number, "bench")
        request.encode(out, version)
        out[0:4] = (len(out) - 4).to_bytes(4, "big")
        self._socket.sendall(out)
        size = int.from_bytes(self._read(4), "big")
        frame = memoryview(self._read(size))
        _, position = parse_response_header(frame, request.API_KEY, version)
        decode: Any = response
        answer: T = decode.decode(frame, position, version)[0]
        return answer

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            chunk = self._socket.recv(size - len(found))
            if not chunk:
                raise ConnectionError("closed without an answer")
            found += chunk
        return bytes(found)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def line(address: Address) -> Iterator[Line]:
    found = Line(address)
    try:
        yield found
    finally:
        found.close()


def view(survivor: Line) -> MetadataResponse:
    return survivor.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse, 12)


def a_leader_dies(cluster: RunningCluster, scale: float) -> dict[str, float]:
    known = cluster_view(cluster)
    addresses = {broker.node_id: Address(broker.host, broker.port) for broker in known.brokers}
    victim = next(each for each in sorted(addresses) if each != known.controller_id)
    others = [each for each in sorted(addresses) if each != victim]
    partitions = max(1, int(FAILED_OVER * scale))
    topics = make(cluster, partitions, "failover", [victim, *others])
    time.sleep(SETTLE_SECONDS)
    with line(addresses[others[0]]) as survivor:
        began = time.perf_counter()
        os.kill(cluster.pids()[victim], signal.SIGKILL)
        elected, led = all_led(survivor, victim, set(topics), partitions, began)
    return {"2,000 partitions, new leaders": elected, "2,000 partitions, all led": led}


def the_controller_dies(cluster: RunningCluster) -> dict[str, float]:
    await_whole(cluster)
    time.sleep(SETTLE_SECONDS)
    known = cluster_view(cluster)
    survivor = next(each for each in known.brokers if each.node_id != known.controller_id)
    with line(Address(survivor.host, survivor.port)) as asked:
        began = time.perf_counter()
        os.kill(cluster.pids()[known.controller_id], signal.SIGKILL)
        return {"a new controller": topic_made(asked, began)}


def cluster_view(cluster: RunningCluster) -> MetadataResponse:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    with line(Address(host, int(port))) as any_broker:
        return view(any_broker)


def all_led(survivor: Line, dead: int, topics: set[str], partitions: int, began: float) -> tuple[float, float]:
    """When a survivor knew new leaders of all, and when all of these had returned the ends, in seconds."""
    while True:
        known = view(survivor)
        leaders = {
            (topic.name or "", state.partition_index): state.leader_id
            for topic in known.topics
            if topic.name in topics
            for state in topic.partitions
        }
        if len(leaders) == partitions and all(leader not in (dead, -1) for leader in leaders.values()):
            break
        give_up(began, "not all partitions have new leaders")
        time.sleep(0.01)
    elected = time.perf_counter() - began
    addresses = {broker.node_id: Address(broker.host, broker.port) for broker in known.brokers}
    for leader in sorted(set(leaders.values())):
        with line(addresses[leader]) as new:
            wanted = [place for place, each in leaders.items() if each == leader]
            while wanted := not_led(new, wanted):
                give_up(began, f"{len(wanted)} partitions are not led")
                time.sleep(0.01)
    return elected, time.perf_counter() - began


def not_led(leader: Line, wanted: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of which it does not return the end, which is behind the one record."""
    topics: dict[str, list[ListOffsetsRequestPartition]] = {}
    for topic, partition in wanted:
        topics.setdefault(topic, []).append(ListOffsetsRequestPartition(partition, -1, LATEST))
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequestTopic(*each) for each in topics.items()])
    answer = leader.ask(request, ListOffsetsResponse, 7)
    return [
        (topic.name, partition.partition_index)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code or partition.offset != 1
    ]


def topic_made(survivor: Line, began: float) -> float:
    number = 0
    while True:
        number += 1
        topic = CreateTopicsRequestTopic(name=f"after-{number}", num_partitions=1, replication_factor=2)
        answer = survivor.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse, 7)
        if not answer.topics[0].error_code:
            return time.perf_counter() - began
        give_up(began, f"no topic is made: {answer.topics[0].error_code} {answer.topics[0].error_message}")
        time.sleep(0.01)


def give_up(began: float, problem: str) -> None:
    if time.perf_counter() - began > PATIENCE_SECONDS:
        raise RuntimeError(problem)


def await_whole(cluster: RunningCluster) -> None:
    """The dead broker is back, all its replicas are in sync, and it leads again what it led."""
    began = time.perf_counter()
    while True:
        try:
            known = cluster_view(cluster)
        except OSError as error:
            print(f"  waiting for the broker: {error}", file=sys.stderr)
        else:
            states = [state for topic in known.topics for state in topic.partitions]
            if len(known.brokers) == COPIES and all(
                s.leader_id == s.replica_nodes[0] and len(s.isr_nodes) == len(s.replica_nodes) for s in states
            ):
                return
        give_up(began, "the broker that was killed does not come in sync again")
        time.sleep(0.2)
