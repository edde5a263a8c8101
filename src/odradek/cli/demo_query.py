"""The demo's Spark part: a session of its own and the streaming query from flights to airport days."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from odradek.cli.demo_flights import EVENT_SCHEMA
from odradek.cli.demo_pace import MOST_RECORDS
from odradek.cli.demo_traffic import FLIGHTS, LONG_MS, RESULTS
from odradek.cli.errors import CommandError

_MASTER: Final = "local[2]"
_CLIENT: Final = {"kafka.default.api.timeout.ms": f"{LONG_MS}", "kafka.request.timeout.ms": "120000"}


class SparkQuery:
    """Starts Java and the query in a thread, so that the caller can show what happens meanwhile.

    What Java and the Python workers print goes to spark.log in the folder.
    """

    def __init__(self, folder: Path, bootstrap: str) -> None:
        """Raises CommandError where there is no Java."""
        from odradek.spark.java import NoJavaError
        from odradek.spark.session import prepare_environment

        try:
            prepare_environment(_MASTER)
        except NoJavaError as error:
            raise CommandError(str(error)) from error
        # Spark starts a dozen Python processes: they compile this package once, wherever it is installed.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(folder / "pycache"))
        self._folder = folder
        self._bootstrap = bootstrap
        self._session: Any = None
        self._query: Any = None
        self._seen_batch = -1
        self._failure: BaseException | None = None
        self.processed = 0
        """Flights in the micro-batches that have ended."""
        self.batches = 0
        self.batch_seconds = 0.0
        """How long these micro-batches took."""
        self.phase = "starting the JVM"
        self._thread = _in_background(self._start)

    def _start(self) -> None:
        from odradek.spark.session import settings_for, start_session

        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.local.dir": str(self._folder / "spark"),
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            # On a starved machine Spark's defaults end the query in the middle of its work.
            "spark.network.timeout": "1800s",
            "spark.executor.heartbeatInterval": "60s",
            "spark.python.authenticate.socketTimeout": "600s",
        }
        try:
            log = self._folder / "spark.log"
            self._session = start_session(_MASTER, "odradek demo", settings_for(_MASTER, settings), log)
            self.phase = "starting the query"
            self._query = _start_query(self._session, self._bootstrap, str(self._folder / "checkpoint"))
            self.phase = "the first micro-batch"
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            self._failure = error

    def look(self, finished: Callable[[int, float], None]) -> object:
        """Read Spark's reports; call `finished(processed, seconds)` for each micro-batch that has ended.

        Returns a value that changes when the query progresses. Raises CommandError if it failed.
        """
        if self._failure is not None:
            raise CommandError(f"Spark did not start: {self._failure}")
        if self._query is None:
            return self.phase
        if (error := self._query.exception()) is not None:
            raise CommandError(f"the query failed: {error}")
        for each in self._query.recentProgress:
            if each["batchId"] > self._seen_batch and each["numInputRows"]:
                seconds = each["durationMs"]["triggerExecution"] / 1000
                self._seen_batch = each["batchId"]
                self.processed += each["numInputRows"]
                self.batches += 1
                self.batch_seconds += seconds
                self.phase = "streaming"
                finished(self.processed, seconds)
        return self.phase, self.batches, self._query.status["message"]

    def close(self, seconds: float) -> None:
        """Stop query and session; kill Java when that takes more than `seconds`."""
        if self._session is None:
            return  # a Java that still starts ends with this process: its standard input is a pipe from it
        closing = _in_background(self._stop)
        closing.join(seconds)
        if closing.is_alive():
            process = getattr(self._session.sparkContext._gateway, "proc", None)
            if process is not None:
                process.kill()

    def _stop(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        with contextlib.suppress(Py4JError, PySparkException, OSError):
            if self._query is not None:
                self._query.stop()
            self._session.stop()


def _in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="spark", daemon=True)
    thread.start()
    return thread


def _start_query(session: Any, bootstrap: str, checkpoint: str) -> Any:
    from pyspark.sql import functions as f

    from odradek.spark.exactly_once import write_exactly_once

    source = session.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**_CLIENT)
    source = source.option("subscribe", FLIGHTS).option("startingOffsets", "earliest")
    flights = source.option("maxOffsetsPerTrigger", MOST_RECORDS).load()
    parsed = flights.select(f.from_json(f.col("value").cast("string"), EVENT_SCHEMA).alias("event")).select("event.*")
    days = parsed.groupBy("origin", f.window("scheduled", "1 day")).agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.avg("dep_delay").alias("mean_delay"),
    )
    day = f.date_format("window.start", "yyyy-MM-dd")
    fields = ["origin", day.alias("day"), "flights", "departed", "mean_delay"]
    results = days.select(f.concat_ws("/", "origin", day).alias("key"), f.to_json(f.struct(*fields)).alias("value"))
    options = {"kafka.bootstrap.servers": bootstrap, "topic": RESULTS, "checkpointLocation": checkpoint, **_CLIENT}

    def write(frame: Any, batch_id: int) -> None:
        write_exactly_once(frame, batch_id, options)

    writer = results.writeStream.outputMode("update").foreachBatch(write).queryName("airport-days")
    return writer.option("checkpointLocation", checkpoint).start()
