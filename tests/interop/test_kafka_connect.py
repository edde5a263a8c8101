"""Apache's Kafka Connect on the broker: files, MirrorMaker 2, Debezium, killed; and `odradek connect` after them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
from tests.interop.connect_workers import Rest, logical_postgres, odradek, process, rows_of, tcp_of
from tests.spark.postgres import PostgresServer

pytestmark = pytest.mark.long

INTERNAL_TOPICS = (
    "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage", "config.storage",
)  # fmt: skip
"""What MirrorMaker keeps in topics."""


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
def followed_postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    with logical_postgres(tmp_path) as server:
        yield server


@pytest.mark.timeout(600)
def test_changes_of_a_database_arrive_in_another_through_a_killed_worker(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path, followed_postgres: PostgresServer
) -> None:
    """PostgreSQL -> Debezium in Apache's worker -> broker -> our SqlSink -> SQLite."""
    try:
        plugins = debezium.plugins()
    except LookupError as error:
        pytest.skip(str(error))
    prefix, port = unique_name("cdc"), free_port()
    database = followed_postgres.database.conninfo
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
