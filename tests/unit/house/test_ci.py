"""The scripts of continuous integration: both installers and both ends of the supported Pythons, in fresh clones."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.house.sources import ROOT

RUN, FRESH_CLONE = ROOT / ".ci" / "run", ROOT / ".ci" / "fresh_clone"
COMMIT_SUBJECTS = ROOT / ".ci" / "commit_subjects"
pytestmark = pytest.mark.skipif(not RUN.exists(), reason="a source archive has no .ci")


def function(script: Path, name: str) -> str:
    (body,) = re.findall(rf"^{name}\(\).*?^}}$", script.read_text(), re.MULTILINE | re.DOTALL)
    return body


def bash(code: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    return subprocess.check_output(["bash", "-euo", "pipefail", "-c", code], text=True, env=environment, timeout=60)


@pytest.mark.parametrize("script", [RUN, FRESH_CLONE, COMMIT_SUBJECTS, ROOT / "dev"], ids=lambda path: path.name)
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


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, which has the tag `base`."""
    bash(f"cd {tmp_path}; git init -q .; {commit('whatever came before.')}; git tag base")
    return tmp_path


def commit(subject: str) -> str:
    return f"git -c user.name=n -c user.email=e@x commit -q --allow-empty -m {shlex.quote(subject)}"


def check_subject(repository: Path, subject: str) -> tuple[int, str]:
    bash(f"cd {repository}; {commit(subject)}")
    done = subprocess.run(
        [COMMIT_SUBJECTS, "base"], cwd=repository, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def test_commit_subject_passes_with_an_imperative_and_72_characters(repository: Path):
    assert check_subject(repository, "Fence " + "x" * 66) == (0, "")


def test_commit_subject_fails_above_72_characters(repository: Path):
    status, output = check_subject(repository, "Fence " + "x" * 67)
    assert status == 1
    assert "73 characters" in output


def test_commit_subject_fails_with_a_full_stop(repository: Path):
    status, output = check_subject(repository, "Fence stale fetchers.")
    assert status == 1
    assert "full stop" in output


def test_commit_subject_warns_without_an_imperative_verb(repository: Path):
    status, output = check_subject(repository, "Fixed the fetcher")
    assert status == 0
    assert "warning" in output


def test_commit_subjects_check_the_last_commit_when_the_base_is_missing(repository: Path):
    bash(f"cd {repository}; git tag -d base >/dev/null")
    status, output = check_subject(repository, "x" * 73)
    assert status == 1
    assert "base is not among the ancestors" in output
