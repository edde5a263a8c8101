"""./dev spark-faults: the exactly-once query under every kind of fault at every step of its protocol.

Steps are those of odradek/spark/protocol.py and of Spark's own notes (log of offsets, log of commits); a fault comes
before or after each. After every fault, exactly the rows of whole committed batches must be visible to a read-committed
reader, batch after batch; when the query has come to its end, every row once.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from odradek.client.blocking import Blocking
from odradek.spark.interpreter import launcher
from odradek.spark.java import ensure_java
from tests.spark.pipelines import WAIT_S, Job, Pipeline, run_query
from tests.spark.proxy import Proxy
from tests.spark.support import Topics
from tests.spark.targets import NAMES, Target, is_cached

STEPS: Final = ("offset-log", "init", "fetch", "produce", "offsets", "end", "commit-log")
POINTS: Final = tuple(f"{when}-{step}" for step in STEPS for when in ("before", "after"))
TASK_POINTS: Final = ("before-produce", "after-produce")
ROWS: Final = 200
PER_BATCH: Final = 100
FEW: Final = 40
"""Rows of a small micro-batch, which Spark gets with the plan."""
MASTER: Final = "local[2,4]"
CLUSTER: Final = "local-cluster[2,1,1024]"
# A broker that is away for seconds must not cost minutes.
CLIENT: Final = {"kafka.request.timeout.ms": "10000", "kafka.default.api.timeout.ms": "60000"}


class Kind(NamedTuple):
    """A kind of fault: what is written for sitecustomize, at which points."""

    name: str
    what: str
    points: tuple[str, ...] = POINTS
    few: bool = False
    """Whether micro-batches are small, so that no task reads their rows."""

    def pipeline(self, world: "World", name: str) -> Pipeline:
        """A new query of this kind, whose checkpoint has the name."""
        path = world.home / f"checkpoint-{name}{'-few' if self.few else ''}"
        return Pipeline(world.topics, path, FEW if self.few else PER_BATCH, in_tasks=not self.few)


KINDS: Final = {
    each.name: each
    for each in (
        Kind("error", "an exception"),
        Kind("worker", "the Python process dies"),
        Kind("driver", "kill -9 of driver, Java and Python"),
        Kind("broker", "kill -9 of the broker, and a restart"),
        Kind("cut", "every connection breaks"),
        Kind("lose", "every connection breaks at its next answer: done, but the client does not know"),
        Kind("task", "the task fails and Spark runs it again", TASK_POINTS),
        Kind("stage", "shuffle files are lost, and Spark runs stages again", TASK_POINTS),
        Kind("executor", "kill -9 of the executor's Java in a small cluster", TASK_POINTS),
    )
}


class World:
    """A broker behind a proxy, kept alive, and a Spark session, with one pipeline per kind of fault."""

    def __init__(self, target_name: str, home: Path, faults: Path) -> None:
        """`faults` is the file that Spark's Python processes look at; a process of Java has one for all its life."""
        self.home = home
        self.proxy = Proxy()
        self.target = Target(target_name, home / "broker", self.proxy.port)
        self.faults = faults
        self.spark: Any = None
        self._blocking = Blocking()
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        self.target.run()
        self.proxy.start(self.target.port)
        self.target.prepare()
        self._blocking.__enter__()
        # The test's own clients do not go through the proxy, where they could only learn of the proxy again.
        self.topics = Topics(self.target.bootstrap, self._blocking)
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._keeper.join(60)
        self._blocking.__exit__(None, None, None)
        self.target.stop()
        self.proxy.stop()

    def _keep(self) -> None:
        """A broker that was killed comes back."""
        while not self._ended.wait(0.05):
            if self.target.is_dead():
                self.target.kill()
                self.target.run()

    def action(self, kind: str) -> str:
        """What sitecustomize is to do."""
        return {
            "error": "raise",
            "worker": "exit",
            "driver": "kill",
            "broker": f"broker {self.target.pid}",
            "cut": f"proxy {self.proxy.control_port} cut",
            "lose": f"proxy {self.proxy.control_port} lose",
            "task": "raise",
            "stage": f"shuffle {self.home / 'local'}",
            "executor": "executor",
        }[kind]

    def plant(self, point: str, action: str) -> None:
        written = self.faults.with_suffix(".new")
        written.write_text(f"{point} {action}")
        written.rename(self.faults)


class Cell(NamedTuple):
    kind: str
    point: str
    seconds: float
    runs: int
    failure: str
    """Empty if all held."""


def in_session(world: World, kind: Kind) -> Iterator[Cell]:
    """The faults that a Spark session survives: the query is started again until it comes to its end."""
    pipeline = kind.pipeline(world, kind.name)
    frame = None
    if kind.name == "stage":
        # More tasks than run at once: some still have to fetch when the files are gone.
        frame = _shuffled
    for point in kind.points:
        began, runs, again = time.monotonic(), 0, _stages_run_again(world.spark)
        failure = ""
        try:
            pipeline.fill(ROWS)
            world.plant(point, world.action(kind.name))
            while True:
                runs += 1
                failed_with = run_query(world.spark, pipeline, world.target.bootstrap, frame, client=CLIENT)
                if not failed_with:
                    break
                pipeline.check()
                assert runs < 6, f"the query does not come to its end: {failed_with}"
            assert not world.faults.exists(), "the point was not reached"
            assert kind.name != "stage" or _stages_run_again(world.spark) > again, "no stage was run again"
            pipeline.check_complete()
        except Exception:
            failure = traceback.format_exc()
            world.faults.unlink(missing_ok=True)
            pipeline = kind.pipeline(world, f"{kind.name}-{point}")
        yield Cell(kind.name, point, time.monotonic() - began, runs, failure)


def _shuffled(rows: Any) -> Any:
    return rows.repartition(6, "key")


def _stages_run_again(spark: Any) -> int:
    """How many stages of the session had more than one attempt. Their ids are numbers from 0 on."""
    tracker, again = spark.sparkContext.statusTracker(), 0
    for stage in range(10_000):
        info = tracker.getStageInfo(stage)
        if info is not None:
            again += info.currentAttemptId > 0
        elif stage > 50 and all(tracker.getStageInfo(stage + more) is None for more in range(50)):
            break
    return again


def as_jobs(world: World, kind: Kind) -> Iterator[Cell]:
    """The faults that take processes of Spark: each run recovers from the one before, and dies at its own point."""
    master = CLUSTER if kind.name == "executor" else MASTER
    pipeline = kind.pipeline(world, kind.name)
    job = Job(pipeline, world.target.bootstrap, world.faults, master)
    log = world.home / f"{kind.name}.log"
    for point in kind.points:
        began, runs, failure = time.monotonic(), 0, ""
        try:
            pipeline.fill(ROWS)
            runs += 1
            world.plant(point, world.action(kind.name))
            job.start(log).wait(WAIT_S)
            assert not world.faults.exists(), "the point was not reached"
            pipeline.check()
            if point == kind.points[-1] or kind.name != "driver":
                runs += 1
                assert job.start(log).wait(WAIT_S) == 0, "the last run failed"
                pipeline.check_complete()
        except (Exception, subprocess.TimeoutExpired):
            failure = f"{traceback.format_exc()}\n{log.read_text()[-3000:]}"
            world.faults.unlink(missing_ok=True)
        yield Cell(kind.name, point, time.monotonic() - began, runs, failure)


def make_session(world: World) -> Any:
    from pyspark.sql import SparkSession

    ensure_java()
    here = Path(__file__).resolve()
    os.environ["PYSPARK_PYTHON"] = launcher()
    os.environ["ODRADEK_TEST_FAULTS"] = str(world.faults)
    paths = [str(here.with_name("faults")), str(here.parents[2] / "src"), str(here.parents[2])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PYTHONPYCACHEPREFIX"] = str(world.home.parent / "pycache")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    local = world.home / "local"
    local.mkdir(exist_ok=True)
    builder = SparkSession.builder.master(MASTER).appName("faults").config("spark.local.dir", str(local))
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    # As under `odradek pipeline run`; drivers and executors that are killed as a whole have TCP, as is Spark's default.
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run(world: World, kinds: list[Kind], show: Callable[[Cell], None]) -> list[Cell]:
    """All cells of these kinds."""
    cells = []
    for kind in kinds:
        if kind.name in ("driver", "executor"):
            found = as_jobs(world, kind)
        else:
            world.spark = world.spark or make_session(world)
            found = in_session(world, kind)
        for cell in found:
            show(cell)
            cells.append(cell)
    return cells


def main() -> int:
    described = "\n".join(f"  {kind.name:9} {kind.what}" for kind in KINDS.values())
    parser = argparse.ArgumentParser(
        prog="./dev spark-faults",
        description=f"{__doc__}\nKinds of faults:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="*", help="default: all of them")
    parser.add_argument("--target", choices=NAMES, action="append", help="default: odradek; may be given again")
    parser.add_argument("--few", action="store_true", help=f"micro-batches of {FEW} rows, which no task reads")
    parser.add_argument("--point", choices=POINTS, action="append", help="only these")
    args = parser.parse_args()
    if unknown := set(args.kind) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kinds = [KINDS[name]._replace(few=args.few) for name in args.kind or KINDS]
    if args.point:
        kinds = [kind._replace(points=tuple(p for p in kind.points if p in args.point)) for kind in kinds]
    ensure_java()
    # Java and the workers write the planted errors' traces to the standard error they inherit.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    began, failed, done = time.monotonic(), 0, 0
    if missing := [name for name in args.target or [] if not is_cached(name)]:
        print(f"{missing[0]}: Apache Kafka is not there; `python bench/peers/kafka.py fetch` gets it")
        return 2
    targets = args.target or ["odradek"]
    with tempfile.TemporaryDirectory(prefix="odradek-faults-", ignore_cleanup_errors=True) as home:
        for name in targets:
            cells = _run_target(name, Path(home), kinds)
            done += len(cells)
            failed += sum(bool(cell.failure) for cell in cells)
    print(f"spark-faults: {done} cells on {', '.join(targets)}, {failed} failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed or not done else 0


def _run_target(name: str, home: Path, kinds: list[Kind]) -> list[Cell]:
    print(f"{name}:", flush=True)
    with World(name, home / name, home / "fault") as world:
        cells = run(world, kinds, _show)
        if world.spark is not None:
            world.spark.stop()
    return cells


def _show(cell: Cell) -> None:
    verdict = "ok" if not cell.failure else "FAILED"
    print(f"  {cell.kind:9} {cell.point:18} {cell.runs} runs {cell.seconds:6.1f} s  {verdict}", flush=True)
    if cell.failure:
        print(cell.failure, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
