"""Spark's official Kafka connector."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.spark.java import NoJavaError, ensure_java

HERE = Path(__file__).resolve().parent
CONNECTOR = HERE.parents[1] / "bench" / "peers" / "spark_connector.py"
ROWS = 1000


@pytest.fixture(scope="module")
def connector_jars() -> str:
    try:
        ensure_java()
    except NoJavaError as error:
        pytest.skip(str(error))
    if not shutil.which("mvn"):
        pytest.skip("Spark's connector is fetched by mvn, which is not on PATH")
    done = subprocess.run([sys.executable, str(CONNECTOR), "jars"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"Spark's connector could not be fetched: {done.stderr.strip()}")
    return done.stdout.strip()


def test_batch_write_stream_read_and_resume(
    bootstrap: str,
    create_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    connector_jars: str,
    tmp_path: Path,
) -> None:
    """A second query on the checkpoint of the first reads what the first has not read, each row once."""
    job = [sys.executable, str(HERE / "spark_official_job.py"), bootstrap, create_topic(), unique_name("group")]
    done = subprocess.run([*job, str(tmp_path), connector_jars], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-6000:]
    first, second = json.loads(done.stdout.strip().splitlines()[-1])
    assert sorted(first) == list(range(ROWS))
    assert sorted(second) == list(range(2 * ROWS))
