"""A cluster whose Python lacks the package: `odradek pipeline pack` and Spark's archives bring it."""

import os
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from odradek.spark.java import ensure_java
from odradek.spark.packing import pack, settings
from tests.spark.support import Record, Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
SPARK = Path(pyspark.__file__).parent / "bin"
WORKERS = 2


@pytest.fixture
def environment() -> dict[str, str]:
    """What Spark's processes start with: a Java, no path to this package, nothing that listens beyond this machine."""
    found = {**os.environ, "JAVA_HOME": ensure_java(), "SPARK_LOCAL_IP": "127.0.0.1"}
    found.pop("PYTHONPATH", None)
    return found


@pytest.fixture
def master(tmp_path: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a standalone master with two workers, each a process of its own."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    deploy, here = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *here, "--port", str(port)]]
    for number in range(WORKERS):
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"worker-{number}")]
        commands.append([f"{deploy}.worker.Worker", *here, *limits, address])
    with (tmp_path / "cluster.log").open("w") as log:
        started = [
            subprocess.Popen([str(SPARK / "spark-class"), *each], env=environment, stdout=log, stderr=log)
            for each in commands
        ]
    yield address
    for each in reversed(started):
        each.terminate()
    for each in started:
        each.wait(60)


@pytest.mark.long
def test_executors_without_the_package_read_and_write(
    topics: Topics, master: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """The workers' Python is a bare one, and only the driver has ours: docs/SPARK.md's command."""
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, [Record(b"%d" % n, b"k%d" % n, partition=n % 2) for n in range(200)])
    archive = tmp_path / "odradek-env.zip"
    pack(archive)
    venv.create(tmp_path / "bare")
    pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(tmp_path / "bare" / "bin" / "python")}
    own = {**settings(str(archive)), "spark.executor.memory": "600m", "spark.ui.enabled": "false"}
    conf = [part for name, value in own.items() for part in ("--conf", f"{name}={value}")]
    job = [str(HERE / "packed_job.py"), topics.bootstrap, source, target]
    done = subprocess.run(
        [str(SPARK / "spark-submit"), "--master", master, *conf, *job],
        env={**environment, **pythons},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    _, count, *places = next(line for line in done.stdout.splitlines() if line.startswith("read")).split()
    assert int(count) == 200
    assert places
    assert all("odradek-env" in each for each in places), places
    assert sorted(int(each.value or b"") for each in topics.read(target, committed=True)) == list(range(200))
