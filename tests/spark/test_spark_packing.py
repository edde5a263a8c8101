"""A cluster whose Python lacks the package: `odradek pipeline pack` and Spark's archives or artifacts bring it."""

import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from odradek.spark.packing import pack, settings
from tests.spark.connect_server import BIN, connect_server
from tests.spark.evidence import explained
from tests.spark.standalone import bare_environment, standalone_cluster
from tests.spark.support import Record, Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent


@pytest.fixture
def environment() -> dict[str, str]:
    """What Spark's processes start with."""
    return bare_environment()


@pytest.fixture
def master(tmp_path: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a standalone master with two workers."""
    with standalone_cluster(tmp_path, environment) as cluster:
        yield cluster.address


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
    with explained(tmp_path), (tmp_path / "driver.log").open("w") as log:
        done = subprocess.run(
            [str(BIN / "spark-submit"), "--master", master, *conf, *job],
            env={**environment, **pythons},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0
    _, count, *places = next(line for line in done.stdout.splitlines() if line.startswith("read")).split()
    assert int(count) == 200
    assert places
    assert all("odradek-env" in each for each in places), places
    assert sorted(int(each.value or b"") for each in topics.read(target, committed=True)) == list(range(200))


@pytest.mark.long
def test_connect_client_brings_the_package_to_server_and_executors(
    topics: Topics, master: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Server and executors have a Python with pyarrow and NumPy; the client has the archive and PySpark."""
    source, *targets = topics.create(2), topics.create(2), topics.create(2)
    topics.fill(source, [Record(b"%d" % n, b"k%d" % n, partition=n % 2) for n in range(200)])
    archive = tmp_path / "odradek-connect.zip"
    pack(archive, connect=True)
    venv.create(tmp_path / "bare")
    (packages,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    for each in ("pyarrow", "numpy", "numpy.libs"):
        (packages / each).symlink_to(Path(pa.__file__).parents[1] / each)
    bare = str(tmp_path / "bare" / "bin" / "python")
    pythons = {"PYSPARK_DRIVER_PYTHON": bare, "PYSPARK_PYTHON": bare}
    log, conf = tmp_path / "server.log", {"spark.executor.memory": "600m"}
    with connect_server(master, {**environment, **pythons}, log, conf) as address, explained(tmp_path):
        job = [str(HERE / "attached_job.py"), str(archive), address, topics.bootstrap, source, *targets]
        with (tmp_path / "client.log").open("w") as errors:
            done = subprocess.run(
                [sys.executable, *job, str(tmp_path / "checkpoint")],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=400,
            )
        assert done.returncode == 0
    assert done.stdout.split() == ["read", "200"]
    for each in targets:
        assert sorted(int(row.value or b"") for row in topics.read(each, committed=True)) == list(range(200))
