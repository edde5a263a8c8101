"""The demo's Spark part: a session of its own and the streaming query from flights to airport days."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from odradek.cli.arguments.errors import CommandError
from odradek.cli.demo.flights import EVENT_SCHEMA
from odradek.cli.demo.pace import MOST_RECORDS
from odradek.cli.demo.traffic import FLIGHTS, LONG_MS, RESULTS

_MASTER: Final = "local[2]"
_CLIENT: Final = {"kafka.default.api.timeout.ms": f"{LONG_MS}", "kafka.request.timeout.ms": "120000"}


class Spark:
    """Java with a session of the demo's own. What it and its Python workers print goes to spark.log in the folder."""

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

    def start_query(self, enter: Callable[[str], None]) -> Any:
        """Start Java where that is not done yet, and the query; `enter` receives the phase. Blocks for seconds."""
        from odradek.spark.session import settings_for, start_session

        if self._session is None:
            enter("starting the JVM")
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
            log = self._folder / "spark.log"
            self._session = start_session(_MASTER, "odradek demo", settings_for(_MASTER, settings), log)
        enter("starting the query")
        return _start_query(self._session, self._bootstrap, str(self._folder / "checkpoint"))

    def close(self, seconds: float) -> None:
        """Stop the queries and the session; kill Java when that takes more than `seconds`."""
        if self._session is None:
            return  # a Java that still starts ends with this process: its standard input is a pipe from it
        closing = in_background(self._stop)
        closing.join(seconds)
        if closing.is_alive():
            process = getattr(self._session.sparkContext._gateway, "proc", None)
            if process is not None:
                process.kill()

    def _stop(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with contextlib.suppress(Py4JError, PySparkException, OSError):
            for query in self._session.streams.active:
                query.stop()
            self._session.stop()


def in_background(work: Callable[[], None]) -> threading.Thread:
    """Run `work` in a thread that does not keep the process alive."""
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
