"""An exactly-once query from topic to topic, and what must hold of it at any time and at its end."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.client.reports.spark_queries import marker_group
from odradek.records.topic_partition import TopicPartition
from odradek.spark.interpreter import launcher
from odradek.spark.options import SinkOptions
from odradek.spark.transactions import transactional_id
from tests.spark.support import Record, Topics

FAULTS = Path(__file__).with_name("faults")
ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 240
SOURCE_PARTITIONS = 2
TARGET_PARTITIONS = 3


class Pipeline:
    """Values are numbers from 0 on; number n lies in source partition n % 2."""

    def __init__(self, topics: Topics, checkpoint: Path, per_batch: int = 100, *, in_tasks: bool = True) -> None:
        """`in_tasks`: each partition is a task, though it has little; otherwise few rows come with the plan."""
        self.topics = topics
        self.source, self.target = topics.create(SOURCE_PARTITIONS), topics.create(TARGET_PARTITIONS)
        self.checkpoint = checkpoint
        self.per_batch = per_batch
        self.source_options = {"minPartitions": str(SOURCE_PARTITIONS)} if in_tasks else {}
        self.filled = 0

    def fill(self, count: int) -> None:
        numbers = range(self.filled, self.filled + count)
        self.topics.fill(self.source, [Record(b"%d" % n, b"k%d" % (n % 50), partition=n % 2) for n in numbers])
        self.filled += count

    def visible(self) -> list[int]:
        return sorted(int(r.value) for r in self.topics.read(self.target, TARGET_PARTITIONS, committed=True))

    def transactional_id(self) -> str:
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "checkpointlocation": str(self.checkpoint)}
        return transactional_id(SinkOptions.parse(given, streaming=True))

    def committed_batch(self) -> int:
        return max(self.topics.group_offsets(marker_group(self.transactional_id())).values(), default=-1)

    def ends(self, batch: int) -> dict[int, int]:
        """Where a batch ends in the source, by partition, from Spark's note of it."""
        note = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
        return {int(partition): end for partition, end in json.loads(note)[self.source].items()}

    def check(self) -> None:
        """Exactly the rows of all batches up to the recorded one are visible, batch after batch in every partition; the
        lag group stands where that ends."""
        batch = self.committed_batch()
        if batch < 0:
            assert self.visible() == []
            return
        ends = self.ends(batch)
        expected = sorted(2 * n + partition for partition, end in ends.items() for n in range(end))
        records = self.topics.read(self.target, TARGET_PARTITIONS, committed=True)
        assert sorted(int(r.value) for r in records) == expected
        assert self.topics.group_offsets(f"{self.target}-lag") == {
            TopicPartition(self.source, partition): end for partition, end in ends.items()
        }
        borders = [self.ends(each) for each in range(batch + 1) if (self.checkpoint / "offsets" / str(each)).exists()]
        for partition in range(TARGET_PARTITIONS):
            numbers = [int(r.value) for r in records if r.partition == partition]
            batches = [_batch_of(n, borders) for n in numbers]
            assert batches == sorted(batches), f"partition {partition} has rows of batches in this order: {batches}"

    def check_complete(self) -> None:
        assert self.visible() == list(range(self.filled))
        self.check()


def _batch_of(number: int, borders: list[dict[int, int]]) -> int:
    """The first batch that ends behind the number's place in the source; Spark keeps notes of the last hundred."""
    for batch, ends in enumerate(borders):
        if number // 2 < ends[number % 2]:
            return batch
    raise AssertionError(f"{number} is in no batch")


def start_query(
    spark: Any,
    pipeline: Pipeline,
    bootstrap: str,
    frame: Any = None,
    *,
    options: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
) -> Any:
    """Start the pipeline's query on all that is there. `frame` changes the rows, `client` are kafka.* options."""
    read = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**client or {})
    read = read.options(subscribe=pipeline.source, startingOffsets="earliest", maxOffsetsPerTrigger=pipeline.per_batch)
    rows = read.options(**pipeline.source_options).load().select("value", "key")
    writer = (rows if frame is None else frame(rows)).writeStream.format("odradek").options(**client or {})
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", pipeline.target)
    writer = writer.option("sourceGroup", f"{pipeline.target}-lag").options(**options or {})
    return writer.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()


def run_query(spark: Any, pipeline: Pipeline, bootstrap: str, frame: Any = None, **arguments: Any) -> str:
    """Run it to its end; what it failed with, or nothing.

    Spark gives a Python process ten seconds to start, however busy the machine is: such failures are tried again.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(10):
        query = start_query(spark, pipeline, bootstrap, frame, **arguments)
        try:
            if not query.awaitTermination(WAIT_S):
                raise AssertionError(f"the query is not done after {WAIT_S} s: {query.status}")
            return ""
        except StreamingQueryException as error:
            message = str(error)
        finally:
            query.stop()
        if "failed to connect back" not in message:
            break
    return message


class Job:
    """The pipeline as processes of its own."""

    def __init__(self, pipeline: Pipeline, bootstrap: str, faults: Path, master: str = "local[2]") -> None:
        arguments = [bootstrap, pipeline.source, pipeline.target, str(pipeline.checkpoint), str(pipeline.per_batch)]
        options = json.dumps(pipeline.source_options)
        self._command = [sys.executable, "-m", "tests.spark.pipeline_job", *arguments, master, options]
        path = os.pathsep.join([str(FAULTS), str(ROOT / "src"), str(ROOT)])
        self._environment = {
            **os.environ,
            "PYTHONPATH": path,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "PYSPARK_PYTHON": launcher(),
            "ODRADEK_TEST_FAULTS": str(faults),
            "PYTHONPYCACHEPREFIX": str(pipeline.checkpoint.with_name("pycache")),
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                self._command, env=self._environment, stdout=output, stderr=output, start_new_session=True, cwd=ROOT
            )
