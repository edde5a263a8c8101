"""Structured Streaming's stateful operators between our source and our exactly-once sink."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from odradek.spark.exactly_once import write_exactly_once
from tests.spark.support import Record, Topics, run_to_end

pytestmark = pytest.mark.xdist_group("spark")

Frame = Callable[..., Any]
WAIT_S = 180
MINUTE_MS = 60_000
BEGIN = 600
"""The first minute of the records: not that of Unix time, where watermarks begin and rows count as late."""


def write(rows: Any, topics: Topics, target: str, checkpoint: Path) -> None:
    writer = rows.writeStream.format("odradek").option("kafka.bootstrap.servers", topics.bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(checkpoint))
    run_to_end(writer.trigger(availableNow=True).start, WAIT_S)


def at(minute: int, value: str, key: bytes = b"k", partition: int = 0) -> Record:
    return Record(value.encode(), key, partition=partition, timestamp_ms=(BEGIN + minute) * MINUTE_MS)


def test_a_join_of_two_topics_within_watermarks(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    orders, payments, target = topics.create(1), topics.create(1), topics.create(1)

    def run() -> None:
        left = stream(orders).selectExpr("cast(value as string) o", "timestamp ordered")
        right = stream(payments).selectExpr("cast(value as string) p", "timestamp paid")
        joined = left.withWatermark("ordered", "10 minutes").join(
            right.withWatermark("paid", "10 minutes"),
            f.expr("o = p AND paid >= ordered AND paid <= ordered + interval 30 minutes"),
            "leftOuter",
        )
        write(joined.selectExpr("o key", "coalesce(p, 'unpaid') value"), topics, target, tmp_path)

    topics.fill(orders, [at(0, "a"), at(1, "b"), at(2, "c")])
    topics.fill(payments, [at(5, "a"), at(50, "c")])
    run()
    # time advances in both topics, so that what was not paid in time is known to be
    topics.fill(orders, [at(200, "z")])
    topics.fill(payments, [at(200, "y")])
    run()
    found = sorted(
        (bytes(r.key or b"").decode(), bytes(r.value or b"").decode()) for r in topics.read(target, 1, committed=True)
    )
    assert found == [("a", "a"), ("b", "unpaid"), ("c", "unpaid")]


def test_late_rows_are_dropped_and_windows_written_once(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(1), topics.create(1)

    def run() -> None:
        windows = stream(source).withWatermark("timestamp", "5 minutes").groupBy(f.window("timestamp", "10 minutes"))
        counts = windows.count().selectExpr("cast(unix_timestamp(window.start) / 60 as int) start", "count")
        write(counts.selectExpr("to_json(struct(*)) value"), topics, target, tmp_path)

    topics.fill(source, [at(1, "x"), at(9, "x"), at(12, "x"), at(31, "x")])
    run()
    topics.fill(source, [at(3, "too late"), at(33, "x"), at(60, "x")])
    run()
    rows = [json.loads(bytes(r.value)) for r in topics.read(target, 1, committed=True)]
    assert sorted((row["start"] - BEGIN, row["count"]) for row in rows) == [(0, 2), (10, 1), (30, 2)]


def test_apply_in_pandas_with_state_in_update_mode(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

    source, target = topics.create(2), topics.create(1)

    def total(key: tuple[str], frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        import pandas as pd

        (before,) = state.getOption or (0,)
        after = before + sum(int(frame["amount"].sum()) for frame in frames)
        state.update((after,))
        yield pd.DataFrame({"key": [key[0]], "value": [str(after)]})

    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target, "checkpointLocation": str(tmp_path)}

    def run() -> None:
        rows = stream(source).selectExpr("cast(key as string) key", "cast(cast(value as string) as bigint) amount")
        totals = rows.groupBy("key").applyInPandasWithState(
            total, "key string, value string", "total bigint", "update", GroupStateTimeout.NoTimeout
        )
        query = totals.writeStream.outputMode("update").foreachBatch(
            lambda frame, batch_id: write_exactly_once(frame, batch_id, options)
        )
        query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        run_to_end(query.start, WAIT_S)

    for _ in range(2):
        topics.fill(source, [Record(b"%d" % n, b"ab"[n % 2 : n % 2 + 1], partition=n % 2) for n in range(10)])
        run()
    found = [(bytes(r.key or b""), int(r.value or b"")) for r in topics.read(target, 1, committed=True)]
    assert sorted(found) == [(b"a", 20), (b"a", 40), (b"b", 25), (b"b", 50)]


@pytest.mark.long  # RocksDB's libraries take long to load
def test_transform_with_state(spark: Any, stream: Frame, topics: Topics, tmp_path: Path) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    source, target = topics.create(2), topics.create(1)

    class Visits(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._seen = handle.getValueState("seen", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N803
            before = self._seen.get()[0] if self._seen.exists() else 0
            after = before + sum(1 for _ in rows)
            self._seen.update((after,))
            yield Row(key=key[0], value=str(after))

        def close(self) -> None:
            pass

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    try:
        for _ in range(2):
            topics.fill(source, [Record(b"x", b"ab"[n % 2 : n % 2 + 1], partition=n % 2) for n in range(10)])
            rows = stream(source).selectExpr("cast(key as string) key")
            visits = rows.groupBy("key").transformWithState(Visits(), "key string, value string", "Append", "None")
            write(visits, topics, target, tmp_path)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    found = [(bytes(r.key or b""), int(r.value or b"")) for r in topics.read(target, 1, committed=True)]
    assert sorted(found) == [(b"a", 5), (b"a", 10), (b"b", 5), (b"b", 10)]
