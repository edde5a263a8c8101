"""Debezium Server on the broker: changes of PostgreSQL in another database, while it and the broker are killed."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
import psycopg.conninfo
import pytest

from bench.peers import debezium
from bench.servers import free_port
from odradek.testing.blocking import BlockingBroker
from tests.integration.waiting import until
from tests.interop.connect_workers import Rest, logical_postgres, odradek, rows_of, tcp_of

pytestmark = pytest.mark.long

ROWS = "SELECT id, item, n FROM orders ORDER BY id"
_TEXT = "org.apache.kafka.common.serialization.StringSerializer"
_SOURCE = "io.debezium.connector.postgresql.PostgresConnector"
_OFFSETS = "org.apache.kafka.connect.storage.KafkaOffsetBackingStore"


class Load:
    """A thread that changes the table until `stop`: inserts, updates, deletes, each a transaction."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                number = 1_000
                while not self._stopping.wait(0.002):
                    number += 1
                    connection.execute("INSERT INTO orders VALUES (%s, 'new', %s)", (number, number))
                    connection.execute(
                        "UPDATE orders SET n = n + 1, item = %s WHERE id %% 50 = %s", (f"u{number}", number % 50)
                    )
                    connection.execute("DELETE FROM orders WHERE id = %s", (number - 40,))
                    self.changes += 1
        except psycopg.Error as error:
            self.error = error


def wait_for_changes(load: Load, more: int) -> None:
    """Until the load has made that many changes more."""
    goal = load.changes + more
    until(lambda: load.changes >= goal or load.error is not None, f"{more} changes")
    assert load.error is None


@contextmanager
def debezium_server(folder: Path, settings: dict[str, Any]) -> Iterator[Callable[[], AbstractContextManager[Any]]]:
    """Starts Debezium Server with these settings, as often as it is called."""
    try:
        command = debezium.server()
    except LookupError as error:
        pytest.skip(str(error))
    (folder / "config").mkdir()
    lines = [f"{name}={text}\n" for name, text in settings.items()]
    (folder / "config" / "application.properties").write_text("".join(lines))
    log = folder / "debezium.log"

    @contextmanager
    def start() -> Iterator[subprocess.Popen[str]]:
        port = free_port()
        line = [command[0], f"-Dquarkus.http.port={port}", *command[1:]]
        # its messages go to standard output
        with log.open("a") as output:
            started = subprocess.Popen(line, stdout=output, stderr=output, cwd=folder, text=True)
            try:
                health = Rest(f"http://127.0.0.1:{port}/")
                until(lambda: started.poll() is not None or health.is_there("q/health/live"), "Debezium Server serves")
                assert started.poll() is None, log.read_text()
                yield started
            finally:
                started.kill()
                started.wait()

    yield start


@pytest.fixture
def followed_postgres(tmp_path: Path) -> Iterator[str]:
    """Connection to a PostgreSQL that lets others follow its changes."""
    with logical_postgres(tmp_path) as server:
        yield server.database.conninfo


@pytest.mark.timeout(600)
def test_changes_arrive_though_debezium_server_and_the_broker_are_killed(
    tmp_path: Path, followed_postgres: str
) -> None:
    """PostgreSQL -> Debezium Server -> broker -> our SqlSink -> SQLite, under load; offsets are in a topic."""
    with psycopg.connect(followed_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, item text, n int)")
        connection.execute("INSERT INTO orders SELECT n, 'first', n FROM generate_series(1, 500) n")
    place = psycopg.conninfo.conninfo_to_dict(followed_postgres)
    copy = tmp_path / "copy.db"
    with BlockingBroker() as broker, tcp_of(str(place["host"])) as (host, port):
        settings = {
            "debezium.sink.type": "kafka",
            "debezium.sink.kafka.producer.bootstrap.servers": broker.bootstrap_servers,
            "debezium.sink.kafka.producer.key.serializer": _TEXT,
            "debezium.sink.kafka.producer.value.serializer": _TEXT,
            "debezium.format.key": "json", "debezium.format.key.schemas.enable": "false",
            "debezium.format.value": "json", "debezium.format.value.schemas.enable": "false",
            "debezium.source.connector.class": _SOURCE,
            "debezium.source.bootstrap.servers": broker.bootstrap_servers,
            "debezium.source.offset.storage": _OFFSETS,
            "debezium.source.offset.storage.topic": "debezium-offsets",
            "debezium.source.offset.storage.partitions": "1",
            "debezium.source.offset.storage.replication.factor": "1",
            "debezium.source.offset.flush.interval.ms": "1000",
            "debezium.source.database.hostname": host, "debezium.source.database.port": str(port),
            "debezium.source.database.user": "postgres", "debezium.source.database.dbname": "postgres",
            "debezium.source.plugin.name": "pgoutput", "debezium.source.topic.prefix": "cdc",
            "debezium.source.table.include.list": "public.orders", "debezium.source.slot.name": "debezium",
            "debezium.transforms": "flat",
            "debezium.transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
            "debezium.transforms.flat.delete.tombstone.handling.mode": "tombstone",
        }  # fmt: skip
        sink = {
            "connector.class": "SqlSink", "topics": "cdc.public.orders", "connection.url": f"sqlite:///{copy}",
            "table.name.format": "orders", "key.converter": "json", "pk.mode": "record_key", "insert.mode": "upsert",
            "delete.enabled": "true", "auto.create": "true",
        }  # fmt: skip
        with (
            odradek(tmp_path, broker.bootstrap_servers, "own") as (worker, _),
            debezium_server(tmp_path, settings) as start,
        ):
            worker.call("PUT", "connectors/copy/config", sink)
            with start() as server:
                until(lambda: len(rows_of(copy, ROWS)) == 500, "the first copy of the table")
                with Load(followed_postgres) as load:
                    wait_for_changes(load, 100)
                    server.send_signal(signal.SIGKILL)
                    server.wait()
                    wait_for_changes(load, 100)
                    with start() as second:
                        until(lambda: rows_of(copy, ROWS)[-1:] > [(1_150,)], "the second server continues")
                        broker.kill()
                        wait_for_changes(load, 100)
                        broker.start()
                        until(lambda: rows_of(copy, ROWS)[-1:] > [(1_300,)], "it survives the broker")
                        second.send_signal(signal.SIGKILL)
                        second.wait()
                    load.stop()
                    assert load.error is None
            with psycopg.connect(followed_postgres) as connection:
                wanted = connection.execute(ROWS).fetchall()
            with start() as server:
                until(lambda: rows_of(copy, ROWS) == wanted, "the same rows")
                assert server.poll() is None
            assert worker.states("copy") == ["RUNNING", "RUNNING"]
