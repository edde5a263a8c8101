"""Connectors' sink and source on a real MariaDB."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from odradek.connect.databases import database_of
from odradek.connect.errors import ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.sources.source import StoredOffsets
from odradek.records.topic_partition import TopicPartition
from tests.certificates import Authority
from tests.mariadb import MariaDbServer, mariadb_server
from tests.unit.connect.test_connect_sinks import batch, record, sink_of, used
from tests.unit.connect.test_connect_sources import polled, source_of

ORDERS = TopicPartition("orders", 0)
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of the server's certificate."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[MariaDbServer]:
    """The server of this module."""
    with mariadb_server(authority.issue("/CN=db", "subjectAltName=IP:127.0.0.1")) as started:
        yield started


@pytest.fixture
def url(server: MariaDbServer) -> Iterator[str]:
    """A database without tables of the test's."""
    yield server.url
    execute(server, "DROP TABLE IF EXISTS orders, odradek_connect_positions")


def execute(server: MariaDbServer, *statements: str) -> list[Any]:
    """The rows of the last statement."""
    with closing(server.database.connect()) as connection:
        return [connection.execute(each).fetchall() for each in statements][-1]  # type: ignore[no-any-return]


def sql_sink(url: str, **more: str) -> Any:
    return sink_of("SqlSink", {"connection.url": url, "auto.create": "true", "auto.evolve": "true", **more})


def test_rows_and_positions_are_one_transaction(server: MariaDbServer, url: str) -> None:
    """New columns, deletes and a rejected row; a task that lost its partition changes nothing."""

    async def run() -> None:
        sink, other = sql_sink(url, **UPSERT), sql_sink(url, **UPSERT)
        for each in (sink, other):
            await each.open()
            await each.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1, "x": {"a": 1}}, key=1), record(1, {"n": 2, "t%": "b"}, key=2)))
        with pytest.raises(PositionMoved):
            await other.write(batch(record(0, {"n": 9, "late": 1}, key=9)))
        with pytest.raises(RecordRejected, match="rejects the row") as caught:
            await sink.write(batch(record(2, {"n": 3, "new": 1}, key=3), record(3, {"n": "text"}, key=4)))
        assert caught.value.index == 1
        await sink.write(batch(record(2, None, key=1), record(3, {"n": 3, "t%": "😀"}, key=2), record(4, {}, key=2)))
        await sink.write(batch(record(5, {"n": 5, "at": None, "ok": True}, key=5)))
        for each in (sink, other):
            await each.close()

    asyncio.run(run())
    assert execute(server, "SELECT id, n, `t%`, ok FROM orders ORDER BY id") == ((2, 3, "😀", None), (5, 5, None, 1))
    assert execute(server, "SELECT next_offset FROM odradek_connect_positions") == ((6,),)


def test_positions_do_not_move_without_the_rows_of_a_new_column(server: MariaDbServer, url: str) -> None:
    """ALTER TABLE commits; if it were in the transaction, the position would stay although the row is rejected."""
    used(sql_sink(url), batch(record(0, {"n": 1})))
    with pytest.raises(RecordRejected):
        used(sql_sink(url), batch(record(1, {"n": 2, "new": "a"}), record(2, {"n": 1 << 70, "more": 1})))
    assert execute(server, "SELECT n FROM orders") == ((1,),)
    assert execute(server, "SELECT next_offset FROM odradek_connect_positions") == ((1,),)


def test_key_differs_by_case_and_zero_is_a_key(server: MariaDbServer, url: str) -> None:
    used(sql_sink(url, **UPSERT), batch(record(0, {"n": 1}, key="a"), record(1, {"n": 2}, key="A")))
    assert execute(server, "SELECT n FROM orders ORDER BY n") == ((1,), (2,))
    execute(server, "DROP TABLE orders", "CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, n INT)")
    used(sql_sink(url, **UPSERT), batch(record(2, {"n": 1}, key=0)))
    assert execute(server, "SELECT id, n FROM orders") == ((0, 1),)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("(id INT, n INT)", "no unique key of id"),
        ("(id INT PRIMARY KEY, n INT) ENGINE=MyISAM", "MyISAM, which has no transactions"),
    ],
)
def test_table_that_cannot_keep_the_promise_fails_the_task(
    server: MariaDbServer, url: str, table: str, part: str
) -> None:
    execute(server, f"CREATE TABLE orders {table}")
    with pytest.raises(ConnectError, match=part):
        used(sql_sink(url, **UPSERT), batch(record(0, {"n": 1}, key=1)))


def test_column_that_another_task_added_is_found(server: MariaDbServer, url: str) -> None:
    """Also where it was added after this task has read the columns; one that differs by case is an error."""

    async def run() -> None:
        sink = sql_sink(url)
        await sink.open()
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1})))
        execute(server, "ALTER TABLE orders ADD COLUMN m INT")
        await sink.write(batch(record(1, {"n": 2, "m": 3})))
        with pytest.raises(ConnectError, match="but for the case"):
            await sink.write(batch(record(2, {"n": 2, "M": 3})))
        await sink.close()

    asyncio.run(run())
    assert execute(server, "SELECT n, m FROM orders ORDER BY n") == ((1, None), (2, 3))


def test_tasks_create_tables_and_columns_at_the_same_time(server: MariaDbServer, url: str) -> None:
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
        assert execute(server, "SELECT count(*), count(f3) FROM orders") == ((16, 4),)
        execute(server, "DROP TABLE orders, odradek_connect_positions")


def test_rows_are_read_once_by_time_and_number(server: MariaDbServer, url: str) -> None:
    execute(
        server,
        "CREATE TABLE orders (id int, `at%` timestamp(6), price decimal(9, 2), took time, doc json, raw blob)",
        "SET time_zone = '+00:00'",
        "INSERT INTO orders VALUES (1, '2026-01-01 00:00:00.5', 1.50, '01:00:00', '{\"c\": 1}', x'00ff')",
        "INSERT INTO orders (id, `at%`) VALUES (2, '2026-01-02'), (3, '2026-01-02'), (4, '2026-01-02')",
    )
    settings = {
        "connection.url": url, "table.whitelist": "orders", "mode": "timestamp+incrementing", "batch.max.rows": "2",
        "incrementing.column.name": "id", "timestamp.column.name": "at%",
    }  # fmt: skip
    offsets = StoredOffsets()
    found = polled(source_of("SqlSource", settings), offsets, polls=2)
    assert [each.value["id"] for each in found] == [1, 2, 3, 4]
    assert found[0].value == {
        "id": 1, "at%": "2026-01-01T00:00:00.500000", "price": "1.50", "took": "1:00:00", "doc": '{"c": 1}',
        "raw": "AP8=",
    }  # fmt: skip
    execute(server, "UPDATE orders SET `at%` = '2026-01-03' WHERE id = 2")
    assert [each.value["id"] for each in polled(source_of("SqlSource", settings), offsets, polls=2)] == [2]
    settings["timestamp.delay.interval.ms"] = "3600000"
    execute(
        server,
        "INSERT INTO orders (id, `at%`) VALUES (5, NOW(6) - INTERVAL 2 HOUR), (6, NOW(6) - INTERVAL 50 MINUTE)",
    )
    assert [each.value["id"] for each in polled(source_of("SqlSource", settings), offsets, polls=2)] == [5]


def test_server_whose_host_is_gone_is_noticed(server: MariaDbServer, url: str) -> None:
    """The kernel asks it within a minute: a statement that it has received has no limit of time."""
    with closing(database_of(url).connect()) as connection:
        connected = connection._driver._sock
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def test_server_that_is_down_is_away(server: MariaDbServer, url: str) -> None:
    async def run() -> None:
        sink = sql_sink(url)
        await sink.open()
        await sink.positions([ORDERS])
        await sink.write(batch(record(0, {"n": 1})))
        server.crash()
        try:
            for _ in range(2):
                with pytest.raises(TargetAway):
                    await sink.write(batch(record(1, {"n": 2})))
        finally:
            server.start()
        await sink.open()
        assert await sink.positions([ORDERS]) == {ORDERS: 1}
        await sink.write(batch(record(1, {"n": 2})))
        await sink.close()

    asyncio.run(run())
    assert execute(server, "SELECT n FROM orders ORDER BY n") == ((1,), (2,))


@pytest.mark.parametrize("change", [("tests", "none"), ("root@", "stranger:x@")])
def test_server_that_rejects_the_login_is_not_away(url: str, change: tuple[str, str]) -> None:
    with pytest.raises(ConnectError, match="rejects it") as caught:
        used(sql_sink(url.replace(*change)))
    assert type(caught.value) is ConnectError


def test_certificate_is_verified_with_its_host_name(url: str, authority: Authority, tmp_path: Path) -> None:
    database = database_of(f"{url}?ssl_ca={authority.file}")
    with closing(database.connect()) as connection:
        ((_, cipher),) = connection.execute("SHOW STATUS LIKE 'Ssl_cipher'").fetchall()
        assert cipher
    other = Authority(tmp_path, "another CA")
    for wrong in (f"{url}?ssl_ca={other.file}", f"{url.replace('127.0.0.1', 'localhost')}?ssl_ca={authority.file}"):
        with pytest.raises(ConnectError, match="certificate verify failed") as caught:
            used(sql_sink(wrong))
        assert type(caught.value) is ConnectError
