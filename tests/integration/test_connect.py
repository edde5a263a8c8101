"""Connectors on a running broker, by the REST interface and by the command."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from odradek.cli.main import main
from odradek.client.admin.blocking_admin import BlockingAdmin
from odradek.client.admin.enums import TransactionState
from odradek.client.admin.transactions import TransactionDescription
from odradek.client.blocking_clients import BlockingProducer
from odradek.client.consumer.blocking_consumer import BlockingConsumer
from odradek.connect.reference import REST, page
from odradek.connect.rest import Api, build
from odradek.connect.worker import Worker, WorkerSettings
from odradek.testing.blocking import BlockingBroker
from tests.integration.waiting import until
from tests.newcomer.pages import Page
from tests.unit.house.sources import ROOT


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """The broker of this module."""
    with BlockingBroker() as started:
        yield started


@contextmanager
def worker_of(
    broker: BlockingBroker, configs_topic: str | None = None, secrets: Path | None = None
) -> Iterator[TestClient]:
    """A worker in this process, behind its REST interface."""
    clients = {"bootstrap_servers": broker.bootstrap_servers}
    worker = Worker(WorkerSettings(clients, configs_topic=configs_topic, secrets=secrets))
    with TestClient(build(worker, frozenset()), base_url="http://localhost:8083") as client:
        assert client.portal is not None
        client.portal.call(worker.start)
        try:
            yield client
        finally:
            client.portal.call(worker.close)


@pytest.fixture(scope="module")
def rest(broker: BlockingBroker) -> Iterator[TestClient]:
    """A worker that keeps configurations in memory."""
    with worker_of(broker) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name of the test's own, for connectors and topics."""
    return f"c-{uuid4().hex[:10]}"


def produce(broker: BlockingBroker, topic: str, values: list[Any], key: str | None = None) -> None:
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, data, key=None if key is None else key.encode())
        producer.flush()


def consumed(broker: BlockingBroker, topic: str, count: int) -> list[Any]:
    """The first records of a topic that are committed."""
    found: list[Any] = []

    def poll() -> bool:
        found.extend(consumer.poll(timeout_ms=200))
        return len(found) >= count

    with BlockingConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        until(poll, f"{count} records in {topic}")
    return found


def state(rest: TestClient, name: str) -> list[str]:
    """States of a connector and its tasks."""
    status = rest.get(f"/connectors/{name}/status").json()
    return [status["connector"]["state"], *(each["state"] for each in status["tasks"])]


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    try:
        with sqlite3.connect(path) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.Error:
        return []


def sink(path: Path, topics: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "SqlSink",
        "topics": topics,
        "connection.url": f"sqlite:///{path}",
        "auto.create": "true",
        "auto.evolve": "true",
        **more,
    }


def test_sink_goes_through_its_life(broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path) -> None:
    """Created, paused, resumed, stopped and deleted by REST, with what each leaves behind."""
    path = tmp_path / "o.db"
    produce(broker, name, [{"n": 1}])
    made = rest.post("/connectors", json={"name": name, "config": sink(path, name)})
    assert made.status_code == 201
    assert made.json()["tasks"] == [{"connector": name, "task": 0}]
    assert rest.post("/connectors", json={"name": name, "config": sink(path, name)}).status_code == 409
    select = f'SELECT n FROM "{name}"'
    until(lambda: rows(path, select) == [(1,)], "rows in the table")
    until(lambda: rest.get(f"/connectors/{name}/offsets").json()["offsets"] != [], "offsets")
    assert rest.get(f"/connectors/{name}/topics").json() == {name: {"topics": [name]}}

    assert rest.put(f"/connectors/{name}/pause").status_code == 202
    assert state(rest, name) == ["PAUSED", "PAUSED"]
    produce(broker, name, [{"n": 2}])
    assert rest.put(f"/connectors/{name}/resume").status_code == 202
    until(lambda: rows(path, select) == [(1,), (2,)], "rows in the table")
    assert rest.put(f"/connectors/{name}/stop").status_code == 202
    assert state(rest, name) == ["STOPPED"]

    assert rest.delete(f"/connectors/{name}").status_code == 204
    gone = rest.get(f"/connectors/{name}")
    assert (gone.status_code, gone.json()) == (404, {"error_code": 404, "message": f"Connector {name} not found"})


def test_source_writes_lines_and_offsets_exactly_once(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\nb\n")
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": name, "poll.interval.ms": "50"}
    assert rest.put(f"/connectors/{name}/config", json=config).status_code == 201
    assert [each.value for each in consumed(broker, name, 2)] == [b"a", b"b"]
    wanted = [{"partition": {"filename": str(path)}, "offset": {"position": 4}}]
    assert rest.get(f"/connectors/{name}/offsets").json() == {"offsets": wanted}
    # A changed configuration continues where the former tasks ended.
    assert rest.patch(f"/connectors/{name}/config", json={"poll.interval.ms": 20}).status_code == 200
    with path.open("a") as file:
        file.write("c\n")
    assert [each.value for each in consumed(broker, name, 3)] == [b"a", b"b", b"c"]

    rejected = rest.delete(f"/connectors/{name}/offsets")
    assert (rejected.status_code, "STOPPED" in rejected.json()["message"]) == (400, True)
    rest.put(f"/connectors/{name}/stop")
    changed = {"offsets": [{"partition": {"filename": str(path)}, "offset": {"position": 2}}]}
    assert rest.patch(f"/connectors/{name}/offsets", json=changed).status_code == 200
    rest.put(f"/connectors/{name}/resume")
    assert [each.value for each in consumed(broker, name, 5)] == [b"a", b"b", b"c", b"b", b"c"]
    rest.put(f"/connectors/{name}/stop")
    assert rest.delete(f"/connectors/{name}/offsets").status_code == 200
    assert rest.get(f"/connectors/{name}/offsets").json() == {"offsets": []}


def test_record_that_fails_stops_the_task_until_it_is_tolerated(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "o.db"
    produce(broker, name, [{"n": 1}, b"{not json", {"n": 3}, "no object"], key="k")
    config = sink(path, name)
    rest.put(f"/connectors/{name}/config", json=config)
    until(lambda: state(rest, name) == ["RUNNING", "FAILED"], "states")
    status = rest.get(f"/connectors/{name}/tasks/0/status").json()
    assert f"{name}-0@1" in status["trace"]

    more = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dlq"}
    rest.put(f"/connectors/{name}/config", json={**config, **more})
    until(lambda: rows(path, f'SELECT n FROM "{name}"') == [(1,), (3,)], "rows in the table")
    letters = consumed(broker, f"{name}-dlq", 2)
    assert sorted(each.value for each in letters) == [b'"no object"', b"{not json"]
    headers = dict(next(each for each in letters if each.value == b"{not json").headers)
    assert headers["__connect.errors.topic"] == name.encode()
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.connector.name"] == name.encode()
    assert b"not JSON" in headers["__connect.errors.exception.message"]
    rest.delete(f"/connectors/{name}")


def test_task_waits_for_a_target_that_is_away(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path
) -> None:
    """A locked database is tried again, until `errors.retry.timeout` ends."""
    path = tmp_path / "o.db"
    produce(broker, name, [{"n": 1}])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA journal_mode=WAL")
    holder.execute("BEGIN IMMEDIATE")
    config = sink(path, name, **{"errors.retry.delay.max.ms": "200"})
    rest.put(f"/connectors/{name}/config", json=config)
    holder.execute("COMMIT")
    holder.close()
    until(lambda: rows(path, f'SELECT n FROM "{name}"') == [(1,)], "rows in the table")
    assert state(rest, name) == ["RUNNING", "RUNNING"]
    rest.delete(f"/connectors/{name}")


def test_offsets_of_a_sink_can_be_changed_where_the_group_has_them(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.txt"
    produce(broker, name, [b"a", b"b"])
    config = {"connector.class": "FileStreamSink", "file": str(path), "topics": name}
    rest.put(f"/connectors/{name}/config", json=config)
    until(lambda: path.exists() and path.read_text() == "a\nb\n", "lines in the file")
    partition = {"kafka_topic": name, "kafka_partition": 0}
    end = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 2}}]}
    until(lambda: rest.get(f"/connectors/{name}/offsets").json() == end, "offsets")
    rest.put(f"/connectors/{name}/stop")
    change = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 1}}]}
    assert rest.patch(f"/connectors/{name}/offsets", json=change).status_code == 200
    rest.put(f"/connectors/{name}/resume")
    until(lambda: path.read_text() == "a\nb\nb\n", "lines in the file")
    rest.delete(f"/connectors/{name}")


# --- restarts ---


def first_transaction(broker: BlockingBroker, name: str) -> TransactionDescription:
    transactional_id = f"connect-{name}-0"
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.transactions.describe([transactional_id])[transactional_id]
    assert isinstance(found, TransactionDescription)
    return found


def first_producer(broker: BlockingBroker, name: str) -> tuple[int, int]:
    """Producer id and epoch of task 0: another pair when the task has started again."""
    found = first_transaction(broker, name)
    return found.producer_id, found.producer_epoch


@pytest.fixture
def half_failed(broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path) -> Iterator[str]:
    """A source whose task 0 has written its only row; task 1 has failed, and could work now. Its name."""
    path = tmp_path / "in.db"
    rows(path, f'CREATE TABLE "{name}-0" AS SELECT 7 AS n')
    config = {"connector.class": "SqlSource", "connection.url": f"sqlite:///{path}", "tasks.max": "2",
              "table.whitelist": f"{name}-0,{name}-1", "mode": "incrementing", "incrementing.column.name": "n",
              "poll.interval.ms": "50"}  # fmt: skip
    assert rest.put(f"/connectors/{name}/config", json=config).status_code == 201
    until(lambda: state(rest, name) == ["RUNNING", "RUNNING", "FAILED"], "states")
    assert [json.loads(each.value) for each in consumed(broker, f"{name}-0", 1)] == [{"n": 7}]
    until(
        lambda: first_transaction(broker, name).state is TransactionState.COMPLETE_COMMIT, "the end of the transaction"
    )
    rows(path, f'CREATE TABLE "{name}-1" AS SELECT 8 AS n')
    yield name
    rest.delete(f"/connectors/{name}")


def test_restart_of_what_failed_leaves_other_tasks_alone(
    broker: BlockingBroker, rest: TestClient, half_failed: str
) -> None:
    before = first_producer(broker, half_failed)
    answer = rest.post(f"/connectors/{half_failed}/restart?includeTasks=true&onlyFailed=true")
    assert (answer.status_code, answer.json()["name"]) == (202, half_failed)
    assert [json.loads(each.value) for each in consumed(broker, f"{half_failed}-1", 1)] == [{"n": 8}]
    assert state(rest, half_failed) == ["RUNNING"] * 3
    assert first_producer(broker, half_failed) == before


def test_restart_with_tasks_restarts_all_of_them(broker: BlockingBroker, rest: TestClient, half_failed: str) -> None:
    before = first_producer(broker, half_failed)
    answer = rest.post(f"/connectors/{half_failed}/restart?includeTasks=true")
    assert (answer.status_code, len(answer.json()["tasks"])) == (202, 2)
    assert [json.loads(each.value) for each in consumed(broker, f"{half_failed}-1", 1)] == [{"n": 8}]
    until(lambda: first_producer(broker, half_failed) != before, "another epoch of task 0")
    assert state(rest, half_failed) == ["RUNNING"] * 3


def test_restart_without_tasks_leaves_a_failed_task(rest: TestClient, half_failed: str) -> None:
    """With the status codes of Apache Kafka: a document if there was a parameter."""
    answer = rest.post(f"/connectors/{half_failed}/restart")
    assert (answer.status_code, answer.content) == (204, b"")
    answer = rest.post(f"/connectors/{half_failed}/restart?onlyFailed=true")
    assert (answer.status_code, answer.json()["name"]) == (202, half_failed)
    assert state(rest, half_failed) == ["RUNNING", "RUNNING", "FAILED"]


@pytest.mark.parametrize(("tolerance", "found"), [("none", "FAILED"), ("all", "RUNNING")])
def test_record_that_is_too_large_for_the_producer_is_skipped_as_allowed(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path, tolerance: str, found: str
) -> None:
    (tmp_path / "in.txt").write_text(f"a\n{'x' * 2000}\nb\n")
    config = {"connector.class": "FileStreamSource", "file": f"{tmp_path}/in.txt", "topic": name,
              "producer.override.max.request.size": "1000", "errors.tolerance": tolerance}  # fmt: skip
    rest.put(f"/connectors/{name}/config", json=config)
    if tolerance == "all":
        assert [each.value for each in consumed(broker, name, 2)] == [b"a", b"b"]
    until(lambda: state(rest, name) == ["RUNNING", found], f"the task {found}")


def test_restart_without_tasks_reads_the_configuration_again(broker: BlockingBroker, name: str, tmp_path: Path) -> None:
    """As in Kafka Connect the connector fails alone, and its task continues, until a restart finds it well again."""
    (tmp_path / "secrets").mkdir()
    secret = tmp_path / "secrets" / "file"
    secret.write_text("in.txt")
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    config = {"connector.class": "FileStreamSource", "file": f"{tmp_path}/${{directory:{tmp_path}/secrets:file}}",
              "topic": name, "poll.interval.ms": "50"}  # fmt: skip
    with worker_of(broker, secrets=tmp_path / "secrets") as rest:
        assert rest.put(f"/connectors/{name}/config", json=config).status_code == 201
        consumed(broker, name, 1)
        assert rest.post(f"/connectors/{name}/restart").status_code == 204
        assert state(rest, name) == ["RUNNING", "RUNNING"]
        secret.unlink()
        assert rest.post(f"/connectors/{name}/restart").status_code == 204
        assert state(rest, name) == ["FAILED", "RUNNING"]
        assert "secrets" in rest.get(f"/connectors/{name}/status").json()["connector"]["trace"]
        path.write_text("a\nb\n")
        assert [each.value for each in consumed(broker, name, 2)] == [b"a", b"b"]
        secret.write_text("in.txt")
        assert rest.post(f"/connectors/{name}/restart?onlyFailed=true").status_code == 202
        assert state(rest, name) == ["RUNNING", "RUNNING"]


def test_task_continues_when_its_restart_finds_a_wrong_configuration(
    broker: BlockingBroker, name: str, tmp_path: Path
) -> None:
    (tmp_path / "secrets").mkdir()
    secret = tmp_path / "secrets" / "file"
    secret.write_text("in.txt")
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    config = {"connector.class": "FileStreamSource", "file": f"{tmp_path}/${{directory:{tmp_path}/secrets:file}}",
              "topic": name, "poll.interval.ms": "50"}  # fmt: skip
    with worker_of(broker, secrets=tmp_path / "secrets") as rest:
        assert rest.put(f"/connectors/{name}/config", json=config).status_code == 201
        consumed(broker, name, 1)
        secret.unlink()
        assert rest.post(f"/connectors/{name}/tasks/0/restart").status_code == 400
        path.write_text("a\nb\n")
        assert [each.value for each in consumed(broker, name, 2)] == [b"a", b"b"]
        assert state(rest, name) == ["RUNNING", "RUNNING"]


def test_single_task_is_restarted(broker: BlockingBroker, rest: TestClient, half_failed: str) -> None:
    before = first_producer(broker, half_failed)
    answer = rest.post(f"/connectors/{half_failed}/tasks/1/restart")
    assert (answer.status_code, answer.content) == (204, b"")
    assert [json.loads(each.value) for each in consumed(broker, f"{half_failed}-1", 1)] == [{"n": 8}]
    assert state(rest, half_failed) == ["RUNNING"] * 3
    assert "trace" not in rest.get(f"/connectors/{half_failed}/tasks/1/status").json()
    assert first_producer(broker, half_failed) == before
    assert rest.post(f"/connectors/{half_failed}/tasks/0/restart").status_code == 204
    until(lambda: first_producer(broker, half_failed) != before, "another epoch of task 0")


@pytest.mark.parametrize("path", ["none/restart", "none/restart?includeTasks=true", "none/tasks/0/restart"])
def test_restart_of_an_unknown_connector_is_not_found(rest: TestClient, path: str) -> None:
    answer = rest.post(f"/connectors/{path}")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 404)


def test_restart_of_an_unknown_task_is_not_found(rest: TestClient, half_failed: str) -> None:
    answer = rest.post(f"/connectors/{half_failed}/tasks/2/restart")
    assert answer.json() == {"error_code": 404, "message": f"Task 2 of connector {half_failed} not found"}


# --- copies, configurations, kinds ---


def test_clusters_are_copied_both_ways_with_keys_headers_and_times(
    broker: BlockingBroker, rest: TestClient, name: str
) -> None:
    """The broker stands for both clusters; the copies have other names."""
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(name, b"v", key=b"k", headers={"h": b"x"}, timestamp_ms=1_000)
        producer.send(name, None, key=b"k2", timestamp_ms=2_000)
        producer.flush()
    servers = broker.bootstrap_servers
    push = {"connector.class": "ClusterSink", "topics": name, "target.bootstrap.servers": servers,
            "topic.format": "${topic}-pushed"}  # fmt: skip
    pull = {"connector.class": "ClusterSource", "topics": name, "source.bootstrap.servers": servers,
            "topic.format": "${topic}-pulled"}  # fmt: skip
    assert rest.put(f"/connectors/{name}-push/config", json=push).status_code == 201
    assert rest.put(f"/connectors/{name}-pull/config", json=pull).status_code == 201
    for copy in ("pushed", "pulled"):
        found = consumed(broker, f"{name}-{copy}", 2)
        assert [(each.key, each.value, each.timestamp) for each in found] == [(b"k", b"v", 1_000), (b"k2", None, 2_000)]
        assert [*found[0].headers] == [("h", b"x")]
    for each in ("push", "pull"):
        rest.delete(f"/connectors/{name}-{each}")


def test_configurations_survive_in_their_topic(broker: BlockingBroker, name: str, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": name, "poll.interval.ms": "50"}
    with worker_of(broker, f"{name}-configs") as rest:
        rest.post("/connectors", json={"name": name, "config": config, "initial_state": "STOPPED"})
        assert state(rest, name) == ["STOPPED"]
        rest.put(f"/connectors/{name}-gone/config", json=config)
        rest.delete(f"/connectors/{name}-gone")
    with worker_of(broker, f"{name}-configs") as rest:
        assert rest.get("/connectors").json() == [name]
        assert rest.get(f"/connectors/{name}/config").json() == {**config, "name": name}
        assert state(rest, name) == ["STOPPED"]
        rest.put(f"/connectors/{name}/resume")
        assert [each.value for each in consumed(broker, name, 1)] == [b"a"]


def test_validation_names_each_wrong_setting(rest: TestClient) -> None:
    config = {"connector.class": "SqlSink", "name": "x", "topics": "t", "tasks.max": "none", "http.url": "x"}
    found = rest.put("/connector-plugins/SqlSink/config/validate", json=config).json()
    errors = {each["value"]["name"]: each["value"]["errors"] for each in found["configs"] if each["value"]["errors"]}
    assert found["error_count"] == 3
    assert "whole number" in errors["tasks.max"][0]
    assert "is missing" in errors["connection.url"][0]
    assert "http.url is not a setting" in errors["connector.class"][0]
    created = rest.post("/connectors", json={"name": "x", "config": config})
    assert created.status_code == 400
    assert "3 error(s)" in created.json()["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://localhost:8083"}, 403),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_request_of_a_page_is_rejected(rest: TestClient, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"name": "x", "config": {}})
    answer = rest.post("/connectors", content=body, headers={"content-type": "application/json", **headers})
    assert answer.status_code == status
    assert answer.json()["error_code"] == status


def test_kinds_are_listed_with_their_settings(rest: TestClient) -> None:
    kinds = {each["class"]: each["type"] for each in rest.get("/connector-plugins").json()}
    assert kinds["SqlSink"] == "sink"
    assert kinds["HttpSource"] == "source"
    settings = {each["name"]: each for each in rest.get("/connector-plugins/SqlSink/config").json()}
    assert settings["connection.password"]["type"] == "PASSWORD"
    assert settings["tasks.max"]["default_value"] == "1"


def test_converters_and_transforms_are_listed_when_asked_for(rest: TestClient) -> None:
    found = {each["class"]: each["type"] for each in rest.get("/connector-plugins?connectorsOnly=false").json()}
    names = {each["class"] for each in rest.get("/connector-plugins?connectorsOnly=true").json()}
    assert "SqlSink" in names <= found.keys()
    assert found["org.apache.kafka.connect.json.JsonConverter"] == "converter"
    assert found["org.apache.kafka.connect.transforms.MaskField$Value"] == "transformation"
    assert set(found.values()) == {"sink", "source", "converter", "transformation"}
    for name in ("org.apache.kafka.connect.json.JsonConverter", "org.apache.kafka.connect.transforms.MaskField$Key"):
        assert rest.get(f"/connector-plugins/{name}/config").json()
    assert rest.get("/connector-plugins/None/config").status_code == 404


def test_level_of_loggers_is_shown_and_set(rest: TestClient) -> None:
    """For a logger and those below it, also for one that does not exist yet."""
    name = "odradek.connect.test_levels"
    logging.getLogger(f"{name}.below").setLevel(logging.ERROR)
    assert rest.get(f"/admin/loggers/{name}").status_code == 404
    assert rest.get(f"/admin/loggers/{name}.below").json() == {"level": "ERROR", "last_modified": None}
    assert rest.put(f"/admin/loggers/{name}", json={"level": "debug"}).json() == [name, f"{name}.below"]
    assert logging.getLogger(f"{name}.below.deeper").isEnabledFor(logging.DEBUG)
    found = rest.get("/admin/loggers").json()
    assert found[name]["level"] == found[f"{name}.below"]["level"] == "DEBUG"
    assert found[name]["last_modified"] == rest.get(f"/admin/loggers/{name}").json()["last_modified"] > 0
    assert rest.put(f"/admin/loggers/{name}?scope=cluster", json={"level": "OFF"}).status_code == 204
    assert rest.get(f"/admin/loggers/{name}").json()["level"] == "OFF"
    assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)


@pytest.mark.parametrize(("body", "status"), [({"level": "LOUD"}, 404), ({"level": 1}, 400), ({}, 400)])
def test_wrong_level_is_rejected(rest: TestClient, body: dict[str, Any], status: int) -> None:
    answer = rest.put("/admin/loggers/root", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, status)


# --- the command ---


class Run(NamedTuple):
    process: subprocess.Popen[str]
    url: str


@contextmanager
def process_of(
    line: list[str], environment: dict[str, str], folder: Path | None = None, log: Path = Path(os.devnull)
) -> Iterator[Run]:
    """A worker's process that is ready; it is killed at the end. Its standard error is added to `log`."""
    with log.open("a") as errors:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=folder)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split("url=")
        assert len(ready) == 2
        yield Run(process, ready[1].strip())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def command(broker: BlockingBroker, *arguments: str) -> Iterator[Run]:
    """`odradek connect run` as a process."""
    line = [sys.executable, "-m", "odradek.cli.main", "connect", "run", "--listen", "127.0.0.1:0", *arguments]
    with process_of(line, {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap_servers}) as run:
        yield run


def test_rows_are_written_once_when_the_worker_is_killed(broker: BlockingBroker, name: str, tmp_path: Path) -> None:
    """SIGKILL in the middle of the work, several times; then the command ends at a signal with status 0."""
    path = tmp_path / "o.db"
    count = 3_000
    produce(broker, name, [{"n": number} for number in range(count)])
    specification = tmp_path / "db.yml"
    config = sink(path, name, **{"batch.size": "50"})
    specification.write_text(json.dumps({"connectors": {name: config}}))
    query = f'SELECT count(*), count(DISTINCT n) FROM "{name}"'
    for wanted in (100, 1_000):
        some = [(wanted, wanted)]
        with command(broker, str(specification)) as run:
            until(partial(lambda least: rows(path, query) >= least, some), "rows in the table")
            run.process.kill()
    with command(broker, str(specification)) as run:
        until(lambda: rows(path, query) == [(count, count)], "rows in the table")
        with urllib.request.urlopen(f"{run.url}connectors/{name}/status") as answer:
            assert json.load(answer)["tasks"][0]["state"] == "RUNNING"
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(30) == 0
    assert rows(path, query) == [(count, count)]


def test_page_is_followed_step_by_step(tmp_path: Path) -> None:
    """The commands and the file of docs/CONNECT.md, on a broker of their own."""
    guide = Page("docs/CONNECT.md")
    commands = [*guide.commands("Try it"), *guide.commands("Files or REST")]
    specification = re.findall(r"^```yaml\n(.*?)^```$", guide.text, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "orders.yml").write_text(specification)
    (tmp_path / "secrets").mkdir()
    program = f"{sys.executable} -m odradek.cli.main"
    with BlockingBroker() as broker:
        environment = {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap_servers}
        for command in commands:
            line = command.replace("odradek ", f"{program} ", 1).replace("| odradek", f"| {program}")
            line = line.replace("/etc/odradek/", f"{tmp_path}/")
            if " run " not in line:
                subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, check=True, timeout=60)
                continue
            with process_of(["bash", "-c", f"exec {line} --listen 127.0.0.1:0"], environment, tmp_path) as run:
                until(
                    lambda: rows(tmp_path / "orders.db", "SELECT id, item FROM orders") == [(1, "tea"), (2, "milk")],
                    "rows in the table",
                )
                run.process.send_signal(signal.SIGINT)
                assert run.process.wait(30) == 0


def test_reference_is_the_one_that_the_settings_make() -> None:
    assert (ROOT / "docs/CONNECT_REFERENCE.md").read_text() == page()


def test_reference_lists_every_path(broker: BlockingBroker) -> None:
    worker = Worker(WorkerSettings({"bootstrap_servers": broker.bootstrap_servers}))
    paths = {
        each.path.replace("{name}", "NAME")
        .replace("{plugin}", "CLASS")
        .replace("{task:int}", "N")
        .replace("{logger}", "LOGGER")
        for each in Api(worker).routes()
    }
    text = " ".join(requests for requests, _ in REST)
    last = {each.rpartition("/")[2] for each in paths}
    assert {each for each in last if each not in text} == set()
    assert len(paths) == 21


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["check"], "check needs a file"),
        (["run", "none.yml"], "none.yml"),
        (["run", "--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (["run", "--secrets", "none"], "no such folder"),
    ],
)
def test_wrong_argument_is_one_line(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", *arguments]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1


def test_configuration_is_checked_without_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "db.json"
    path.write_text(json.dumps({"name": "db", "config": sink(tmp_path / "o.db", "orders")}))
    assert main(["connect", "check", str(path)]) == 0
    path.write_text(json.dumps({"name": "db", "config": {**sink(tmp_path / "o.db", "orders"), "batch.size": "0"}}))
    assert main(["connect", "check", str(path)]) == 2
    assert "batch.size=0: at least 1 expected" in capsys.readouterr().err
