"""Apache's tools for stored data before our broker, and our `dump-log` and `verify` before Apache's files and ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess
from tests.interop.conftest import KAFKA, JavaTools

SUFFIXES = (".log", ".snapshot", ".txnindex", ".index", ".timeindex")
MakeBroker = Callable[..., BrokerProcess]


def odradek(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def fill(bootstrap: str, topic: str, count: int = 200, partition: int = 0, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, b"key %d" % (number % 20), partition, headers={"h": b"x"})
    assert producer.flush(30) == 0


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)


def test_delete_records(
    bootstrap: str, create_topic: Callable[..., str], java_tools: JavaTools, tmp_path: Path
) -> None:
    topic = create_topic(partitions=2)
    compacted = create_topic(partitions=1, config={"cleanup.policy": "compact"})
    fill(bootstrap, topic)
    fill(bootstrap, compacted)
    wanted = [
        {"topic": topic, "partition": 0, "offset": 30},
        {"topic": topic, "partition": 1, "offset": -1},
        {"topic": compacted, "partition": 0, "offset": 10},
    ]
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"partitions": wanted, "version": 1}))
    text = java_tools.run("delete-records", "--bootstrap-server", bootstrap, "--offset-json-file", str(path))
    assert f"partition: {topic}-0\tlow_watermark: 30" in text
    assert f"partition: {topic}-1\tlow_watermark: 0" in text
    assert re.search(rf"partition: {compacted}-0\terror: .*PolicyViolationException", text), text
    offsets = java_tools.run("get-offsets", "--bootstrap-server", bootstrap, "--topic", topic, "--time", "earliest")
    assert offsets.split() == [f"{topic}:0:30", f"{topic}:1:0"]


def test_log_dirs_and_moves(make_broker: MakeBroker, java_tools: JavaTools, tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    broker = make_broker({"log.dirs": ",".join(directories)}).start()
    create(broker.bootstrap, "moved")
    fill(broker.bootstrap, "moved")

    def where() -> dict[str, list[dict[str, Any]]]:
        text = java_tools.run("log-dirs", "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", "moved")
        (document,) = [line for line in text.splitlines() if line.startswith("{")]
        (found,) = json.loads(document)["brokers"]
        assert all(directory["error"] is None for directory in found["logDirs"])
        return {directory["logDir"]: directory["partitions"] for directory in found["logDirs"]}

    held = where()
    assert sorted(held) == directories
    (home,) = [path for path, partitions in held.items() if partitions]
    (away,) = [path for path in directories if path != home]
    assert held[home][0]["partition"] == "moved-0"
    assert held[home][0]["size"] > 1000
    plan = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [away]}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": [plan]}))
    arguments = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(path))
    java_tools.run("reassign-partitions", *arguments, "--execute")
    deadline = time.monotonic() + 30
    while not (Path(away) / "moved-0").is_dir():
        assert time.monotonic() < deadline, "the replica did not move"
        time.sleep(0.05)
    assert "completed" in java_tools.run("reassign-partitions", *arguments, "--verify")
    held = where()
    assert [partition["partition"] for partition in held[away]] == ["moved-0"]
    assert not held[home]


def dumped_by_apache(paths: list[Path], *options: str) -> list[str]:
    names = ",".join(map(str, paths))
    command = [sys.executable, str(KAFKA), "tool", "dump-log", *options, "--files", names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def apache_directory(java_tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of an Apache Kafka that has stopped: records of every codec, transactions, groups."""
    home = tmp_path_factory.mktemp("apache")
    command = [sys.executable, str(KAFKA), "run", "--quick", "--port", "0", "--for", "600", "--dir", str(home)]
    settings = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
    arguments = [part for setting in settings for part in ("--set", setting)]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            assert ready[:1] == ["ready"]
            bootstrap = ready[1]
            create(bootstrap, "apache", 1, **{"segment.bytes": "1048576"})
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                fill(bootstrap, "apache", 200, 0, **{"compression.type": codec})
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
            producer.init_transactions(30)
            for finish in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                producer.produce("apache", b"in a transaction", b"tx", 0)
                producer.flush(30)
                finish(30)
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
            consumer.commit(offsets=[TopicPartition("apache", 0, 17)], asynchronous=False)
            consumer.close()
        finally:
            # Whatever went wrong: leaving the block waits for the process to end.
            process.terminate()
            process.wait(60)
    return home / "data-1"


@pytest.mark.parametrize(
    ("partition", "options"),
    [
        ("apache-0", ("--print-data-log",)),
        ("apache-0", ("--deep-iteration",)),
        ("__consumer_offsets-0", ("--offsets-decoder",)),
        ("__transaction_state-0", ("--transaction-log-decoder",)),
    ],
)
def test_dump_log_says_what_apaches_says(apache_directory: Path, partition: str, options: tuple[str, ...]) -> None:
    directory = apache_directory / partition
    paths = sorted(path for path in directory.glob("0*") if path.suffix in SUFFIXES)
    ours = odradek("dump-log", *options, "--files", ",".join(map(str, paths)))
    assert ours.returncode == 0, ours.stderr
    theirs = dumped_by_apache(paths, *options)
    found = ours.stdout.splitlines()
    assert len(found) == len(theirs)
    for mine, line in zip(found, theirs, strict=True):
        head, payload, document = line.partition(" payload: {")
        if not payload or "decoder" not in options[0]:
            assert mine == line
            continue
        # Apache leaves out the fields that the version does not have; we show them with their defaults.
        own_head, _, own_document = mine.partition(" payload: {")
        assert own_head == head
        expected, shown = json.loads("{" + document), json.loads("{" + own_document)
        assert shown["version"] == expected["version"]
        assert expected["data"].items() <= shown["data"].items()
    assert "isvalid: true" in ours.stdout


def test_verify_finds_nothing_wrong_with_apaches_files(apache_directory: Path) -> None:
    found = odradek("verify", apache_directory)
    assert found.returncode == 0, found.stdout
    assert "no problems found" in found.stdout


def test_a_stopped_apache_kafkas_topic_is_served(
    apache_directory: Path, make_broker: MakeBroker, tmp_path: Path
) -> None:
    """Its directory is copied in; the topic is then created under its name, and finds its records there."""
    data = tmp_path / "data"
    data.mkdir()
    shutil.copytree(apache_directory / "apache-0", data / "apache-0")
    broker = make_broker({"odradek.adopt.partitions": "true"}).start()
    create(broker.bootstrap, "apache")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition("apache", 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 30
    while len(found) < 1001 and time.monotonic() < deadline:
        found += [message for message in consumer.consume(500, 1.0) if not message.error()]
    consumer.close()
    assert [message.offset() for message in found[:1000]] == list(range(1000))
    assert found[999].value() == b"value 199"
    assert [message.value() for message in found[1000:]] == [b"in a transaction"], "the aborted one is left out"
    fill(broker.bootstrap, "apache", 5)
    assert broker.stop() == 0
    again = odradek("verify", data)
    assert again.returncode == 0, again.stdout
