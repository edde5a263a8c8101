"""What deploy/ runs works: the health checks answer by exit status, and compose.yaml's brokers form a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.peers.zookeeper import ZooKeeper, free_ports
from tests.unit.house.deployment import DEPLOY, containers, documents

TIME_LIMIT_SECONDS = 60
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "HOSTNAME": "odradek-7",
}


@contextmanager
def serving(words: list[str], directory: Path) -> Iterator[str]:
    """A broker of these arguments of `odradek`; its bootstrap address."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["odradek", *words], stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory, env=ENVIRONMENT
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        assert ready[:2] == ["odradek", "ready"], (directory / "log").read_text()
        yield ready[2].removeprefix("bootstrap=")
    finally:
        process.terminate()
        try:
            assert process.wait(TIME_LIMIT_SECONDS) == 0
        finally:
            process.kill()
            process.stdout.close()


def checks() -> dict[str, list[str]]:
    broker = next(each for each in containers() if each["name"] == "broker")
    return {name: broker[name]["exec"]["command"] for name in ("startupProbe", "readinessProbe")}


def status_of(command: list[str], address: str) -> int:
    words = [word.replace("127.0.0.1:9092", address) for word in command]
    return subprocess.run(words, env=ENVIRONMENT, capture_output=True, timeout=TIME_LIMIT_SECONDS).returncode


@pytest.mark.parametrize("check", checks())
def test_check_succeeds_when_the_broker_serves(check: str, tmp_path: Path):
    settings = ["--set", "broker.id=7", "--set", "advertised.listeners=PLAINTEXT://not.reachable.invalid:9092"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = ["serve", "--data-dir", "data", "--listen", f"127.0.0.1:{port}", *settings]
    with serving(words, tmp_path):
        assert status_of(checks()[check], f"127.0.0.1:{port}") == 0


def test_check_fails_when_no_broker_serves():
    with socket.socket() as bound:  # nothing listens on it
        bound.bind(("127.0.0.1", 0))
        assert status_of(checks()["readinessProbe"], f"127.0.0.1:{bound.getsockname()[1]}") != 0


def test_startup_check_fails_for_a_broker_that_the_cluster_lacks(tmp_path: Path):
    with serving(
        ["serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--set", "broker.id=3"], tmp_path
    ) as address:
        assert status_of(checks()["startupProbe"], address) != 0


def test_brokers_of_the_compose_file_form_a_cluster(tmp_path: Path):
    (compose,) = documents("container/compose.yaml")
    properties = (DEPLOY / "container" / "server.properties").read_text()
    with ZooKeeper(tmp_path / "zookeeper", sync=False) as zookeeper, ExitStack() as stack:
        bootstraps, ports = [], free_ports(6)
        for name, inner, outer in zip(("broker-1", "broker-2", "broker-3"), ports[:3], ports[3:], strict=True):
            home = tmp_path / name
            home.mkdir()
            replaced = properties.replace("zookeeper:2181", zookeeper.connect).replace(
                "/var/lib/odradek", str(home / "data")
            )
            (home / "server.properties").write_text(replaced)
            published = compose["services"][name]["ports"][0].split(":")[1]
            words = [
                each.replace("/etc/odradek/", "")
                .replace(f"{name}:", "127.0.0.1:")
                .replace("0.0.0.0", "127.0.0.1")
                .replace("19092", str(inner))
                .replace(f":{published}", f":{outer}")
                for each in compose["services"][name]["command"]
            ]
            stack.enter_context(serving(words, home))
            bootstraps.append(f"127.0.0.1:{outer}")
        create = [
            "odradek",
            "topics",
            "-b",
            ",".join(bootstraps),
            "--create",
            "--topic",
            "letters",
            "--partitions",
            "3",
        ]
        subprocess.run(create, env=ENVIRONMENT, check=True, timeout=TIME_LIMIT_SECONDS)
        listed = ["odradek", "cluster", "list-endpoints", "-b", bootstraps[2], "-o", "tsv"]
        found = subprocess.check_output(listed, env=ENVIRONMENT, text=True, timeout=TIME_LIMIT_SECONDS)
        listening = {port for line in found.splitlines() for port in line.split("\t") if port.isdecimal()}
        assert {address.rpartition(":")[2] for address in bootstraps} <= listening
