"""`odradek pipeline`: rejected arguments, and messages on failures; runs are in tests/spark."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pyspark.errors import AnalysisException

from odradek.cli.actions.pipeline_restarts import FAILURES_VARIABLE, Restart, next_restart
from odradek.cli.arguments.errors import CommandError
from odradek.cli.commands import pipeline
from odradek.cli.commands.pipeline import _essence, reason
from odradek.cli.main import main
from odradek.spark import progress, session

STREAM_FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 3, in main
odradek.spark.transactions.TransactionError: the batch was not committed

	at org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: java.lang.IllegalStateException: nothing of ours
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pipeline run nothing.py", "nothing.py: no such file"),
        ("pipeline run no.such.module", "no.such.module: neither a file nor a module"),
        ("pipeline run --dry-run {here}", "--dry-run and --refresh… go with a spark-pipeline.yml only"),
        ("pipeline run --conf x {here}", "--conf x: name=value expected"),
        (
            "pipeline run --master sc://far {here}",
            "--master must not be a Spark Connect address: run such a program with python",
        ),
    ],
)
def test_mistakes_are_one_line(line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = tmp_path / "here.py"
    here.touch()
    assert main(line.format(here=here).split()) == 2
    assert capsys.readouterr().err == f"odradek pipeline: {message}\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("runner: cloud", "", "{here}: runner=cloud: one of local, spark expected"),
        ("runners: local", "", "{here}: runners: one of runner, connectors, tables expected"),
        ("runner: spark", "", "{here}: runner: spark has no effect without a connector SparkSql"),
        ("{connectors: {c: {topics: a}}}", "", "connector c: there is no connector class "),
        ("runner: local", "--checkpoint x", "--checkpoint has no effect on a file of connectors and tables"),
        ("runner: local", "--secrets nowhere", "--secrets nowhere: no such folder"),
    ],
)
def test_mistakes_in_files_of_connectors_and_tables_are_one_line(
    content: str, options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here.yml"
    here.write_text(content if content.startswith("{") else f"{content}\nconnectors: {{}}\n")
    assert main(["pipeline", "run", *options.split(), str(here)]) == 2
    assert capsys.readouterr().err == f"odradek pipeline: {message.format(here=here)}\n"


def test_query_needs_the_runner_that_has_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = tmp_path / "here.yml"
    query = {"connector.class": "SparkSql", "topics": "a", "sql": "SELECT 1", "topic": "b", "checkpoint.location": "c"}
    for runner, status in (("local", 2), ("spark", 0)):
        here.write_text(json.dumps({"runner": runner, "connectors": {"q": query}}))
        assert main(["pipeline", "run", "--dry-run", str(here)]) == status
    shown = capsys.readouterr()
    assert shown.err == f"odradek pipeline: {here}: connector q is a query in Spark SQL, which needs runner: spark\n"
    assert shown.out == "valid: q\n"


def test_failed_query_is_reported_by_its_innermost_error() -> None:
    assert _essence(STREAM_FAILED) == "odradek.spark.transactions.TransactionError: the batch was not committed"
    assert _essence("nothing that looks like one\nsecond line") == "nothing that looks like one"
    assert _essence(
        'WARNING: x\nException in thread "main" org.apache.spark.SparkException: no\n\tat a.b(C.scala:1)'
    ) == ('Exception in thread "main" org.apache.spark.SparkException: no')
    assert reason(AnalysisException("[UNRESOLVED_COLUMN] no column x\nplan")) == "[UNRESOLVED_COLUMN] no column x"


def test_failure_of_the_program_is_reported_with_its_place(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text("x = 1\nraise ValueError('not this way\\nmore')\n")
    with pytest.raises(ValueError, match="not this way") as caught:
        exec(compile(program.read_text(), str(program), "exec"), {})
    assert reason(caught.value) == "ValueError: not this way (mine.py, line 2)"
    assert reason(CommandError("as it is")) == "as it is"


def test_failed_pipeline_starts_again_after_doubling_pauses() -> None:
    starts = [next_restart("boom", 5, restarts=8, backoff_s=10, earlier=earlier) for earlier in range(9)]
    assert [each and each.pause_s for each in starts] == [10, 20, 40, 80, 160, 300, 300, 300, None]
    assert starts[1] is not None
    assert starts[1].line() == "restart 2 of 8 in 20 s"


def test_pipeline_that_ran_long_begins_a_new_row_of_failures() -> None:
    assert next_restart("boom", 600, restarts=1, backoff_s=10, earlier=1) == Restart(1, 10, 1)
    assert next_restart("boom", 599, restarts=1, backoff_s=10, earlier=1) is None


def test_slow_start_of_a_python_process_is_tried_again_without_the_option() -> None:
    reason = _essence("[STREAM_FAILED] Query\norg.apache.spark.SparkException: Python worker failed to connect back.")
    assert reason == "a Python process of Spark failed to connect back: it had not started within ten seconds"
    starts = [next_restart(reason, 15, restarts=0, backoff_s=5, earlier=earlier) for earlier in range(4)]
    assert [each is None for each in starts] == [False, False, False, True]
    assert next_restart("boom", 15, restarts=0, backoff_s=5, earlier=0) is None


class EndedQuery:
    """A query that ends as soon as it is asked to."""

    lastProgress = None  # noqa: N815 - Spark's name
    isActive = False  # noqa: N815 - Spark's name

    def stop(self) -> None:
        return


class QuietFollower:
    """A follower of queries that reports nothing."""

    failures: ClassVar[dict[str, Any]] = {}

    def __init__(self, *_: object) -> None:
        return

    def start(self) -> None:
        return

    def close(self) -> None:
        return


def test_program_that_fails_at_a_stop_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a query that waits for its store is stopped."""
    program, started = tmp_path / "mine.py", []
    program.write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nraise RuntimeError('its store is away')\n"
    )
    streams = SimpleNamespace(active=[EndedQuery()])
    context = SimpleNamespace(setLogLevel=lambda _level: None)
    session_of_test = SimpleNamespace(streams=streams, sparkContext=context, stop=lambda: None)
    monkeypatch.setattr(session, "start_session", lambda *_: session_of_test)
    monkeypatch.setattr(session, "prepare_environment", lambda *_: None)
    monkeypatch.setattr(progress, "Follower", QuietFollower)
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    assert main(f"pipeline run --restarts 2 --backoff 0.001 {program}".split()) == 1
    assert started == []


def test_signals_end_the_client_of_a_specification_only_while_it_runs() -> None:
    """A later one, in the pause before a restart, has to end the command."""
    before = signal.getsignal(signal.SIGTERM)
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with pipeline._forwarding(client) as seen:
        signal.raise_signal(signal.SIGTERM)
        assert client.wait(30) == -signal.SIGTERM
    assert seen == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_restart_runs_the_same_command_with_the_failures_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, started = tmp_path / "mine.py", []
    program.touch()

    def fail(*_: object) -> int:
        raise CommandError("the broker is away")

    monkeypatch.setattr(pipeline, "_run", fail)
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    monkeypatch.setenv(FAILURES_VARIABLE, "1")
    line = f"pipeline run --restarts 2 --backoff 0.001 {program}".split()
    assert main(line) == 1
    ((path, command, environment),) = started
    assert (path, command) == (sys.executable, [sys.executable, *sys.orig_argv[1:]])
    assert environment[FAILURES_VARIABLE] == "2"
    err = capsys.readouterr().err
    assert err.startswith("odradek pipeline: the broker is away; restart 2 of 2 in 0.002 s\n")
    monkeypatch.setenv(FAILURES_VARIABLE, "2")
    assert main(line) == 1
    assert len(started) == 1
