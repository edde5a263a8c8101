"""Other people's clients through the recording proxy, and what they sent, again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.client.blocking_clients import BlockingProducer
from odradek.testing import BlockingBroker, BlockingCluster, Recording, record
from tests.integration.sasl_brokers import ADMIN_PASSWORD, login, sasl_settings, with_sasl_broker

PROGRAM = [sys.executable, "-m", "odradek.cli.main"]


def name() -> str:
    return f"orders-{uuid4().hex[:8]}"


def write_and_read(bootstrap: str, topic: str, count: int = 20) -> list[bytes | None]:
    """Create a topic, write, and read in a group, with librdkafka."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"k%d" % number)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < count:
        found += [each.value() for each in consumer.consume(count, 1.0) if each.error() is None]
    consumer.close()
    return found


@contextmanager
def recorder(path: Path, bootstrap: str) -> Iterator[str]:
    """`odradek proxy --record` as a process; its address."""
    command = [*PROGRAM, "proxy", "--record", str(path), "--bootstrap-server", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        try:
            assert line[0] == "recording"
            yield line[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def replay(path: Path, bootstrap: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, "proxy", "--replay", str(path), "--bootstrap-server", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_librdkafka_works_through_the_proxy_and_is_recorded(odradek_broker: Any) -> None:
    topic = name()
    with record(odradek_broker.bootstrap) as proxy:
        found = write_and_read(proxy.bootstrap_servers, topic)
    assert sorted(found, key=lambda each: int(each or b"")) == [b"%d" % number for number in range(20)]
    recording = proxy.recording
    assert sorted(int(each["value"]) for each in recording.produced(topic)) == list(range(20))
    assert {"CreateTopics", "Produce", "Fetch", "JoinGroup", "OffsetCommit", "LeaveGroup"} <= recording.apis().keys()
    (created,) = recording.of("CreateTopics")
    assert created.request is not None
    assert created.request["topics"][0]["name"] == topic
    assert [each.number for each in recording.exchanges] == sorted(each.number for each in recording.exchanges)


def test_all_brokers_of_a_cluster_are_behind_the_proxy() -> None:
    with BlockingCluster(3) as cluster:
        topic = cluster.topic(partitions=6)
        with record(cluster.bootstrap_servers) as proxy:
            producer = kafka.KafkaProducer(bootstrap_servers=proxy.bootstrap_servers)
            for number in range(60):
                producer.send(topic, b"%d" % number, partition=number % 6)
            producer.flush(30)
            producer.close()
        assert len(proxy.recording.produced(topic)) == 60
        assert len({each.broker for each in proxy.recording.of("Produce")}) == 3


def test_our_client_names_topics_by_id_and_is_recorded_by_name(odradek_broker: Any) -> None:
    topic = name()
    with (
        record(odradek_broker.bootstrap) as proxy,
        BlockingProducer(bootstrap_servers=proxy.bootstrap_servers) as producer,
    ):
        producer.send_and_wait(topic, b"\xff", key=b"k", headers=[("h", b"1")])
    (found,) = proxy.recording.produced(topic)
    assert (found["key"], found["value"], found["headers"]) == ("k", {"base64": "/w=="}, [["h", "1"]])


def test_a_recording_is_repeated_on_another_cluster_without_differences(tmp_path: Path, odradek_broker: Any) -> None:
    topic, path = name(), tmp_path / "orders.jsonl"
    with recorder(path, odradek_broker.bootstrap) as address:
        write_and_read(address, topic)
    assert len(Recording.load(path).produced(topic)) == 20
    with BlockingBroker() as other:
        done = replay(path, other.bootstrap_servers)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "0 answered differently" in done.stderr
        assert sorted(int(each.value or b"") for each in other.records(topic)) == list(range(20))


def test_different_answers_are_reported(tmp_path: Path, odradek_broker: Any) -> None:
    topic, path = name(), tmp_path / "orders.jsonl"
    with recorder(path, odradek_broker.bootstrap) as address:
        write_and_read(address, topic)
    with BlockingBroker() as other:
        other.topic(topic, partitions=2)
        done = replay(path, other.bootstrap_servers)
    assert done.returncode == 3
    assert f"topics[{topic}].error_code: NONE recorded, TOPIC_ALREADY_EXISTS now" in done.stdout


def test_logins_pass_and_leave_no_password_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "login.jsonl"

    async def use(bootstrap: str) -> None:
        import asyncio

        def work() -> None:
            with recorder(path, bootstrap) as address:
                producer = kafka.KafkaProducer(**login(address))
                producer.send("t", b"secret order").get(30)
                producer.close()

        await asyncio.to_thread(work)

    with_sasl_broker(sasl_settings(tmp_path / "data"), use)
    recording = Recording.load(path)
    assert [each["value"] for each in recording.produced("t")] == ["secret order"]
    logins = recording.of("SaslAuthenticate")
    assert logins
    assert {(each.request_bytes, each.response_bytes) for each in logins} == {(None, None)}
    assert ADMIN_PASSWORD not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "{}\n", '{"format": "odradek-recording", "version": 1}\n{"number": 1}\n', "\xff"])
def test_a_file_that_is_no_recording_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(text.encode("latin-1"))
    done = replay(path, "127.0.0.1:1")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(path) in done.stderr


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text("mine\n")
    command = [*PROGRAM, "proxy", "--record", str(path), "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert path.read_text() == "mine\n"


def test_exchanges_are_lines_of_json(tmp_path: Path, odradek_broker: Any) -> None:
    path = tmp_path / "admin.jsonl"
    with recorder(path, odradek_broker.bootstrap) as address:
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=30)
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["format"] == "odradek-recording"
    assert {each["api"] for each in lines} >= {"ApiVersions", "Metadata"}
    assert all(each["answered_s"] >= each["sent_s"] for each in lines if each["answered_s"] is not None)
