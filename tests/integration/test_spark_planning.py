"""What the Spark source plans on the driver, against a broker and without a Java: topics, ranges, recreated topics."""

import io
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bench.peers.broker import BrokerProcess
from odradek.client.blocking import Blocking
from odradek.records.topic_partition import TopicPartition
from odradek.spark import few_rows, source
from odradek.spark.data_source import OdradekDataSource
from odradek.spark.offsets import OffsetRange, SourceError, from_json, origin_of
from odradek.spark.options import SourceOptions
from odradek.spark.source import SMALL, BatchReader, RangePartition, StreamReader
from odradek.wire.errors import ErrorCode, KafkaError

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.serializers import CPickleSerializer, read_int, write_with_length
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.python_streaming_source_runner import (
    EMPTY_PYARROW_RECORD_BATCHES,
    PREFETCHED_RECORDS_NOT_FOUND,
    partitions_func,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from tests.spark.support import Record, Topics

Positions = dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def topics(odradek_broker: BrokerProcess) -> Iterator[Topics]:
    with Blocking() as blocking:
        yield Topics(odradek_broker.bootstrap, blocking)


def options(topics: Topics, **given: str) -> SourceOptions:
    return parsed(topics, given, streaming=False)


def parsed(topics: Topics, given: dict[str, str], *, streaming: bool) -> SourceOptions:
    servers = {"kafka.bootstrap.servers": topics.bootstrap}
    return SourceOptions.parse({**servers, **{name.lower(): text for name, text in given.items()}}, streaming=streaming)


def ranges(topics: Topics, **given: str) -> list[tuple[int, int, int]]:
    planned = BatchReader(options(topics, **given)).partitions()
    found = [each for task in planned if isinstance(task, RangePartition) for each in task.ranges]
    return sorted((each.partition, each.start, each.end) for each in found)


def stream(topics: Topics, topic: str, **given: str) -> StreamReader:
    return StreamReader(parsed(topics, {"subscribe": topic, "startingOffsets": "earliest", **given}, streaming=True))


def planned(reader: StreamReader, start: Positions, end: Positions) -> list[tuple[int, int, int]]:
    tasks = reader.partitions(start, end)
    found = [each for task in tasks if isinstance(task, RangePartition) for each in task.ranges]
    return sorted((each.partition, each.start, each.end) for each in found)


def recreate(topics: Topics, topic: str, records: int) -> None:
    topics.delete(topic)
    topics.create(1, name=topic)
    topics.fill(topic, [Record(b"new")] * records)


def test_pattern_is_found_anywhere_in_topic_names(topics: Topics) -> None:
    part = uuid.uuid4().hex[:12]
    for name in (f"a-{part}-b", f"{part}.c"):
        topics.fill(topics.create(1, name=name), [Record(b"v")] * 2)
    assert ranges(topics, subscribePattern=part) == [(0, 0, 2), (0, 0, 2)]
    assert ranges(topics, subscribePattern=f"^{part}") == [(0, 0, 2)]
    assert ranges(topics, subscribePattern=f"{part}-none") == []


def test_missing_topic_is_an_error(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.spark.topics._MISSING_S", 0.1)
    there = topics.create(1)
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    with pytest.raises(SourceError, match=f"topic {missing} does not exist"):
        ranges(topics, subscribe=f"{there},{missing}", failOnDataLoss="false")
    with pytest.raises(SourceError, match=f"topic {missing} does not exist"):
        ranges(topics, assign=json.dumps({missing: [0]}))
    with pytest.raises(SourceError, match=f"topic {missing} does not exist"):
        stream(topics, missing).initialOffset()


def test_end_beyond_the_log_reads_what_there_is_when_loss_is_allowed(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"v")] * 5)
    ends = json.dumps({topic: {"0": 9}})
    assert ranges(topics, subscribe=topic, endingOffsets=ends, failOnDataLoss="false") == [(0, 0, 5)]
    with pytest.raises(SourceError, match="beyond the end of the log, 5"):
        ranges(topics, subscribe=topic, endingOffsets=ends)
    with pytest.raises(SourceError, match="start offset 7 is greater than the end offset 5"):
        ranges(topics, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 7}}), failOnDataLoss="false")


def test_recreated_topic_with_more_records_is_noticed(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"old")] * 3)
    before = stream(topics, topic)
    start = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    assert from_json(start) == {TopicPartition(topic, 0): 3}
    recreate(topics, topic, 5)
    strict = stream(topics, topic)
    end = strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(SourceError, match=f"topic {topic} was deleted and created again"):
        strict.partitions(start, end)


def test_starting_offsets_of_a_recreated_topic_are_noticed(topics: Topics) -> None:
    """`SqlSink.starting_offsets` gives the ids of topics, too: the new topic's first records were left out."""
    topic = topics.create(1)
    topics.fill(topic, [Record(b"old")] * 3)
    before = stream(topics, topic)
    given = json.dumps(before.latestOffset(before.initialOffset(), ReadAllAvailable()))
    assert from_json(stream(topics, topic, startingOffsets=given).initialOffset()) == {TopicPartition(topic, 0): 3}
    recreate(topics, topic, 5)
    with pytest.raises(SourceError, match=f"a topic {topic} that was deleted and created again"):
        stream(topics, topic, startingOffsets=given).initialOffset()
    lenient = stream(topics, topic, startingOffsets=given, failOnDataLoss="false")
    assert from_json(lenient.initialOffset()) == {TopicPartition(topic, 0): 0}


def test_recreated_topic_is_read_from_its_beginning_when_loss_is_allowed(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"old")] * 3)
    reader = stream(topics, topic, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    recreate(topics, topic, 5)
    end = reader.latestOffset(start, ReadMaxRows(4))
    assert planned(reader, start, end) == [(0, 0, 4)]
    last = reader.latestOffset(end, ReadAllAvailable())
    assert planned(reader, end, last) == [(0, 4, 5)]


def test_batch_planned_before_a_topic_was_recreated_reads_nothing_of_it(topics: Topics) -> None:
    """Spark runs the last batch of its log again after a restart, whatever happened to the topic meanwhile."""
    topic = topics.create(1)
    first = stream(topics, topic)
    start = first.initialOffset()
    topics.fill(topic, [Record(b"old")] * 3)
    end = first.latestOffset(start, ReadAllAvailable())
    recreate(topics, topic, 5)
    with pytest.raises(SourceError, match="was deleted and created again"):
        stream(topics, topic).partitions(start, end)
    lenient = stream(topics, topic, failOnDataLoss="false")
    assert planned(lenient, start, end) == []
    following = lenient.latestOffset(end, ReadAllAvailable())
    assert planned(lenient, end, following) == [(0, 0, 5)]


def test_offsets_of_another_cluster_are_noticed(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"v")] * 3)
    start = {topic: {"0": 1}, "cluster.id:elsewhere": {}, f"topic.id:{topic}:AAAA": {}}
    strict = stream(topics, topic)
    end = strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(SourceError, match="those of cluster elsewhere, not of"):
        strict.partitions(start, end)
    assert planned(stream(topics, topic, failOnDataLoss="false"), start, end) == [(0, 1, 3)]


def test_checkpoint_of_sparks_own_connector_is_continued(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"v")] * 3)
    reader = stream(topics, topic)
    end = reader.latestOffset({topic: {"0": 1}}, ReadAllAvailable())
    assert origin_of(end).topic_ids.keys() == {topic}
    assert planned(reader, {topic: {"0": 1}}, end) == [(0, 1, 3)]


def test_task_does_not_read_a_topic_that_was_created_again(topics: Topics) -> None:
    from odradek.spark.reading import read_ranges

    topic = topics.create(1)
    topics.fill(topic, [Record(b"old")] * 3)
    given = options(topics, subscribe=topic)
    (task,) = BatchReader(given).partitions()
    assert isinstance(task, RangePartition)
    (wanted,) = task.ranges
    assert sum(each.num_rows for each in read_ranges(given, [wanted])) == 3
    recreate(topics, topic, 5)
    with pytest.raises(SourceError, match="failOnDataLoss=false skips them"):
        list(read_ranges(given, [wanted]))
    lenient = options(topics, subscribe=topic, failOnDataLoss="false")
    assert list(read_ranges(lenient, [wanted])) == []


def test_ranges_of_a_task_come_in_order_and_the_next_are_asked_for_early(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odradek.client.model import RawFetch
    from odradek.spark import reading

    asked: list[int] = []
    original = reading._Reading.fetch

    async def fetch(self: reading._Reading, position: int) -> RawFetch:
        asked.append(self.wanted.partition)
        return await original(self, position)

    monkeypatch.setattr(reading._Reading, "fetch", fetch)
    topic = topics.create(6)
    topics.fill(topic, [Record(b"v", partition=each) for each in range(6)] * 2)
    given = options(topics, subscribe=topic)
    (task,) = BatchReader(given).partitions()
    assert isinstance(task, RangePartition)
    whole = list(reading.read_ranges(given, task.ranges))
    assert [each.column("partition").to_pylist() for each in whole] == [[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]]
    monkeypatch.setattr(reading, "_TOGETHER_BYTES", 1)
    asked.clear()
    rows = reading.read_ranges(given, task.ranges)
    assert next(rows).column("partition").to_pylist() == [0, 0]
    assert asked == [0, 1, 2, 3]
    rows.close()  # type: ignore[attr-defined]
    asked.clear()
    found = [each.column("partition").to_pylist() for each in reading.read_ranges(given, task.ranges)]
    assert found == [[each, each] for each in range(6)]
    assert asked == [0, 1, 2, 3, 4, 5]


SPARK_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def planned_with_rows(reader: StreamReader, start: Positions, end: Positions) -> tuple[int, list[bytes] | None]:
    """How many tasks PySpark's process beside the driver plans, and the values that it hands over with them."""
    asked, answered = io.BytesIO(), io.BytesIO()
    for each in (start, end):
        write_with_length(json.dumps(each).encode(), asked)
    asked.seek(0)
    partitions_func(reader, OdradekDataSource({}), SPARK_SCHEMA, 1000, asked, answered)
    answered.seek(0)
    tasks = read_int(answered)
    for _ in range(tasks):
        assert isinstance(CPickleSerializer()._read_with_length(answered), RangePartition)
    kind = read_int(answered)
    if kind == PREFETCHED_RECORDS_NOT_FOUND:
        return tasks, None
    if kind == EMPTY_PYARROW_RECORD_BATCHES:
        return tasks, []
    read_int(answered)  # Arrow begins
    return tasks, pa.ipc.open_stream(answered).read_all().column("value").to_pylist()


def test_few_rows_of_a_micro_batch_come_with_its_plan(topics: Topics) -> None:
    topic = topics.create(3)
    topics.fill(topic, [Record(str(each).encode(), partition=each % 3) for each in range(9)])
    reader = stream(topics, topic)
    start, end = {topic: {"0": 1, "1": 0, "2": 3}}, reader.latestOffset({}, ReadAllAvailable())
    assert planned_with_rows(reader, start, end) == (1, [b"3", b"6", b"1", b"4", b"7"])
    assert type(reader) is StreamReader
    assert reader.reportLatestOffset() == end
    assert planned_with_rows(reader, start, end) == (1, [b"3", b"6", b"1", b"4", b"7"])


def test_many_or_large_rows_are_left_to_tasks(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"v")] * SMALL)
    reader = stream(topics, topic)
    end = reader.latestOffset({}, ReadAllAvailable())
    assert planned_with_rows(reader, {topic: {"0": 0}}, end) == (1, None)
    assert planned_with_rows(reader, {topic: {"0": 1}}, end) == (1, [b"v"] * (SMALL - 1))
    assert planned_with_rows(stream(topics, topic, minPartitions="2"), {topic: {"0": 1}}, end) == (2, None)
    monkeypatch.setattr(few_rows, "FEW_BYTES", 10)
    assert planned_with_rows(reader, {topic: {"0": 1}}, end) == (1, None)
    assert type(reader) is StreamReader


def test_rows_that_cannot_be_read_beside_the_driver_are_left_to_a_task(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark repeats a task, but not the plan."""
    topic = topics.create(1)
    topics.fill(topic, [Record(b"v")])
    reader = stream(topics, topic)
    end = reader.latestOffset({}, ReadAllAvailable())

    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")

    monkeypatch.setattr(source, "read_few", fail)
    assert planned_with_rows(reader, {topic: {"0": 0}}, end) == (1, None)


def test_partition_without_new_records_is_not_asked_for_any(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch at the end of a log waits half a second for a record, and the micro-batch with it."""
    topic = topics.create(2)
    topics.fill(topic, [Record(b"v", partition=each) for each in range(2)])
    reader = stream(topics, topic)
    end = reader.latestOffset({}, ReadAllAvailable())
    asked: list[int] = []

    def read_few(_: object, ranges: Sequence[OffsetRange]) -> list[Any]:
        asked.extend(each.partition for each in ranges)
        return []

    monkeypatch.setattr(source, "read_few", read_few)
    reader.partitions({topic: {"0": 1, "1": 0}}, end)
    assert asked == [1]


def test_micro_batch_of_aborted_records_has_no_rows(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create(1)
    topics.fill(topic, [Record(b"v")])
    reader = stream(topics, topic)
    end = reader.latestOffset({}, ReadAllAvailable())
    monkeypatch.setattr(source, "read_few", lambda *_: [])
    assert planned_with_rows(reader, {topic: {"0": 0}}, end) == (1, [])
