"""A query may change between Spark's own connector and ours and keep its checkpoint."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.support import Topics

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / "bench" / "peers" / "spark_connector.py"

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long, pytest.mark.timeout(600)]


def test_checkpoint_continues_under_either_connector(topics: Topics, tmp_path: Path) -> None:
    if not shutil.which("mvn"):
        pytest.skip("Spark's own connector comes by mvn, which is not on PATH")
    jars = subprocess.check_output([sys.executable, str(CONNECTOR), "jars"], text=True).strip()
    topic = topics.create(2)
    command = [sys.executable, "-m", "tests.spark.checkpoint_job", topics.bootstrap, topic, str(tmp_path / "c"), jars]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=500)
    found = [json.loads(line.removeprefix("found ")) for line in done.stdout.splitlines() if line.startswith("found")]
    assert found == [list(range(10)), list(range(10, 20)), list(range(20, 30))], done.stderr[-3000:]
