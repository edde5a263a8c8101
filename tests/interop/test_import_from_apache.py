"""Apache Kafka's own folders are imported: everything that a client can see is the same, and Apache keeps its own.

`integration/test_import.py` and `unit/broker/migration/test_migration.py` are the short ones, on folders that the tests
make.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.peers.broker import BrokerProcess
from tests.interop.conftest import KAFKA, JavaTools
from tests.unit.log.test_log_ownership import contents

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "orders": (3, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    "table": (2, {"cleanup.policy": "compact"}),
    "gone": (2, {}),
}
INTERNAL = {"__consumer_offsets": 7, "__transaction_state": 5}


class Running(NamedTuple):
    """An Apache Kafka that serves."""

    bootstrap: str
    process: subprocess.Popen[str]
    pid: int


@contextmanager
def apache(home: Path) -> Iterator[Running]:
    """Apache Kafka on `home/data-1` and `home/extra-1`, formatted if they are new; a clean stop at the end."""
    settings = {
        "log.dirs": f"{home}/data-1,{home}/extra-1",
        "offsets.topic.num.partitions": INTERNAL["__consumer_offsets"],
        "transaction.state.log.num.partitions": INTERNAL["__transaction_state"],
        "metadata.log.max.record.bytes.between.snapshots": 1500,
    }
    command = [sys.executable, str(KAFKA), "run", "--quick", "--port", "0", "--for", "600", "--dir", str(home)]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = line.split()
            assert ready[:1] == ["ready"], f"Apache Kafka did not start, see {home}"
            found = re.search(r"pids=(\d+)", line)
            assert found is not None
            yield Running(ready[1], process, int(found[1]))
        finally:
            process.terminate()
            process.wait(60)


def fill(bootstrap: str) -> list[Producer]:
    """Records of every codec, transactions, groups, settings; the producers that hold a transaction open."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for name, (partitions, config) in TOPICS.items():
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    admin.delete_topics(["gone"])["gone"].result(30)
    # Deleted and made again: the directories of the first one are still there.
    deadline = time.monotonic() + 30
    while "gone" in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    admin.create_topics([NewTopic("gone", 1, 1)])["gone"].result(30)
    admin.create_partitions([NewPartitions("table", 4)])["table"].result(30)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
        )
        for number in range(300):
            key = b"key %d" % (number % 20)
            producer.produce("orders", os.urandom(1500), key, number % 3, headers={"codec": codec})
            producer.produce("table", b"%d" % number, key)
        assert producer.flush(60) == 0
    committing = Producer({"bootstrap.servers": bootstrap, "transactional.id": "done"})
    committing.init_transactions(30)
    for finish in (committing.commit_transaction, committing.abort_transaction):
        committing.begin_transaction()
        committing.produce("orders", finish.__name__.encode(), b"tx", 1)
        committing.flush(30)
        finish(30)
    open_ended = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000}
    )
    open_ended.init_transactions(30)
    open_ended.begin_transaction()
    open_ended.produce("orders", b"open", b"tx", 2)
    open_ended.flush(30)
    for number in range(12):
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}"})
        places = [TopicPartition("orders", 0, 200 + number), TopicPartition("orders", 1, number)]
        once_coordinated(partial(reader.commit, offsets=places, asynchronous=False))
        reader.close()
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("alice", credential, b"secret", b"salt")
    admin.alter_user_scram_credentials([upsertion])["alice"].result(30)
    return [committing, open_ended]


def once_coordinated(call: Callable[[], Any]) -> Any:
    """The call's result once the group has its coordinator: Apache Kafka is ready before it has loaded them."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Seen(NamedTuple):
    """What clients see of a cluster."""

    cluster_id: str | None
    topics: dict[str, tuple[str, int]]
    configs: dict[str, dict[str, str]]
    committed: dict[str, list[tuple[str, int, int]]]
    records: dict[str, list[tuple[Any, ...]]]
    credentials: list[tuple[str, int, int]]


def see(bootstrap: str) -> Seen:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics(timeout=30)
    names = sorted(metadata.topics)
    described = admin.describe_topics(TopicCollection(names))
    topics = {}
    for name, future in described.items():
        found = future.result(30)
        topics[name] = (str(found.topic_id), len(found.partitions))
    configs = {}
    for resource, future in admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, n) for n in names]
    ).items():
        entries = future.result(30)
        configs[resource.name] = {name: entry.value for name, entry in entries.items() if entry.source == 1}
    committed = {}
    for number in range(12):
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}"})
        places = [TopicPartition("orders", number) for number in range(3)]
        places = once_coordinated(partial(reader.committed, places, 30))
        committed[f"group-{number}"] = [(each.topic, each.partition, each.offset) for each in places]
        reader.close()
    records = {level: read(bootstrap, topics, level) for level in ("read_committed", "read_uncommitted")}
    described_users = admin.describe_user_scram_credentials(["alice"])
    assert isinstance(described_users, dict)
    users = described_users["alice"].result(30)
    credentials = [("alice", int(i.mechanism.value), i.iterations) for i in users.scram_credential_infos]
    return Seen(metadata.cluster_id, topics, configs, committed, records, credentials)


def read(bootstrap: str, topics: dict[str, tuple[str, int]], level: str) -> list[tuple[Any, ...]]:
    """All records of the topics that are not internal, by topic, partition and offset."""
    settings = {"group.id": "see", "isolation.level": level, "enable.partition.eof": True, "check.crcs": True}
    reader = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    places = [
        TopicPartition(name, number, 0)
        for name, (_, count) in topics.items()
        if not name.startswith("__")
        for number in range(count)
    ]
    reader.assign(places)
    found: list[tuple[Any, ...]] = []
    ended: set[tuple[str | None, int | None]] = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(places):
        assert time.monotonic() < deadline, f"{len(ended)} of {len(places)} partitions came to their end"
        for each in reader.consume(500, 0.2):
            if each.error():
                ended.add((each.topic(), each.partition()))
            else:
                place = (each.topic(), each.partition(), each.offset(), each.timestamp())
                found.append((*place, each.key(), each.value(), each.headers()))
    reader.close()
    return sorted(found, key=lambda each: each[:3])


@pytest.fixture(scope="module")
def stopped(java_tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen]:
    """A stopped Apache Kafka, and what it served."""
    home = tmp_path_factory.mktemp("apache")
    with apache(home) as running:
        producers = fill(running.bootstrap)
        seen = see(running.bootstrap)
    del producers
    assert seen.topics.keys() >= {*TOPICS, *INTERNAL}
    assert len(seen.records["read_uncommitted"]) == len(seen.records["read_committed"]) + 2
    return home, seen


def import_from(home: Path, target: Path) -> str:
    command = [sys.executable, "-m", "odradek.cli.main", "import", f"{home}/data-1", f"{home}/extra-1"]
    done = subprocess.run([*command, "--data-dir", str(target)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def data_of(home: Path) -> dict[str, bytes | None]:
    return {**contents(home / "data-1"), **contents(home / "extra-1")}


def test_imported_folder_serves_what_apache_served(stopped: tuple[Path, Seen], tmp_path: Path) -> None:
    home, seen = stopped
    assert list((home / "data-1" / "__cluster_metadata-0").glob("*.checkpoint")), "a snapshot is read, too"
    before = data_of(home)
    report = import_from(home, tmp_path / "new")
    assert "left out" not in report.replace("as a deletion leaves it, and left out", "")
    with BrokerProcess(tmp_path / "new", {"group.initial.rebalance.delay.ms": 0}) as broker:
        assert see(broker.bootstrap) == seen
        assert {name: count for name, (_, count) in seen.topics.items() if name in INTERNAL} == INTERNAL
        # Writing on, deleting and rolling: nothing of it reaches the folder of Apache.
        for transactional_id in ("open", "done"):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
            producer.init_transactions(30)
            producer.begin_transaction()
            for _ in range(1500):
                producer.produce("orders", os.urandom(1500), b"later", 2)
            producer.commit_transaction(60)
        later = read(broker.bootstrap, {"orders": seen.topics["orders"]}, "read_committed")
        assert sum(record[4] == b"later" for record in later) == 3000
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["table"])["table"].result(30)
        assert broker.stop() == 0
    assert data_of(home) == before


def test_apache_continues_and_its_killed_folder_is_recovered(stopped: tuple[Path, Seen], tmp_path: Path) -> None:
    """Going back: Apache Kafka on its own folder has everything. Killed there, its folder can still be imported."""
    home, seen = tmp_path / "home", stopped[1]
    shutil.copytree(stopped[0], home)
    import_from(home, tmp_path / "before")
    imported = contents(tmp_path / "before")
    with apache(home) as running:
        assert see(running.bootstrap) == seen
        producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True})
        for number in range(500):
            producer.produce("orders", b"later %d" % number, b"later", number % 3)
        assert producer.flush(30) == 0
        last = see(running.bootstrap)
        os.kill(running.pid, signal.SIGKILL)
    assert contents(tmp_path / "before") == imported, "nor does Apache write into the imported folder"
    assert "not stopped cleanly" in import_from(home, tmp_path / "after")
    with BrokerProcess(tmp_path / "after", {"group.initial.rebalance.delay.ms": 0}) as broker:
        assert see(broker.bootstrap) == last
