"""Apache's Kafka Connect on the broker: files, MirrorMaker 2, Debezium, killed; and `odradek connect` after them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import psycopg.conninfo
import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.peers import debezium
from bench.servers import free_port
from odradek.client.blocking_clients import BlockingProducer
from odradek.testing.blocking import BlockingBroker
from tests.integration.waiting import until
from tests.interop.conftest import KAFKA
from tests.spark.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.long

INTERNAL_TOPICS = (
    "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage", "config.storage",
)  # fmt: skip
"""What MirrorMaker keeps in topics."""


class Rest:
    """The REST interface of a worker."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The document of the answer. Raises OSError, urllib's HTTPError included."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def is_there(self, path: str) -> bool:
        """Whether the path is served."""
        try:
            self.call("GET", path)
        except (OSError, ValueError):
            return False
        return True

    def states(self, name: str) -> list[str]:
        """The states of a connector and its tasks; none while the worker does not know it."""
        try:
            status = self.call("GET", f"connectors/{name}/status")
        except OSError:
            return []
        return [status["connector"]["state"], *(each["state"] for each in status["tasks"])]


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end."""
    with log.open("w") as errors:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield started
        finally:
            started.kill()
            started.communicate()


@contextmanager
def apache(
    folder: Path, bootstrap: str, prefix: str, port: int, plugins: Path | None = None
) -> Iterator[tuple[Rest, subprocess.Popen[str]]]:
    """A worker of Apache's, when it serves."""
    topics = {f"{each}.storage.topic": f"{prefix}-{each}s" for each in ("config", "offset", "status")}
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{prefix}-workers",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "listeners": f"HTTP://127.0.0.1:{port}",
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "only_scan",
        "session.timeout.ms": "6000",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "1",
        **({} if plugins is None else {"plugin.path": str(plugins)}),
        **topics,
        **{f"{each}.storage.replication.factor": "1" for each in ("config", "offset", "status")},
    }
    path = folder / "worker.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    command = [sys.executable, str(KAFKA), "tool", "connect-distributed", str(path)]
    with process(command, folder / "apache.log") as started:
        rest = Rest(f"http://127.0.0.1:{port}/")
        until(lambda: rest.is_there("connectors"), "Apache's worker serves")
        yield rest, started


@contextmanager
def odradek(folder: Path, bootstrap: str, prefix: str) -> Iterator[tuple[Rest, subprocess.Popen[str]]]:
    """A worker of ours on the same topics."""
    command = [sys.executable, "-m", "odradek.cli.main", "connect", "run", "--listen", "127.0.0.1:0"]
    command += ["--bootstrap-server", bootstrap, "--configs-topic", f"{prefix}-configs"]
    command += ["--offsets-topic", f"{prefix}-offsets"]
    with process(command, folder / "odradek.log") as started:
        assert started.stdout is not None
        ready = started.stdout.readline().strip().partition("url=")[2]
        assert ready, (folder / "odradek.log").read_text()
        yield Rest(ready), started


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first committed values of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
         "isolation.level": "read_committed", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    found: list[bytes] = []

    def poll() -> bool:
        for each in consumer.consume(100, 0.2):
            if not each.error():
                found.append(each.value() or b"")
        return len(found) >= count

    until(poll, f"{count} records in {topic}")
    # What was written twice would follow.
    found += [each.value() or b"" for each in consumer.consume(100, 2) if not each.error()]
    consumer.close()
    return found


def append(path: Path, lines: range) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in lines)


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a SQLite file; none before it has the table."""
    try:
        with sqlite3.connect(path) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.Error:
        return []


@contextmanager
def tcp_of(folder: str) -> Iterator[tuple[str, int]]:
    """An address that leads to the server's socket in a folder: Java's driver connects to addresses only."""
    (path,) = [each for each in Path(folder).iterdir() if each.name.startswith(".s.PGSQL.") and each.is_socket()]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_forward, args=(listener, str(path)), daemon=True).start()
        yield "127.0.0.1", listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _forward(listener: socket.socket, path: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect(path)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_apaches_worker_is_killed_and_ours_continues(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    prefix = unique_name("connect")
    lines, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    append(lines, range(100))
    package = "org.apache.kafka.connect.file.FileStream"
    source = {"connector.class": f"{package}SourceConnector", "file": str(lines), "topic": prefix, "tasks.max": "1",
              "exactly.once.support": "requested"}  # fmt: skip
    sink = {"connector.class": f"{package}SinkConnector", "file": str(copy), "topics": prefix, "tasks.max": "1"}
    port = free_port()
    with apache(tmp_path, bootstrap, prefix, port) as (rest, worker):
        rest.call("PUT", f"connectors/{prefix}-source/config", source)
        rest.call("PUT", f"connectors/{prefix}-sink/config", sink)
        until(lambda: copy.exists() and copy.read_text().count("\n") == 100, "Apache's worker copies the lines")
        worker.send_signal(signal.SIGKILL)
    with apache(tmp_path, bootstrap, prefix, port) as (rest, worker):
        until(lambda: rest.states(f"{prefix}-source") == ["RUNNING", "RUNNING"], "the source runs again")
        append(lines, range(100, 200))
        until(lambda: copy.read_text().count("\n") >= 200, "Apache's second worker continues")
        worker.send_signal(signal.SIGKILL)

    wanted = [b"%d" % number for number in range(300)]
    with odradek(tmp_path, bootstrap, prefix) as (rest, _):
        assert sorted(rest.call("GET", "connectors")) == [f"{prefix}-sink", f"{prefix}-source"]
        append(lines, range(200, 300))
        assert sorted(values(bootstrap, prefix, 300)) == sorted(wanted)
        until(lambda: copy.read_text().count("\n") >= 300, "our worker continues")
    assert {*copy.read_text().split()} == {each.decode() for each in wanted}


def test_mirror_maker_copies_topics_and_offsets(unique_name: Callable[[str], str], tmp_path: Path) -> None:
    """MirrorMaker 2 between two brokers: records, and the positions of a group, translated to the copy."""
    with BlockingBroker() as first, BlockingBroker() as second:
        settings = {
            "clusters": "a, b",
            "a.bootstrap.servers": first.bootstrap_servers,
            "b.bootstrap.servers": second.bootstrap_servers,
            "a->b.enabled": "true",
            "b->a.enabled": "false",
            "a->b.topics": "orders",
            "a->b.groups": "readers",
            "replication.factor": "1",
            "refresh.topics.interval.seconds": "2",
            "refresh.groups.interval.seconds": "2",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "2",
            "emit.checkpoints.interval.seconds": "2",
            "dedicated.mode.enable.internal.rest": "false",
            **{f"{each}.replication.factor": "1" for each in INTERNAL_TOPICS},
        }
        path = tmp_path / "mm2.properties"
        path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        with BlockingProducer(bootstrap_servers=first.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("orders", b"%d" % number, partition=0)
            producer.flush()
        with process([sys.executable, str(KAFKA), "tool", "connect-mirror-maker", str(path)], tmp_path / "mm2.log"):
            copied = values(second.bootstrap_servers, "a.orders", 100)
            assert copied == [b"%d" % number for number in range(100)]
            consumer = Consumer({"bootstrap.servers": first.bootstrap_servers, "group.id": "readers"})
            consumer.commit(offsets=[TopicPartition("orders", 0, 100)], asynchronous=False)
            consumer.close()
            reader = Consumer({"bootstrap.servers": second.bootstrap_servers, "group.id": "readers"})
            until(
                lambda: reader.committed([TopicPartition("a.orders", 0)])[0].offset > 0, "the group's offset is copied"
            )
            reader.close()


@pytest.fixture
def logical_postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL that lets others follow its changes."""
    with postgres_server(tmp_path) as server:
        with psycopg.connect(server.database.conninfo, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_level = logical")
        server.crash()
        server.start()
        yield server


@pytest.mark.timeout(600)
def test_changes_of_a_database_arrive_in_another_through_a_killed_worker(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path, logical_postgres: PostgresServer
) -> None:
    """PostgreSQL -> Debezium in Apache's worker -> broker -> our SqlSink -> SQLite."""
    try:
        plugins = debezium.plugins()
    except LookupError as error:
        pytest.skip(str(error))
    prefix, port = unique_name("cdc"), free_port()
    database = logical_postgres.database.conninfo
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, item text, n int)")
        connection.execute("INSERT INTO orders SELECT n, 'first', n FROM generate_series(1, 100) n")
    with tcp_of(str(psycopg.conninfo.conninfo_to_dict(database)["host"])) as (host, database_port):
        source = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": host, "database.port": str(database_port), "database.user": "postgres",
            "database.dbname": "postgres", "plugin.name": "pgoutput", "topic.prefix": prefix,
            "table.include.list": "public.orders",
            "slot.name": "debezium", "transforms": "flat",
            "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.flat.delete.tombstone.handling.mode": "tombstone",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        }  # fmt: skip
        copy = tmp_path / "copy.db"
        sink = {
            "connector.class": "SqlSink", "topics": f"{prefix}.public.orders", "connection.url": f"sqlite:///{copy}",
            "table.name.format": "orders", "key.converter": "json", "pk.mode": "record_key", "insert.mode": "upsert",
            "delete.enabled": "true", "auto.create": "true",
        }  # fmt: skip
        with odradek(tmp_path, bootstrap, f"{prefix}-own") as (ours, _):
            ours.call("PUT", f"connectors/{prefix}-sink/config", sink)
            with apache(tmp_path, bootstrap, prefix, port, plugins) as (rest, worker):
                rest.call("PUT", f"connectors/{prefix}/config", source)
                until(lambda: rows_of(copy, "SELECT count(*) FROM orders") == [(100,)], "the first copy of the table")
                worker.send_signal(signal.SIGKILL)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute("UPDATE orders SET item = 'second' WHERE id <= 50")
                connection.execute("DELETE FROM orders WHERE id > 90")
                connection.execute("INSERT INTO orders SELECT n, 'third', n FROM generate_series(101, 150) n")
                wanted = connection.execute("SELECT * FROM orders ORDER BY id").fetchall()
            with apache(tmp_path, bootstrap, prefix, port, plugins):
                until(lambda: rows_of(copy, "SELECT id, item, n FROM orders ORDER BY id") == wanted, "the changes")
            assert ours.states(f"{prefix}-sink") == ["RUNNING", "RUNNING"]
