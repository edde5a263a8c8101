"""Sinks without a worker: SQL tables in SQLite, tables in Delta and Iceberg, files, HTTP requests."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import pytest

from odradek.connect.errors import ConfigInvalid, ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.plugins import TaskPlace, check_config, find
from odradek.connect.sinks import http
from odradek.connect.sinks.files import file_name, positions_in
from odradek.connect.sinks.rows import Rows
from odradek.records.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


def record(offset: int, value: Any, key: Any = None, topic: str = "orders") -> SinkRecord:
    return SinkRecord(TopicPartition(topic, 0), offset, 1_000, key, value, (), None, None, topic)


def batch(*records: SinkRecord) -> Batch:
    return Batch(records, {each.origin: each.offset + 1 for each in records})


def sink_of(kind: str, settings: dict[str, str]) -> Any:
    plugin = find(kind)
    assert plugin is not None
    config = {"name": "c", "connector.class": kind, "topics": "orders", **settings}
    return plugin.make(check_config(plugin, config).valid(), config, TaskPlace("c", 0, 1))


def used(sink: Any, *batches: Batch) -> None:
    """Open a sink, write, close."""

    async def use() -> None:
        await sink.open()
        try:
            await sink.positions([ORDERS])
            for each in batches:
                await sink.write(each)
        finally:
            await sink.close()

    asyncio.run(use())


FORMER, PRESENT = b"\1" * 16, b"\2" * 16
"""Ids of a topic before and after it was created again."""
TARGETS = {
    "SqlSink": {"connection.url": "sqlite:///{}/o.db", "auto.create": "true"},
    "DeltaSink": {"table.path": "{}/${{topic}}"},
    "IcebergSink": {"table.name": "lake.${{topic}}", "catalog.uri": "sqlite:///{}/c.db", "catalog.warehouse": "{}"},
    "FilesSink": {"directory": "{}"},
}
"""Settings of sinks that hold positions, in a folder."""


@pytest.mark.parametrize("kind", TARGETS)
def test_position_of_a_former_topic_is_an_error(kind: str, tmp_path: Path) -> None:
    """The first records of the topic that was created again were taken for written."""
    settings = {name: text.format(tmp_path) for name, text in TARGETS[kind].items()}

    async def positions(topic_id: bytes, *batches: Batch) -> Any:
        sink = sink_of(kind, settings)
        await sink.open()
        try:
            sink.note_topics({"orders": topic_id})
            found = await sink.positions([ORDERS])
            for each in batches:
                await sink.write(each)
            return found
        finally:
            await sink.close()

    async def run() -> None:
        assert await positions(FORMER, batch(record(0, {"n": 1})), batch(record(1, {"n": 2}))) == {}
        assert await positions(FORMER) == {ORDERS: 2}
        with pytest.raises(ConnectError, match="created again"):
            await positions(PRESENT)

    asyncio.run(run())


@pytest.mark.parametrize("kind", [each for each in TARGETS if each != "FilesSink"])
@pytest.mark.parametrize("moved_to", [None, 1])
def test_moved_position_is_one_of_the_topic_that_is_there(kind: str, moved_to: int | None, tmp_path: Path) -> None:
    settings = {name: text.format(tmp_path) for name, text in TARGETS[kind].items()}

    async def run() -> Any:
        sink = sink_of(kind, settings)
        await sink.open()
        sink.note_topics({"orders": FORMER})
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1}), record(1, {"n": 2})))
        await sink.close()
        sink = sink_of(kind, settings)
        await sink.open()
        await sink.positions([ORDERS])
        await sink.move({ORDERS: moved_to})
        sink.note_topics({"orders": PRESENT})
        found = await sink.positions([ORDERS])
        await sink.write(batch(record(1, {"n": 3})))
        assert await sink.positions([ORDERS]) == {ORDERS: 2}
        await sink.close()
        return found

    assert asyncio.run(run()) == ({} if moved_to is None else {ORDERS: moved_to})


# --- SQL ---


@pytest.fixture
def sql(tmp_path: Path) -> Callable[..., Any]:
    """Sinks of one database."""
    default = {"connection.url": f"sqlite:///{tmp_path}/o.db", "auto.create": "true", "auto.evolve": "true"}
    return lambda **settings: sink_of("SqlSink", {**default, **{k.replace("_", "."): v for k, v in settings.items()}})


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / "o.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_objects_become_rows_of_a_table_made_for_them(sql: Callable[..., Any], tmp_path: Path) -> None:
    used(sql(), batch(record(0, {"id": 1, "name": "a", "x": {"y": 2}}), record(1, {"id": 2, "name": None, "x": None})))
    assert rows(tmp_path, 'SELECT * FROM "orders"') == [(1, "a", '{"y":2}'), (2, None, None)]


def test_new_fields_become_new_columns(sql: Callable[..., Any], tmp_path: Path) -> None:
    used(sql(), batch(record(0, {"id": 1})), batch(record(1, {"id": 2, "price": 1.5})))
    assert rows(tmp_path, "SELECT id, price FROM orders ORDER BY id") == [(1, None), (2, 1.5)]


@pytest.mark.parametrize("name", ["", "\ud800", "a\0", "N"])
def test_field_that_cannot_be_a_column_is_rejected(sql: Callable[..., Any], name: str) -> None:
    used(sql(), batch(record(0, {"n": 1})))
    with pytest.raises(RecordRejected, match=r"no name of a column|but for the case") as caught:
        used(sql(), batch(record(1, {"n": 2}), record(2, {"n": 3, name: 4})))
    assert caught.value.index == 1


def test_fields_with_dots_are_columns(sql: Callable[..., Any], tmp_path: Path) -> None:
    settings = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "order.id"}
    used(sql(**settings), batch(record(0, {"order.id": 1}), record(1, {"order.id": 1, "a.b.c": 2})))
    assert rows(tmp_path, 'SELECT "order.id", "a.b.c" FROM orders') == [(1, 2)]


def test_upsert_replaces_and_a_tombstone_deletes(sql: Callable[..., Any], tmp_path: Path) -> None:
    sink = sql(insert_mode="upsert", pk_mode="record_key", pk_fields="id", delete_enabled="true")
    used(
        sink,
        batch(record(0, {"n": 1}, key="a"), record(1, {"n": 2}, key="b"), record(2, {"n": 3}, key="a")),
        batch(record(3, None, key="b")),
    )
    assert rows(tmp_path, "SELECT id, n FROM orders") == [("a", 3)]


def test_coordinates_make_a_key(sql: Callable[..., Any], tmp_path: Path) -> None:
    used(sql(pk_mode="kafka"), batch(record(5, {"n": 1})))
    assert rows(tmp_path, "SELECT __connect_topic, __connect_offset, n FROM orders") == [("orders", 5, 1)]


def test_topic_with_dots_has_a_table_without(sql: Callable[..., Any], tmp_path: Path) -> None:
    used(sql(), batch(record(0, {"n": 1}, topic="eu.orders")))
    assert rows(tmp_path, "SELECT n FROM eu_orders") == [(1,)]


def test_positions_are_written_with_the_rows(sql: Callable[..., Any], tmp_path: Path) -> None:
    used(sql(), batch(record(0, {"n": 1}), record(1, {"n": 2})))

    async def positions() -> Any:
        sink = sql()
        await sink.open()
        try:
            return await sink.positions([ORDERS, TopicPartition("orders", 1)])
        finally:
            await sink.close()

    assert asyncio.run(positions()) == {ORDERS: 2}
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(2,)]


@pytest.mark.parametrize("first", [0, 1], ids=["without-position", "with-position"])
def test_task_that_lost_its_partition_writes_nothing(sql: Callable[..., Any], tmp_path: Path, first: int) -> None:
    async def run() -> None:
        old, new = sql(), sql()
        if first:
            await old.open()
            await old.positions([ORDERS])
            await old.write(batch(record(0, {"n": 0})))
        for sink in (old, new):
            await sink.open()
            await sink.positions([ORDERS])
        await new.write(batch(record(first, {"n": 10})))
        with pytest.raises(PositionMoved, match="another task"):
            await old.write(batch(record(first, {"n": 20})))
        for sink in (old, new):
            await sink.close()

    asyncio.run(run())
    assert rows(tmp_path, "SELECT n FROM orders WHERE n > 0") == [(10,)]


@pytest.mark.parametrize(
    ("settings", "value", "part"),
    [
        ({}, "text", "JSON object expected"),
        ({}, None, "delete.enabled is false"),
        ({}, {}, "without fields"),
        ({"pk_mode": "record_value", "pk_fields": "id"}, {"n": 1}, "id has no value"),
        ({"pk_mode": "record_key", "pk_fields": "id"}, {"n": 1}, "no key"),
        ({}, {"n": 1 << 70}, "rejects the row"),
    ],
)
def test_record_that_makes_no_row_is_rejected_by_its_place(
    sql: Callable[..., Any], settings: dict[str, str], value: Any, part: str
) -> None:
    good = record(0, {"n": 1, "id": 1}, key="a")
    with pytest.raises(RecordRejected, match=part) as caught:
        used(sql(**settings), batch(good, record(1, value)))
    assert caught.value.index == 1


def test_tombstone_whose_key_does_not_fit_is_rejected(sql: Callable[..., Any]) -> None:
    settings = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}
    with pytest.raises(RecordRejected, match="too large") as caught:
        used(sql(**settings), batch(record(0, {"n": 1}, key=1), record(1, None, key=1), record(2, None, key=1 << 63)))
    assert caught.value.index == 2


def test_rejected_record_leaves_nothing_of_its_batch(sql: Callable[..., Any], tmp_path: Path) -> None:
    used(sql(), batch(record(0, {"n": 1})))
    with pytest.raises(RecordRejected):
        used(sql(), batch(record(1, {"n": 2}), record(2, {"n": 1 << 70})))
    assert rows(tmp_path, "SELECT n FROM orders") == [(1,)]
    assert rows(tmp_path, "SELECT next_offset FROM odradek_connect_positions") == [(1,)]


def test_unknown_column_is_rejected_without_auto_evolve(sql: Callable[..., Any]) -> None:
    used(sql(), batch(record(0, {"n": 1})))
    with pytest.raises(RecordRejected, match=r"auto\.evolve is false"):
        used(sql(auto_evolve="false"), batch(record(1, {"n": 1, "m": 2})))


def test_missing_table_is_an_error_without_auto_create(sql: Callable[..., Any]) -> None:
    with pytest.raises(ConnectError, match=r"auto\.create is false"):
        used(sql(auto_create="false"), batch(record(0, {"n": 1})))


def test_tombstone_for_a_missing_table_is_an_error_without_auto_create(sql: Callable[..., Any]) -> None:
    settings = {"pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true", "auto.create": "false"}
    with pytest.raises(ConnectError, match="is false"):
        used(sql(**settings), batch(record(0, None, key=1)))


def test_table_of_positions_without_ids_of_topics_gets_them(sql: Callable[..., Any], tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "o.db")
    connection.execute(
        "CREATE TABLE odradek_connect_positions (connector TEXT NOT NULL, topic TEXT NOT NULL, part INTEGER NOT NULL, "
        "next_offset BIGINT NOT NULL, PRIMARY KEY (connector, topic, part))"
    )
    connection.execute("INSERT INTO odradek_connect_positions VALUES ('c', 'orders', 0, 5)")
    connection.commit()
    connection.close()
    sink = sql()
    sink.note_topics({"orders": PRESENT})
    used(sink, batch(record(5, {"n": 1})))
    assert rows(tmp_path, "SELECT next_offset, topic_id FROM odradek_connect_positions") == [(6, PRESENT.hex())]


def test_table_that_is_gone_is_no_reason_to_reject_records(sql: Callable[..., Any], tmp_path: Path) -> None:
    """With errors.tolerance=all, all of them would be skipped."""

    async def run() -> None:
        sink = sql()
        await sink.open()
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1})))
        with closing(sqlite3.connect(tmp_path / "o.db")) as other:
            other.execute("DROP TABLE orders")
        try:
            await sink.write(batch(record(1, {"n": 2})))
        finally:
            await sink.close()

    with pytest.raises(ConnectError, match="no such table") as caught:
        asyncio.run(run())
    assert not isinstance(caught.value, RecordRejected)


def test_full_database_is_away(sql: Callable[..., Any]) -> None:
    async def run() -> None:
        sink = sql()
        await sink.open()
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": "x"})))
        connection = sink._connection
        await sink._thread.run(lambda: connection.execute("PRAGMA max_page_count=1").fetchall())
        try:
            await sink.write(batch(*(record(offset, {"n": "x" * 3000}) for offset in range(1, 9))))
        finally:
            await sink.close()

    with pytest.raises(TargetAway, match="is full"):
        asyncio.run(run())


def test_locked_database_is_away(sql: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used(sql(), batch(record(0, {"n": 1})))
    sink = sql()
    monkeypatch.setattr(sink._tables, "database", sink._tables.database._replace(busy_timeout_s=0.01))
    holder = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(TargetAway, match="away"):
            used(sink, batch(record(1, {"n": 2})))
    finally:
        holder.close()


# --- files ---


def test_files_are_named_by_the_offsets_that_they_have(tmp_path: Path) -> None:
    used(sink_of("FilesSink", {"directory": str(tmp_path)}), batch(record(3, {"a": 1}), record(7, "x", key="k")))
    (path,) = tmp_path.iterdir()
    assert path.name == "orders+0+00000000000000000003-00000000000000000007.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["offset"], each["key"], each["value"]) for each in lines] == [(3, None, {"a": 1}), (7, "k", "x")]


def test_replaced_task_writes_no_record_again(tmp_path: Path) -> None:
    old, new = (sink_of("FilesSink", {"directory": str(tmp_path)}) for _ in range(2))

    async def run() -> None:
        assert await old.positions([ORDERS]) == {}
        await new.write(batch(*(record(offset, {}) for offset in range(5))))
        for late in (batch(record(0, {}), record(2, {})), batch(record(4, {}), record(5, {}))):
            with pytest.raises(PositionMoved, match="another task has written"):
                await old.write(late)
        await old.write(batch(record(5, {})))
        for each in (old, new):
            await each.close()

    asyncio.run(run())
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        file_name(ORDERS, 0, 4, ".jsonl"),
        file_name(ORDERS, 5, 5, ".jsonl"),
    ]


def test_files_of_a_topic_that_was_created_again_fail_the_task(tmp_path: Path) -> None:
    """Its records are not those of the files, and no position makes them so."""
    used(sink_of("FilesSink", {"directory": str(tmp_path)}), batch(record(0, {}), record(1, {})))
    for again in (batch(record(0, {})), batch(record(0, {}), record(1, {}))):
        with pytest.raises(ConnectError, match="created again"):
            used(sink_of("FilesSink", {"directory": str(tmp_path)}), again)
    assert [each.name for each in tmp_path.iterdir()] == [file_name(ORDERS, 0, 1, ".jsonl")]


def test_positions_follow_the_last_file_of_each_partition() -> None:
    names = [
        file_name(ORDERS, 0, 9, ".jsonl"),
        file_name(ORDERS, 10, 19, ".parquet"),
        file_name(TopicPartition("a+b.c", 12), 5, 5, ".csv"),
        ".orders+0+00-99.jsonl.part",
        "notes.txt",
    ]
    assert positions_in(names) == {ORDERS: 20, TopicPartition("a+b.c", 12): 6}


def test_csv_file_has_all_fields_of_its_records(tmp_path: Path) -> None:
    sink = sink_of("FilesSink", {"directory": str(tmp_path), "format": "csv"})
    used(sink, batch(record(0, {"a": 1, "b": "x,y"}), record(1, {"a": 2, "c": [1]})))
    (path,) = tmp_path.iterdir()
    assert path.read_text().splitlines() == ["a,b,c", '1,"x,y",', "2,,[1]"]


def test_parquet_file_has_the_values_as_columns(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    sink = sink_of("FilesSink", {"directory": str(tmp_path), "format": "parquet"})
    used(sink, batch(record(0, {"a": 1}), record(1, {"a": 2})))
    (path,) = tmp_path.iterdir()
    assert [row["value"] for row in pq.read_table(path).to_pylist()] == [{"a": 1}, {"a": 2}]


def test_csv_rejects_a_value_without_fields_by_its_place(tmp_path: Path) -> None:
    sink = sink_of("FilesSink", {"directory": str(tmp_path), "format": "csv"})
    with pytest.raises(RecordRejected, match="csv") as caught:
        used(sink, batch(record(0, {"a": 1}), record(1, "x")))
    assert caught.value.index == 1


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_text_that_is_no_unicode_is_rejected_by_its_place(tmp_path: Path, form: str) -> None:
    """JSON can name half of a character."""
    sink = sink_of("FilesSink", {"directory": str(tmp_path), "format": form})
    with pytest.raises(RecordRejected, match="surrogates") as caught:
        used(sink, batch(*(record(offset, {"a": text}) for offset, text in enumerate(("b", "\ud800", "c")))))
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("FilesSink", {"directory": "{}"}),
        ("FileStreamSink", {"file": "{}/out.txt"}),
        ("HttpSink", {"http.url": "http://127.0.0.1:1/", "batching.enabled": "true"}),
    ],
)
def test_number_that_json_lacks_is_rejected(kind: str, settings: dict[str, str], tmp_path: Path) -> None:
    """Python reads NaN, though it is no JSON, and would write it."""
    with pytest.raises(RecordRejected, match="not JSON compliant") as caught:
        used(
            sink_of(kind, {name: text.format(tmp_path) for name, text in settings.items()}),
            batch(record(0, {"a": float("nan")})),
        )
    assert caught.value.index == 0


def test_parquet_rejects_the_record_of_another_type_than_those_before_it(tmp_path: Path) -> None:
    sink = sink_of("FilesSink", {"directory": str(tmp_path), "format": "parquet"})
    with pytest.raises(RecordRejected, match="different types") as caught:
        used(sink, batch(*(record(offset, {"a": value}) for offset, value in enumerate((1, 2, "text", 4, 5)))))
    assert caught.value.index == 2


def test_files_sink_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="no such folder"):
        used(sink_of("FilesSink", {"directory": str(tmp_path / "none")}))


def test_unfinished_files_of_killed_tasks_are_removed(tmp_path: Path) -> None:
    name = file_name(ORDERS, 0, 9, ".jsonl")
    for part in ("1.1", "2.1"):
        (tmp_path / f".{name}.{part}.part").touch()
    (tmp_path / ".other.part").touch()
    for each in (f".{name}.1.1.part", ".other.part"):
        os.utime(tmp_path / each, (1_000, 1_000))
    used(sink_of("FilesSink", {"directory": str(tmp_path)}))
    assert sorted(each.name for each in tmp_path.iterdir()) == [f".{name}.2.1.part", ".other.part"]


def test_folder_that_cannot_be_read_is_away(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()

    async def run() -> None:
        sink = sink_of("FilesSink", {"directory": str(folder)})
        await sink.open()
        folder.rmdir()
        try:
            await sink.positions([ORDERS])
        finally:
            await sink.close()

    with pytest.raises(TargetAway, match="No such file"):
        asyncio.run(run())


def test_file_stream_sink_appends_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before\n")
    used(sink_of("FileStreamSink", {"file": str(path)}), batch(record(0, "a"), record(1, "b")))
    assert path.read_text() == "before\na\nb\n"


def test_line_that_is_no_unicode_is_rejected_by_its_place(tmp_path: Path) -> None:
    with pytest.raises(RecordRejected, match="surrogates") as caught:
        used(sink_of("FileStreamSink", {"file": str(tmp_path / "out.txt")}), batch(record(0, "a"), record(1, "\ud800")))
    assert caught.value.index == 1


def test_line_that_was_cut_off_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before\ncut o")
    used(sink_of("FileStreamSink", {"file": str(path)}), batch(record(0, "a")), batch(record(1, "b")))
    assert path.read_text() == "before\ncut o\na\nb\n"


# --- tables in Delta and Iceberg ---


class Lake(Protocol):
    """Sinks of tables in one format, and the rows of the tables."""

    def sink(self, **more: str) -> Any:
        """A sink of tables named as the topics."""

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        """A table's rows by offset."""


class DeltaLake(NamedTuple):
    folder: Path

    def sink(self, **more: str) -> Any:
        pytest.importorskip("deltalake")
        return sink_of("DeltaSink", {"table.path": f"{self.folder}/${{topic}}", **more})

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        found: list[dict[str, Any]] = DeltaTable(str(self.folder / name)).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: row["__offset"])


class IcebergLake(NamedTuple):
    folder: Path

    def sink(self, **more: str) -> Any:
        pytest.importorskip("pyiceberg")
        catalog = {f"catalog.{name}": text for name, text in self._options().items()}
        return sink_of("IcebergSink", {"table.name": "lake.${topic}", **catalog, **more})

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        with self.table(name) as table:
            found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["__offset"])

    @contextmanager
    def table(self, name: str = "orders") -> Iterator[Any]:
        """The table, while its catalog is open."""
        from pyiceberg.catalog import load_catalog

        with closing(load_catalog("default", **self._options())) as catalog:
            yield catalog.load_table(f"lake.{name}")

    def _options(self) -> dict[str, str]:
        return {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/lake"}


@pytest.fixture(params=[DeltaLake, IcebergLake])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Each format in turn."""
    made: Lake = request.param(tmp_path)
    return made


def test_objects_become_rows_of_a_table_with_their_place(lake: Lake) -> None:
    used(
        lake.sink(),
        batch(record(0, {"n": 1, "x": {"a": 1}}), record(3, {"n": 2.5, "x": None})),
        batch(record(4, {"n": 7, "new": "y"})),
    )
    rows = lake.rows()
    assert [(row["n"], row["x"], row["new"]) for row in rows] == [
        (1.0, '{"a":1}', None),
        (2.5, None, None),
        (7.0, None, "y"),
    ]
    assert [(row["__topic"], row["__partition"], row["__offset"]) for row in rows[:2]] == [
        ("orders", 0, 0),
        ("orders", 0, 3),
    ]
    assert rows[0]["__timestamp"].timestamp() == 1


def test_table_keeps_the_positions_of_its_rows(lake: Lake) -> None:
    async def run() -> None:
        old, new = lake.sink(), lake.sink()
        for sink in (old, new):
            assert await sink.positions([ORDERS]) == {}
        await new.write(batch(record(0, {"n": 1})))
        with pytest.raises(PositionMoved, match="another task"):
            await old.write(batch(record(0, {"n": 2})))
        assert await old.positions([ORDERS]) == {ORDERS: 1}
        await old.write(batch(record(1, {"n": 3})))
        for sink in (old, new):
            await sink.close()

    asyncio.run(run())
    assert [row["n"] for row in lake.rows()] == [1, 3]


def test_commit_is_repeated_behind_one_of_another_partition(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of another partition commits, and adds a column, between a load and its commit."""
    other = TopicPartition("orders", 1)
    rival = lake.sink()
    used(lake.sink(), batch(record(0, {"n": 1})))
    overtaken: list[int] = []
    arrow = Rows.arrow

    def overtake(rows: Rows) -> Any:
        if not overtaken:
            overtaken.append(1)
            one = SinkRecord(other, 0, 1_000, None, {"n": 5, "rival": True}, (), None, None, "orders")
            used(rival, batch(one))
        return arrow(rows)

    monkeypatch.setattr(Rows, "arrow", overtake)
    used(lake.sink(), batch(record(1, {"n": 2, "more": "x"})))
    assert sorted((row["n"], row["rival"], row["more"]) for row in lake.rows()) == [
        (1, None, None), (2, None, "x"), (5, True, None),
    ]  # fmt: skip


def test_first_commit_of_a_table_is_that_of_one_task(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that lost its partition finds no table; the next owner makes it before the former one does."""
    rival = lake.sink()
    overtaken: list[int] = []
    add = Rows.add

    def overtake(rows: Rows, added: SinkRecord) -> None:
        if not overtaken:
            overtaken.append(1)
            used(rival, batch(record(0, {"n": 1})))
        add(rows, added)

    monkeypatch.setattr(Rows, "add", overtake)
    with pytest.raises(PositionMoved):
        used(lake.sink(), batch(record(0, {"n": 1}), record(1, {"n": 2})))
    assert [row["n"] for row in lake.rows()] == [1]


@pytest.mark.parametrize(
    ("value", "settings", "part"),
    [
        ({"n": "text"}, {}, "of type string, its column of type bigint"),
        ({"m": 1}, {"auto.evolve": "false"}, "no column m"),
        ({"__offset": 1}, {}, "record's place"),
        ("text", {}, "JSON object expected"),
        ({"n": 1 << 63}, {}, "field n: "),
        ({"\ud800": 1}, {}, "no name of a column"),
        ({"": 1}, {}, "no name of a column"),
        ({"text": "\ud800"}, {}, "field text: .*surrogates"),
    ],
)
def test_record_that_does_not_fit_a_table_is_rejected(
    lake: Lake, value: Any, settings: dict[str, str], part: str
) -> None:
    used(lake.sink(), batch(record(0, {"n": 1})))
    with pytest.raises(RecordRejected, match=part) as caught:
        used(lake.sink(**settings), batch(record(1, {"n": 2}), record(2, value)))
    assert caught.value.index == 1
    assert [row["n"] for row in lake.rows()] == [1]


def test_field_that_differs_by_case_is_rejected_where_columns_do_not(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    with pytest.raises(RecordRejected, match="column n has the same name but for the case") as caught:
        used(lake.sink(), batch(record(0, {"n": 1}), record(1, {"n": 2, "N": 3})))
    assert caught.value.index == 1


def test_records_of_a_partition_are_routed_to_two_tables_once(lake: Lake) -> None:
    """A repeated batch adds only what a table lacks, as after a failure between the commits of two tables."""
    route = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "x",
             "transforms.r.replacement": "y"}  # fmt: skip
    one, two = record(0, {"n": 1}), record(1, {"n": 2})._replace(topic="two")
    more = record(2, {"n": 3})

    async def run() -> None:
        sink = lake.sink(**route)
        assert await sink.positions([ORDERS]) == {}
        await sink.write(batch(one))
        await sink.write(batch(one, two))
        await sink.write(batch(one, two, more))
        assert await sink.positions([ORDERS]) == {}
        await sink.close()

    asyncio.run(run())
    assert [row["n"] for row in lake.rows()] == [1, 3]
    assert [(row["n"], row["__topic"]) for row in lake.rows("two")] == [(2, "orders")]


def test_routed_records_of_a_topic_that_was_created_again_are_written(lake: Lake) -> None:
    """No offsets of the connector can be removed there: the group has the positions."""
    route = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "x",
             "transforms.r.replacement": "y"}  # fmt: skip

    async def write(topic_id: bytes, *records: SinkRecord) -> None:
        sink = lake.sink(**route)
        sink.note_topics({"orders": topic_id})
        assert await sink.positions([ORDERS]) == {}
        await sink.write(batch(*records))
        await sink.close()

    asyncio.run(write(FORMER, record(0, {"n": 1}), record(1, {"n": 2})))
    for _ in range(2):
        asyncio.run(write(PRESENT, record(0, {"n": 3})))
    assert sorted(row["n"] for row in lake.rows()) == [1, 2, 3]


def test_tables_of_several_topics_have_names_of_their_own(lake: Lake) -> None:
    with pytest.raises(ConnectError, match="several topics"):
        lake.sink(**{"topics": "a,b", "table.path" if isinstance(lake, DeltaLake) else "table.name": "x.y"})


def test_iceberg_table_is_divided_by_days(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    used(lake.sink(**{"partition.by": "day(__timestamp),kind"}), batch(record(0, {"kind": "a"})))
    with lake.table() as table:
        assert [each.name for each in table.spec().fields] == ["__timestamp_day", "kind"]
        assert [each.file.partition[1] for each in table.scan().plan_files()] == ["a"]


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"table.name": "orders"}, "NAMESPACE.TABLE"),
        ({"catalog.uri": ""}, "catalog.uri"),
        ({"partition.by": "week(x)"}, "hour"),
    ],
)
def test_iceberg_sink_names_the_setting_that_is_wrong(tmp_path: Path, settings: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigInvalid, match=part):
        IcebergLake(tmp_path).sink(**settings)


def test_iceberg_table_cannot_be_divided_by_a_column_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"partition\.by.*city"):
        used(IcebergLake(tmp_path).sink(**{"partition.by": "city"}), batch(record(0, {"n": 1})))


def test_iceberg_catalog_that_is_away_is_waited_for(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path / "missing")
    with pytest.raises(TargetAway):
        used(lake.sink(), batch(record(0, {"n": 1})))


# --- HTTP ---


class Service:
    """An HTTP service that keeps requests, and answers with the statuses it was given, then 200."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None, bytes]] = []
        self.statuses: list[int] = []
        self.rejected = b"\0"
        """Part of a body that is answered with 400."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = service.statuses.pop(0) if service.statuses else 400 if service.rejected in body else 200
                if status == 200:
                    service.requests.append((self.path, self.headers["Idempotency-Key"], body))
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/in?x=1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def service() -> Iterator[Service]:
    """A service of the test's own."""
    started = Service()
    yield started
    started.server.shutdown()
    started.server.server_close()


def test_each_record_is_a_request_with_a_key_of_its_own(service: Service) -> None:
    used(sink_of("HttpSink", {"http.url": service.url}), batch(record(4, {"a": 1}), record(5, "text")))
    assert service.requests == [("/in?x=1", "orders-0-4", b'{"a":1}'), ("/in?x=1", "orders-0-5", b"text")]


def test_batching_sends_arrays(service: Service) -> None:
    sink = sink_of("HttpSink", {"http.url": service.url, "batching.enabled": "true", "batch.max.size": "2"})
    used(sink, batch(record(0, 1), record(1, 2), record(2, 3)))
    assert [body for _, _, body in service.requests] == [b"[1,2]", b"[3]"]


def test_array_is_divided_until_the_rejected_record_is_found(service: Service) -> None:
    """The records before it are sent once, those behind it with the next attempt."""
    service.rejected = b"bad"
    records = [record(offset, "bad" if offset == 2 else offset) for offset in range(5)]

    async def run() -> None:
        sink = sink_of("HttpSink", {"http.url": service.url, "batching.enabled": "true"})
        await sink.positions([ORDERS])
        with pytest.raises(RecordRejected) as caught:
            await sink.write(batch(*records))
        del records[caught.value.index]
        await sink.write(batch(*records))
        await sink.close()

    asyncio.run(run())
    assert [body for _, _, body in service.requests] == [b"[0,1]", b"[3,4]"]


def test_failed_batch_continues_after_the_answered_records(service: Service) -> None:
    sink = sink_of("HttpSink", {"http.url": service.url})
    service.statuses = [200, 503]

    async def run() -> None:
        await sink.positions([ORDERS])
        records = batch(record(0, 1), record(1, 2))
        with pytest.raises(TargetAway, match="503"):
            await sink.write(records)
        await sink.write(records)
        await sink.close()

    asyncio.run(run())
    assert [key for _, key, _ in service.requests] == ["orders-0-0", "orders-0-1"]


@pytest.mark.parametrize(("record_s", "most"), [(0.1, 500), (1.0, 60), (100.0, 1)])
def test_slow_service_gets_fewer_records_with_a_write(
    service: Service, monkeypatch: pytest.MonkeyPatch, record_s: float, most: int
) -> None:
    """A write that takes longer than the group waits for would be repeated without an end."""
    now_s = [0.0]
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    sink = sink_of("HttpSink", {"http.url": service.url})
    request = sink._request

    def slow(records: list[Any]) -> None:
        now_s[0] += record_s
        request(records)

    monkeypatch.setattr(sink, "_request", slow)
    assert sink.batch_records == 500
    used(sink, batch(record(0, 1), record(1, 2)))
    assert sink.batch_records == most


def test_records_of_a_topic_that_was_created_again_are_sent(service: Service) -> None:
    """The consumer begins at the topic's first record again, without a new assignment."""
    used(sink_of("HttpSink", {"http.url": service.url}), batch(record(0, 1), record(1, 2)), batch(record(0, 3)))
    assert [body for _, _, body in service.requests] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RecordRejected),
        (422, RecordRejected),
        (429, TargetAway),
        (301, ConnectError),
        (401, ConnectError),
        (404, ConnectError),
    ],
)
def test_status_says_whether_to_try_again(service: Service, status: int, error: type[Exception]) -> None:
    service.statuses = [status]
    with pytest.raises(error, match=str(status)) as caught:
        used(sink_of("HttpSink", {"http.url": service.url}), batch(record(0, 1)))
    assert type(caught.value) is error


def test_service_that_does_not_listen_is_away(service: Service) -> None:
    service.server.shutdown()
    service.server.server_close()
    with pytest.raises(TargetAway):
        used(sink_of("HttpSink", {"http.url": service.url}), batch(record(0, 1)))


def test_positions_in_a_cluster_are_away_without_a_connection() -> None:
    """The task waits for the cluster, and the group gives it partitions."""
    sink = sink_of("ClusterSink", {"target.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(TargetAway, match="other cluster"):
        asyncio.run(sink.positions([ORDERS]))
