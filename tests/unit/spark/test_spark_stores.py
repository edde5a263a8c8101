"""Sinks into SQLite and Delta, and waiting for a store, with a frame that needs no Spark."""

import contextlib
import datetime as dt
import json
import sqlite3
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from odradek.records.topic_partition import TopicPartition
from odradek.spark.checkpoint_files import CheckpointError, open_files
from odradek.spark.checkpoints import query_id, source_ends
from odradek.spark.stores.databases import Postgres, Sqlite, StoreError, create_statement, insert_statement
from odradek.spark.stores.delta import DeltaSink
from odradek.spark.stores.patience import Patience, Patient, StoppedWaiting
from odradek.spark.stores.sql import Ledger, SqlSink, read_rows

QUERY = "9da0e808-c8b3-490c-a2ff-a915461a8c91"
OTHER = "00000000-c8b3-490c-a2ff-a915461a8c91"


class Checkpoint:
    def __init__(self, path: Path, query_id: str = QUERY) -> None:
        self.location = str(path)
        (path / "offsets").mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": query_id}))

    def note(self, batch_id: int, *, starting: str = "earliest", **ends: int) -> None:
        """The end of a batch, as our source writes it when it was given these starting offsets."""
        given = {} if starting == "earliest" else json.loads(starting)
        names: dict[str, Any] = {name: {} for name, partitions in given.items() if not partitions}
        offsets = {"in": {partition.removeprefix("p"): end for partition, end in ends.items()}, **names}
        text = f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{json.dumps(offsets)}\n-"
        (Path(self.location) / "offsets" / str(batch_id)).write_text(text)


class Frame:
    """What a sink asks of a DataFrame."""

    def __init__(self, rows: list[tuple[Any, ...]], *columns: tuple[str, str]) -> None:
        self.rows = rows
        self.columns = [name for name, _ in columns]
        self._kinds = columns
        self.sparkSession = object()

    @property
    def schema(self) -> Any:
        class Kind:
            def __init__(self, name: str) -> None:
                self._name = name

            def simpleString(self) -> str:
                return self._name

        class Field:
            def __init__(self, name: str, kind: str) -> None:
                self.name, self.dataType = name, Kind(kind)

        return type("Schema", (), {"fields": [Field(*each) for each in self._kinds]})

    def persist(self) -> "Frame":
        return self

    def unpersist(self) -> None:
        pass

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[tuple[Any, ...]]:  # noqa: N803 - Spark's name
        return iter(self.rows)


COUNTS = (("page", "string"), ("views", "bigint"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    made = Checkpoint(tmp_path / "checkpoint")
    for batch_id in range(5):
        made.note(batch_id, p0=10 * batch_id + 10, p1=5)
    return made


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    return Sqlite(str(tmp_path / "store.db"), busy_timeout_s=0.05)


def test_checkpoint_names_the_query_and_where_sources_end(checkpoint: Checkpoint) -> None:
    files = open_files(f"file://{checkpoint.location}")
    assert query_id(files) == QUERY
    (end,) = source_ends(files, 2)
    assert end.offsets == {TopicPartition("in", 0): 30, TopicPartition("in", 1): 5}
    with pytest.raises(CheckpointError, match="offsets/9"):
        source_ends(files, 9)


def test_rows_batch_and_offsets_are_one_transaction(checkpoint: Checkpoint, database: Sqlite) -> None:
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))
    assert sink.starting_offsets() == "earliest"
    assert sink(Frame([("a", 1), ("b", 2)], *COUNTS), 0)
    # the same batch again, though with other rows: it is there, so nothing happens
    assert not sink(Frame([("a", 9)], *COUNTS), 0)
    assert sink(Frame([("a", 5), ("c", 3)], *COUNTS), 1)
    assert sorted(read_rows(database, "views", ["page", "views"])) == [("a", 5), ("b", 2), ("c", 3)]
    assert json.loads(sink.starting_offsets()) == {"in": {"0": 20, "1": 5}, f"resumed.from:{QUERY}:1:*": {}}


def test_a_batch_that_fails_leaves_nothing(checkpoint: Checkpoint, database: Sqlite) -> None:
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))
    with pytest.raises(sqlite3.ProgrammingError):
        sink(Frame([("a", 1), ("b", object())], *COUNTS), 0)
    assert read_rows(database, "views", ["page"]) == []
    assert sink.starting_offsets() == "earliest"
    assert sink(Frame([("a", 1)], *COUNTS), 0)


def test_rows_without_a_key_are_added_once(checkpoint: Checkpoint, database: Sqlite) -> None:
    sink = SqlSink(database, "alerts", checkpoint.location, key=())
    for batch_id in (0, 0, 1, 1):
        sink(Frame([(f"alert {batch_id}", 1)], *COUNTS), batch_id)
    assert sorted(read_rows(database, "alerts", ["page"])) == [("alert 0",), ("alert 1",)]


def test_another_query_under_the_name_is_noticed(checkpoint: Checkpoint, database: Sqlite, tmp_path: Path) -> None:
    SqlSink(database, "views", checkpoint.location, key=("page",))(Frame([("a", 1)], *COUNTS), 2)
    fresh = Checkpoint(tmp_path / "fresh", OTHER)
    unresumed = SqlSink(database, "views", fresh.location, key=("page",))
    fresh.note(0, p0=35, p1=7, starting=unresumed.starting_offsets())
    with pytest.raises(StoreError, match="checkpoint was deleted"):
        unresumed(Frame([("a", 2)], *COUNTS), 0)
    # a query that started at the offsets in the database may continue
    resumed = SqlSink(database, "views", fresh.location, key=("page",), resumed=True)
    assert resumed(Frame([("a", 2)], *COUNTS), 0)
    assert not resumed(Frame([("a", 3)], *COUNTS), 0)
    behind = Checkpoint(tmp_path / "behind", "11111111-c8b3-490c-a2ff-a915461a8c91")
    behind.note(0, p0=3, p1=7)
    with pytest.raises(StoreError, match="starting_offsets"):
        SqlSink(database, "views", behind.location, key=("page",), resumed=True)(Frame([("a", 4)], *COUNTS), 0)
    assert read_rows(database, "views", ["views"]) == [(2,)]


def test_lost_checkpoint_is_resumed_by_either_offset_log(checkpoint: Checkpoint, database: Sqlite) -> None:
    """Version 2 of Spark's offset log: its offsets went unseen, and rows were written twice."""
    entry = Path(checkpoint.location) / "offsets" / "2"
    entry.write_text('v2\n{"batchWatermarkMs":0}\n1:{"other":{"0":4}}\n0:{"in": {"0": 30, "1": 5}}\n2:-')
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))
    sink(Frame([("a", 1)], *COUNTS), 2)
    assert json.loads(sink.starting_offsets()) == {
        "in": {"0": 30, "1": 5},
        "other": {"0": 4},
        f"resumed.from:{QUERY}:2:*": {},
    }
    behind = Checkpoint(Path(checkpoint.location).with_name("behind"), OTHER)
    (Path(behind.location) / "offsets" / "0").write_text('v2\n{}\n0:{"in": {"0": 3, "1": 5}}')
    with pytest.raises(StoreError, match=r"before those that the database has, in in-0: start it"):
        SqlSink(database, "views", behind.location, key=("page",), resumed=True)(Frame([("a", 4)], *COUNTS), 0)


@pytest.mark.parametrize("end", [20, 25])
@pytest.mark.parametrize("starting", ["earliest", f'{{"resumed.from:{QUERY}:0:*": {{}}}}'])
def test_batch_that_may_repeat_rows_is_not_written(
    checkpoint: Checkpoint, database: Sqlite, tmp_path: Path, end: int, starting: str
) -> None:
    """A first batch that ends at or behind the recorded offsets may begin before them: its rows were added twice."""
    sink = SqlSink(database, "alerts", checkpoint.location, key=())
    sink(Frame([("a", 1)], *COUNTS), 0)
    sink(Frame([("b", 1)], *COUNTS), 1)
    fresh = Checkpoint(tmp_path / "fresh", OTHER)
    fresh.note(0, p0=end, p1=5, starting=starting)
    resumed = SqlSink(database, "alerts", fresh.location, key=(), resumed=True)
    with pytest.raises(StoreError, match=r"the source 0 .*, which reads in, did not begin where the database is"):
        resumed(Frame([("a", 1), ("b", 1)], *COUNTS), 0)
    assert sorted(read_rows(database, "alerts", ["page"])) == [("a",), ("b",)]


@pytest.mark.parametrize(("begin", "is_written"), [(20, True), (19, False)])
def test_beginning_of_official_source_is_in_its_checkpoint(
    checkpoint: Checkpoint, database: Sqlite, tmp_path: Path, begin: int, is_written: bool
) -> None:
    sink = SqlSink(database, "alerts", checkpoint.location, key=())
    sink(Frame([("a", 1)], *COUNTS), 1)
    fresh = Checkpoint(tmp_path / "fresh", OTHER)
    fresh.note(0, p0=25, p1=5)
    source = Path(fresh.location) / "sources" / "0"
    source.mkdir(parents=True)
    (source / "0").write_text(f'\0v1\n{{"in":{{"0":{begin},"1":5}}}}')
    resumed = SqlSink(database, "alerts", fresh.location, key=(), resumed=True)
    if is_written:
        assert resumed(Frame([("b", 1)], *COUNTS), 0)
    else:
        with pytest.raises(StoreError, match="did not begin where the database is"):
            resumed(Frame([("b", 1)], *COUNTS), 0)
    assert len(read_rows(database, "alerts", ["page"])) == 1 + is_written


def test_sources_of_the_same_topic_do_not_swap_offsets(
    checkpoint: Checkpoint, database: Sqlite, tmp_path: Path
) -> None:
    """A topic that is joined with itself: two sources of one cluster, each at offsets of its own."""
    (Path(checkpoint.location) / "offsets" / "0").write_text('v1\n{}\n{"in":{"0":7}}\n{"in":{"0":3}}')
    sink = SqlSink(database, "alerts", checkpoint.location, key=())
    sink(Frame([("a", 1)], *COUNTS), 0)
    names = [f"resumed.from:{QUERY}:0:{source}" for source in (0, 1)]

    def write(folder: str, query: str, first: str, second: str) -> None:
        moved = Checkpoint(tmp_path / folder, query)
        entry = json.dumps({"in": {"0": 9}, first: {}}), json.dumps({"in": {"0": 8}, second: {}})
        (Path(moved.location) / "offsets" / "0").write_text("v1\n{}\n" + "\n".join(entry))
        SqlSink(database, "alerts", moved.location, key=(), resumed=True)(Frame([("b", 1)], *COUNTS), 0)

    with pytest.raises(StoreError, match="did not begin where the database is"):
        write("both", OTHER, names[1], names[1])
    write("each", OTHER, *names)
    assert len(read_rows(database, "alerts", ["page"])) == 2


def test_query_is_not_resumed_without_offsets_to_compare(checkpoint: Checkpoint, database: Sqlite) -> None:
    entry = Path(checkpoint.location) / "offsets" / "0"
    entry.write_text("v1\n{}\n7")
    SqlSink(database, "views", checkpoint.location, key=("page",))(Frame([("a", 1)], *COUNTS), 0)
    fresh = Checkpoint(Path(checkpoint.location).with_name("fresh"), OTHER)
    fresh.note(0, p0=35)
    resumed = SqlSink(database, "views", fresh.location, key=("page",), resumed=True)
    with pytest.raises(StoreError, match="the database has none"):
        resumed(Frame([("a", 2)], *COUNTS), 0)
    with pytest.raises(StoreError, match="no offsets of a Kafka source"):
        resumed.starting_offsets()


def test_unreadable_entry_fails_before_rows_are_written(checkpoint: Checkpoint, database: Sqlite) -> None:
    (Path(checkpoint.location) / "offsets" / "0").write_text("v1\n{}\nnonsense")
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))

    class Unread(Frame):
        def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[tuple[Any, ...]]:  # noqa: N803 - Spark's name
            raise AssertionError("rows were read")

    with pytest.raises(CheckpointError, match="line 3 is no offset: 'nonsense'"):
        sink(Unread([("a", 1)], *COUNTS), 0)


def test_same_topic_of_two_clusters_has_two_starting_offsets(checkpoint: Checkpoint, database: Sqlite) -> None:
    entry = Path(checkpoint.location) / "offsets" / "0"
    entry.write_text('v1\n{}\n{"in":{"0":7},"cluster.id:one":{}}\n{"in":{"0":3},"cluster.id:two":{}}')
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))
    sink(Frame([("a", 1)], *COUNTS), 0)
    assert [json.loads(sink.starting_offsets(source=each)) for each in ("0", "1")] == [
        {"in": {"0": 7}, f"resumed.from:{QUERY}:0:0": {}},
        {"in": {"0": 3}, f"resumed.from:{QUERY}:0:1": {}},
    ]
    with pytest.raises(StoreError, match=r"several sources read in; choose one .*: 0, 1"):
        sink.starting_offsets()
    with pytest.raises(StoreError, match="no offsets of a source 7"):
        sink.starting_offsets(source="7")
    moved = Checkpoint(Path(checkpoint.location).with_name("moved"), OTHER)
    (Path(moved.location) / "offsets" / "0").write_text(
        'v2\n{}\nb:{"in":{"0":2},"cluster.id:two":{}}\na:{"in":{"0":8},"cluster.id:one":{}}'
    )
    with pytest.raises(StoreError, match="before those that the database has"):
        SqlSink(database, "views", moved.location, key=("page",), resumed=True)(Frame([("a", 2)], *COUNTS), 0)


def test_starting_offsets_name_the_ids_of_topics(checkpoint: Checkpoint, database: Sqlite, tmp_path: Path) -> None:
    """A query that resumed in a topic that was created again left out the records before the former one's end."""
    (Path(checkpoint.location) / "offsets" / "0").write_text('v1\n{}\n{"in":{"0":7},"topic.id:in:former":{}}')
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))
    sink(Frame([("a", 1)], *COUNTS), 0)
    starting = json.loads(sink.starting_offsets())
    assert starting == {"in": {"0": 7}, "topic.id:in:former": {}, f"resumed.from:{QUERY}:0:*": {}}
    fresh = Checkpoint(tmp_path / "fresh", OTHER)
    mark = f'"resumed.from:{QUERY}:0:*":{{}}'
    entry = Path(fresh.location) / "offsets" / "0"
    resumed = SqlSink(database, "views", fresh.location, key=("page",), resumed=True)
    entry.write_text(f'v1\n{{}}\n{{"in":{{"0":2}},"topic.id:in:former":{{}},{mark}}}')
    with pytest.raises(StoreError, match="before those that the database has"):
        resumed(Frame([("b", 2)], *COUNTS), 0)
    entry.write_text(f'v1\n{{}}\n{{"in":{{"0":2}},"topic.id:in:present":{{}},{mark}}}')
    assert resumed(Frame([("b", 2)], *COUNTS), 0)


def test_offsets_that_an_earlier_release_wrote_are_read(checkpoint: Checkpoint, database: Sqlite) -> None:
    sink = SqlSink(database, "views", checkpoint.location, key=("page",))
    sink(Frame([("a", 1)], *COUNTS), 0)
    with contextlib.closing(database.connect()) as connection:
        connection.execute("UPDATE odradek_batches SET offsets = ?", ('{"in": {"0": 20, "1": 5}}',))
    assert json.loads(sink.starting_offsets()) == {"in": {"0": 20, "1": 5}, f"resumed.from:{QUERY}:0:*": {}}


def test_who_comes_second_with_a_batch_waits_and_writes_nothing(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A driver that was thought dead continues while its successor writes the same batch."""
    database = Sqlite(str(tmp_path / "store.db"), busy_timeout_s=30)
    ledger = Ledger(database, "q", checkpoint.location)
    inside, outcome = threading.Event(), []

    def second() -> None:
        with contextlib.closing(database.connect()) as connection:
            inside.set()
            with ledger.batch(connection, 0) as new:
                outcome.append(new)

    with contextlib.closing(database.connect()) as connection:
        ledger.create(connection)
        with ledger.batch(connection, 0) as new:
            assert new
            thread = threading.Thread(target=second)
            thread.start()
            inside.wait(30)
            assert outcome == []
        thread.join(30)
    assert outcome == [False]


def test_a_locked_database_is_waited_for(checkpoint: Checkpoint, database: Sqlite) -> None:
    blocker = database.connect()
    database.begin(blocker)
    pauses = 0

    def sleep(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            blocker.execute("COMMIT")

    def locked() -> str:
        with contextlib.closing(database.connect()) as connection:
            database.begin(connection)
            return "done"

    assert Patience(first_s=0).run(locked, away=database.is_away, sleep=sleep) == "done"
    assert pauses == 3
    blocker.close()


def test_waiting_ends_with_the_query_or_after_a_time() -> None:
    def fail() -> None:
        raise ConnectionError("away")

    def away(error: Exception) -> bool:
        return isinstance(error, ConnectionError)

    with pytest.raises(ConnectionError):
        Patience(first_s=1, give_up_s=0.5).run(fail, away=away)
    with pytest.raises(StoppedWaiting, match="away"):
        Patience().run(fail, away=away, wanted=lambda: False, sleep=lambda _: None)
    with pytest.raises(ValueError, match="not away"):
        Patient(lambda frame, batch_id: (_ for _ in ()).throw(ValueError("not away")).__next__())(Frame([]), 0)


def test_store_that_was_never_reached_is_not_waited_for_without_end(checkpoint: Checkpoint, tmp_path: Path) -> None:
    nowhere = Sqlite(str(tmp_path / "no-such-folder" / "store.db"))
    patience = Patience(first_s=0.01, most_s=0.01, first_contact_s=0.05)
    sink = SqlSink(nowhere, "views", checkpoint.location, key=("page",), patience=patience)
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sink(Frame([("a", 1)], *COUNTS), 0)


def test_store_that_was_reached_before_is_waited_for(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    patience = Patience(first_s=0.01, most_s=0.01, first_contact_s=0)
    sink = SqlSink(Sqlite(str(folder / "store.db")), "views", checkpoint.location, key=("page",), patience=patience)
    sink(Frame([("a", 1)], *COUNTS), 0)
    away = folder.rename(tmp_path / "away")
    thread = threading.Timer(0.2, lambda: away.rename(folder))
    thread.start()
    assert sink(Frame([("a", 2)], *COUNTS), 1)
    thread.join()


@pytest.mark.parametrize(
    "text",
    [
        'connection failed: FATAL:  password authentication failed for user "me"',
        'FATAL:  database "shop" does not exist',
        'FATAL:  role "me" does not exist',
        "fe_sendauth: no password supplied",
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1"',
    ],
)
def test_rejected_login_is_no_outage(text: str) -> None:
    assert not Postgres("x").is_away(psycopg.OperationalError(text))


@pytest.mark.parametrize(
    "text",
    ["connection refused", "FATAL:  the database system is starting up", "server closed the connection unexpectedly"],
)
def test_server_that_cannot_answer_is_away(text: str) -> None:
    assert Postgres("x").is_away(psycopg.OperationalError(text))


def test_pauses_double_up_to_the_most() -> None:
    pauses: list[float] = []

    def work() -> None:
        if len(pauses) < 6:
            raise ConnectionError

    Patience(first_s=1, most_s=4).run(work, away=lambda error: True, sleep=pauses.append)
    assert [
        round(pause) in (least, most)
        for pause, least, most in zip(pauses, (1, 2, 3, 3, 3, 3), (1, 2, 4, 4, 4, 4), strict=True)
    ]
    assert max(pauses) <= 4


def test_statements() -> None:
    columns = [("topic", "string"), ("offset", "bigint"), ("at", "timestamp"), ("price", "decimal(9,2)")]
    postgres = Postgres("host=nowhere")
    assert create_statement(postgres, "s.t", columns, ("topic", "offset")) == (
        'CREATE TABLE IF NOT EXISTS "s"."t" ("topic" TEXT, "offset" BIGINT, "at" TIMESTAMPTZ, "price" NUMERIC, '
        'PRIMARY KEY ("topic", "offset"))'
    )
    assert insert_statement(postgres, 't"x', ["a", "b"], ("a",)) == (
        'INSERT INTO "t""x" ("a", "b") VALUES (%s, %s) ON CONFLICT ("a") DO UPDATE SET "b" = excluded."b"'
    )
    assert insert_statement(Sqlite("x"), "t", ["a"], ("a",)).endswith('ON CONFLICT ("a") DO NOTHING')
    with pytest.raises(StoreError, match="struct"):
        create_statement(postgres, "t", [("a", "struct<b:int>")], ())
    with pytest.raises(StoreError, match="no column offset"):
        create_statement(postgres, "t", [("topic", "string")], ("topic", "offset"))


def test_values_as_the_drivers_take_them() -> None:
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    assert [Sqlite("x").value(each) for each in (at, Decimal("1.5"), 3)] == ["2026-01-02T00:00:00+00:00", "1.5", 3]
    assert Postgres("x").value(bytearray(b"a")) == b"a"
    assert Postgres("x").value(at) is at


# --- Delta ---


def test_a_delta_table_takes_each_batch_once(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    sink = DeltaSink(path, checkpoint.location, name="views")
    assert sink.recorded() is None
    rows = pa.table({"page": ["a", "b"], "views": [1, 2]})
    assert [sink.write(rows, batch_id) for batch_id in (0, 0, 1)] == [True, False, True]
    assert sink.recorded() == 1
    assert DeltaTable(path).count() == 4
    other = Checkpoint(tmp_path / "other", OTHER)
    with pytest.raises(StoreError, match="checkpoint was deleted"):
        DeltaSink(path, other.location, name="views").write(rows, 0)
    # another query may add to the same table
    assert DeltaSink(path, other.location, name="more").write(rows, 0)


def test_two_drivers_write_a_batch_of_a_delta_table_once(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that the batch is missing; the table's log lets one of them commit."""
    path = str(tmp_path / "table")
    rows = pa.table({"page": ["a"], "views": [1]})
    first, second = (DeltaSink(path, checkpoint.location, name="views") for _ in range(2))
    first.write(rows, 0)
    stale = first._table()
    assert second.write(rows, 1)
    looks = iter([stale, stale])
    monkeypatch.setattr(first, "_table", lambda: next(looks, None) or DeltaTable(path))
    assert not first.write(rows, 1)
    assert next(looks, None) is None
    assert DeltaTable(path).count() == 2
