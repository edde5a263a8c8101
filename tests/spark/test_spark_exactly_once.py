"""Exactly once: whatever breaks at whatever step of the protocol, every row is visible once, and batches only whole."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from bench.peers.broker import BrokerProcess
from odradek.client.blocking import Blocking
from odradek.client.model import TopicPartition
from odradek.spark.exactly_once import write_exactly_once
from tests.spark.support import Record, Topics

pytestmark = pytest.mark.xdist_group("spark")

Frame = Callable[..., Any]
FAULTS = Path(__file__).with_name("faults")
ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 240


def rows(count: int) -> list[Record]:
    return [Record(b"%d" % n, b"k%d" % (n % 50), partition=n % 2) for n in range(count)]


class Pipeline:
    """A query from one topic to another in the shared session, and what must hold of it at any time."""

    def __init__(self, stream: Frame | None, topics: Topics, checkpoint: Path, per_batch: int = 100) -> None:
        self.topics = topics
        self.source, self.target = topics.create(2), topics.create(3)
        self.checkpoint = checkpoint
        self.per_batch = per_batch
        self._stream = stream

    def fill(self, count: int) -> None:
        self.topics.fill(self.source, rows(count))

    def start(self, frame: Any = None, **options: str) -> Any:
        assert self._stream is not None
        read = self._stream(self.source, maxOffsetsPerTrigger=str(self.per_batch)).select("value", "key")
        writer = (read if frame is None else frame(read)).writeStream.format("odradek").options(**options)
        writer = writer.option("kafka.bootstrap.servers", self.topics.bootstrap).option("topic", self.target)
        writer = writer.option("sourceGroup", f"{self.target}-lag").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def run(self, **options: Any) -> None:
        assert self.start(**options).awaitTermination(WAIT_S)

    def fail(self, message: str, **options: Any) -> None:
        with pytest.raises(StreamingQueryException, match=message):
            self.start(**options).awaitTermination(WAIT_S)

    def visible(self) -> list[int]:
        return sorted(int(r.value) for r in self.topics.read(self.target, 3, committed=True))

    def committed_batch(self) -> int:
        groups = [f"__eos-{each}" for each in self._transactional_ids()]
        found = [offset for group in groups for offset in self.topics.group_offsets(group).values()]
        return max(found, default=-1)

    def _transactional_ids(self) -> list[str]:
        from odradek.spark.options import SinkOptions
        from odradek.spark.transactions import transactional_id

        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "checkpointlocation": str(self.checkpoint)}
        return [transactional_id(SinkOptions.parse(given, streaming=True))]

    def check(self) -> None:
        """Exactly the rows of all batches up to the recorded one are visible; the lag group stands where that ends."""
        batch = self.committed_batch()
        if batch < 0:
            assert self.visible() == []
            return
        ends = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])[self.source]
        expected = sorted(2 * n + int(partition) for partition, end in ends.items() for n in range(end))
        assert self.visible() == expected
        assert self.topics.group_offsets(f"{self.target}-lag") == {
            TopicPartition(self.source, int(partition)): end for partition, end in ends.items()
        }


@pytest.fixture
def pipeline(stream: Frame, topics: Topics, tmp_path: Path) -> Pipeline:
    return Pipeline(stream, topics, tmp_path / "checkpoint")


def test_a_stream_is_written_once_and_its_offsets_are_committed(pipeline: Pipeline) -> None:
    pipeline.fill(450)
    pipeline.run()
    assert pipeline.visible() == list(range(450))
    pipeline.check()
    pipeline.fill(0)
    pipeline.run()
    assert pipeline.visible() == list(range(450))


FAULTS_OF_A_TASK = ["after-begin raise", "before-produce raise", "after-produce raise", "after-produce exit"]
FAULTS_OF_THE_COMMIT = ["before-commit raise", "after-offsets raise", "before-end exit"]
# a commit of a batch that is skipped comes by after-commit too, so that one is first
FAULTS_AFTER_THE_COMMIT = ["after-commit raise", "after-end raise", "after-end exit"]


@pytest.mark.timeout(900)
def test_batches_that_fail_at_any_step_are_written_once(pipeline: Pipeline, faults: Path) -> None:
    pipeline.fill(450)
    committed = -1
    for fault in FAULTS_OF_A_TASK + FAULTS_OF_THE_COMMIT + FAULTS_AFTER_THE_COMMIT:
        faults.write_text(fault)
        pipeline.fail("STREAM_FAILED")
        assert not faults.exists(), f"{fault} was not reached"
        pipeline.check()
        # Each run ends in its first batch: the same one until its transaction was committed.
        committed += fault in FAULTS_AFTER_THE_COMMIT
        assert pipeline.committed_batch() == committed, fault
    pipeline.run()
    assert pipeline.visible() == list(range(450))
    pipeline.check()


def test_a_row_that_fails_undoes_its_batch(pipeline: Pipeline) -> None:
    pipeline.fill(250)
    bad = "if(value = '170', raise_error('planted'), value)"
    pipeline.fail(
        "planted", frame=lambda read: read.selectExpr("key", f"{bad.replace('value =', 'string(value) =')} value")
    )
    pipeline.check()
    assert 170 not in pipeline.visible()
    pipeline.run()
    assert pipeline.visible() == list(range(250))


def test_a_deleted_checkpoint_is_noticed(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.fill(100)
    pipeline.run()
    pipeline.checkpoint.rename(tmp_path / "away")
    pipeline.fail("checkpoint was deleted")
    assert pipeline.visible() == list(range(100))


def test_update_mode_through_foreach_batch(
    spark: Any, stream: Frame, topics: Topics, tmp_path: Path, bootstrap: str, faults: Path
) -> None:
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, rows(500))
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": str(tmp_path)}
    written: list[int] = []

    def write(frame: Any, batch_id: int) -> None:
        if write_exactly_once(frame, batch_id, options):
            written.append(batch_id)

    def run() -> None:
        counts = stream(source, maxOffsetsPerTrigger="200").groupBy("key").count()
        result = counts.selectExpr("key", "cast(count as string) value")
        query = result.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", str(tmp_path))
        assert query.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    faults.write_text("after-produce raise")
    with pytest.raises(StreamingQueryException, match="planted"):
        run()
    assert not faults.exists()
    assert topics.read(target, committed=True) == []
    run()
    states = {r.key: int(r.value) for r in topics.read(target, committed=True)}
    assert states == {b"k%d" % n: 10 for n in range(50)}
    assert written == sorted(set(written))


def test_speculation_is_refused(spark: Any, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_streams_need_an_identity(stream: Frame, topics: Topics, bootstrap: str) -> None:
    topic = topics.create(1)
    writer = stream(topic).writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(PySparkException, match="checkpointLocation"):
        writer.option("topic", topic).trigger(availableNow=True).start().awaitTermination(60)


class Job:
    """The pipeline as processes of its own."""

    def __init__(self, pipeline: Pipeline, faults: Path) -> None:
        self._faults = faults
        arguments = [pipeline.topics.bootstrap, pipeline.source, pipeline.target, str(pipeline.checkpoint)]
        self._command = [sys.executable, "-m", "tests.spark.pipeline_job", *arguments, str(pipeline.per_batch)]
        path = os.pathsep.join([str(FAULTS), str(ROOT / "src"), str(ROOT)])
        self._environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "ODRADEK_TEST_FAULTS": str(faults),
            "PYTHONPYCACHEPREFIX": str(pipeline.checkpoint.with_name("pycache")),
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                self._command, env=self._environment, stdout=output, stderr=output, start_new_session=True, cwd=ROOT
            )


@pytest.mark.parametrize(
    "points",
    [
        ("after-produce", "after-end"),
        pytest.param(
            ("after-begin", "before-produce", "before-commit", "after-offsets", "before-end", "after-commit"),
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.timeout(900)
def test_a_driver_killed_at_each_step(topics: Topics, tmp_path: Path, points: tuple[str, ...]) -> None:
    pipeline = Pipeline(None, topics, tmp_path / "checkpoint")
    pipeline.fill(700)
    faults, log = tmp_path / "faults", tmp_path / "log"
    job = Job(pipeline, faults)
    for point in points:
        process = job.start(log)
        # written after the start, because it names the process group; the query needs seconds to get there
        faults.with_suffix(".new").write_text(f"{point} kill {process.pid}")
        faults.with_suffix(".new").rename(faults)
        process.wait(WAIT_S)
        assert not faults.exists(), f"{point} was not reached\n{log.read_text()[-3000:]}"
        pipeline.check()
    assert job.start(log).wait(WAIT_S) == 0, log.read_text()[-3000:]
    assert pipeline.visible() == list(range(700))
    pipeline.check()


def test_a_broker_killed_in_mid_batch(spark: Any, make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    with make_broker({"group.initial.rebalance.delay.ms": 0}) as broker, Blocking() as blocking:
        topics = Topics(broker.bootstrap, blocking)

        def stream(topic: str, **options: str) -> Any:
            source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
            return source.options(subscribe=topic, startingOffsets="earliest", **options).load()

        pipeline = Pipeline(stream, topics, tmp_path / "checkpoint", per_batch=50)
        pipeline.fill(600)
        query = pipeline.start()
        for _ in range(3):
            before = query.lastProgress["batchId"] if query.lastProgress else -1
            while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] <= before:
                query.awaitTermination(0.05)
            broker.kill()
            broker.start()
        try:
            assert query.awaitTermination(WAIT_S)
        except StreamingQueryException:
            # a commit whose outcome nobody knows may fail the query; it must not matter
            pipeline.check()
            pipeline.run()
        assert pipeline.visible() == list(range(600))
        pipeline.check()
