"""Tests that share something dear run in one worker: pytest-xdist did so silently no longer with pytest 9.2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os
import pytest

@pytest.mark.xdist_group("same")
@pytest.mark.parametrize("number", range(6))
def test_writes_down_its_worker(number):
    with open({noted!r}, "a") as noted:
        noted.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_groups_of_tests_run_in_one_worker(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    (tmp_path / "test_group.py").write_text(TESTS.format(noted=str(noted)))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    subprocess.run([*command, "."], cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    workers = noted.read_text().split()
    assert len(workers) == 6
    assert len(set(workers)) == 1
