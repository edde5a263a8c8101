"""Connectors' sink and source on a real PostgreSQL: the server that the tests of this folder share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from odradek.connect.errors import ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.sources.source import StoredOffsets
from odradek.records.topic_partition import TopicPartition
from odradek.spark.stores.databases import Postgres
from tests.spark.postgres import PostgresServer
from tests.unit.connect.test_connect_sinks import batch, record, sink_of
from tests.unit.connect.test_connect_sources import polled, source_of

pytestmark = pytest.mark.xdist_group("spark")

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """A database without tables of the test's."""
    yield postgres.database.conninfo
    drop_tables(postgres.database.conninfo)


def drop_tables(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders, odradek_connect_positions")


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]


def sql_sink(url: str, **more: str) -> Any:
    return sink_of("SqlSink", {"connection.url": url, "auto.create": "true", "auto.evolve": "true", **more})


def test_rows_and_positions_are_one_transaction(url: str) -> None:
    """New columns, deletes and a rejected row; a task that lost its partition changes nothing."""
    settings = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}

    async def run() -> None:
        sink, other = sql_sink(url, **settings), sql_sink(url, **settings)
        for each in (sink, other):
            await each.open()
            await each.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1, "x": {"a": 1}}, key=1), record(1, {"n": 2, "t%": "b"}, key=2)))
        with pytest.raises(PositionMoved):
            await other.write(batch(record(0, {"n": 9}, key=9)))
        with pytest.raises(RecordRejected, match="rejects the row") as caught:
            await sink.write(batch(record(2, {"n": 3}, key=3), record(3, {"n": "text"}, key=4)))
        assert caught.value.index == 1
        await sink.write(batch(record(2, None, key=1), record(4, {"n": 5, "at": None, "ok": True}, key=5)))
        for each in (sink, other):
            await each.close()

    asyncio.run(run())
    assert rows(url, 'SELECT id, n, "t%", ok FROM orders ORDER BY id') == [(2, 2, "b", None), (5, 5, None, True)]
    assert rows(url, "SELECT next_offset FROM odradek_connect_positions") == [(5,)]


def test_tasks_create_tables_and_columns_at_the_same_time(url: str) -> None:
    async def run() -> None:
        sinks = [sql_sink(url) for _ in range(4)]
        await asyncio.gather(*(each.open() for each in sinks))
        places = [TopicPartition("orders", number) for number in range(4)]
        for offset in range(4):
            values = {f"f{number}": 1 for number in range(offset + 1)}
            for sink, place in zip(sinks, places, strict=True):
                await sink.positions([place])
            records = [record(offset, values)._replace(origin=place) for place in places]
            await asyncio.gather(*(sink.write(batch(each)) for sink, each in zip(sinks, records, strict=True)))
        for each in sinks:
            await each.close()

    for _ in range(3):
        asyncio.run(run())
        assert rows(url, "SELECT count(*), count(f3) FROM orders") == [(16, 4)]
        drop_tables(url)


def test_rows_are_read_once_by_time_and_number(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            'CREATE TABLE orders (id int, "at%" timestamptz, price numeric(9, 2), tags text[], doc jsonb)'
        )
        connection.execute("INSERT INTO orders VALUES (1, '2026-01-01Z', 1.50, '{a,b}', '{\"c\": 1}')")
        connection.execute("INSERT INTO orders SELECT n, '2026-01-02Z' FROM generate_series(2, 4) n")
    settings = {
        "connection.url": url, "table.whitelist": "orders", "mode": "timestamp+incrementing", "batch.max.rows": "2",
        "incrementing.column.name": "id", "timestamp.column.name": "at%",
    }  # fmt: skip
    offsets = StoredOffsets()
    found = polled(source_of("SqlSource", settings), offsets, polls=2)
    assert [each.value["id"] for each in found] == [1, 2, 3, 4]
    first = {name: value for name, value in found[0].value.items() if name != "at%"}
    assert first == {"id": 1, "price": "1.50", "tags": ["a", "b"], "doc": {"c": 1}}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE orders SET \"at%\" = '2026-01-03Z' WHERE id = 2")
    assert [each.value["id"] for each in polled(source_of("SqlSource", settings), offsets, polls=2)] == [2]
    settings["timestamp.delay.interval.ms"] = "3600000"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO orders (id, \"at%\") VALUES (5, now() - interval '2 h'), (6, now() - interval '50 min')"
        )
    assert [each.value["id"] for each in polled(source_of("SqlSource", settings), offsets, polls=2)] == [5]


@pytest.mark.parametrize(("given", "idle"), [({}, "30"), ({"keepalives_idle": 7}, "7")])
def test_server_whose_host_is_gone_is_noticed(url: str, given: dict[str, int], idle: str) -> None:
    """The kernel asks it within a minute: a statement that it has received has no limit of time."""
    with Postgres(psycopg.conninfo.make_conninfo(url, **given)).connect() as connection:
        parameters = connection.info.get_parameters()
    assert (parameters["keepalives_idle"], parameters["tcp_user_timeout"]) == (idle, "60000")


def test_standby_is_away(url: str) -> None:
    """The former leader rejects writes after a failover, and not their rows."""
    database = Postgres(psycopg.conninfo.make_conninfo(url, options="-c default_transaction_read_only=on"))
    with pytest.raises(psycopg.Error) as caught, database.connect() as connection:
        connection.execute("CREATE TABLE orders (n int)")
    assert database.is_away(caught.value)


def test_missing_right_is_no_reason_to_reject_records(url: str) -> None:
    async def run() -> None:
        sink = sql_sink(url)
        await sink.open()
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1})))
        connection = sink._connection
        await sink._thread.run(lambda: connection.execute("ALTER TABLE orders RENAME n TO m"))
        try:
            await sink.write(batch(record(1, {"n": 2})))
        finally:
            await sink.close()

    with pytest.raises(ConnectError, match='column "n"') as caught:
        asyncio.run(run())
    assert not isinstance(caught.value, RecordRejected)


def test_server_that_is_down_is_away(postgres: PostgresServer, url: str) -> None:
    async def run() -> None:
        sink = sql_sink(url)
        await sink.open()
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1})))
        postgres.crash()
        try:
            with pytest.raises(TargetAway):
                await sink.write(batch(record(1, {"n": 2})))
        finally:
            postgres.start()
        await sink.open()
        assert await sink.positions([ORDERS]) == {ORDERS: 1}
        await sink.write(batch(record(1, {"n": 2})))
        await sink.close()

    asyncio.run(run())
    assert rows(url, "SELECT n FROM orders ORDER BY n") == [(1,), (2,)]
