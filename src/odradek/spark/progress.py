"""How a streaming query gets on: for each micro-batch its rows, their rate, how far behind it is, and for how long."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from odradek.client.blocking import Blocking
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError, ConfigError
from odradek.records.batch import HEADER_SIZE, parse_header
from odradek.spark.datasets import WRITTEN, Dataset, read_topics, sink_topic
from odradek.spark.option_names import OptionError
from odradek.spark.options import SourceOptions
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)

_ANSWER_MS: Final = 2_000
_LOOK_S: Final = 0.2
_MOST_PARTITIONS: Final = 64
_MOST_FAILED_LOOKS: Final = 5


class Progress(NamedTuple):
    """One finished micro-batch."""

    query: str
    batch_id: int
    rows: int
    rows_per_second: float
    """How fast rows come in, as Spark has it."""
    lag: int | None
    """Records that the source had when the batch was planned, and that are in no batch yet; None where unknown."""
    delay_ms: int | None
    """From the youngest record of the batch, by its timestamp, to now; None where unknown."""
    took_ms: int
    topics: Mapping[str, int] = {}
    """The lag by topic, of sources that read topics: Spark itself describes a Python source by a Java class only."""

    def line(self) -> str:
        """The line that `odradek pipeline` prints."""
        lag = "?" if self.lag is None else f"{self.lag:,}"
        delay = "?" if self.delay_ms is None else f"{self.delay_ms / 1000:.1f} s"
        return (
            f"{self.query} batch {self.batch_id}: {self.rows:,} rows, {self.rows_per_second:,.0f} rows/s in, "
            f"lag {lag}, delay {delay}, took {self.took_ms / 1000:.1f} s"
        )


Offsets = Mapping[str, Mapping[str, int]]


def progress_of(report: Mapping[str, Any], delay_ms: int | None) -> Progress:
    """From Spark's StreamingQueryProgress as JSON."""
    durations = report.get("durationMs", {})
    rate = report.get("inputRowsPerSecond") or 0.0
    return Progress(
        report.get("name") or str(report["id"])[:8],
        report["batchId"],
        report.get("numInputRows", 0),
        # Spark says NaN, or Infinity, where there is nothing to divide by
        rate if isinstance(rate, int | float) and rate == rate and rate < float("inf") else 0.0,
        lag_of(report),
        delay_ms,
        durations.get("triggerExecution", report.get("batchDuration", 0)),
        lag_by_topic(report) or {},
    )


def lag_of(report: Mapping[str, Any]) -> int | None:
    """What our sources report as latest, less where the batch ends."""
    lags = lag_by_topic(report)
    return None if lags is None else sum(lags.values())


def lag_by_topic(report: Mapping[str, Any]) -> dict[str, int] | None:
    """`lag_of` for each topic; None without a source of topics."""
    lags: dict[str, int] | None = None
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None or end is None:
            continue
        lags = {} if lags is None else lags
        for topic, partitions in latest.items():
            ends = end.get(topic, {})
            behind = sum(max(0, offset - ends.get(partition, 0)) for partition, offset in partitions.items())
            if partitions:  # names without partitions are what the source notes of its cluster
                lags[topic] = lags.get(topic, 0) + behind
    return lags


def _offsets(content: Any) -> Offsets | None:
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except ValueError:
            return None
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        return None
    return content


def last_offsets(source: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of the last record in each partition that the batch took something of."""
    start, end = _offsets(source.get("startOffset")) or {}, _offsets(source.get("endOffset")) or {}
    return [
        (topic, int(partition), offset - 1)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
        if offset > start.get(topic, {}).get(partition, 0)
    ]


class QueryWatcher(Protocol):
    """Is notified of queries, on the follower's thread."""

    def on_start(self, run_id: str, name: str) -> None:
        """A query runs."""
        ...

    def on_batch(self, run_id: str, inputs: Sequence[Dataset], outputs: Sequence[Dataset]) -> None:
        """A query has finished a batch that had rows."""
        ...

    def on_end(self, run_id: str, failure: str | None) -> None:
        """A query no longer runs; Spark's reason if it failed."""
        ...


class Follower:
    """Watches all queries of this process's Spark and reports every micro-batch that had rows.

    It polls, because listeners receive only the queries of their own session, and those of Connect and
    of declarative pipelines have others.
    """

    def __init__(
        self,
        session: Any,
        report: Callable[[Progress], None],
        failed: Callable[[str, str], None],
        watcher: QueryWatcher | None = None,
    ) -> None:
        """`report`, `failed(query, reason)` and the watcher are called on a thread of its own."""
        self._session = session
        self._report = report
        self._failed = failed
        self._watcher = watcher
        self.failures: dict[str, tuple[str, str]] = {}
        """(name, reason) of each query, by its id, that failed and was not started again."""
        self._queries: dict[str, Any] = {}
        self._done: set[str] = set()
        self._reported: dict[str, int] = {}
        self._options: dict[str, list[SourceOptions | None]] = {}
        self._blocking = Blocking()
        self._consumers: dict[tuple[tuple[str, str], ...], Consumer] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        """Start the thread that polls Spark for progress."""
        self._thread.start()

    def close(self) -> None:
        """Report the last progress while Spark is there, and end."""
        if self._thread.is_alive():
            self._ended.set()
            self._thread.join(_ANSWER_MS / 1000 * 5)
        self._blocking.close()

    def _run(self) -> None:
        from py4j.protocol import Py4JError, Py4JNetworkError
        from pyspark.errors import PySparkException

        failures = 0
        while True:
            last = self._ended.wait(_LOOK_S)
            try:
                self.look()
                failures = 0
            except Py4JNetworkError:
                return  # Java is gone
            except (Py4JError, PySparkException):
                # A query that begins or ends meanwhile may fail one look; PySpark renames some of Java's exceptions.
                failures += 1
                if failures == _MOST_FAILED_LOOKS:
                    logger.warning("cannot read the queries from Spark; showing no more progress", exc_info=True)
                    return
            if last:
                return

    def look(self) -> None:
        """Report new progress and failures."""
        for query in list(self._active().values()):
            run_id = query.runId().toString()
            # a run that has ended may be in Spark's map for a moment longer
            if run_id not in self._queries and run_id not in self._done:
                self._queries[run_id] = query
                self.failures.pop(query.id().toString(), None)
                if self._watcher is not None:
                    self._watcher.on_start(run_id, query.name() or query.id().toString()[:8])
        for run_id, query in list(self._queries.items()):
            ended = not query.isActive()
            reports = query.recentProgress()
            new = []
            for number in range(len(reports) - 1, -1, -1):
                report = json.loads(reports[number].json())
                if report["batchId"] <= self._reported.get(run_id, -1):
                    break
                new.append(report)
            for report in reversed(new):
                # an idle query reports its next batch's number again and again
                if report.get("numInputRows"):
                    self._reported[run_id] = report["batchId"]
                    self._report(progress_of(report, self._delay_ms(run_id, report)))
                    self._notify(run_id, report)
            if ended:
                del self._queries[run_id]
                self._done.add(run_id)
                failure = query.exception()
                reason = failure.get().toString() if failure.isDefined() else None
                if reason is not None:
                    query_id = query.id().toString()
                    self.failures[query_id] = query.name() or query_id[:8], reason
                    self._failed(*self.failures[query_id])
                if self._watcher is not None:
                    self._watcher.on_end(run_id, reason)

    def is_busy(self) -> bool:
        """Whether any query runs."""
        return not self._active().isEmpty()

    def _active(self) -> Any:
        return self._session._jsparkSession.sharedState().activeStreamingQueries()

    def _notify(self, run_id: str, report: Mapping[str, Any]) -> None:
        """Pass a batch's datasets to the watcher, if there is one."""
        if self._watcher is None:
            return
        query = self._queries[run_id]
        sink = sink_topic(query)
        outputs = WRITTEN.of(query.id().toString()) + ([] if sink is None else [sink])
        self._watcher.on_batch(run_id, read_topics(report, self._options_of(run_id)), outputs)

    def _options_of(self, run_id: str) -> list[SourceOptions | None]:
        if run_id not in self._options:
            self._options[run_id] = source_options(self._queries[run_id])
        return self._options[run_id]

    def _delay_ms(self, run_id: str, report: Mapping[str, Any]) -> int | None:
        """Asks the brokers for the timestamps of the batch's last records: Spark itself knows none."""
        youngest = -1
        for source, given in zip(report.get("sources", ()), self._options_of(run_id), strict=False):
            if given is None:
                continue
            places = last_offsets(source)[:_MOST_PARTITIONS]
            try:
                consumer = self._consumer(given)
                for place in places:
                    youngest = max(youngest, self._blocking.run(_timestamp(consumer, *place)))
            except (ClientError, KafkaError, ConfigError, TimeoutError):
                return None
        return None if youngest < 0 else max(0, time.time_ns() // 1_000_000 - youngest)

    def _consumer(self, options: SourceOptions) -> Consumer:
        found = self._consumers.get(options.client)
        if found is None:
            settings: dict[str, Any] = {**dict(options.client), "group_id": None, "default_api_timeout_ms": _ANSWER_MS}
            found = self._blocking.open(Consumer(**settings))
            self._consumers[options.client] = found
        return found


async def _timestamp(consumer: Consumer, topic: str, partition: int, offset: int) -> int:
    """The largest timestamp in the record batch that holds an offset, in ms; -1 if the batch was deleted."""
    answer = await consumer.fetch_raw(topic, partition, offset, 1, max_wait_ms=0, timeout_ms=_ANSWER_MS)
    if len(answer.batches) < HEADER_SIZE:
        return -1
    return parse_header(answer.batches, 0).max_timestamp


def source_options(query: Any) -> list[SourceOptions | None]:
    """The options of a running query's sources, in order, from its plan; None for those of others.

    `query` is Java's. Empty where this Spark does not show the plan.
    """
    from py4j.protocol import Py4JError

    try:
        leaves = query.logicalPlan().collectLeaves()
        plans = [leaves.apply(number) for number in range(leaves.size())]
        found = [
            dict(plan.relation().options().asCaseSensitiveMap())
            for plan in plans
            if plan.getClass().getSimpleName() == "StreamingDataSourceV2ScanRelation"
        ]
    except (Py4JError, AttributeError, TypeError):
        return []
    return [_parsed(each) for each in found]


def _parsed(options: Mapping[str, str]) -> SourceOptions | None:
    try:
        return SourceOptions.parse(options, streaming=True)
    except OptionError:
        return None  # a source that is not ours
