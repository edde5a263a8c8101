"""Spark on local[2]: our data source beside the official connector, on the same broker and the same topics.

Rows are a decimal key and a value of 100 bytes in 4 partitions. Ours writes exactly once, the official one at least
once, which is all it can. Each job runs three times, that of trigger seven times, the connectors in turn, and the best
time counts; standard error has all of them. Reads go to Spark's noop sink. The official connector's jars come from
Maven Central.

    read        a topic to noop
    write       rows to a topic
    stream      topic to topic, availableNow with 1,000,000 rows per trigger
    feed        Spark's own rate-micro-batch source to a topic: streaming writes alone
    wide        the first three with values of 1,000 bytes in 64 partitions
    trigger     the median time of micro-batches of a few rows, topic to topic
    batches     1,000 micro-batches of a few rows, topic to topic: the time from start to end, and how much longer the
                last tenth of them takes than the first (medians); a hundred batches of each come before, unmeasured
    workers     memory of Spark's Python processes after 10 and after 100 micro-batches (on Odradek alone: it is that of
                our source and sink, the official ones have none)

`odradek at least once` is ours without a transaction: it promises what the official connector does. `floor` is our
source before a Python sink that throws rows away (feed: that sink alone): what Spark itself takes for any sink in
Python. --part NAME measures one part alone: rates (the first three), feed, wide, trigger, batches, workers.
A job that fails is a failed figure; the others are measured.

Spark hands rows to Python in Arrow batches of 65,536 (spark.sql.execution.arrow.maxRecordsPerBatch), as docs/SPARK.md
advises for small rows; the official connector has no Python in its way. Rows per second of a stream are those of the
whole query, from start() until it has ended, for both. The session is set up as `odradek pipeline run` does it.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.cases import topics
from bench.cases.spark_floor import FloorDataSource
from bench.metrics import SPARK_PARTS
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
WARM_UP_ROWS = 20
"""Of a trigger: a tenth of the batches."""
TINY_TRIGGERS = 40
TINY_TURNS = 7
FEED_TRIGGERS = 4
MEMORY_TRIGGERS = (10, 100)
MEMORY_ROWS_PER_TRIGGER = 5_000
WAIT_S = 600
CONNECTOR = Path(__file__).resolve().parents[1] / "peers" / "spark_connector.py"
SMALL_ROWS = ("cast(cast(id as string) as binary) key", "cast('x' as binary) value")
FORMATS = {"odradek": "odradek", "official": "kafka"}
LOOSE = "odradek at least once"
SINKS = {**FORMATS, LOOSE: "odradek", "floor": "floor"}
"""Who writes; the sources of the last two are ours. Feed, trigger and batches measure all four."""
SINK_OPTIONS = {LOOSE: {"deliveryGuarantee": "at-least-once"}}
REPOSITORY = Path(__file__).resolve().parents[2]


def session() -> Any:
    from pyspark.sql import SparkSession

    prepare_environment(MASTER)
    # Spark's Python processes import the sink of the floor from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
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
    spark.dataSource.register(FloorDataSource)
    return spark


def end(spark: Any) -> None:
    """Stop the session and its Java, and wait for it: only then does its processor time count as the bench's own."""
    from pyspark import SparkContext

    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # PySpark's Java ends with its input
    gateway.proc.wait(60)
    # the next session in this process starts another one
    SparkContext._gateway = SparkContext._jvm = None


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
        topics.wait_until_led(self._bootstrap, self.topics[-1], self.shape.partitions)
        return self.topics[-1]

    def _connect(self, face: Any, name: str) -> Any:
        return face.format(SINKS[name]).option("kafka.bootstrap.servers", self._bootstrap)

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
            writer = self._connect(rows.writeStream, name).options(**SINK_OPTIONS.get(name, {}))
            writer = writer.options(topic=topic, checkpointLocation=checkpoint)
            query = writer.trigger(**trigger).start()
            try:
                yield query
            finally:
                query.stop()

    def stream(self, name: str, source: str, rows_per_trigger: int | None = None) -> list[dict[str, Any]]:
        """Topic to topic; the progress of each micro-batch."""
        rows_per_trigger = rows_per_trigger or self.shape.rows_per_trigger
        reads = name if name in FORMATS else "odradek"
        read = self._connect(self._spark.readStream, reads).options(subscribe=source, startingOffsets="earliest")
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


class Figures:
    """What was measured; NaN for a job that failed."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self._turns: dict[str, list[float]] = {}

    def note(self, metric: str, measure: Callable[[], float], best: Callable[[float, float], float] = max) -> None:
        """Measure again and keep the better figure. A job of Spark's that fails does not end the others."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        known = self.values.get(metric)
        if known is not None and math.isnan(known):
            return  # it has failed; repeating takes as long as it takes to fail
        try:
            value = measure()
        except (Py4JError, PySparkException, RuntimeError) as error:
            print(f"{metric} failed: {cause(error)}", file=sys.stderr, flush=True)
            value = math.nan
        self.values[metric] = value if known is None or math.isnan(value) else best(known, value)
        self._turns.setdefault(metric, []).append(value)

    def compare(self, what: str) -> None:
        """Add the ratio of ours to the official connector's, and print the figures of each turn."""
        ours, official = f"{what}, odradek", f"{what}, official"
        self.values[f"{what}, ratio"] = self.values[ours] / self.values[official]
        for number, pair in enumerate(zip(self._turns[ours], self._turns[official], strict=False), 1):
            turn = f"{what}, turn {number}: odradek {pair[0]:.4g}, official {pair[1]:.4g}, {pair[0] / pair[1]:.2f} ×"
            print(turn, file=sys.stderr, flush=True)


def cause(error: Exception) -> str:
    """The line of an error of Spark's that says what it was, which is the innermost of Java's causes."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else next(filter(None, lines), type(error).__name__)


def run(broker: Running, scale: float, parts: Sequence[str] = SPARK_PARTS) -> dict[str, float]:
    rows, wide_rows = (max(1000, int(each * scale)) for each in (ROWS, WIDE_ROWS))
    spark = session()
    jobs = Jobs(spark, broker.bootstrap, Shape(rows, 100, PARTITIONS, ROWS_PER_TRIGGER))
    wide = Jobs(spark, broker.bootstrap, Shape(wide_rows, 1_000, WIDE_PARTITIONS, wide_rows // 2))
    figures = Figures()
    measured = {
        "rates": lambda: _rates(figures, jobs, "spark"),
        "feed": lambda: _feed(figures, jobs),
        "trigger": lambda: _tiny_batches(figures, jobs, spark),
        "batches": lambda: _many_batches(figures, jobs, spark, max(20, int(BATCHES * scale))),
        "wide": lambda: _rates(figures, wide, "spark wide"),
        "workers": lambda: _memory(figures, jobs, spark) if broker.name == "odradek" else None,
    }
    try:
        for part in SPARK_PARTS:
            if part in parts:
                measured[part]()
    finally:
        end(spark)
        for topic in (*jobs.topics, *wide.topics):
            topics.delete(broker.bootstrap, topic)
    return figures.values


def _rates(figures: Figures, jobs: Jobs, label: str) -> None:
    """Rows per second of writes, reads and streams, and their ratios."""
    rows = jobs.shape.rows
    written: dict[str, list[str]] = {name: [] for name in FORMATS}

    def rate(name: str, action: Callable[[], object]) -> float:
        before = len(jobs.topics)
        took_s = seconds(action)
        written[name] += jobs.topics[before:]
        return rows / took_s

    for _ in range(REPEATS):
        for name in FORMATS:
            figures.note(f"{label} write, {name}", partial(rate, name, partial(jobs.write, name)))
    source = written["odradek"][0]
    for what, action in (("read", jobs.read), ("stream", jobs.stream)):
        for _ in range(REPEATS):
            for name in FORMATS:
                figures.note(f"{label} {what}, {name}", partial(rate, name, partial(action, name, source)))
    # What one has written the other reads.
    for reader, writer in (("odradek", "official"), ("official", "odradek")):
        for topic in {*written[writer][:1], *written[writer][-1:]}:
            checked_count(jobs.frame(reader, topic), jobs.shape)
    for what in ("read", "write", "stream"):
        figures.compare(f"{label} {what}")


def _feed(figures: Figures, jobs: Jobs) -> None:
    for _ in range(REPEATS):
        for name in SINKS:
            figures.note(f"spark feed, {name}", partial(jobs.feed, name))
    figures.compare("spark feed")


def _tiny_batches(figures: Figures, jobs: Jobs, spark: Any) -> None:
    tiny = jobs.write("odradek", spark.range(TINY_TRIGGERS * 2).selectExpr(*SMALL_ROWS))

    def trigger_ms(name: str) -> float:
        progress = jobs.stream(name, tiny, 2)[1:]
        return statistics.median(each["durationMs"]["triggerExecution"] for each in progress)

    for _ in range(TINY_TURNS):
        for name in SINKS:
            figures.note(f"spark trigger, {name}", partial(trigger_ms, name), min)
    figures.compare("spark trigger")


def _many_batches(figures: Figures, jobs: Jobs, spark: Any, count: int) -> None:
    """Seconds for many tiny batches, and the median of the last tenth over that of the first."""
    source = jobs.write("odradek", spark.range(count * 2).selectExpr(*SMALL_ROWS))
    spent_ms: list[float] = []

    def all_s(name: str) -> float:
        began = time.perf_counter()
        # the first batch starts Spark's Python processes
        spent_ms[:] = [each["durationMs"]["triggerExecution"] for each in jobs.stream(name, source, 2)[1:]]
        return time.perf_counter() - began

    def growth() -> float:
        tenth = len(spent_ms) // 10 or 1
        return statistics.median(spent_ms[-tenth:]) / statistics.median(spent_ms[:tenth])

    for name in SINKS:
        # Whoever came first would pay for what Java has not compiled yet.
        jobs.stream(name, source, WARM_UP_ROWS)
    for name in SINKS:
        figures.note(f"spark batches, {name}", partial(all_s, name))
        if name in FORMATS and spent_ms:
            figures.note(f"spark batches growth, {name}", growth)
    figures.compare("spark batches")


def _memory(figures: Figures, jobs: Jobs, spark: Any) -> None:
    rows = (MEMORY_TRIGGERS[-1] + 10) * MEMORY_ROWS_PER_TRIGGER
    source = jobs.write("odradek", spark.range(rows).selectExpr(*SMALL_ROWS))
    early, late = jobs.workers_mb("odradek", source)
    figures.values |= {
        "spark workers, batch 10": early,
        "spark workers, batch 100": late,
        "spark growth, odradek": late - early,
    }
