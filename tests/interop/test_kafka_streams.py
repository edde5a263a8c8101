"""Kafka Streams with exactly_once_v2: killed and started again, its output is exact."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.kafka import QUICK
from tests.interop.conftest import KAFKA

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LINES = 1500
PROGRAM = Path(__file__).with_name("WordCount.java")


class WordCount:
    """The program as a process that can be killed and started again."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path) -> None:
        done = subprocess.run([sys.executable, str(KAFKA), "classpath"], capture_output=True, text=True, check=True)
        self.command = ["java", "-Xmx300m", *QUICK, "-cp", done.stdout.strip(), str(PROGRAM)]
        self.command += [bootstrap, prefix, str(directory / "state")]
        self.log = directory / "streams.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Counts(threading.Thread):
    """Reads all updates of the counts as they are committed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.updates = 0
        self.wrong: list[tuple[str, int, int]] = []
        self.failure: object = None
        self.stopping = threading.Event()
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
        )
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])

    def run(self) -> None:
        while not self.stopping.is_set():
            message = self.consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    self.failure = error
                continue
            word, count = (message.key() or b"").decode(), struct.unpack(">q", message.value() or b"")[0]
            if count != self.seen[word] + 1:
                self.wrong.append((word, self.seen[word], count))
            self.seen[word] = count
            self.updates += 1
        self.consumer.close()

    def wait_for(self, updates: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.updates < updates:
            assert time.monotonic() < deadline, f"{self.updates} of {updates} updates"
            time.sleep(0.05)


@pytest.fixture
def started() -> Iterator[Callable[..., Any]]:
    made: list[WordCount | Counts] = []

    def start(thing: Any) -> Any:
        made.append(thing)
        thing.start()
        return thing

    yield start
    for thing in made:
        if isinstance(thing, WordCount):
            thing.kill()
        else:
            thing.stopping.set()
            thing.join()


@pytest.mark.long
def test_word_count_is_exact_through_kills(
    bootstrap: str, java_tools: Any, unique_name: Callable[[str], str], tmp_path: Path, started: Callable[..., Any]
) -> None:
    prefix = unique_name("streams")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"{prefix}-{name}", 2, 1) for name in ("lines", "counts")]
    for future in admin.create_topics(topics).values():
        future.result(30)
    chance = random.Random(7)
    lines = [" ".join(chance.choice(WORDS) for _ in range(4)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    producer = Producer({"bootstrap.servers": bootstrap})
    program: WordCount = started(WordCount(bootstrap, prefix, tmp_path))
    counts: Counts = started(Counts(bootstrap, f"{prefix}-counts"))
    half = LINES // 2
    for number, line in enumerate(lines[:half]):
        producer.produce(f"{prefix}-lines", line, partition=number % 2)
    producer.flush()
    counts.wait_for(half, 60)
    program.kill()
    program.start()
    for number, line in enumerate(lines[half:]):
        producer.produce(f"{prefix}-lines", line, partition=number % 2)
    producer.flush()
    counts.wait_for(3 * half, 90)
    program.kill()
    program.start()
    counts.wait_for(expected.total(), 90)
    assert counts.failure is None
    assert not counts.wrong
    assert counts.seen == expected
    assert counts.updates == expected.total()
