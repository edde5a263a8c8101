"""A cluster whose Python lacks the package: `odradek pipeline pack` and Spark's archives bring it."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from odradek.spark.java import ensure_java
from odradek.spark.packing import pack
from tests.spark.support import Record, Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent


@pytest.mark.long
def test_executors_without_the_package_read_and_write(topics: Topics, tmp_path: Path) -> None:
    """Spark's own standalone master with two workers; their Python is a bare one, and only the driver has ours."""
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, [Record(b"%d" % n, b"k%d" % n, partition=n % 2) for n in range(200)])
    archive = tmp_path / "odradek-env.zip"
    pack(archive)
    venv.create(tmp_path / "bare")
    bare = tmp_path / "bare" / "bin" / "python"
    arguments = [topics.bootstrap, source, target, str(archive), str(bare)]
    environment = {**os.environ, "JAVA_HOME": ensure_java()}
    environment.pop("PYTHONPATH", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = subprocess.run(
            [sys.executable, str(HERE / "packed_job.py"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[:5000]
    count, *places = done.stdout.split()
    for each in {Path(place).parents[3] for place in places if "odradek-env" in place}:
        # Spark keeps what its workers unpacked in its own folder.
        assert each.name.startswith("app-"), each
        shutil.rmtree(each)
    assert int(count) == 200
    assert all("odradek-env" in each for each in places), places
    assert sorted(int(each.value or b"") for each in topics.read(target, committed=True)) == list(range(200))
