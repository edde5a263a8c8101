"""What a failed test of a cluster prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.evidence import explained


@pytest.mark.parametrize("failure", [AssertionError("no rows"), subprocess.TimeoutExpired("spark-submit", 1)])
def test_failure_has_logs_checkpoint_and_processes(tmp_path: Path, failure: Exception) -> None:
    executor = tmp_path / "worker-0" / "app-1" / "0"
    executor.mkdir(parents=True)
    (executor / "stderr").write_text("".join(f"line {n}\n" for n in range(100)))
    (tmp_path / "spark.log").write_text("WARN of the driver\n")
    for name, batches in (("offsets", 11), ("commits", 10)):
        (tmp_path / "state" / name).mkdir(parents=True)
        for n in range(batches):
            (tmp_path / "state" / name / str(n)).write_text(f"{name} of {n}")
    alive = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with pytest.raises(type(failure)) as raised, explained(tmp_path, "http://127.0.0.1:1/"):
            raise failure
    finally:
        alive.kill()
        alive.wait()
    notes = "\n".join(raised.value.__notes__)
    assert "Connection refused" in notes
    assert "end of worker-0/app-1/0/stderr" in notes
    assert "line 99" in notes
    assert "line 9\n" not in notes
    assert "WARN of the driver" in notes
    assert "offsets of 10" in notes
    assert "commits of 9" in notes
    assert f"process {alive.pid}" in notes


def test_what_passes_is_left_alone(tmp_path: Path) -> None:
    with explained(tmp_path):
        pass
    with pytest.raises(KeyError) as raised, explained(tmp_path):
        raise KeyError("other")
    assert not hasattr(raised.value, "__notes__")
