"""What docs/BACKUP.md says: back up, destroy, restore, and everything is as it was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.unit.house.sources import ROOT

PAGE = (ROOT / "docs" / "BACKUP.md").read_text()
TIME_LIMIT_SECONDS = 60
TOPIC, GROUP, PARTITIONS = "orders", "billing", 3
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def commands(section: str) -> list[str]:
    """The indented command lines of a section of the page."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    lines = [textwrap.dedent(line) for line in text.splitlines() if line.startswith("    ")]
    assert lines
    return lines


def run(command: str, **variables: str | Path) -> None:
    environment = {**ENVIRONMENT, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(
        ["sh", "-euc", command], env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@contextmanager
def broker(data: Path) -> Iterator[str]:
    """Until it was stopped with SIGTERM; its bootstrap address."""
    words = ["odradek", "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    words += ["--set", "offsets.topic.num.partitions=3", "--set", "transaction.state.log.num.partitions=3"]
    with (data.parent / "broker.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        assert ready[:2] == ["odradek", "ready"], (data.parent / "broker.log").read_text()
        yield ready[2].removeprefix("bootstrap=")
        process.terminate()
        assert process.wait(TIME_LIMIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def write(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "123456789"})])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders-1"})
    producer.init_transactions(30)
    for outcome in ("committed", "aborted"):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(
                TOPIC, f"{outcome} {number}", f"key {number}", number % PARTITIONS, timestamp=1_000 + number
            )
        (producer.commit_transaction if outcome == "committed" else producer.abort_transaction)(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, each, 5 + each) for each in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def ends_of(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The ends of a partition.

    librdkafka may keep an entry without partitions for a topic whose metadata it asks for, and then does not ask again
    by itself for up to a minute.
    """
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while True:
        try:
            return consumer.get_watermark_offsets(place, TIME_LIMIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or time.monotonic() > deadline:
                raise
            consumer.list_topics(place.topic, TIME_LIMIT_SECONDS)


def state(bootstrap: str) -> dict[str, Any]:
    """Everything that a client can see of the topic and the group."""
    options = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    places = [TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)]
    consumer = Consumer({**options, "enable.partition.eof": True, "isolation.level": "read_committed"})
    ends = {each.partition: ends_of(consumer, each) for each in places}
    consumer.assign(places)
    records, ended = [], 0
    while ended < PARTITIONS:
        message = consumer.poll(TIME_LIMIT_SECONDS)
        assert message is not None
        if message.error():
            ended += 1
        else:
            records.append((message.partition(), message.offset(), message.timestamp(), message.key(), message.value()))
    committed = {each.partition: each.offset for each in consumer.committed(places, TIME_LIMIT_SECONDS)}
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    retention = admin.describe_configs([resource])[resource].result(30)["retention.ms"].value
    cluster = admin.describe_cluster().result(30).cluster_id
    return {
        "records": sorted(records),
        "committed": committed,
        "ends": ends,
        "retention": retention,
        "cluster": cluster,
    }


def test_restored_broker_has_records_offsets_and_settings(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup.tar"
    copy, *restore = commands("A broker, stopped")
    with broker(data) as bootstrap:
        write(bootstrap)
        before = state(bootstrap)
    assert len(before["records"]) == 50
    assert before["committed"] == {0: 5, 1: 6, 2: 7}
    run(copy, DATA=data, BACKUP=backup)
    with broker(data) as bootstrap:  # the work that follows the backup, and what makes it necessary
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(TOPIC, "written after the backup", partition=0)
        producer.flush(30)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        del producer, admin
    shutil.rmtree(data)
    for command in restore:
        run(command, DATA=data, BACKUP=backup)
    with broker(data) as bootstrap:
        assert state(bootstrap) == before


def test_exported_topic_is_restored_with_keys_values_and_timestamps(tmp_path: Path) -> None:
    export, load = commands("One topic")
    with broker(tmp_path / "data") as bootstrap:
        write(bootstrap)
        new = NewTopic("orders-restored", PARTITIONS, 1)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([new])["orders-restored"].result(30)
        place = {"ODRADEK_BOOTSTRAP_SERVER": bootstrap}
        run(f"cd {tmp_path} && {export}", **place)
        run(f"cd {tmp_path} && {load}", **place)
        consumed = (
            f"cd {tmp_path} && odradek consume --topic orders-restored --offset start:end -o jsonl > restored.jsonl"
        )
        run(consumed, **place)
        first, second = (tmp_path / "orders.jsonl").read_text(), (tmp_path / "restored.jsonl").read_text()
    wanted = {f'"key {number}"' for number in range(50)}
    assert all(key in first and key in second for key in wanted)
    assert second.count("committed ") == 50
