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

WORKERS: Final = 2


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
    commands = [[f"{deploy}.master.Master", *here, "--port", str(port)]]
    for number in range(WORKERS):
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}")]
        commands.append([f"{deploy}.worker.Worker", *here, *limits, address])
    with (folder / "cluster.log").open("w") as log:
        started = [
            subprocess.Popen([str(BIN / "spark-class"), *each], env=environment, stdout=log, stderr=log)
            for each in commands
        ]
    try:
        until(lambda: (folder / "cluster.log").read_text().count("Successfully registered") >= WORKERS, "both workers")
        yield Cluster(address, started[1:])
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(60)
