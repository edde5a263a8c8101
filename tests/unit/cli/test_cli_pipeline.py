"""`odradek pipeline`: rejected arguments, and messages on failures; runs are in tests/spark."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from odradek.cli.arguments.errors import CommandError
from odradek.cli.commands.pipeline import _essence, reason
from odradek.cli.main import main

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
