"""Micro-batches into other stores, by real Spark: databases that die, batches that run again, records that fail."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from odradek.spark import datasets, dead_letters
from odradek.spark.dead_letters import attempt, routed
from odradek.spark.formats.avro import from_avro, to_avro
from odradek.spark.formats.framing import FixedSchemas
from odradek.spark.formats.protobuf import from_protobuf, to_protobuf
from odradek.spark.stores.databases import Sqlite
from odradek.spark.stores.delta import DeltaSink
from odradek.spark.stores.patience import Patience
from odradek.spark.stores.sql import SqlSink, UpsertSink, read_rows
from tests.spark.postgres import PostgresServer
from tests.spark.support import Record, Topics, named_offsets, run_to_end

pytestmark = pytest.mark.xdist_group("spark")

Frame = Callable[..., Any]
WAIT_S = 120
QUICK = Patience(first_s=0.05, most_s=0.2)


def numbers(count: int) -> list[Record]:
    return [Record(b"%d" % n, b"k%d" % (n % 7), partition=n % 2) for n in range(count)]


@pytest.mark.parametrize("failures", [[2], pytest.param([0, 1, 2], marks=pytest.mark.long)])
def test_each_store_has_each_batch_once_though_batches_run_again(
    stream: Frame, topics: Topics, postgres: PostgresServer, tmp_path: Path, failures: list[int]
) -> None:
    """The query fails behind the commit of these sinks in turn; the sinks up to there get a batch that they have."""
    source, checkpoint, table = topics.create(2), str(tmp_path / "checkpoint"), f"t{tmp_path.name}".replace("-", "_")
    topics.fill(source, numbers(400))
    sqlite = Sqlite(str(tmp_path / "store.db"))
    sinks: list[Callable[[Any, int], Any]] = [
        SqlSink(postgres.database, table, checkpoint, key=(), patience=QUICK),
        UpsertSink(sqlite, "records", patience=QUICK),
        DeltaSink(str(tmp_path / "delta"), checkpoint, name="copy"),
    ]
    left = list(failures)

    def write(frame: Any, batch_id: int) -> None:
        for number, sink in enumerate(sinks):
            sink(frame, batch_id)
            if left and left[0] == number and batch_id == len(failures) - len(left):
                raise RuntimeError(f"planted behind sink {left.pop(0)}")

    def run() -> str:
        """The query's id."""
        rows = stream(source, maxOffsetsPerTrigger="150").selectExpr(
            "cast(value as string) value", "topic", "partition", "offset", "timestamp"
        )
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        return str(run_to_end(query.trigger(availableNow=True).start, WAIT_S).id)

    for _ in failures:
        with pytest.raises(StreamingQueryException, match="planted"):
            run()
    written = [datasets.table(postgres.database, table), datasets.table(sqlite, "records")]
    assert datasets.WRITTEN.of(run()) == [*written, datasets.path(str(tmp_path / "delta"))]
    expected = sorted((str(n), n % 2, n // 2) for n in range(400))
    assert sorted(read_rows(postgres.database, table, ["value", "partition", "offset"])) == expected
    assert sorted(read_rows(sqlite, "records", ["value", "partition", "offset"])) == expected
    found = DeltaTable(tmp_path / "delta").to_pyarrow_table(columns=["value", "partition", "offset"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == expected
    assert named_offsets(sinks[0].starting_offsets()) == {source: {"0": 200, "1": 200}}  # type: ignore[attr-defined]


@pytest.mark.long
def test_a_query_pauses_while_its_database_is_away(
    stream: Frame, topics: Topics, postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, checkpoint, table = topics.create(2), str(tmp_path / "checkpoint"), f"p{tmp_path.name}".replace("-", "_")
    topics.fill(source, numbers(100))
    counts = stream(source).selectExpr("cast(key as string) name").groupBy("name").count()
    sink = SqlSink(postgres.database, table, checkpoint, key=("name",), patience=QUICK)

    def start() -> Any:
        writer = counts.writeStream.outputMode("update").foreachBatch(sink)
        return writer.option("checkpointLocation", checkpoint).start()

    def wait_until_away(query: Any) -> None:
        caplog.clear()
        while "the store is away" not in caplog.text:
            assert not query.awaitTermination(0.05)

    postgres.crash()
    query = start()
    wait_until_away(query)
    postgres.start()
    query.processAllAvailable()
    assert sum(count for (count,) in read_rows(postgres.database, table, ["count"])) == 100
    # asked to stop while it waits, it does, and the batch is written by the next run
    postgres.crash()
    topics.fill(source, numbers(70))
    wait_until_away(query)
    query.stop()
    assert not query.isActive
    postgres.start()
    query = start()
    query.processAllAvailable()
    query.stop()
    expected = sorted((f"k{k}", sum(n % 7 == k for n in range(100)) + 10) for k in range(7))
    assert sorted(read_rows(postgres.database, table, ["name", "count"])) == expected


def test_records_that_fail_go_to_the_dead_letters_in_the_same_transaction(
    stream: Frame, topics: Topics, tmp_path: Path
) -> None:
    source, good, dead = topics.create(2), topics.create(1), topics.create(1)
    records = [Record(b"%d" % n, b"k", (("own", b"h"),), n % 2) for n in range(20)]
    records[7] = Record(b"seven", b"k", (("own", b"h"),), 1)
    topics.fill(source, [*records, Record(b"skip", partition=0)])

    def halve(row: dict[str, Any]) -> dict[str, Any] | None:
        return None if row["value"] == b"skip" else {"half": int(row["value"]) / 2}

    attempted = attempt(stream(source, includeHeaders="true"), halve, "half double")
    rows = routed(attempted, topic=good, dead_letters=dead, value=f.col("result.half").cast("string"))
    writer = rows.writeStream.format("odradek").option("kafka.bootstrap.servers", topics.bootstrap)
    run_to_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start, WAIT_S)
    values = sorted(float(record.value) for record in topics.read(good, 1, committed=True))
    assert values == [n / 2 for n in range(20) if n != 7]
    (letter,) = topics.read(dead, 1, committed=True)
    headers = {name: bytes(value or b"").decode() for name, value in letter.headers}
    assert (bytes(letter.value or b""), bytes(letter.key or b""), headers["own"]) == (b"seven", b"k", "h")
    place = [headers[name] for name in (dead_letters.TOPIC, dead_letters.PARTITION, dead_letters.OFFSET)]
    assert place == [source, "1", "3"]
    assert (headers[dead_letters.CLASS], headers[dead_letters.TIMESTAMP]) == ("ValueError", "1000")
    assert "invalid literal" in headers[dead_letters.MESSAGE]
    assert "in halve" in headers[dead_letters.STACK]


def test_avro_values_of_two_schemas_by_their_ids(spark: Any, reader: Frame, topics: Topics) -> None:
    old = '{"type": "record", "name": "E", "fields": [{"name": "id", "type": "long"}]}'
    new = (
        '{"type": "record", "name": "E", "fields": [{"name": "id", "type": "long"}, '
        '{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0}]}'
    )
    topic = topics.create(1)
    for schema, schema_id, rows in (
        (old, 1, spark.range(3).selectExpr("struct(id) event")),
        (new, 2, spark.range(3, 5).selectExpr("struct(id, timestamp_seconds(id) at) event")),
    ):
        values = rows.select(to_avro("event", schema, schema_id=schema_id).alias("value"))
        values.write.format("odradek").options(**{"kafka.bootstrap.servers": topics.bootstrap}).option(
            "topic", topic
        ).mode("append").save()
    schemas = FixedSchemas({1: old, 2: new})
    decoded = reader(topic).select(from_avro("value", new, schemas=schemas).alias("e"))
    found = decoded.selectExpr("e.id", "unix_seconds(e.at) seconds").collect()
    assert sorted((row.id, row.seconds) for row in found) == [(0, 0), (1, 0), (2, 0), (3, 3), (4, 4)]


def test_protobuf_columns_come_back(spark: Any) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="tags", number=2, type=9, label=3)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    rows = spark.range(3).select(f.struct("id", f.array(f.col("id").cast("string")).alias("tags")).alias("order"))
    values = rows.select(to_protobuf("order", "shop.Order", descriptors, schema_id=7).alias("value"))
    read = values.select(from_protobuf("value", "shop.Order", descriptors, confluent=True).alias("o")).select("o.*")
    assert sorted((row.id, row.tags) for row in read.collect()) == [(0, ["0"]), (1, ["1"]), (2, ["2"])]


def test_sink_reads_a_checkpoint_that_only_hadoop_can_read(
    spark: Any, stream: Frame, topics: Topics, tmp_path: Path
) -> None:
    """Hadoop's viewfs stands for a remote file system: Python cannot open what it names."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.remote.link./state", f"file://{tmp_path}")
    checkpoint = "viewfs://remote/state/cp"
    topic = topics.create(1)
    topics.fill(topic, [Record(b"%d" % n) for n in range(5)])
    sink = SqlSink(Sqlite(str(tmp_path / "store.db")), "records", checkpoint)
    frame = stream(topic).selectExpr("topic", "partition", "offset")
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    run_to_end(writer.trigger(availableNow=True).start)
    assert named_offsets(sink.starting_offsets()) == {topic: {"0": 5}}
