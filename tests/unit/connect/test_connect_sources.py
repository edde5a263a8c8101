"""Sources without a worker: SQL tables in SQLite, files, HTTP services."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.model import SourceRecord
from odradek.connect.plugins import TaskPlace, check_config, find
from odradek.connect.sources.source import StoredOffsets


def source_of(kind: str, settings: dict[str, str]) -> Any:
    plugin = find(kind)
    assert plugin is not None
    config = {"name": "c", "connector.class": kind, **settings}
    return plugin.make(check_config(plugin, config).valid(), config, TaskPlace("c", 0, 1))


def polled(source: Any, offsets: StoredOffsets, polls: int = 1) -> list[SourceRecord]:
    """What polls return after an opening; the offsets are kept as a worker keeps them."""

    async def run() -> list[SourceRecord]:
        await source.open(offsets)
        try:
            found = [each for _ in range(polls) for each in await source.poll()]
        finally:
            await source.close()
        for each in found:
            offsets.set(each.source_partition, each.source_offset)
        return found

    return asyncio.run(run())


def values(records: list[SourceRecord]) -> list[Any]:
    return [each.value for each in records]


# --- SQL ---


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database with an empty table."""
    connection = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    connection.execute("CREATE TABLE orders (id INTEGER, at TEXT, name TEXT, data BLOB)")
    yield connection
    connection.close()


@pytest.fixture
def sql(tmp_path: Path) -> Callable[..., Any]:
    """Sources of the database."""
    default = {
        "connection.url": f"jdbc:sqlite:{tmp_path}/o.db",
        "table.whitelist": "orders",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
    }
    return lambda **settings: source_of("SqlSource", {**default, **settings})


def test_new_rows_are_read_once(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    offsets = StoredOffsets()
    database.executemany("INSERT INTO orders (id, name) VALUES (?, ?)", [(1, "a"), (2, "b")])
    first = polled(sql(**{"key.fields": "id"}), offsets, polls=2)
    assert [(each.topic, each.key, each.value["name"]) for each in first] == [
        ("db-orders", 1, "a"),
        ("db-orders", 2, "b"),
    ]
    database.execute("INSERT INTO orders (id, name) VALUES (3, 'c')")
    assert [each.value["id"] for each in polled(sql(), offsets)] == [3]
    assert offsets.items() == [({"table": "orders"}, {"incrementing": 3})]


def test_rows_of_one_time_are_not_torn_apart_by_the_limit(
    database: sqlite3.Connection, sql: Callable[..., Any]
) -> None:
    database.executemany(
        "INSERT INTO orders (id, at) VALUES (?, ?)",
        [(1, "08:00"), (2, "09:00"), (3, "09:00"), (4, "09:00"), (5, "10:00")],
    )
    settings = {
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "incrementing.column.name": "",
        "batch.max.rows": "2",
    }
    offsets = StoredOffsets()
    found = [polled(sql(**settings), offsets) for _ in range(4)]
    assert [[each.value["id"] for each in part] for part in found] == [[1], [2, 3, 4], [5], []]


def test_changed_rows_are_read_again_by_time_and_number(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    settings = {"mode": "timestamp+incrementing", "timestamp.column.name": "at", "batch.max.rows": "2"}
    database.executemany("INSERT INTO orders (id, at) VALUES (?, '08:00')", [(3,), (1,), (2,)])
    offsets = StoredOffsets()
    found = polled(sql(**settings), offsets, polls=3)
    database.execute("UPDATE orders SET at = '09:00' WHERE id = 1")
    found += polled(sql(**settings), offsets)
    assert [each.value["id"] for each in found] == [1, 2, 3, 1]


def text_of(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))


def zoned_text_of(at_s: float) -> str:
    return dt.datetime.fromtimestamp(at_s, dt.timezone(dt.timedelta(hours=5))).isoformat()


def milliseconds_of(at_s: float) -> int:
    return int(at_s * 1000)


@pytest.mark.parametrize(("kind", "form"), [("TEXT", text_of), ("TEXT", zoned_text_of), ("INTEGER", milliseconds_of)])
def test_rows_of_a_time_are_read_once_it_lies_far_enough_back(
    database: sqlite3.Connection, sql: Callable[..., Any], kind: str, form: Callable[[float], Any]
) -> None:
    """The row that arrives with the time of the last one is read, too."""
    database.execute(f"CREATE TABLE times (id INTEGER, at {kind})")
    settings = {
        "table.whitelist": "times",
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "incrementing.column.name": "",
        "timestamp.delay.interval.ms": "3600000",
    }
    offsets = StoredOffsets()

    def found(*rows: tuple[int, float]) -> list[int]:
        database.executemany("INSERT INTO times VALUES (?, ?)", [(row, form(at_s)) for row, at_s in rows])
        return [each.value["id"] for each in polled(sql(**settings), offsets)]

    now = time.time()
    assert found((1, now - 7200), (2, now - 60)) == [1]
    assert found((3, now - 60)) == []
    database.execute("UPDATE times SET at = ? WHERE id > 1", (form(now - 3601),))
    assert found() == [2, 3]


def test_delay_has_no_effect_without_a_column_of_times(sql: Callable[..., Any]) -> None:
    with pytest.raises(ConnectError, match="not used with mode=incrementing"):
        sql(**{"timestamp.delay.interval.ms": "1"})


def test_columns_become_json_values(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    database.execute("INSERT INTO orders VALUES (1, NULL, 'ü', x'00ff')")
    assert values(polled(sql(), StoredOffsets())) == [{"id": 1, "at": None, "name": "ü", "data": "AP8="}]


def test_rows_without_a_number_are_not_read(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    database.execute("INSERT INTO orders (id, name) VALUES (NULL, 'a')")
    assert polled(sql(), StoredOffsets()) == []


def test_source_leaves_a_file_of_sqlite_as_it_is(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    database.execute("INSERT INTO orders (id) VALUES (1)")
    assert len(polled(sql(), StoredOffsets())) == 1
    assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_missing_file_of_sqlite_is_away(tmp_path: Path, sql: Callable[..., Any]) -> None:
    """It may be on a disk that is not mounted yet; no empty file takes its place."""
    path = tmp_path / "later #1.db"
    with pytest.raises(TargetAway, match="unable to open"):
        polled(sql(**{"connection.url": f"sqlite:///{path}"}), StoredOffsets())
    assert not path.exists()
    sqlite3.connect(path).execute("CREATE TABLE orders (id INTEGER)").connection.close()
    assert polled(sql(**{"connection.url": f"sqlite:///{path}"}), StoredOffsets()) == []


def test_columns_may_have_dots(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    database.execute('CREATE TABLE dotted ("order.id" INTEGER, "order.at" TEXT)')
    database.execute("INSERT INTO dotted VALUES (1, '08:00')")
    settings = {"mode": "timestamp+incrementing", "table.whitelist": "dotted"}
    names = {"incrementing.column.name": "order.id", "timestamp.column.name": "order.at"}
    assert values(polled(sql(**settings, **names), StoredOffsets())) == [{"order.id": 1, "order.at": "08:00"}]


@pytest.mark.parametrize("settings", [{"incrementing.column.name": "ID"}, {"key.fields": "nr"}])
def test_column_that_a_table_lacks_is_named(
    database: sqlite3.Connection, sql: Callable[..., Any], settings: dict[str, str]
) -> None:
    """Databases find a column whatever its case, the names of fields differ by it."""
    database.execute("INSERT INTO orders (id) VALUES (1)")
    (column,) = settings.values()
    with pytest.raises(ConnectError, match=f"table orders has no column {column}, but id, at"):
        polled(sql(**settings), StoredOffsets())


def test_missing_table_fails_the_task(database: sqlite3.Connection, sql: Callable[..., Any]) -> None:
    with pytest.raises(ConnectError, match="no such table"):
        polled(sql(**{"table.whitelist": "none"}), StoredOffsets())


@pytest.mark.parametrize("settings", [{"mode": "timestamp"}, {"timestamp.column.name": "at"}])
def test_mode_and_columns_must_fit(settings: dict[str, str], sql: Callable[..., Any]) -> None:
    with pytest.raises(ConnectError, match=r"column\.name"):
        sql(**settings)


# --- files ---


def test_only_complete_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\nb\nhal")
    offsets = StoredOffsets()
    settings = {"file": str(path), "topic": "lines"}
    assert values(polled(source_of("FileStreamSource", settings), offsets, polls=2)) == ["a", "b"]
    assert offsets.items() == [({"filename": str(path)}, {"position": 4})]
    with path.open("a") as file:
        file.write("f\n")
    assert values(polled(source_of("FileStreamSource", settings), offsets)) == ["half"]


def test_file_that_became_shorter_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\nb\n")
    offsets = StoredOffsets()
    settings = {"file": str(path), "topic": "lines"}
    polled(source_of("FileStreamSource", settings), offsets)
    path.write_text("c\n")
    assert values(polled(source_of("FileStreamSource", settings), offsets)) == ["c"]


def test_files_of_a_folder_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    for name in ("2.jsonl", "1.jsonl", "3.txt", ".4.jsonl"):
        (tmp_path / name).write_text(json.dumps({"in": name}) + "\n\n")
    settings = {"directory": str(tmp_path), "pattern": "*.jsonl", "format": "json", "topic": "t"}
    found = polled(source_of("DirectorySource", settings), StoredOffsets(), polls=3)
    assert values(found) == [{"in": "1.jsonl"}, {"in": "2.jsonl"}]


def test_csv_rows_have_the_names_of_the_first_line_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,"x,y"\n')
    settings = {"directory": str(tmp_path), "format": "csv", "topic": "t"}
    offsets = StoredOffsets()
    assert values(polled(source_of("DirectorySource", settings), offsets)) == [{"id": "1", "name": "x,y"}]
    with path.open("a") as file:
        file.write("2,z\n")
    assert values(polled(source_of("DirectorySource", settings), offsets)) == [{"id": "2", "name": "z"}]


def test_batch_size_bounds_a_poll_and_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number}\n" for number in range(5)))
    source = source_of("FileStreamSource", {"file": str(path), "topic": "t", "batch.size": "2"})
    assert values(polled(source, StoredOffsets(), polls=3)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(("text", "part"), [("{\n", "not JSON"), ("x" * 100 + "\n", "max.line.bytes")])
def test_line_that_cannot_be_read_fails_the_task(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "a").write_text(text)
    settings = {"directory": str(tmp_path), "format": "json", "topic": "t", "max.line.bytes": "50"}
    with pytest.raises(ConnectError, match=part):
        polled(source_of("DirectorySource", settings), StoredOffsets())


def test_csv_row_may_have_lines_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,"two\nlines"\n1,"a\nb ""c"""\n2,5" x\n3,"op')
    settings = {"directory": str(tmp_path), "format": "csv", "topic": "t"}
    offsets = StoredOffsets()
    found = polled(source_of("DirectorySource", settings), offsets, polls=2)
    assert values(found) == [{"id": "1", "two\nlines": 'a\nb "c"'}, {"id": "2", "two\nlines": '5" x'}]
    with path.open("a") as file:
        file.write("en\n")
    assert polled(source_of("DirectorySource", settings), offsets) == []
    with path.open("a") as file:
        file.write('"\n')
    assert values(polled(source_of("DirectorySource", settings), offsets)) == [{"id": "3", "two\nlines": "open\n"}]


def test_csv_row_whose_quote_stays_open_fails_the_task(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id\n"' + "1\n" * 50)
    settings = {"directory": str(tmp_path), "format": "csv", "topic": "t", "max.line.bytes": "50"}
    with pytest.raises(ConnectError, match="a row that ends at byte"):
        polled(source_of("DirectorySource", settings), StoredOffsets())


def test_csv_field_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n" + "x" * 200_000 + "\n")
    settings = {"directory": str(tmp_path), "format": "csv", "topic": "t"}
    (found,) = values(polled(source_of("DirectorySource", settings), StoredOffsets()))
    assert len(found["text"]) == 200_000


def test_line_that_is_no_json_is_skipped_as_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{\n")
    settings = {
        "directory": str(tmp_path),
        "format": "json",
        "topic": "t",
        "errors.tolerance": "all",
        "errors.log.enable": "true",
    }
    source = source_of("DirectorySource", settings)

    async def run() -> list[Any]:
        await source.open(StoredOffsets())
        found = [*await source.poll(), *await source.poll()]
        with path.open("a") as file:
            file.write("1\n")
        found += await source.poll()
        await source.close()
        return values(found)

    assert asyncio.run(run()) == [1]
    assert [each.getMessage().count("not JSON") for each in caplog.records] == [1]


# --- HTTP ---


class Pages:
    """A service of records in pages of two: `{"items": […], "next": NUMBER or null}`."""

    def __init__(self) -> None:
        self.items = [{"id": number} for number in range(5)]
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.status = 200
        self.location = ""
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages.asked.append(self.path)
                pages.authorizations.append(self.headers["Authorization"])
                start = int(parse_qs(urlsplit(self.path).query).get("after", ["0"])[0])
                part = pages.items[start : start + 2]
                after = start + 2 if start + 2 <= len(pages.items) else None
                etag = f'"{len(pages.items)}"'
                is_same = self.headers["If-None-Match"] == etag
                body = json.dumps({"items": part, "next": after}).encode()
                self.send_response(304 if is_same else pages.status)
                self.send_header("ETag", etag)
                if pages.location:
                    self.send_header("Location", pages.location)
                self.send_header("Content-Length", "0" if is_same else str(len(body)))
                self.end_headers()
                if not is_same:
                    self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/all"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@contextmanager
def served() -> Iterator[Pages]:
    started = Pages()
    try:
        yield started
    finally:
        started.server.shutdown()
        started.server.server_close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A service of the test's own."""
    with served() as started:
        yield started


CURSOR = {"records.pointer": "/items", "key.pointer": "/id", "cursor.pointer": "/next", "cursor.parameter": "after"}


def test_cursor_leads_through_pages_and_the_last_one_may_grow(pages: Pages) -> None:
    settings = {"http.url": pages.url, "topic": "t", **CURSOR}
    offsets = StoredOffsets()
    found = polled(source_of("HttpSource", settings), offsets, polls=4)
    assert [each.key for each in found] == [0, 1, 2, 3, 4]
    pages.items.append({"id": 5})
    assert [each.key for each in polled(source_of("HttpSource", settings), offsets, polls=2)] == [5]
    assert pages.asked[-1] == "/all?after=6"


def test_unchanged_document_is_read_once(pages: Pages) -> None:
    settings = {"http.url": pages.url, "topic": "t", "records.pointer": "/items"}
    offsets = StoredOffsets()
    assert len(polled(source_of("HttpSource", settings), offsets, polls=3)) == 2
    assert polled(source_of("HttpSource", settings), offsets) == []


@pytest.mark.parametrize(("status", "error"), [(404, ConnectError), (503, TargetAway)])
def test_status_says_whether_the_service_is_away(pages: Pages, status: int, error: type[Exception]) -> None:
    pages.status = status
    with pytest.raises(error, match=str(status)) as caught:
        polled(source_of("HttpSource", {"http.url": pages.url, "topic": "t"}), StoredOffsets())
    assert type(caught.value) is error


def test_login_is_not_carried_to_where_a_redirect_leads(pages: Pages) -> None:
    settings = {"http.url": pages.url, "topic": "t", "records.pointer": "/items"}
    with served() as elsewhere:
        pages.status, pages.location = 302, elsewhere.url
        found = polled(source_of("HttpSource", {**settings, "http.headers.authorization": "secret"}), StoredOffsets())
        assert len(found) == 2
        assert (set(pages.authorizations), set(elsewhere.authorizations)) == ({"secret"}, {None})


def test_pointer_that_finds_nothing_fails_the_task(pages: Pages) -> None:
    settings = {"http.url": pages.url, "topic": "t", "records.pointer": "/none"}
    with pytest.raises(ConnectError, match="/none finds nothing"):
        polled(source_of("HttpSource", settings), StoredOffsets())
