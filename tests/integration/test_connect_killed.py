"""Workers of connectors killed with SIGKILL: each kind, at points of its code and from outside, and started again.

A worker is killed in the middle of a write, then between the write and the commit of its group, then from outside, and
the next one completes the work. Kinds that promise it have each record once; others lose none.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pymysql
import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import NewTopic
from odradek.connect.databases import database_of
from odradek.connect.object_folder import ObjectFolder
from odradek.connect.topics import read_all
from odradek.testing.blocking import BlockingBroker
from odradek.wire.errors import KafkaError
from tests.integration.test_connect import Run, process_of, produce
from tests.integration.waiting import until
from tests.mariadb import mariadb_server
from tests.s3 import S3, s3_server
from tests.spark.postgres import postgres_server

COUNT: Final = 2_000
BATCH: Final = 50
_FAULTS: Final = Path(__file__).with_name("connect_faults")
_SINKS: Final = "odradek.connect.sinks"
_SEND: Final = "odradek.client.producer.transactions:TransactionalProducer.send"
_SMALL_FETCHES: Final = {"consumer.override.max.partition.fetch.bytes": "1500"}


class Service:
    """An HTTP service that keeps what is posted, and serves numbered items in pages."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer in two packets waits for a delayed acknowledgement

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if len(body) < int(self.headers["Content-Length"]):
                    # The worker was killed while it sent this.
                    self.close_connection = True
                    return
                service.posted.append((self.headers["Idempotency-Key"], body))
                self._answer(b"{}")

            def do_GET(self) -> None:
                after = int(parse_qs(urlsplit(self.path).query).get("after", ["0"])[0])
                end = min(after + BATCH, COUNT)
                self._answer(json.dumps({"items": [{"n": n} for n in range(after, end)], "next": end}).encode())

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class World(NamedTuple):
    """What connectors of one test may use."""

    topic: str
    folder: Path
    broker: BlockingBroker
    other: BlockingBroker
    service: Service
    fixture: Callable[[str], Any]
    """A server of another kind by the name of its fixture, started for the first test that wants one."""


class Case(NamedTuple):
    """A kind of connector with its settings, and how the numbers that it wrote are read."""

    config: Callable[[World], dict[str, str]]
    found: Callable[[World], Sequence[int]]
    points: tuple[str, ...]
    is_exact: bool = True
    prepare: Callable[[World], None] | None = None
    """For a source, what fills it."""


def committed(broker: BlockingBroker, topic: str) -> list[int]:
    """The numbers in a topic, as far as they are committed."""

    async def read() -> list[int]:
        try:
            records = read_all({"bootstrap_servers": broker.bootstrap_servers}, topic)
            return [json.loads(each.value or b"")["n"] async for each in records]
        except KafkaError:
            return []  # the topic does not exist yet

    return asyncio.run(read())


# --- sinks ---


def _sql(url: str) -> dict[str, str]:
    return {"connector.class": "SqlSink", "connection.url": url, "auto.create": "true", "batch.size": str(BATCH)}


def _routed_to(topic: str) -> dict[str, str]:
    return {
        "transforms": "route", "transforms.route.type": "RegexRouter", "transforms.route.regex": ".*",
        "transforms.route.replacement": topic,
    }  # fmt: skip


def _in_postgres(world: World) -> list[int]:
    import psycopg

    with psycopg.connect(world.fixture("postgres")) as connection:
        try:
            return [n for (n,) in connection.execute(f'SELECT n FROM "{world.topic}"').fetchall()]  # type: ignore[call-overload]
        except psycopg.errors.UndefinedTable:
            return []


def _in_mariadb(world: World) -> list[int]:
    with closing(database_of(world.fixture("mariadb")).connect()) as connection:
        try:
            return [n for (n,) in connection.execute(f"SELECT n FROM `{world.topic}`").fetchall()]
        except pymysql.err.ProgrammingError:
            return []  # the table does not exist yet


def _in_sqlite(world: World) -> list[int]:
    with sqlite3.connect(world.folder / "o.db") as connection:
        try:
            return [n for (n,) in connection.execute(f'SELECT n FROM "{world.topic}"')]
        except sqlite3.OperationalError:
            return []  # the table does not exist yet


def _in_delta(world: World) -> list[int]:
    from deltalake import DeltaTable

    path = str(world.folder / "table")
    return DeltaTable(path).to_pyarrow_table()["n"].to_pylist() if DeltaTable.is_deltatable(path) else []


def _in_delta_on_s3(world: World) -> list[int]:
    from deltalake import DeltaTable

    s3 = world.fixture("s3")
    path = f"{s3.url}/{world.topic}"
    if not DeltaTable.is_deltatable(path, s3.options):
        return []
    numbers: list[int] = DeltaTable(path, storage_options=s3.options).to_pyarrow_table()["n"].to_pylist()
    return numbers


def _catalog(world: World) -> dict[str, str]:
    return {"uri": f"sqlite:///{world.folder}/catalog.db", "warehouse": f"file://{world.folder}/lake"}


def _in_iceberg(world: World) -> list[int]:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = load_catalog("default", **_catalog(world))
    try:
        numbers: list[int] = catalog.load_table("lake.numbers").scan(selected_fields=("n",)).to_arrow()["n"].to_pylist()
    except NoSuchTableError:
        return []
    else:
        return numbers
    finally:
        catalog.close()


def _iceberg(world: World) -> dict[str, str]:
    catalog = {f"catalog.{name}": text for name, text in _catalog(world).items()}
    return {
        "connector.class": "IcebergSink", "table.name": "lake.numbers", "flush.size": "250",
        "rotate.interval.ms": "50", **catalog,
    }  # fmt: skip


def _in_objects(world: World) -> list[int]:
    s3 = world.fixture("s3")
    folder = ObjectFolder(f"{s3.url}/{world.topic}/{world.topic}/partition=0", s3.options)
    return [json.loads(line)["value"]["n"] for each in folder.objects() for line in folder.open(each)]


def _in_files(world: World) -> list[int]:
    return [
        json.loads(line)["value"]["n"]
        for path in (world.folder / "out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def _in_file(world: World) -> list[int]:
    path = world.folder / "out.txt"
    return [json.loads(line)["n"] for line in path.read_text().splitlines()] if path.exists() else []


def _in_service(world: World) -> list[int]:
    """Without the repeats, which a service recognises by their keys."""
    return [json.loads(body)["n"] for body in dict(world.service.posted).values()]


SINKS: Final = {
    "SqlSink": Case(
        lambda world: _sql(f"sqlite:///{world.folder}/o.db"),
        _in_sqlite,
        (f"{_SINKS}.sql:SqlSink._execute:3:after", f"{_SINKS}.sql:SqlSink.write:2:after"),
    ),
    "DeltaSink": Case(
        lambda world: {
            "connector.class": "DeltaSink", "table.path": f"{world.folder}/table", "flush.size": "250",
            "rotate.interval.ms": "50",
        },
        _in_delta,
        (f"{_SINKS}.rows:Rows.arrow:2:after", f"{_SINKS}.tables:TableSink.write:1:after"),
    ),
    "IcebergSink-sqlite": Case(
        _iceberg,
        _in_iceberg,
        (f"{_SINKS}.rows:Rows.arrow:2:after", f"{_SINKS}.tables:TableSink.write:1:after"),
    ),
    "FilesSink": Case(
        lambda world: {
            "connector.class": "FilesSink", "directory": f"{world.folder}/out", "flush.size": str(BATCH),
            "rotate.interval.ms": "50",
        },
        _in_files,
        (f"{_SINKS}.files:FilesSink._publish:2:before", f"{_SINKS}.files:FilesSink.write:2:after"),
        prepare=lambda world: (world.folder / "out").mkdir(),
    ),
    "FileStreamSink": Case(
        lambda world: {"connector.class": "FileStreamSink", "file": f"{world.folder}/out.txt", **_SMALL_FETCHES},
        _in_file,
        (f"{_SINKS}.files:FileStreamSink.write:1:after", f"{_SINKS}.files:FileStreamSink.write:2:after"),
        is_exact=False,
    ),
    "DeltaSink-routed": Case(
        lambda world: {
            "connector.class": "DeltaSink", "table.path": f"{world.folder}/${{topic}}", "flush.size": "250",
            "rotate.interval.ms": "50", **_routed_to("table"),
        },
        _in_delta,
        (f"{_SINKS}.rows:Rows.arrow:2:after", f"{_SINKS}.tables:TableSink.write:1:after"),
    ),
    "IcebergSink-routed": Case(
        lambda world: {**_iceberg(world), "table.name": "lake.${topic}", **_routed_to("numbers")},
        _in_iceberg,
        (f"{_SINKS}.rows:Rows.arrow:2:after", f"{_SINKS}.tables:TableSink.write:1:after"),
    ),
    "FilesSink-routed": Case(
        lambda world: {
            "connector.class": "FilesSink", "directory": f"{world.folder}/out", "flush.size": str(BATCH),
            "rotate.interval.ms": "50", **_routed_to("table"),
        },
        _in_files,
        (f"{_SINKS}.files:FilesSink._publish:2:before", f"{_SINKS}.files:FilesSink.write:2:after"),
        prepare=lambda world: (world.folder / "out").mkdir(),
    ),
    "FilesSink-s3": Case(
        lambda world: {
            "connector.class": "FilesSink", "directory": f"{world.fixture('s3').url}/{world.topic}",
            "flush.size": str(BATCH), "rotate.interval.ms": "50", **world.fixture("s3").settings,
        },
        _in_objects,
        (f"{_SINKS}.objects:ObjectsSink._write:2:after", f"{_SINKS}.objects:ObjectsSink.write:2:after"),
    ),
    "DeltaSink-s3": Case(
        lambda world: {
            "connector.class": "DeltaSink", "table.path": f"{world.fixture('s3').url}/{world.topic}",
            "flush.size": "250", "rotate.interval.ms": "50", **world.fixture("s3").settings,
        },
        _in_delta_on_s3,
        (f"{_SINKS}.rows:Rows.arrow:2:after", f"{_SINKS}.tables:TableSink.write:1:after"),
    ),
    "SqlSink-postgres": Case(
        lambda world: _sql(world.fixture("postgres")),
        _in_postgres,
        (f"{_SINKS}.sql:SqlSink._execute:3:after", f"{_SINKS}.sql:SqlSink.write:2:after"),
    ),
    "SqlSink-mariadb": Case(
        lambda world: _sql(world.fixture("mariadb")),
        _in_mariadb,
        (f"{_SINKS}.sql:SqlSink._execute:3:after", f"{_SINKS}.sql:SqlSink.write:2:after"),
    ),
    "HttpSink": Case(
        lambda world: {"connector.class": "HttpSink", "http.url": world.service.url, "batch.max.size": str(BATCH)},
        _in_service,
        (f"{_SINKS}.http:HttpSink._request:70:after", f"{_SINKS}.http:HttpSink.write:2:after"),
    ),
    "ClusterSink": Case(
        lambda world: {
            "connector.class": "ClusterSink", "target.bootstrap.servers": world.other.bootstrap_servers,
            "batch.size": str(BATCH),
        },
        lambda world: committed(world.other, world.topic),
        (f"{_SEND}_offsets:2:after", f"{_SINKS}.cluster:ClusterSink.write:2:after"),
    ),
}  # fmt: skip


# --- sources ---


def _sql_source(world: World, url: str) -> dict[str, str]:
    return {
        "connector.class": "SqlSource", "connection.url": url, "mode": "incrementing", "table.whitelist": "numbers",
        "incrementing.column.name": "n", "batch.max.rows": str(BATCH), **_routed_to(world.topic),
    }  # fmt: skip


def _fill_database(world: World) -> None:
    with sqlite3.connect(world.folder / "in.db") as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(COUNT)])
    connection.close()


def _fill_mariadb(world: World) -> None:
    with closing(database_of(world.fixture("mariadb")).connect()) as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
        connection.cursor().executemany("INSERT INTO numbers VALUES (%s)", [(n,) for n in range(COUNT)])


def _fill_files(world: World, names: Sequence[str]) -> None:
    (world.folder / "in").mkdir()
    part = COUNT // len(names)
    for number, name in enumerate(names):
        lines = [json.dumps({"n": n}) for n in range(number * part, (number + 1) * part)]
        (world.folder / "in" / name).write_text("".join(f"{line}\n" for line in lines))


def _fill_objects(world: World) -> None:
    s3 = world.fixture("s3")
    folder = ObjectFolder(f"{s3.url}/{world.topic}", s3.options)
    for start in range(0, COUNT, COUNT // 4):
        lines = [json.dumps({"n": n}) for n in range(start, start + COUNT // 4)]
        folder.create(f"{start:04d}.jsonl", "\n".join(lines).encode(), {})


def _in_topic(world: World) -> list[int]:
    return committed(world.broker, world.topic)


_SOURCE_POINTS: Final = (f"{_SEND}:70:after", "odradek.connect.source_task:SourceTask._write:2:after")
SOURCES: Final = {
    "SqlSource": Case(
        lambda world: _sql_source(world, f"sqlite:///{world.folder}/in.db"),
        _in_topic,
        _SOURCE_POINTS,
        prepare=_fill_database,
    ),
    "SqlSource-mariadb": Case(
        lambda world: _sql_source(world, world.fixture("mariadb")),
        _in_topic,
        _SOURCE_POINTS,
        prepare=_fill_mariadb,
    ),
    "DirectorySource": Case(
        lambda world: {
            "connector.class": "DirectorySource", "directory": f"{world.folder}/in", "format": "json",
            "topic": world.topic, "batch.size": str(BATCH),
        },
        _in_topic,
        _SOURCE_POINTS,
        prepare=lambda world: _fill_files(world, ["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"]),
    ),
    "DirectorySource-s3": Case(
        lambda world: {
            "connector.class": "DirectorySource", "directory": f"{world.fixture('s3').url}/{world.topic}",
            "format": "json", "topic": world.topic, "batch.size": str(BATCH), **world.fixture("s3").settings,
        },
        _in_topic,
        _SOURCE_POINTS,
        prepare=_fill_objects,
    ),
    "FileStreamSource": Case(
        lambda world: {
            "connector.class": "FileStreamSource", "file": f"{world.folder}/in/a.jsonl", "topic": world.topic,
            "batch.size": str(BATCH),
        },
        _in_topic,
        _SOURCE_POINTS,
        prepare=lambda world: _fill_files(world, ["a.jsonl"]),
    ),
    "HttpSource": Case(
        lambda world: {
            "connector.class": "HttpSource", "http.url": world.service.url, "topic": world.topic,
            "records.pointer": "/items", "cursor.pointer": "/next", "cursor.parameter": "after",
        },
        _in_topic,
        _SOURCE_POINTS,
    ),
    "ClusterSource": Case(
        lambda world: {
            "connector.class": "ClusterSource", "source.bootstrap.servers": world.other.bootstrap_servers,
            "topics": world.topic, "batch.size": str(BATCH),
        },
        _in_topic,
        _SOURCE_POINTS,
        prepare=lambda world: produce(world.other, world.topic, [{"n": n} for n in range(COUNT)]),
    ),
}  # fmt: skip


# --- the tests ---


def _variants(kinds: Iterable[str]) -> list[Any]:
    """The kinds, and their variants on other stores and with routed topics, which are for long runs."""
    return [pytest.param(kind, marks=pytest.mark.long if "-" in kind else ()) for kind in kinds]


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[BlockingBroker, BlockingBroker]]:
    """The worker's cluster, and another one."""
    with BlockingBroker() as one, BlockingBroker() as other:
        yield one, other


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a PostgreSQL server."""
    with postgres_server(tmp_path_factory.mktemp("run")) as server:
        yield server.database.conninfo


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    """An S3 server."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    """URL of a MariaDB server."""
    with mariadb_server() as server:
        yield server.url


@pytest.fixture
def world(
    request: pytest.FixtureRequest, brokers: tuple[BlockingBroker, BlockingBroker], tmp_path: Path
) -> Iterator[World]:
    """Names and places of one test."""
    service = Service()
    yield World(f"c-{uuid4().hex[:10]}", tmp_path, *brokers, service, request.getfixturevalue)
    service.close()


@contextmanager
def worker(world: World, config: dict[str, str], point: str = "") -> Iterator[Run]:
    """A worker's process with one connector, which dies at the point."""
    path = world.folder / "connector.json"
    path.write_text(json.dumps({"name": world.topic, "config": config}))
    line = [sys.executable, "-m", "odradek.cli.main", "connect", "run", "--listen", "127.0.0.1:0", str(path)]
    environment = {
        **os.environ,
        "ODRADEK_BOOTSTRAP_SERVER": world.broker.bootstrap_servers,
        "ODRADEK_TEST_KILL": point,
        "PYTHONPATH": os.pathsep.join([str(_FAULTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with process_of(line, environment) as run:
        yield run


def killed_and_completed(world: World, case: Case, config: dict[str, str]) -> list[int]:
    """Let workers die at the points of the case, kill one from outside, and let the last one complete the work."""
    for point in case.points:
        with worker(world, config, point) as run:
            assert run.process.wait(60) == -signal.SIGKILL
    before = len(case.found(world))
    with worker(world, config) as run:
        until(lambda: len(case.found(world)) > before, "progress")
        run.process.kill()
    with worker(world, config) as run:
        until(lambda: set(case.found(world)) >= set(range(COUNT)), f"{COUNT} records")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0
    return list(case.found(world))


@pytest.mark.parametrize("kind", _variants(SINKS))
def test_sink_loses_and_repeats_no_record_when_killed(world: World, kind: str) -> None:
    case = SINKS[kind]
    if case.prepare is not None:
        case.prepare(world)
    produce(world.broker, world.topic, [{"n": n} for n in range(COUNT)])
    found = killed_and_completed(world, case, {"topics": world.topic, **case.config(world)})
    if case.is_exact:
        assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize(
    "kind",
    _variants(["SqlSink", "SqlSink-postgres", "SqlSink-mariadb", "FilesSink", "DeltaSink", "IcebergSink-sqlite"]),
)
def test_two_tasks_write_each_record_once_when_killed(world: World, kind: str) -> None:
    """They share four partitions, and create the same table at the same time."""
    case = SINKS[kind]
    if case.prepare is not None:
        case.prepare(world)

    async def create() -> None:
        async with Admin(bootstrap_servers=world.broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(world.topic, 4, 1)])

    asyncio.run(create())
    for start in range(0, COUNT, BATCH):
        produce(world.broker, world.topic, [{"n": n} for n in range(start, start + BATCH)], key=str(start))
    found = killed_and_completed(world, case, {"topics": world.topic, "tasks.max": "2", **case.config(world)})
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize("kind", _variants(SOURCES))
def test_source_writes_each_record_once_when_killed(world: World, kind: str) -> None:
    case = SOURCES[kind]
    if case.prepare is not None:
        case.prepare(world)
    found = killed_and_completed(world, case, {"poll.interval.ms": "50", **case.config(world)})
    assert found == list(range(COUNT))
