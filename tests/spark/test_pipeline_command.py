"""`odradek pipeline run`, Spark Declarative Pipelines and Spark Connect, each a process of its own."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.spark.interpreter import launcher
from tests.integration.waiting import until
from tests.spark.support import Record, Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os
import sys

from pyspark.sql import SparkSession

source, target, mode = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
servers = {"kafka.bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP_SERVER"]}
rows = spark.readStream.format("odradek").options(**servers, subscribe=source, startingOffsets="earliest")
rows = rows.option("maxOffsetsPerTrigger", 100).load()
if mode == "fail":
    rows = rows.selectExpr("key", "if(string(value) = '170', raise_error('planted'), value) value")
writer = rows.writeStream.format("odradek").queryName("copy").options(**servers, topic=target)
query = writer.start()
if mode == "wait":
    query.awaitTermination()
    print("the program continues")
    print(spark.sparkContext.range(1).map(lambda _: sys.modules["pyspark"].__file__).first())
"""

SPEC = """
name: copy
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""

FLOWS = """
import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
servers = {{"kafka.bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP_SERVER"]}}


@dp.temporary_view()
def records() -> DataFrame:
    rows = spark.readStream.format("odradek").options(**servers, subscribe="{source}")
    return rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100).load()


dp.create_sink("out", format="odradek", options={{**servers, "topic": "{target}"}})


@dp.append_flow(target="out", name="copy")
def copy() -> DataFrame:
    return spark.readStream.table("records").select("key", "value")
"""


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Run:
    """The command with what all runs of a test share."""

    def __init__(self, topics: Topics, folder: Path) -> None:
        self.topics = topics
        self.source, self.target = topics.create(2), topics.create(2)
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None

    def fill(self, first: int, last: int) -> None:
        self.topics.fill(self.source, [Record(b"%d" % n, partition=n % 2) for n in range(first, last)])

    def visible(self) -> list[int]:
        return sorted(int(record.value or b"") for record in self.topics.read(self.target, committed=True))

    def spawn(self, command: list[str]) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(self.folder / "pycache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=self.folder)

    def start(self, file: Path, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", "--master", "local[2]"]
        command += ["--bootstrap-server", self.topics.bootstrap, "--checkpoint", str(self.folder / "state")]
        return self.spawn([*command, *options, str(file), *arguments])

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """All it says that was not read yet; it says too little on its standard output to be held up by that."""
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            # By the same files as what was read before: communicate() leaves out what these have read ahead.
            err, out = process.stderr.read(), process.stdout.read()
        return Ended(process.returncode, out, err)


@pytest.fixture
def run(topics: Topics, tmp_path: Path) -> Run:
    return Run(topics, tmp_path)


def scraped(port: int) -> dict[str, float]:
    """The samples of the command's metrics, as Prometheus gets them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {f"{each.name}{sorted(each.labels.items())}": each.value for one in families for each in one.samples}


def test_program_shows_its_progress_and_ends_gracefully_when_stopped(run: Run) -> None:
    program = run.folder / "program.py"
    program.write_text(PROGRAM)
    run.fill(0, 450)
    options = ("--progress", "json", "--metrics", "127.0.0.1:0")
    process = run.start(program, run.source, run.target, "wait", options=options)
    assert process.stderr is not None
    port = int(process.stderr.readline().removeprefix("metrics on port "))
    first = json.loads(process.stderr.readline())
    assert (first["query"], first["batch_id"], first["rows"], first["lag"]) == ("copy", 0, 100, 350)
    # the records say that they are of 1970
    assert first["delay_ms"] > 1_700_000_000_000
    query = [("query", "copy")]
    until(lambda: scraped(port)[f"odradek_pipeline_rows_total{query}"] == 450, "all rows in the metrics")
    lag = f"odradek_pipeline_lag_records{sorted([*query, ('topic', run.source)])}"
    until(lambda: scraped(port)[lag] == 0, "no lag in the metrics")
    run.fill(450, 500)
    until(lambda: scraped(port)[f"odradek_pipeline_rows_total{query}"] == 500, "new rows in the metrics")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=30) as answer:
        (shown,) = json.load(answer)
    assert (shown["query"], shown["total_rows"], shown["failures"]) == ("copy", 500, 0)
    process.send_signal(signal.SIGTERM)
    ended = run.end(process)
    assert ended.status == 0, ended.err
    said, loaded = ended.out.splitlines()
    assert said == "the program continues"
    # Spark's Python processes load PySpark from where its bytecode is kept
    assert launcher() != sys.executable
    assert ".zip" not in loaded
    assert all(line.startswith("{") for line in ended.err.splitlines()), ended.err
    assert run.visible() == list(range(500))


class Receiver(ThreadingHTTPServer):
    """Notes the events that OpenLineage's client posts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posted)
        self.events: list[dict[str, Any]] = []

    def of(self, job: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["job"]["name"] == job]


class Posted(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        assert self.path == "/api/v1/lineage"
        self.server.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """The receiver that this test's commands know by OpenLineage's own variable."""
    made = Receiver()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{made.server_port}")
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def datasets(events: list[dict[str, Any]]) -> list[tuple[str, list[str], list[str]]]:
    return [
        (
            each["eventType"],
            *([f"{at['namespace']}/{at['name']}" for at in each[part]] for part in ("inputs", "outputs")),
        )
        for each in events
    ]


@pytest.mark.long
def test_lineage_of_a_pipeline_is_received(run: Run, receiver: Receiver) -> None:
    program = run.folder / "program.py"
    program.write_text(PROGRAM)
    run.fill(0, 50)
    options = ("--lineage", "--name", "views")
    process = run.start(program, run.source, run.target, "wait", options=options)
    assert process.stderr is not None
    assert "copy batch 0" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    ended = run.end(process)
    assert ended.status == 0, ended.err
    assert [each["eventType"] for each in receiver.of("views")] == ["START", "COMPLETE"]
    cluster = f"kafka://{run.topics.bootstrap}"
    places = [f"{cluster}/{run.source}"], [f"{cluster}/{run.target}"]
    assert datasets(receiver.of("views.copy")) == [("START", [], []), ("RUNNING", *places), ("COMPLETE", *places)]
    (parent,) = {each["run"]["facets"]["parent"]["run"]["runId"] for each in receiver.of("views.copy")}
    assert {each["run"]["runId"] for each in receiver.of("views")} == {parent}


@pytest.mark.long
def test_lineage_of_a_failed_pipeline_has_the_reason(run: Run, receiver: Receiver) -> None:
    program = run.folder / "program.py"
    program.write_text(PROGRAM)
    run.fill(0, 450)
    ended = run.end(run.start(program, run.source, run.target, "fail", options=("--lineage", "--name", "views")))
    assert ended.status == 1
    for job in ("views", "views.copy"):
        last = receiver.of(job)[-1]
        assert last["eventType"] == "FAIL"
        assert "planted" in last["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.long
def test_failed_program_is_one_line_and_resumes_from_its_checkpoint(run: Run) -> None:
    program = run.folder / "program.py"
    program.write_text(PROGRAM)
    run.fill(0, 450)
    ended = run.end(run.start(program, run.source, run.target, "fail", options=("--log", str(run.folder / "log"))))
    assert ended.status == 1
    lines = ended.err.splitlines()
    assert "planted" in lines[-1]
    assert lines[-1].startswith("odradek pipeline: ")
    assert sum("odradek pipeline" in line for line in lines) == 1
    assert "Traceback" not in ended.err
    assert "planted" in (run.folder / "log").read_text()
    assert run.visible() == list(range(100))
    process = run.start(program, run.source, run.target, "go")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("copy batch 4: "):
            break
    process.send_signal(signal.SIGINT)
    assert run.end(process).status == 0
    assert run.visible() == list(range(450))


@pytest.mark.long
def test_a_declarative_pipeline_writes_to_our_sink_once(run: Run) -> None:
    spec = run.folder / "spark-pipeline.yml"
    spec.write_text(SPEC.format(folder=run.folder))
    (run.folder / "transformations").mkdir()
    (run.folder / "transformations" / "flows.py").write_text(FLOWS.format(source=run.source, target=run.target))
    run.fill(0, 250)
    dry = run.end(run.start(spec, options=("--dry-run",)))
    assert dry.status == 0, dry.err
    assert run.visible() == []
    for last in (250, 400):
        ended = run.end(run.start(spec))
        assert ended.status == 0, ended.err
        assert "COMPLETED" in ended.err
        assert run.visible() == list(range(last))
        run.fill(250, 400)
    (run.folder / "transformations" / "flows.py").write_text("raise ValueError('planted')")
    broken = run.end(run.start(spec))
    assert broken.status == 1
    assert broken.err.splitlines()[-1].startswith("odradek pipeline: ValueError: planted; ")


@pytest.mark.long
def test_spark_connect_reads_and_writes(run: Run) -> None:
    run.fill(0, 1_000)
    arguments = [run.topics.bootstrap, run.source, run.target, str(run.folder / "state")]
    ended = run.end(run.spawn([sys.executable, "-m", "tests.spark.connect_job", *arguments]))
    assert ended.status == 0, ended.err[-3000:]
    assert "read [[0, 500, 499], [1, 500, 499]]" in ended.out
    assert run.visible() == sorted([*range(1_000), 0, 1, 2])
    assert sum(run.topics.group_offsets(f"{run.target}-lag").values()) == 1_000
