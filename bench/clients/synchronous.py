"""Records that are sent one at a time, each after the answer to the one before: the clients take turns in short blocks.

Each client is a process of its own that has connected and then sends a block of records for each line of its standard
input, and prints what they took. So all clients meet the broker in the same state, and the machine at the same moments.
Each program learns whether its record was written: a program that does not ask is no counterpart.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from statistics import fmean, median
from typing import Any, NamedTuple

from bench.clients.drivers import Figures, Stopwatch, Task
from odradek.records.builder import encode_batch
from odradek.wire.produced import BatchesRequest, ProduceAnswer, TopicBatches

BLOCK_RECORDS = 300
WARM_RECORDS = 3_000
"""Of each client, before the first block that counts: Java compiles what runs often."""
_BEFORE_TOPIC_IDS = 12
_READY = "ready"


class Block:
    """Times the records of a block, and prints the figures at its end."""

    def __init__(self) -> None:
        self._took: list[float] = []
        self._watch = Stopwatch()

    def took(self, seconds: float) -> None:
        self._took.append(seconds)

    def report(self) -> None:
        took = self._took
        print(json.dumps({**self._watch.stop(), "p50": median(took), "mean": fmean(took)}), flush=True)


def blocks() -> Iterator[int]:
    """How many records to send, whenever the bench says so."""
    print(_READY, flush=True)
    yield from map(int, sys.stdin)


async def odradek(task: Task) -> None:
    from odradek.client import Producer

    async with Producer(bootstrap_servers=task.bootstrap, linger_ms=0) as producer:
        value = b"x" * task.size
        await _in_awaited_blocks(lambda: producer.send_and_wait(task.topic, value, partition=0))


def odradek_in_a_thread(task: Task) -> None:
    from odradek.client import BlockingProducer

    with BlockingProducer(bootstrap_servers=task.bootstrap, linger_ms=0) as producer:
        value = b"x" * task.size

        def send() -> None:
            producer.send_and_wait(task.topic, value, partition=0)

        _in_blocks(send)


async def aiokafka(task: Task) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=task.bootstrap, enable_idempotence=True) as producer:
        value = b"x" * task.size
        await _in_awaited_blocks(lambda: producer.send_and_wait(task.topic, value, partition=0))


def confluent(task: Task) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": task.bootstrap, "linger.ms": 0, "enable.idempotence": True})
    value, offsets = b"x" * task.size, [-1]

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(f"the record was lost: {error}")
        offsets[0] = message.offset()

    def send() -> None:
        producer.produce(task.topic, value, partition=0, on_delivery=delivered)
        producer.flush()

    _in_blocks(send)


def kafka_python(task: Task) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=task.bootstrap, linger_ms=0, enable_idempotence=True)
    value = b"x" * task.size

    def send() -> None:
        producer.send(task.topic, value, partition=0).get(30)

    _in_blocks(send)
    producer.close()


def plain_socket(task: Task) -> None:
    """The same request each time, encoded before: what the system calls, the broker and waking up take of a record."""
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch([(now_ms, None, b"x" * task.size, ())])
    request = bytearray(struct.pack(">ihhih", 0, 0, _BEFORE_TOPIC_IDS, 1, -1) + b"\0")
    BatchesRequest(None, -1, 30_000, [TopicBatches(task.topic, bytes(16), [(0, batch)])]).encode(
        request, _BEFORE_TOPIC_IDS
    )
    struct.pack_into(">i", request, 0, len(request) - 4)
    host, _, port = task.bootstrap.rpartition(":")
    answer = memoryview(bytearray(65_536))
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> int:
            sock.send(request)
            return sock.recv_into(answer)

        def offset(size: int) -> int:
            # The header is flexible; one topic has one partition, whose number comes before its error.
            ((_, produced),) = ProduceAnswer.decode(answer[:size], 9, _BEFORE_TOPIC_IDS)[0].partitions
            if produced.error_code:
                raise RuntimeError(f"a record got {produced}")
            return produced.base_offset

        send()
        for records in blocks():
            before = offset(send())  # other clients have sent since
            block, size = Block(), 0
            for _ in range(records):
                began = time.perf_counter()
                size = send()
                block.took(time.perf_counter() - began)
            block.report()
            if offset(size) != before + records:
                raise RuntimeError(f"{records} records after offset {before} ended at {offset(size)}")


async def _in_awaited_blocks(send: Callable[[], Awaitable[object]]) -> None:
    """As `_in_blocks`, for clients of an event loop."""
    await send()
    for records in blocks():
        block = Block()
        for _ in range(records):
            began = time.perf_counter()
            await send()
            block.took(time.perf_counter() - began)
        block.report()


def _in_blocks(send: Callable[[], object]) -> None:
    """Send a first record, which connects, and then what the bench asks for."""
    send()
    for records in blocks():
        block = Block()
        for _ in range(records):
            began = time.perf_counter()
            send()
            block.took(time.perf_counter() - began)
        block.report()


WORK = "synchronous"
WORK_IN_A_THREAD = "synchronous in a thread"
"""By the face that a client's documentation shows first, and by that for programs without an event loop."""
PROGRAMS: dict[str, dict[str, Callable[[Task], Awaitable[None] | None]]] = {
    "odradek": {WORK: odradek, WORK_IN_A_THREAD: odradek_in_a_thread},
    "aiokafka": {WORK: aiokafka},
    "confluent": {WORK: confluent},
    "kafka-python": {WORK: kafka_python},
    "socket": {WORK: plain_socket},
}


def serve(client: str, work: str, task: Task) -> None:
    """Send in this process, until the standard input ends."""
    sending = PROGRAMS[client][work](task)
    if sending is None:
        return

    async def finish() -> None:
        await sending

    asyncio.run(finish())


class _Client(NamedTuple):
    work: str
    name: str
    process: subprocess.Popen[str]

    def ask(self, records: int) -> Figures:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{records}\n")
        self.process.stdin.flush()
        figures: Figures = json.loads(self._line())
        return {name: value / records if name in ("cpu", "wall") else value for name, value in figures.items()}

    def wait_until_ready(self) -> None:
        if self._line() != _READY:
            raise RuntimeError(f"{self.name} did not begin")

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait(60)}")
        return line.strip()


def measure(
    bootstrap: str, topic: str, size: int, clients: Sequence[str], count: int, processors: set[int] | None = None
) -> Iterator[tuple[str, str, Figures]]:
    """(work, client, figures of a record) of `count` blocks of each; the order changes from block to block.

    The clients run on `processors`, None for any.
    """
    with ExitStack() as stack:
        running = []
        for name in clients:
            for work in PROGRAMS[name]:
                command = [sys.executable, "-m", "bench.clients", "--serve", name, work, bootstrap, topic, str(size)]
                process = stack.enter_context(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                )
                if processors is not None:
                    os.sched_setaffinity(process.pid, processors)
                running.append(_Client(work, name, process))
        for each in running:
            each.wait_until_ready()
        for _ in range(WARM_RECORDS // BLOCK_RECORDS):
            for each in running:
                each.ask(BLOCK_RECORDS)
        for turn in range(count):
            for each in _rotated(running, turn):
                yield each.work, each.name, each.ask(BLOCK_RECORDS)


def _rotated(clients: Sequence[_Client], turn: int) -> Iterator[_Client]:
    """All of them, beginning with another each time; every second time in the opposite order."""
    count = len(clients)
    order = list(clients if turn % 2 == 0 else clients[::-1])
    first = turn // 2 % count
    return iter(order[first:] + order[:first])
