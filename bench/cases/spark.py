"""Spark on local[2]: our data source beside the official connector, on the same broker and the same topics.

Rows are a decimal key and a value of 100 bytes in 4 partitions. Ours writes exactly once, the official one at least
once, which is all it can. Each job runs three times, the connectors in turn, and the best time counts; reads go to
Spark's noop sink. The official connector's jars come from Maven Central.

    read        a topic to noop
    write       rows to a topic
    stream      topic to topic, availableNow with 1,000,000 rows per trigger
    feed        Spark's own rate-micro-batch source to a topic: streaming writes alone
    wide        the first three with values of 1,000 bytes in 64 partitions
    trigger     the median time of micro-batches of a few rows, topic to topic
    batches     1,000 micro-batches of a few rows, topic to topic: the time from start to end, and how much longer the
                last tenth of them takes than the first (medians)
    workers     memory of Spark's Python processes after 10 and after 100 micro-batches (on Odradek alone: it is that of
                our source and sink, the official ones have none)

Spark hands rows to Python in Arrow batches of 65,536 (spark.sql.execution.arrow.maxRecordsPerBatch), as docs/SPARK.md
advises for small rows; the official connector has no Python in its way. Rows per second of a stream are those of the
whole query, from start() until it has ended, for both. The session is set up as `odradek pipeline run` does it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.cases import topics
from bench.servers import Running, processes
from odradek.spark.session import prepare_environment, settings_for

MASTER = "local[2]"
ROWS = 2_000_000
REPEATS = 3
PARTITIONS = 4
WIDE_ROWS = 400_000
WIDE_PARTITIONS = 64
ROWS_PER_TRIGGER = 1_000_000
BATCHES = 1_000
TINY_TRIGGERS = 25
FEED_TRIGGERS = 4
MEMORY_TRIGGERS = (10, 100)
MEMORY_ROWS_PER_TRIGGER = 5_000
WAIT_S = 600
CONNECTOR = Path(__file__).resolve().parents[1] / "peers" / "spark_connector.py"
SMALL_ROWS = ("cast(cast(id as string) as binary) key", "cast('x' as binary) value")
FORMATS = {"odradek": "odradek", "official": "kafka"}


def session() -> Any:
    from pyspark.sql import SparkSession

    prepare_environment(MASTER)
    jars = subprocess.check_output([sys.executable, str(CONNECTOR), "jars"], text=True).strip()
    settings = {
        "spark.jars": jars,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    builder = SparkSession.builder.master(MASTER).appName("bench")
    for name, value in settings_for(MASTER, settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # Queries are stopped in the middle of a micro-batch here, which Spark logs as errors; real ones are raised.
    spark.sparkContext.setLogLevel("OFF")
    return spark


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


class Shape(NamedTuple):
    """What a topic holds."""

    rows: int
    value_bytes: int
    partitions: int
    rows_per_trigger: int
    """Of a stream that reads it."""


def checked_count(frame: Any, shape: Shape) -> None:
    rows = shape.rows
    found = frame.selectExpr("count(*)", "sum(length(value))", "sum(cast(cast(key as string) as long))").first()
    if tuple(found) != (rows, shape.value_bytes * rows, rows * (rows - 1) // 2):
        raise RuntimeError(f"the topic does not hold what was written: {tuple(found)} for {rows} rows")


class Jobs:
    """What is measured, by either connector."""

    def __init__(self, spark: Any, bootstrap: str, shape: Shape) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self.shape = shape
        self._made = spark.range(shape.rows).selectExpr(
            "cast(cast(id as string) as binary) key", f"cast(repeat('x', {shape.value_bytes}) as binary) value"
        )
        self.topics: list[str] = []

    def fresh_topic(self) -> str:
        self.topics.append(topics.create(self._bootstrap, self.shape.partitions))
        return self.topics[-1]

    def _connect(self, face: Any, name: str) -> Any:
        return face.format(FORMATS[name]).option("kafka.bootstrap.servers", self._bootstrap)

    def frame(self, name: str, topic: str) -> Any:
        return self._connect(self._spark.read, name).options(subscribe=topic, startingOffsets="earliest").load()

    def write(self, name: str, rows: Any = None) -> str:
        topic = self.fresh_topic()
        frame = self._made if rows is None else rows
        self._connect(frame.write, name).option("topic", topic).mode("append").save()
        return topic

    def read(self, name: str, topic: str) -> None:
        self.frame(name, topic).write.format("noop").mode("overwrite").save()

    @contextmanager
    def query(self, name: str, rows: Any, topic: str, **trigger: Any) -> Iterator[Any]:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as checkpoint:
            writer = self._connect(rows.writeStream, name).options(topic=topic, checkpointLocation=checkpoint)
            query = writer.trigger(**trigger).start()
            try:
                yield query
            finally:
                query.stop()

    def stream(self, name: str, source: str, rows_per_trigger: int | None = None) -> list[dict[str, Any]]:
        """Topic to topic; the progress of each micro-batch."""
        rows_per_trigger = rows_per_trigger or self.shape.rows_per_trigger
        read = self._connect(self._spark.readStream, name).options(subscribe=source, startingOffsets="earliest")
        rows = read.option("maxOffsetsPerTrigger", rows_per_trigger).load().select("key", "value")
        with self.query(name, rows, self.fresh_topic(), availableNow=True) as query:
            if not query.awaitTermination(WAIT_S):
                raise RuntimeError(f"the stream did not end: {query.status}")
            return [each for each in query.recentProgress if each["numInputRows"]]

    def feed(self, name: str) -> float:
        """Rows per second of streaming writes, the first micro-batch apart."""
        per_batch = max(100, self.shape.rows // (FEED_TRIGGERS + 1))
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).load()
        rows = source.selectExpr("cast(cast(value as string) as binary) key", "cast(repeat('x', 100) as binary) value")
        with self.query(name, rows, self.fresh_topic(), processingTime="0 seconds") as query:
            done = _progress_of(query, FEED_TRIGGERS + 1)[1 : FEED_TRIGGERS + 1]
        spent_ms: float = sum(each["durationMs"]["triggerExecution"] for each in done)
        return 1000.0 * FEED_TRIGGERS * per_batch / spent_ms

    def workers_mb(self, name: str, source: str) -> tuple[float, float]:
        """Memory of Spark's Python processes, early and late in a query."""
        read = self._connect(self._spark.readStream, name).options(subscribe=source, startingOffsets="earliest")
        rows = read.option("maxOffsetsPerTrigger", MEMORY_ROWS_PER_TRIGGER).load().select("key", "value")
        found = []
        with self.query(name, rows, self.fresh_topic(), processingTime="0 seconds") as query:
            for batches in MEMORY_TRIGGERS:
                _progress_of(query, batches)
                found.append(_workers_mb())
        early, late = found
        # Spark ends Python processes that were unused for a minute; that is no merit of this query.
        both = early.keys() & late.keys()
        return sum(early[pid] for pid in both), sum(late[pid] for pid in both)


def _progress_of(query: Any, batches: int) -> list[dict[str, Any]]:
    """The progress of a running query's micro-batches, once there are so many."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        done = [each for each in query.recentProgress if each["numInputRows"]]
        if len(done) >= batches:
            return done
        if query.awaitTermination(0.02):
            break
    raise RuntimeError(f"the query did not get to {batches} micro-batches: {query.status}")


def _workers_mb() -> dict[int, float]:
    """Resident memory of this process's Python descendants in MB, which are Spark's workers, by process id."""
    found = {}
    for pid in processes(os.getpid())[1:]:
        try:
            if "python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode():
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                found[pid] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        except OSError:
            continue  # ended meanwhile
    return found


def run(broker: Running, scale: float) -> dict[str, float]:
    rows, wide_rows = (max(1000, int(each * scale)) for each in (ROWS, WIDE_ROWS))
    spark = session()
    jobs = Jobs(spark, broker.bootstrap, Shape(rows, 100, PARTITIONS, ROWS_PER_TRIGGER))
    wide = Jobs(spark, broker.bootstrap, Shape(wide_rows, 1_000, WIDE_PARTITIONS, wide_rows // 2))
    try:
        best = _rates(jobs, "spark")
        for name in FORMATS:
            best[f"spark feed, {name}"] = jobs.feed(name)
        best |= _tiny_batches(jobs, spark)
        best |= _many_batches(jobs, spark, max(20, int(BATCHES * scale)))
        best |= _rates(wide, "spark wide")
        if broker.name == "odradek":
            best |= _memory(jobs, spark)
    finally:
        spark.stop()
        for topic in (*jobs.topics, *wide.topics):
            topics.delete(broker.bootstrap, topic)
    best["spark feed, ratio"] = best["spark feed, odradek"] / best["spark feed, official"]
    return best


def _rates(jobs: Jobs, label: str) -> dict[str, float]:
    """Rows per second of writes, reads and streams, and their ratios."""
    best: dict[str, float] = {}
    rows = jobs.shape.rows
    for _ in range(REPEATS):
        for name in FORMATS:
            _note_best(best, f"{label} write, {name}", rows / seconds(partial(jobs.write, name)))
    source = jobs.topics[0]
    for what, action in (("read", jobs.read), ("stream", jobs.stream)):
        for _ in range(REPEATS):
            for name in FORMATS:
                _note_best(best, f"{label} {what}, {name}", rows / seconds(partial(action, name, source)))
    # What one has written the other reads.
    for number, name in enumerate(FORMATS):
        for topic in (jobs.topics[1 - number], jobs.topics[-1 - number]):
            checked_count(jobs.frame(name, topic), jobs.shape)
    for what in ("read", "write", "stream"):
        best[f"{label} {what}, ratio"] = best[f"{label} {what}, odradek"] / best[f"{label} {what}, official"]
    return best


def _note_best(best: dict[str, float], metric: str, value: float) -> None:
    best[metric] = max(value, best.get(metric, 0.0))


def _tiny_batches(jobs: Jobs, spark: Any) -> dict[str, float]:
    tiny = jobs.write("odradek", spark.range(TINY_TRIGGERS * 2).selectExpr(*SMALL_ROWS))
    found = {}
    for name in FORMATS:
        progress = jobs.stream(name, tiny, 2)[1:]
        found[f"spark trigger, {name}"] = statistics.median(each["durationMs"]["triggerExecution"] for each in progress)
    found["spark trigger, ratio"] = found["spark trigger, odradek"] / found["spark trigger, official"]
    return found


def _many_batches(jobs: Jobs, spark: Any, count: int) -> dict[str, float]:
    """Seconds for many tiny batches, and the median of the last tenth over that of the first."""
    source = jobs.write("odradek", spark.range(count * 2).selectExpr(*SMALL_ROWS))
    found = {}
    for name in FORMATS:
        began = time.perf_counter()
        # the first batch starts Spark's Python processes
        spent_ms = [each["durationMs"]["triggerExecution"] for each in jobs.stream(name, source, 2)[1:]]
        found[f"spark batches, {name}"] = time.perf_counter() - began
        tenth = len(spent_ms) // 10 or 1
        growth = statistics.median(spent_ms[-tenth:]) / statistics.median(spent_ms[:tenth])
        found[f"spark batches growth, {name}"] = growth
    found["spark batches, ratio"] = found["spark batches, odradek"] / found["spark batches, official"]
    return found


def _memory(jobs: Jobs, spark: Any) -> dict[str, float]:
    rows = (MEMORY_TRIGGERS[-1] + 10) * MEMORY_ROWS_PER_TRIGGER
    source = jobs.write("odradek", spark.range(rows).selectExpr(*SMALL_ROWS))
    early, late = jobs.workers_mb("odradek", source)
    return {"spark workers, batch 10": early, "spark workers, batch 100": late, "spark growth, odradek": late - early}
