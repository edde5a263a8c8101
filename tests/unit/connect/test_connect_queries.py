"""Queries in Spark SQL as connectors, without Spark: their settings, and the task that runs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.errors import ConfigInvalid, ConnectError, TargetAway
from odradek.connect.plugins import check_config, find, spark_options
from odradek.connect.queries.query_task import QueryTask
from odradek.connect.queries.shared_session import SharedSession


def checked(**settings: str) -> Mapping[str, Any]:
    """The values of a query's settings, where dots are underscores. Raises ConfigInvalid."""
    plugin = find("SparkSql")
    assert plugin is not None
    config = {"name": "c", "connector.class": "SparkSql", "topics": "orders", "sql": "SELECT 1"}
    given = {name.replace("_", "."): text for name, text in settings.items()}
    return check_config(plugin, {**config, "checkpoint.location": "/state", **given}).valid()


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({}, "either topic or table.path"),
        ({"topic": "out", "table_path": "/t"}, "either topic or table.path"),
        ({"topic": "orders"}, "the connector reads this topic"),
        ({"topics": "", "topics_regex": "o.*", "topic": "out"}, "the connector reads this topic"),
        ({"table_path": "/t", "key_column": "id"}, "key.column has no effect on a table"),
        ({"table_path": "/t", "output_mode": "update"}, "a Delta table takes append only"),
        ({"topic": "out", "storage_X": "1"}, "no effect without table.path"),
        ({"topic": "out", "table_name": "t"}, "table.name has no effect without connection.url"),
        ({"topic": "out", "connection_url": "sqlite:///a.db"}, "either topic or table.path or connection.url"),
        ({"connection_url": "sqlite:///a.db"}, "table.name is missing"),
        ({"connection_url": "mysql://a/b", "table_name": "t"}, "let SqlSink copy a topic to MySQL"),
        ({"connection_url": "oracle://a/b", "table_name": "t"}, "connection.url: "),
        ({"connection_url": "sqlite:///a.db", "table_name": "t", "output_mode": "update"}, "pk.fields: needed with"),
        ({"topic": "out", "errors_deadletterqueue_topic_name": "bad"}, "no effect without errors.tolerance=all"),
        (
            {
                "table_path": "/t",
                "errors_tolerance": "all",
                "value_columns": "n INT",
                "errors_deadletterqueue_topic_name": "bad",
            },
            "only with a topic and output.mode=append",
        ),
        ({"topic": "out", "errors_tolerance": "all"}, "no effect without value.columns"),
        ({"topic": "out", "value_converter": "json"}, "value.converter is not a setting"),
        ({"topic": "out", "transforms": "x"}, "transforms is not a setting"),
    ],
)
def test_query_names_the_setting_that_is_wrong(settings: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigInvalid, match=part):
        checked(**settings)


def test_query_begins_with_the_earliest_records() -> None:
    values = checked(topic="out", tasks_max="4")
    assert (values["starting.offsets"], values["output.mode"]) == ("earliest", "append")


def test_options_of_clients_have_the_names_of_spark() -> None:
    made = spark_options({"bootstrap_servers": "a:1", "enable_x": True, "client_rack": None})
    assert made == {"kafka.bootstrap.servers": "a:1", "kafka.enable.x": "true"}


class Query:
    """A streaming query that ends as it is made to."""

    def __init__(self, ends: Callable[[], bool], batch: int) -> None:
        self.awaitTermination = lambda _seconds: ends()
        self.lastProgress = {"batchId": batch} if batch >= 0 else None
        self.isActive = False
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Sessions:
    async def get(self) -> None:
        return None


def run_task(start: Callable[[Any], Any], retry_s: float = 0.0, stopping: asyncio.Event | None = None) -> None:
    policy = ErrorPolicy(False, retry_s, 0.01, logs_records=False, dead_letters="", describes_failures=False)
    task = QueryTask("c-0", cast(SharedSession, Sessions()), start, policy)
    asyncio.run(task.run(stopping or asyncio.Event()))


def test_query_that_ends_by_itself_is_started_again() -> None:
    made: list[Query] = []

    def start(_session: Any) -> Query:
        if len(made) == 3:
            raise ValueError("enough")
        made.append(Query(lambda: True, -1))
        return made[-1]

    with pytest.raises(ConnectError, match="enough"):
        run_task(start, retry_s=60)
    assert [each.stopped for each in made] == [True, True, True]


@pytest.mark.parametrize(("batch", "starts"), [(-1, 1), (0, 3)])
def test_query_without_time_to_try_again_fails_unless_it_has_progressed(batch: int, starts: int) -> None:
    made: list[Query] = []

    def start(_session: Any) -> Query:
        made.append(Query(lambda: True, batch if len(made) < 2 else -1))
        # what a query shows before its first batch
        made[-1].lastProgress, later = None, made[-1].lastProgress

        def end() -> bool:
            made[-1].lastProgress = later
            return True

        made[-1].awaitTermination = lambda _seconds: end()
        return made[-1]

    with pytest.raises(TargetAway, match="stopped by something else"):
        run_task(start, retry_s=0.02)
    assert len(made) >= starts


def test_query_is_started_again_after_the_jvm_has_ended() -> None:
    """Neither the query nor its end can be asked for anything then."""
    made: list[Query] = []
    stopping = asyncio.Event()

    def fail() -> bool:
        raise ConnectionRefusedError(111, "Connection refused")

    def ends() -> bool:
        stopping.set()
        return False

    def start(_session: Any) -> Query:
        if made:
            made.append(Query(ends, 3))
        else:
            made.append(Query(fail, 2))
            made[0].stop = fail  # type: ignore[method-assign, assignment]
        return made[-1]

    run_task(start, retry_s=60, stopping=stopping)
    assert [each.stopped for each in made] == [False, True]


def test_query_that_spark_rejects_fails_its_task_at_once() -> None:
    def start(_session: Any) -> Query:
        raise ValueError("no such option\nand more")

    with pytest.raises(ConnectError, match=r"rejects the query: ValueError: no such option$"):
        run_task(start, retry_s=60)


def test_query_is_stopped_with_its_task() -> None:
    stopping = asyncio.Event()

    def ends() -> bool:
        stopping.set()
        return False

    query = Query(ends, 3)
    run_task(lambda _session: query, stopping=stopping)
    assert query.stopped


def test_query_that_starts_while_its_task_is_cancelled_is_stopped() -> None:
    """A stop interrupts a task after a while; Spark may take longer to start the query."""
    query = Query(lambda: False, -1)
    begun, released = threading.Event(), threading.Event()

    def start(_session: Any) -> Query:
        begun.set()
        assert released.wait(60)
        return query

    async def run() -> None:
        policy = ErrorPolicy(False, 0.0, 0.01, logs_records=False, dead_letters="", describes_failures=False)
        task = asyncio.create_task(
            QueryTask("c-0", cast(SharedSession, Sessions()), start, policy).run(asyncio.Event())
        )
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert query.stopped
