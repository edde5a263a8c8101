"""The scripts of continuous integration: both installers and both ends of the supported Pythons, in fresh clones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.house.sources import ROOT

RUN, FRESH_CLONE = ROOT / ".ci" / "run", ROOT / ".ci" / "fresh_clone"
pytestmark = pytest.mark.skipif(not RUN.exists(), reason="a source archive has no .ci")


def function(script: Path, name: str) -> str:
    (body,) = re.findall(rf"^{name}\(\).*?^}}$", script.read_text(), re.MULTILINE | re.DOTALL)
    return body


def bash(code: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    return subprocess.check_output(["bash", "-euo", "pipefail", "-c", code], text=True, env=environment, timeout=60)


@pytest.mark.parametrize("script", [RUN, FRESH_CLONE, ROOT / "dev"], ids=lambda path: path.name)
def test_script_is_valid_bash(script: Path):
    subprocess.run(["bash", "-n", script], check=True, timeout=60)


def test_ci_uses_both_installers_on_both_pythons_and_all_tests_once():
    calls = re.findall(r"in_fresh_clone (pip|uv) \"\$\{?(\w+)[^\"]*\" (\S+) ?(.*)$", RUN.read_text(), re.MULTILINE)
    assert {(installer, python) for installer, python, _, _ in calls} == {
        ("pip", "oldest"), ("pip", "newest"), ("uv", "oldest"), ("uv", "newest"),
    }  # fmt: skip
    assert [(demo, tests) for _, _, demo, tests in calls].count(("''", "")) == 1


def test_uv_is_hidden_and_its_neighbours_are_not(tmp_path: Path):
    """pip must be used although uv is on PATH, twice, beside programs that are needed."""
    for directory in ("one", "two"):
        (tmp_path / directory).mkdir()
        for name in ("uv", "neighbour"):
            program = tmp_path / directory / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
    path = f"{tmp_path}/one:{os.environ['PATH']}:{tmp_path}/two"
    code = f"work={tmp_path}\n{function(FRESH_CLONE, 'hide_uv')}\nhide_uv\n"
    found = bash(f"{code} command -v uv || echo hidden; command -v neighbour", PATH=path).split()
    assert found[0] == "hidden"
    assert found[1].endswith("/neighbour")


def test_python_is_found_by_its_minor_version():
    minor = sys.version_info.minor
    found = bash(f"{function(RUN, 'python_of')}\npython_of {minor} || python_of 99 || echo none").strip()
    assert found == "none" or bash(f"{found} --version").startswith(f"Python 3.{minor}.")


def test_unknown_installer_is_a_mistake():
    done = subprocess.run([FRESH_CLONE, "conda", sys.executable, ""], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "conda: pip or uv expected\n")
