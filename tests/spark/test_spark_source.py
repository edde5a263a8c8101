"""Reading topics with Spark: the contract of Spark's own Kafka source, word for word where a program can see it."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from odradek.records.topic_partition import TopicPartition
from tests.spark.support import Record, Topics, run_to_end

pytestmark = pytest.mark.xdist_group("spark")

Frame = Callable[..., Any]


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Record]:
    return [
        Record(b"%d" % n, b"k%d" % n, partition=partition, timestamp_ms=1000 * (n + 1)) for n in range(first, count)
    ]


def run_stream(frame: Any, checkpoint: Path, name: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Everything available now, as rows, and the progress of the micro-batches that had any."""
    rows: list[Any] = []
    writer = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .queryName(name)
        .trigger(availableNow=True)
    )
    query = run_to_end(writer.start)
    return rows, [each for each in query.recentProgress if each["numInputRows"]]


def test_the_schema_is_that_of_sparks_kafka_source(reader: Frame, topics: Topics) -> None:
    topic = topics.create(1)
    base = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    )
    assert reader(topic).schema.simpleString() == f"{base}>"
    headers = ",headers:array<struct<key:string,value:binary>>>"
    assert reader(topic, includeHeaders="true").schema.simpleString() == base + headers


def test_rows_hold_all_fields_of_records(reader: Frame, topics: Topics) -> None:
    topic = topics.create(2)
    headers = (("a", b"1"), ("a", None), ("ü", b""))
    topics.fill(
        topic,
        [
            Record(b"v", b"k", headers, timestamp_ms=1_577_934_245_678),
            Record(None, b"tombstone", partition=1),
            Record(b"", None, partition=1),
        ],
    )
    rows = reader(topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(bytes(r.key) if r.key is not None else None, r.value) for r in rows] == [
        (b"k", b"v"),
        (b"tombstone", None),
        (None, b""),
    ]
    assert [(r.topic, r.partition, r.offset, r.timestampType) for r in rows] == [
        (topic, 0, 0, 0),
        (topic, 1, 0, 0),
        (topic, 1, 1, 0),
    ]
    text = reader(topic).selectExpr("cast(timestamp as string) t").first()[0]
    assert text == "2020-01-02 03:04:05.678"
    assert [(h.key, h.value) for h in rows[0].headers] == [("a", b"1"), ("a", None), ("ü", b"")]
    assert [r.headers for r in rows[1:]] == [None, None]


def test_log_append_time_has_its_type(reader: Frame, topics: Topics) -> None:
    topic = topics.create(1, **{"message.timestamp.type": "LogAppendTime"})
    topics.fill(topic, numbered(3))
    rows = reader(topic).collect()
    assert {row.timestampType for row in rows} == {1}
    assert all(
        row.timestamp > datetime(2020, 1, 1)  # noqa: DTZ001 - Spark gives naive ones
        for row in rows
    )


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(reader: Frame, topics: Topics, compression: str) -> None:
    topic = topics.create(1, **{"compression.type": compression})
    topics.fill(topic, numbered(500))
    assert sorted(int(bytes(row.value)) for row in reader(topic).collect()) == list(range(500))


def test_batch_offsets(reader: Frame, topics: Topics) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(10) + numbered(10, 1))
    some = reader(
        topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 5, "1": -1}}),
    )
    rows = sorted((r.partition, r.offset) for r in some.collect())
    assert rows == [(0, 3), (0, 4), *((1, n) for n in range(10))]
    with pytest.raises(PySparkException, match="every partition"):
        reader(topic, startingOffsets=json.dumps({topic: {"0": 3}})).collect()


def test_batch_timestamps(reader: Frame, topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(10))  # at 1000, 2000, ... 10000 ms

    def offsets(**options: str) -> list[int]:
        return sorted(row.offset for row in reader(topic, **options).collect())

    assert offsets(startingTimestamp="8001") == [8, 9]
    assert offsets(startingTimestamp="3000", endingTimestamp="5000") == [2, 3]
    assert offsets(startingOffsetsByTimestamp=json.dumps({topic: {"0": 9500}}), endingTimestamp="99999") == [9]
    assert offsets(startingTimestamp="99999", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(PySparkException, match="no record at or after timestamp 99999"):
        offsets(startingTimestamp="99999")


def test_patterns_and_assignments(reader: Frame, topics: Topics) -> None:
    base = topics.create(2)
    other = topics.create(1, name=f"{base}-other")
    topics.fill(base, numbered(2) + numbered(3, 1))
    topics.fill(other, numbered(4))
    # as Spark's own source: found anywhere in a name
    assert reader(subscribePattern=base).count() == 9
    assert reader(subscribePattern=f"{base[1:]}$").count() == 5
    assert reader(subscribe=f"{base},{other}").count() == 9
    assert reader(assign=json.dumps({base: [1], other: [0]})).count() == 7


def test_large_ranges_are_split(reader: Frame, topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(100))
    split = reader(topic, minPartitions="4")
    assert split.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in split.collect()) == list(range(100))
    assert reader(topic, maxRecordsPerPartition="30").rdd.getNumPartitions() == 4


def test_missing_records_fail_or_are_skipped(reader: Frame, topics: Topics) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(3) + numbered(3, 1))
    # as after the topic was recreated: the second partition is shorter than what was asked for
    given = {
        "startingOffsets": json.dumps({topic: {"0": 1, "1": 5}}),
        "endingOffsets": json.dumps({topic: {"0": 3, "1": 9}}),
    }
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        reader(topic, **given).collect()
    lenient = reader(topic, **given, failOnDataLoss="false").collect()
    assert [(row.partition, row.offset) for row in lenient] == [(0, 1), (0, 2)]


def test_wrong_options_are_clear_errors(reader: Frame) -> None:
    with pytest.raises(PySparkException, match=r"kafka\.auto\.offset\.reset is not supported"):
        reader("t", **{"kafka.auto.offset.reset": "earliest"}).collect()


def test_a_stream_reads_on_from_its_checkpoint(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(10) + numbered(5, 1))
    rows, _ = run_stream(stream(topic), tmp_path, "first")
    assert len(rows) == 15
    written = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[2])
    assert {name: offsets for name, offsets in written.items() if offsets} == {topic: {"0": 10, "1": 5}}
    topics.fill(topic, numbered(12, first=10))
    rows, progress = run_stream(stream(topic), tmp_path, "second")
    assert [row.offset for row in rows] == [10, 11]
    assert json.loads(progress[0]["sources"][0]["latestOffset"])[topic] == {"0": 12, "1": 5}


def test_a_limit_makes_small_batches(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(30) + numbered(10, 1))
    rows, progress = run_stream(stream(topic, maxOffsetsPerTrigger="20"), tmp_path, "limited")
    assert [each["numInputRows"] for each in progress] == [20, 20]
    assert sorted((r.partition, r.offset) for r in rows) == [
        (p, n) for p, count in ((0, 30), (1, 10)) for n in range(count)
    ]


def test_new_partitions_are_read_from_their_beginning(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(3))
    run_stream(stream(topic), tmp_path, "small")
    topics.grow(topic, 3)
    topics.fill(topic, numbered(4, 2))
    rows, _ = run_stream(stream(topic), tmp_path, "grown")
    assert [(r.partition, r.offset) for r in rows] == [(2, n) for n in range(4)]


def test_recreated_topic_fails_a_stream(stream: Frame, topics: Topics, tmp_path: Path) -> None:
    """Also when it has more records than before, of which Spark's own source reads only the later ones."""
    topic = topics.create(1)
    topics.fill(topic, numbered(5))
    run_stream(stream(topic), tmp_path, "before")
    topics.delete(topic)
    topics.create(1, name=topic)
    topics.fill(topic, numbered(7))
    with pytest.raises(StreamingQueryException, match=f"topic {topic} was deleted and created again"):
        run_stream(stream(topic), tmp_path, "strict")
    rows, _ = run_stream(stream(topic, failOnDataLoss="false"), tmp_path, "lenient")
    assert [row.offset for row in rows] == list(range(7))


def test_finished_batches_can_be_committed_to_a_group(
    spark: Any, stream: Frame, topics: Topics, tmp_path: Path, bootstrap: str
) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(30))
    group = f"{topic}-group"
    options = {"commitOffsets": "true", "kafka.group.id": group, "maxOffsetsPerTrigger": "10"}
    run_stream(stream(topic, **options), tmp_path, "committing")
    # Spark notifies a source that a batch is over when it plans the next one
    assert topics.group_offsets(group) == {TopicPartition(topic, 0): 20}


@pytest.mark.parametrize(
    ("trigger", "reason"),
    [
        ({"continuous": "1 second"}, "odradek does not support continuous processing"),
        ({"realTime": "5 seconds"}, r"STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"),
    ],
    ids=["continuous", "real time"],
)
def test_triggers_without_batches_are_errors(
    stream: Frame, topics: Topics, tmp_path: Path, trigger: dict[str, str], reason: str
) -> None:
    """Differences that the documentation lists."""
    writer = stream(topics.create(1)).writeStream.format("console").option("checkpointLocation", str(tmp_path))
    mode = "update" if "realTime" in trigger else "append"
    with pytest.raises(PySparkException, match=reason):
        run_to_end(writer.outputMode(mode).trigger(**trigger).start)
