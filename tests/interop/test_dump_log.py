"""Apache's DumpLogSegments reads the files that our log wrote."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess

COMPLAINTS = (
    "Mismatches in",
    "Non-consecutive offsets",
    "Found timestamp mismatch",
    "isvalid: false",
    "not a valid",
    "corrupt",
)
TOPIC, GROUP = "dumped", "dump-group"


def fill(bootstrap: str) -> None:
    """Some segments of every codec, and a committed group offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    small = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}  # the smallest that Kafka 4 allows
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=small)])[TOPIC].result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for i in range(300):
            producer.produce(TOPIC, random.Random(i).randbytes(2500) * 2, f"key-{i}", headers={"codec": codec})
            producer.poll(0)
            if i % 20 == 19:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    assert consumer.consume(1, 30)
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture(params=["running", "stopped", "killed"])
def filled(request: pytest.FixtureRequest, make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker with data in the state named by the parameter; a killed one has been started again."""
    broker = make_broker({"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}).start()
    fill(broker.bootstrap)
    if request.param == "stopped":
        assert broker.stop() == 0
    elif request.param == "killed":
        broker.kill()
        broker.start()
    return broker


def files(broker: BrokerProcess, partition: str, suffix: str) -> list[Path]:
    return sorted((broker.data_dir / partition).glob(f"*{suffix}"))


def test_segments_and_indexes(filled: BrokerProcess, java_tools: Any) -> None:
    segments = files(filled, f"{TOPIC}-0", ".log")
    assert len(segments) > 2
    names = ",".join(map(str, [*segments, *files(filled, f"{TOPIC}-0", "index")]))
    text = java_tools.run("dump-log", "--deep-iteration", "--files", names)
    complaints = [line for line in text.splitlines() if any(c in line for c in COMPLAINTS)]
    assert not complaints, complaints[:5]
    offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(1500))
    assert {c.lower() for c in re.findall(r"compresscodec: (\w+)", text)} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert text.count("isvalid: true") == len(re.findall(r"^baseOffset: ", text, re.MULTILINE))
    assert re.search(r"^offset: \d+ position: \d+", text, re.MULTILINE), "no entry of an offset index was shown"
    assert re.search(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE), "no entry of a time index was shown"
    # a broker may keep the indexes of the active segment longer than their entries until it stops
    closed = segments[:-1] if filled.running() else segments
    indexes = [index for segment in closed for index in segment.parent.glob(f"{segment.stem}.*index")]
    sane = java_tools.run("dump-log", "--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert not [line for line in sane.splitlines() if any(c in line for c in COMPLAINTS)]


def test_group_offsets(filled: BrokerProcess, java_tools: Any) -> None:
    names = ",".join(map(str, files(filled, "__consumer_offsets-0", ".log")))
    text = java_tools.run("dump-log", "--offsets-decoder", "--files", names)
    assert re.search(rf'"group":"{GROUP}","topic":"{TOPIC}","partition":0', text), text[-3000:]
    assert re.search(rf'key: {{"type":"2","data":{{"group":"{GROUP}"}}}}', text), text[-3000:]
