"""A standalone cluster of Spark on this machine: a master and two workers, each a process of its own."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from odradek.spark.java import ensure_java
from tests.integration.waiting import until
from tests.spark.connect_server import BIN, free_port
from tests.spark.evidence import explained

WORKERS: Final = 2
PATIENCE_S: Final = 180.0
"""How long a step of a cluster may take: each starts several Javas, which takes a minute on two busy cores."""


class Cluster(NamedTuple):
    """The processes of a cluster that runs."""

    address: str
    workers: list[subprocess.Popen[bytes]]


def bare_environment() -> dict[str, str]:
    """What Spark's processes start with: a Java, no path to this package, nothing that listens beyond this machine."""
    found = {**os.environ, "JAVA_HOME": ensure_java(), "SPARK_LOCAL_IP": "127.0.0.1"}
    found.pop("PYTHONPATH", None)
    return found


@contextmanager
def standalone_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A master and its workers, which are ended with the test; the folder gets their log and those of executors."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy, here = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    path = folder / "cluster.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with path.open("a") as log:
            line = [str(BIN / "spark-class"), *command]
            started.append(subprocess.Popen(line, env=environment, stdout=log, stderr=log))

    def wait_for(text: str, times: int) -> None:
        with explained(folder):
            until(lambda: path.read_text().count(text) >= times, text, PATIENCE_S)

    try:
        start(f"{deploy}.master.Master", *here, "--port", str(port))
        # a worker that comes before its master tries again only after some ten seconds
        wait_for("New state: ALIVE", 1)
        for number in range(WORKERS):
            limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}")]
            start(f"{deploy}.worker.Worker", *here, *limits, address)
        wait_for("Successfully registered", WORKERS)
        yield Cluster(address, started[1:])
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(60)
