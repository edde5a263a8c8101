"""Every command of docs/CLUSTER.md that can run on one machine is run here, in the order of the page, and succeeds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.broker import BrokerProcess
from bench.peers.cluster import ClusterProcess
from odradek.cli.main import main
from tests.integration.clusters import QUICK, sound_cluster
from tests.integration.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "CLUSTER.md"
SETTINGS = {
    **QUICK,
    # One broker is taken out for good, so that two must be enough for every topic.
    "default.replication.factor": 2,
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
}


def commands() -> list[str]:
    """The commands in the page's blocks."""
    return re.findall(r"^    (odradek (?!ready).*)$", PAGE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guide")


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[ClusterProcess]:
    with sound_cluster(directory, SETTINGS) as running:
        (directory / "three").symlink_to(running.data_dir)
        yield running


def test_first_command_of_the_guide_starts_a_cluster(tmp_path: Path) -> None:
    """The fixture starts its cluster with the same words."""
    words = [str(tmp_path) if each == "./three" else each.replace(":9092", ":0") for each in shlex.split(commands()[0])]
    assert ClusterProcess(tmp_path).command()[3:] == words[1:]


def test_commands_of_the_guide_succeed_in_order(
    cluster: ClusterProcess,
    odradek_broker: BrokerProcess,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", cluster.bootstrap)

    def status_of(line: str) -> int:
        if " | " not in line:
            return main(shlex.split(line)[1:])
        shell = line.replace("odradek ", f"{shlex.quote(sys.executable)} -m odradek.cli.main ")
        return subprocess.run(shell, shell=True, capture_output=True, timeout=60).returncode

    assert status_of("odradek topics --create --topic orders --partitions 2") == 0
    for bootstrap in (odradek_broker.bootstrap, cluster.bootstrap):
        assert status_of(f"odradek topics --create --topic T --if-not-exists --bootstrap-server {bootstrap}") == 0
    for line in commands()[1:]:
        if line.startswith("odradek plan"):
            line = line.partition("#")[0]
        line = line.replace(" OLD ", f" {odradek_broker.bootstrap} ").replace(" NEW ", f" {cluster.bootstrap} ")
        if line.startswith("odradek reassign verify"):
            until(lambda line=line: status_of(line) == 0, "the plan is complete")  # type: ignore[misc]
        else:
            assert status_of(line) == 0, f"{line}\n{capsys.readouterr()}"
