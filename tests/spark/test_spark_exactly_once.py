"""Exactly once: whatever breaks at whatever step of the protocol, every row is visible once, and batches only whole.

`./dev spark-faults` is the long form: every fault at every step, see matrix.py.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from bench.peers.broker import BrokerProcess
from odradek.client.blocking import Blocking
from odradek.client.reports.spark_queries import marker_group
from odradek.spark.exactly_once import write_exactly_once
from tests.spark.pipelines import WAIT_S, Job, Pipeline, run_query, start_query
from tests.spark.support import Record, Topics, run_to_end
from tests.spark.targets import NAMES

pytestmark = pytest.mark.xdist_group("spark")

Frame = Callable[..., Any]

ON_ALL_TARGETS = pytest.mark.parametrize(
    "bootstrap",
    [pytest.param(name, marks=[] if name == "odradek" else pytest.mark.long) for name in NAMES],
    indirect=True,
)
ON_OURS = pytest.mark.parametrize("bootstrap", ["odradek", "odradek-tv1"], indirect=True)


class Query:
    """A pipeline whose query runs in the shared session."""

    def __init__(self, spark: Any, pipeline: Pipeline) -> None:
        self._spark = spark
        self.pipeline = pipeline

    def start(self, frame: Any = None, **options: str) -> Any:
        return start_query(self._spark, self.pipeline, self.pipeline.topics.bootstrap, frame, options=options)

    def run(self, frame: Any = None, **options: str) -> None:
        assert self._run_to_end(frame, options) == ""

    def fail(self, message: str, frame: Any = None, **options: str) -> None:
        failed_with = self._run_to_end(frame, options)
        assert re.search(message, failed_with), failed_with

    def _run_to_end(self, frame: Any, options: dict[str, str]) -> str:
        return run_query(self._spark, self.pipeline, self.pipeline.topics.bootstrap, frame, options=options)


@pytest.fixture
def query(spark: Any, topics: Topics, tmp_path: Path) -> Query:
    return Query(spark, Pipeline(topics, tmp_path / "checkpoint"))


# --- streams ---


@ON_OURS
def test_a_stream_is_written_once_and_its_offsets_are_committed(query: Query) -> None:
    query.pipeline.fill(250)
    query.run()
    query.pipeline.check_complete()
    query.run()
    query.pipeline.check_complete()


FAULTS_OF_A_TASK = ["after-begin raise", "before-produce raise", "after-produce raise", "after-produce exit"]
FAULTS_OF_THE_COMMIT = ["before-commit raise", "after-offsets raise", "before-end exit"]
# a commit of a batch that is skipped comes by after-commit too, so that one is first
FAULTS_AFTER_THE_COMMIT = ["after-commit raise", "after-end raise", "after-end exit"]


@ON_ALL_TARGETS
@pytest.mark.timeout(900)
def test_batches_that_fail_at_any_step_are_written_once(query: Query, faults: Path) -> None:
    pipeline = query.pipeline
    pipeline.fill(450)
    committed = -1
    for fault in FAULTS_OF_A_TASK + FAULTS_OF_THE_COMMIT + FAULTS_AFTER_THE_COMMIT:
        faults.write_text(fault)
        query.fail("STREAM_FAILED")
        assert not faults.exists(), f"{fault} was not reached"
        pipeline.check()
        # Each run ends in its first batch: the same one until its transaction was committed.
        committed += fault in FAULTS_AFTER_THE_COMMIT
        assert pipeline.committed_batch() == committed, fault
    query.run()
    pipeline.check_complete()


def test_a_row_that_fails_undoes_its_batch(query: Query) -> None:
    pipeline = query.pipeline
    pipeline.fill(250)
    query.fail(
        "planted",
        frame=lambda read: read.selectExpr(
            "key", "if(string(value) = '170', cast(raise_error('planted') as binary), value) value"
        ),
    )
    pipeline.check()
    assert 170 not in pipeline.visible()
    query.run()
    pipeline.check_complete()


def test_a_deleted_checkpoint_is_noticed(query: Query, tmp_path: Path) -> None:
    query.pipeline.fill(100)
    query.run()
    query.pipeline.checkpoint.rename(tmp_path / "away")
    query.fail("checkpoint was deleted")
    assert query.pipeline.visible() == list(range(100))


@ON_ALL_TARGETS
def test_a_marker_that_expired_as_an_offset_is_still_known(query: Query, faults: Path) -> None:
    """A query that died after its commit and comes back later than offsets.retention.minutes."""
    pipeline = query.pipeline
    pipeline.fill(150)
    faults.write_text("before-commit-log raise")
    query.fail("planted")
    assert pipeline.committed_batch() == 0
    pipeline.topics.delete_group(marker_group(pipeline.transactional_id()))
    assert pipeline.committed_batch() == -1
    query.run()
    pipeline.check_complete()


def test_a_marker_topic_must_keep_its_records(query: Query) -> None:
    pipeline = query.pipeline
    pipeline.fill(50)
    query.fail("cleanup.policy=compact", markerTopic=pipeline.topics.create(16))
    assert pipeline.visible() == []
    query.run(markerTopic="")
    pipeline.check_complete()


def test_streams_need_an_identity(stream: Frame, topics: Topics, bootstrap: str) -> None:
    topic = topics.create(1)
    writer = stream(topic).writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(PySparkException, match="checkpointLocation"):
        writer.option("topic", topic).trigger(availableNow=True).start().awaitTermination(60)


def test_update_mode_through_foreach_batch(
    spark: Any, stream: Frame, topics: Topics, tmp_path: Path, bootstrap: str, faults: Path
) -> None:
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, [Record(b"%d" % n, b"k%d" % (n % 50), partition=n % 2) for n in range(500)])
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": str(tmp_path)}
    written: list[int] = []

    def write(frame: Any, batch_id: int) -> None:
        if write_exactly_once(frame, batch_id, options):
            written.append(batch_id)

    def run() -> None:
        counts = stream(source, maxOffsetsPerTrigger="200").groupBy("key").count()
        result = counts.selectExpr("key", "cast(count as string) value")
        query = result.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", str(tmp_path))
        run_to_end(query.trigger(availableNow=True).start, WAIT_S)

    faults.write_text("after-produce raise")
    # Spark reports the task that fails first: the one with the fault, or one whose lease ends with it.
    with pytest.raises(StreamingQueryException, match=r"planted|a task was lost while it wrote"):
        run()
    assert not faults.exists()
    assert topics.read(target, committed=True) == []
    run()
    states = {r.key: int(r.value) for r in topics.read(target, committed=True)}
    assert states == {b"k%d" % n: 10 for n in range(50)}
    assert written == sorted(set(written))


@ON_OURS
def test_several_outputs_of_a_batch_are_each_written_once(
    stream: Frame, topics: Topics, tmp_path: Path, bootstrap: str
) -> None:
    """The query fails between the two, and the batch is run again."""
    source, even, odd = topics.create(1), topics.create(1), topics.create(1)
    topics.fill(source, [Record(b"%d" % n, partition=0) for n in range(100)])
    failures = ["planted"]

    def write(frame: Any, batch_id: int) -> None:
        rows = frame.selectExpr("cast(value as string) value")
        options = {"kafka.bootstrap.servers": bootstrap, "checkpointLocation": str(tmp_path)}
        write_exactly_once(rows.where("value % 2 = 0"), batch_id, {**options, "topic": even})
        if failures:
            raise RuntimeError(failures.pop())
        write_exactly_once(rows.where("value % 2 = 1"), batch_id, {**options, "topic": odd})

    def run() -> None:
        query = stream(source).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        run_to_end(query.trigger(availableNow=True).start, WAIT_S)

    with pytest.raises(StreamingQueryException, match="planted"):
        run()
    run()
    for topic, first in ((even, 0), (odd, 1)):
        assert sorted(int(r.value) for r in topics.read(topic, 1, committed=True)) == list(range(first, 100, 2))


@ON_OURS
def test_second_output_of_a_batch_to_the_same_topic_is_an_error(
    stream: Frame, topics: Topics, tmp_path: Path, bootstrap: str
) -> None:
    """It was skipped as the first one, which was committed. A repeated output is still skipped: see `Patient`."""
    source, target = topics.create(1), topics.create(1)
    topics.fill(source, [Record(b"%d" % n, partition=0) for n in range(100)])
    options = {"kafka.bootstrap.servers": bootstrap, "checkpointLocation": str(tmp_path), "topic": target}
    written: list[bool] = []

    def write(frame: Any, batch_id: int) -> None:
        rows = frame.selectExpr("cast(value as string) value")
        written.append(write_exactly_once(rows.where("value % 2 = 0"), batch_id, options))
        again = frame.selectExpr("cast(value as string) value").where("value % 2 = 0")
        written.append(write_exactly_once(again, batch_id, options))
        write_exactly_once(rows.where("value % 2 = 1"), batch_id, options)

    def run() -> None:
        query = stream(source).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        run_to_end(query.trigger(availableNow=True).start, WAIT_S)

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=f"other rows of batch 0 to {target} a second time"):
            run()
    assert written == [True, False, False, False]


def test_speculation_is_rejected(spark: Any, bootstrap: str) -> None:
    class Speculating:
        schema = spark.range(1).selectExpr("string(id) value").schema

        class sparkSession:  # noqa: N801 - Spark's name
            class sparkContext:  # noqa: N801 - Spark's name
                @staticmethod
                def getConf() -> dict[str, str]:
                    return {"spark.speculation": "true"}

    options = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "transactionalId": "x"}
    with pytest.raises(ValueError, match="speculation"):
        write_exactly_once(Speculating(), 0, options)


# --- batch writes ---


@ON_ALL_TARGETS
def test_a_batch_write_is_visible_whole_or_not_at_all(spark: Any, topics: Topics, bootstrap: str, faults: Path) -> None:
    first, second = topics.create(2), topics.create(1)
    frame = spark.range(4000).selectExpr(
        "cast(id as string) key", "cast(id as string) value", f"if(id % 4 = 0, '{second}', '{first}') topic"
    )

    def write(rows: Any, **options: str) -> None:
        target = rows.repartition(4).write.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        target.options(**options).mode("append").save()

    def visible() -> list[int]:
        found = topics.read(first, 2, committed=True) + topics.read(second, 1, committed=True)
        return sorted(int(r.value) for r in found)

    for fault in ("before-produce raise", "after-produce exit", "before-commit raise", "before-end exit"):
        faults.write_text(fault)
        with pytest.raises((PySparkException, Py4JJavaError)):
            write(frame)
        assert not faults.exists(), f"{fault} was not reached"
        assert visible() == [], fault
    write(frame)
    assert visible() == list(range(4000))
    write(frame.where("id < 0"))
    write(frame.where("id < 0"), topic=first)
    faults.write_text("after-end raise")
    with pytest.raises(PySparkException, match="planted"):
        write(frame, transactionalId=f"{first}-by-name")
    assert visible() == sorted([*range(4000)] * 2), "what was committed stays, whole"


def test_a_batch_write_may_be_at_least_once(spark: Any, topics: Topics, bootstrap: str) -> None:
    topic = topics.create(1)
    frame = spark.range(10).selectExpr("cast(id as string) value").coalesce(1)
    target = frame.write.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    target.option("deliveryGuarantee", "at-least-once").mode("append").save()
    assert topics.ends(topic, 1) == [10], "no marker of a transaction"


# --- killed ---


@pytest.mark.timeout(900)
def test_a_driver_killed_between_the_commit_and_sparks_note_of_it(
    spark: Any, topics: Topics, bootstrap: str, tmp_path: Path
) -> None:
    pipeline = Pipeline(topics, tmp_path / "checkpoint")
    pipeline.fill(300)
    faults, log = tmp_path / "faults", tmp_path / "log"
    faults.write_text("after-end kill")
    Job(pipeline, bootstrap, faults).start(log).wait(WAIT_S)
    assert not faults.exists(), f"after-end was not reached\n{log.read_text()[-3000:]}"
    pipeline.check()
    assert pipeline.committed_batch() == 0
    # It continues in another driver; `./dev spark-faults driver` starts one of its own each time.
    assert run_query(spark, pipeline, bootstrap) == ""
    pipeline.check_complete()


def test_a_broker_killed_in_mid_batch(spark: Any, make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    with make_broker({"group.initial.rebalance.delay.ms": 0}) as broker, Blocking() as blocking:
        topics = Topics(broker.bootstrap, blocking)
        pipeline = Pipeline(topics, tmp_path / "checkpoint", per_batch=50)
        pipeline.fill(600)
        query = Query(spark, pipeline)
        running = query.start()
        for _ in range(3):
            before = running.lastProgress["batchId"] if running.lastProgress else -1
            # A query that has failed is seen below: awaitTermination would raise here what it failed with.
            while running.isActive and (running.lastProgress or {"batchId": -1})["batchId"] <= before:
                time.sleep(0.05)
            broker.kill()
            broker.start()
        try:
            assert running.awaitTermination(WAIT_S)
        except StreamingQueryException:
            # a commit of unknown outcome may fail the query; it must not matter
            pipeline.check()
            query.run()
        pipeline.check_complete()
