"""Offset logs that a real Spark writes, in both versions, and what the sinks read from them.

`unit/spark/test_spark_offset_log.py` parses copies of these files, kept in `unit/spark/offset_logs`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from bench.peers.broker import BrokerProcess
from odradek.client.blocking import Blocking
from odradek.records.topic_partition import TopicPartition
from odradek.spark.checkpoint_files import LocalFiles
from odradek.spark.checkpoints import source_ends
from odradek.spark.stores.databases import Sqlite, StoreError
from odradek.spark.stores.sql import SqlSink, read_rows
from tests.spark.pipelines import Pipeline, run_query
from tests.spark.support import Record, Topics, named_offsets, run_to_end

pytestmark = pytest.mark.xdist_group("spark")

Frame = Callable[..., Any]
VERSION = "spark.sql.streaming.offsetLog.formatVersion"
NAMED = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


@pytest.fixture(params=["1", "2"])
def version(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """The version of the offset logs that queries of the test begin."""
    spark.conf.set(VERSION, request.param)
    yield request.param
    spark.conf.unset(VERSION)


def entry(checkpoint: Path, batch: int = 0) -> list[str]:
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()


def numbers(first: int, last: int) -> list[Record]:
    return [Record(b"%d" % n) for n in range(first, last)]


def test_group_follows_a_log_of_either_version(version: str, spark: Any, topics: Topics, tmp_path: Path) -> None:
    pipeline = Pipeline(topics, tmp_path / "checkpoint")
    pipeline.fill(250)
    assert run_query(spark, pipeline, topics.bootstrap) == ""
    written = entry(pipeline.checkpoint)
    assert written[0] == f"v{version}"
    assert written[2].startswith({"1": "{", "2": "0:{"}[version]), written
    assert pipeline.visible() == list(range(250))
    group = topics.group_offsets(f"{pipeline.target}-lag")
    assert group == {TopicPartition(pipeline.source, each): 125 for each in range(2)}


def test_lost_checkpoint_with_a_log_of_either_version_writes_no_row_twice(
    version: str, stream: Frame, topics: Topics, tmp_path: Path
) -> None:
    topic, database = topics.create(1), Sqlite(str(tmp_path / "store.db"))

    def run(name: str) -> SqlSink:
        checkpoint = tmp_path / name
        sink = SqlSink(database, "records", str(checkpoint), key=(), resumed=True)
        frame = stream(topic, startingOffsets=sink.starting_offsets()).selectExpr("offset")
        run_to_end(
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start
        )
        assert entry(checkpoint)[0] == f"v{version}"
        return sink

    topics.fill(topic, numbers(0, 20))
    assert named_offsets(run("first").starting_offsets()) == {topic: {"0": 20}}
    topics.fill(topic, numbers(20, 30))
    assert named_offsets(run("second").starting_offsets()) == {topic: {"0": 30}}
    assert sorted(read_rows(database, "records", ["offset"])) == [(n,) for n in range(30)]


def test_resumed_query_that_begins_elsewhere_writes_no_row(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    """Without `starting_offsets` the first batch had the rows of before, and ended where the database was."""
    topic, database = topics.create(1), Sqlite(str(tmp_path / "store.db"))
    topics.fill(topic, numbers(0, 20))

    def run(name: str, starting: str) -> None:
        sink = SqlSink(database, "records", str(tmp_path / name), key=(), resumed=True)
        writer = stream(topic, startingOffsets=starting).selectExpr("offset").writeStream.foreachBatch(sink)
        run_to_end(writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start)

    run("first", "earliest")
    with pytest.raises(StreamingQueryException, match="did not begin where the database is"):
        run("second", "earliest")
    assert sorted(read_rows(database, "records", ["offset"])) == [(n,) for n in range(20)]


@pytest.mark.parametrize("version", ["2"], indirect=True)
def test_names_of_sources_are_in_the_log(
    version: str, spark: Any, topics: Topics, bootstrap: str, tmp_path: Path
) -> None:
    """Spark has names of sources with its setting for changed queries only."""
    spark.conf.set(NAMED, "true")
    try:
        first, second = topics.create(1), topics.create(1)
        topics.fill(first, numbers(0, 3))
        topics.fill(second, numbers(0, 5))

        def source(name: str, topic: str) -> Any:
            read = spark.readStream.format("odradek").name(name).option("kafka.bootstrap.servers", bootstrap)
            return read.options(subscribe=topic, startingOffsets="earliest").load().selectExpr("topic", "offset")

        sink = SqlSink(Sqlite(str(tmp_path / "store.db")), "records", str(tmp_path / "checkpoint"), key=())
        rows = source("views", first).union(source("orders", second))
        writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_to_end(writer.trigger(availableNow=True).start)
    finally:
        spark.conf.unset(NAMED)
    assert named_offsets(sink.starting_offsets(source="orders")) == {second: {"0": 5}}
    assert named_offsets(sink.starting_offsets(source="views")) == {first: {"0": 3}}


@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.long), "2"], indirect=True)
def test_topics_of_one_name_on_two_clusters_stay_apart(
    version: str, spark: Any, make_broker: Callable[..., BrokerProcess], topics: Topics, tmp_path: Path
) -> None:
    """One query reads both, and writes to the first: its group gets the offsets of the first cluster only."""
    name, target = topics.create(1), topics.create(1)
    topics.fill(name, numbers(0, 3))
    checkpoint = tmp_path / "checkpoint"
    with make_broker({}) as other, Blocking() as blocking:
        there = Topics(other.bootstrap, blocking)
        there.create(1, name)
        there.fill(name, numbers(100, 105))

        def rows(*starting: str) -> Any:
            made = []
            for servers, begin in zip((topics.bootstrap, there.bootstrap), starting, strict=True):
                read = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
                made.append(read.options(subscribe=name, startingOffsets=begin).load().selectExpr("value", "offset"))
            return made[0].union(made[1])

        def run(frame: Any) -> None:
            writer = frame.select("value").writeStream.format("odradek").option("topic", target)
            writer = writer.options(**{"kafka.bootstrap.servers": topics.bootstrap, "sourceGroup": f"{name}-lag"})
            run_to_end(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start)

        run(rows("earliest", "earliest"))
        assert topics.group_offsets(f"{name}-lag") == {TopicPartition(name, 0): 3}
        there.fill(name, numbers(105, 107))
        run(rows("earliest", "earliest"))
        found = sorted(int(each.value or b"") for each in topics.read(target, 1, committed=True))
        assert found == [0, 1, 2, *range(100, 107)]
        assert topics.group_offsets(f"{name}-lag") == {TopicPartition(name, 0): 3}
        ends = source_ends(LocalFiles(str(checkpoint)), 1)
        assert sorted((each.source, *each.offsets.values()) for each in ends) == [("0", 3), ("1", 7)]
        assert len({each.cluster for each in ends}) == 2
        _check_store(rows, topics, there, name, tmp_path)


def _check_store(rows: Callable[..., Any], topics: Topics, there: Topics, name: str, tmp_path: Path) -> None:
    """A database continues both sources where each was, after the checkpoint is lost."""
    database = Sqlite(str(tmp_path / "store.db"))

    def run(folder: str, *starting: str) -> SqlSink:
        sink = SqlSink(database, "records", str(tmp_path / folder), key=(), resumed=True)
        frame = rows(*starting).selectExpr("cast(value as string) value", "offset")
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / folder))
        run_to_end(writer.trigger(availableNow=True).start)
        return sink

    sink = run("first", "earliest", "earliest")
    with pytest.raises(StoreError, match=f"several sources read {name}"):
        sink.starting_offsets()
    starting = [sink.starting_offsets(source=each) for each in ("0", "1")]
    assert [named_offsets(each) for each in starting] == [{name: {"0": 3}}, {name: {"0": 7}}]
    topics.fill(name, numbers(3, 5))
    there.fill(name, numbers(107, 108))
    run("second", *starting)
    found = sorted(int(value) for (value,) in read_rows(database, "records", ["value"]))
    assert found == [*range(5), *range(100, 108)]
