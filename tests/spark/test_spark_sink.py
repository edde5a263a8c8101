"""Writing topics with Spark: columns, topics, partitions, refusals."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from odradek.records.murmur import partition_for_key
from tests.spark.support import Record, Topics, run_to_end

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def write(bootstrap: str) -> Callable[..., None]:
    """`write(frame, topic, **options)`."""

    def write(frame: Any, topic: str | None = None, **options: str) -> None:
        target = frame.write.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**options)
        (target if topic is None else target.option("topic", topic)).mode("append").save()

    return write


Write = Callable[..., None]


def test_rows_become_records(spark: Any, write: Write, topics: Topics) -> None:
    topic = topics.create(2)
    frame = spark.sql(
        "select * from values ('k1', 'v1', array(named_struct('key', 'h', 'value', cast('x' as binary))), 1), "
        "('k2', null, null, 0), (null, '', null, 1) as t(key, value, headers, partition)"
    )
    write(frame.coalesce(1), topic)
    found = [(r.partition, r.key, r.value, list(r.headers)) for r in topics.read(topic)]
    assert found == [
        (0, b"k2", None, []),
        (1, b"k1", b"v1", [("h", b"x")]),
        (1, None, b"", []),
    ]


def test_keys_go_where_java_producers_put_them(spark: Any, write: Write, topics: Topics) -> None:
    topic = topics.create(3)
    write(spark.range(2000).selectExpr("concat('key-', id) key", "cast(id as string) value"), topic)
    records = topics.read(topic, 3)
    assert sorted(int(r.value) for r in records) == list(range(2000))
    assert all(r.partition == partition_for_key(r.key or b"", 3) for r in records)


def test_rows_without_a_key_spread_over_partitions(spark: Any, write: Write, topics: Topics) -> None:
    topic = topics.create(2)
    write(spark.range(300_000).selectExpr("cast(id as string) value").coalesce(1), topic)
    assert min(topics.ends(topic, 2)) > 0
    assert len(topics.read(topic, committed=True)) == 300_000


def test_the_topic_column_chooses_and_the_option_overrides_it(spark: Any, write: Write, topics: Topics) -> None:
    one, two = topics.create(1), topics.create(1)
    frame = spark.createDataFrame([("a", one), ("b", two), ("c", one)], "value string, topic string")
    write(frame)
    assert sorted(r.value for r in topics.read(one, 1)) == [b"a", b"c"]
    assert [r.value for r in topics.read(two, 1)] == [b"b"]
    write(frame, two)
    assert sorted(r.value for r in topics.read(two, 1)) == [b"a", b"b", b"b", b"c"]
    with pytest.raises(PySparkException, match="null topic"):
        write(spark.createDataFrame([("a", None)], "value string, topic string"))


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ("cast(id as string) value", None, "no topic"),
        ("cast(id as string) key", "t", "column value"),
        ("id value", "t", "column value is bigint"),
        ("cast(id as string) value, id partition", "t", "column partition is bigint"),
        ("cast(id as string) value, array('h') headers", "t", "column headers"),
        ("cast(id as string) value, id topic", None, "column topic"),
    ],
)
def test_wrong_columns(spark: Any, write: Write, columns: str, topic: str | None, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.range(1).selectExpr(*columns.split(", ")), topic)


def test_wrong_modes_and_partitions(spark: Any, write: Write, topics: Topics, bootstrap: str) -> None:
    topic = topics.create(1)
    frame = spark.range(1).selectExpr("cast(id as string) value", "5 partition")
    with pytest.raises(PySparkException, match="partition"):
        write(frame, topic)
    target = frame.select("value").write.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(PySparkException, match="overwritten"):
        target.option("topic", topic).mode("overwrite").save()
    assert topics.ends(topic, 1) == [0]


def test_large_records_and_compression(spark: Any, write: Write, topics: Topics) -> None:
    topic = topics.create(1, **{"max.message.bytes": "3000000"})
    frame = spark.sql("select repeat('x', 2000000) value union all select 'small'")
    write(frame, topic, **{"kafka.compression.type": "zstd"})
    assert sorted(len(r.value) for r in topics.read(topic, 1)) == [5, 2_000_000]


def test_a_stream_from_topic_to_topic(
    spark: Any, stream: Callable[..., Any], topics: Topics, tmp_path: Path, bootstrap: str
) -> None:
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, [Record(b"%d" % n, b"%d" % (n % 7), partition=n % 2) for n in range(1000)])
    writer = (
        stream(source, includeHeaders="true", maxOffsetsPerTrigger="400")
        .select("key", "value", "headers")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("deliveryGuarantee", "at-least-once")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    run_to_end(writer.start)
    assert sorted(int(r.value) for r in topics.read(target)) == list(range(1000))


REAL_TIME = "5 seconds"


@pytest.mark.parametrize(
    ("checked", "reason"),
    [("true", "OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"), ("false", "does not support async progress tracking")],
)
def test_real_time_mode_rejects_the_sink(
    spark: Any, bootstrap: str, topics: Topics, tmp_path: Path, checked: str, reason: str
) -> None:
    """A difference that the documentation lists."""
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    writer = rows.writeStream.format("odradek").outputMode("update").option("checkpointLocation", str(tmp_path))
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topics.create(1))
    spark.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", checked)
    try:
        with pytest.raises(PySparkException, match=reason):
            writer.trigger(realTime=REAL_TIME).start()
    finally:
        spark.conf.unset("spark.sql.streaming.realTimeMode.allowlistCheck")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_continuous_trigger_commits_nothing(
    spark: Any, bootstrap: str, topics: Topics, tmp_path: Path, guarantee: str
) -> None:
    """Spark 4.3 drops the rows of Python sinks there, and asks for a commit of every epoch."""
    topic = topics.create(1)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load().selectExpr("cast(value as string) value")
    writer = rows.writeStream.format("odradek").option("checkpointLocation", str(tmp_path))
    writer = writer.option("kafka.bootstrap.servers", bootstrap).options(topic=topic, deliveryGuarantee=guarantee)
    query = writer.trigger(continuous="100 milliseconds").start()
    try:
        # Spark notes the offsets of an epoch before it asks the sink for its commit
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "offsets").glob("[0-9]*"))) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not list((tmp_path / "commits").glob("[0-9]*"))
        assert not topics.read(topic, 1)
    finally:
        query.stop()
