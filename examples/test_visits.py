"""How to test a pipeline: its functions on small tables, and the whole query on a real broker.

python -m pytest examples/test_visits.py

The fixture `kafka_broker` comes with `odradek.testing`. Spark's session is made once for all tests, because it takes
some seconds; each test has topics and a checkpoint of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import visits
from pyspark.sql import SparkSession

from odradek.spark.java import ensure_java
from odradek.testing.blocking import BlockingBroker

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small session on this machine, without jars."""
    ensure_java()
    # Spark's own processes find the data source where this Python has it
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def line(user: str, minutes: int, page: str) -> str:
    return f'192.0.2.1 - {user} [{at(minutes):%d/%b/%Y:%H:%M:%S +0000}] "GET {page} HTTP/1.1" 200 5 "-" "-"'


def values(broker: BlockingBroker, topic: str) -> list[dict[str, Any]]:
    """By user: tasks write at the same time, and only the records of one key have an order."""
    found = [json.loads(record.value or b"") for record in broker.records(topic)]
    return sorted(found, key=lambda each: str(each["user"]))


def test_visit_ends_when_its_user_is_away(spark: SparkSession) -> None:
    """A pipeline's function on a table of rows: no broker, no stream."""
    rows = [("ann", at(0), "/"), ("ann", at(20), "/a"), ("ann", at(60), "/b"), ("bob", at(30), "/c")]
    found = visits.visits(spark.createDataFrame(rows, "user string, at timestamp, page string"))
    assert sorted(map(tuple, found.select("user", "pages", "entry").collect())) == [
        ("ann", 1, "/b"), ("ann", 2, "/"), ("bob", 1, "/c"),
    ]  # fmt: skip


def test_row_between_two_visits_joins_them(spark: SparkSession) -> None:
    rows = [("ann", at(0), "/"), ("ann", at(50), "/a"), ("ann", at(25), "/b")]
    (found,) = visits.visits(spark.createDataFrame(rows, "user string, at timestamp, page string")).collect()
    assert (found.pages, found.end - found.begin) == (3, timedelta(minutes=50))


def test_each_visit_is_written_once(spark: SparkSession, kafka_broker: BlockingBroker, tmp_path: Path) -> None:
    """The query as in production, in several runs: late lines count, open visits wait, damaged lines do not count."""
    log, target = kafka_broker.topic(), kafka_broker.topic()

    def run(*lines: str) -> list[dict[str, Any]]:
        kafka_broker.produce(log, *lines)
        servers, folder = kafka_broker.bootstrap_servers, str(tmp_path)
        query = visits.start(spark, servers, folder, once=True, topics=(log, target))
        assert query.awaitTermination(120)
        return values(kafka_broker, target)

    assert run(line("ann", 0, "/"), "no log line", line("bob", 200, "/")) == []
    late = line("ann", 20, "/late")
    first = {"user": "ann", "begin": "2026-01-05T12:00:00", "end": "2026-01-05T12:20:00", "pages": 2, "entry": "/"}
    assert run(late, line("bob", 24 * 60, "/")) == [first, {**first, "user": "bob", "pages": 1,
                                                            "begin": "2026-01-05T15:20:00",
                                                            "end": "2026-01-05T15:20:00"}]  # fmt: skip
    assert len(run(line("ann", 25, "/too-late"))) == 2
