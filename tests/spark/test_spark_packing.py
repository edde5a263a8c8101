"""A cluster whose Python lacks the package: `odradek pipeline pack` and Spark's archives bring it."""

import os
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
    chooser = tmp_path / "python"
    bare = tmp_path / "bare" / "bin" / "python"
    chooser.write_text(f'#!/bin/sh\n[ -n "$ON_EXECUTOR" ] && exec {bare} "$@"\nexec {sys.executable} "$@"\n')
    chooser.chmod(0o755)
    arguments = [topics.bootstrap, source, target, str(archive), str(chooser)]
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
    assert done.returncode == 0, done.stderr[-3000:]
    count, *places = done.stdout.split()
    assert int(count) == 200
    assert all("odradek-env" in each for each in places), places
    assert sorted(int(each.value or b"") for each in topics.read(target, committed=True)) == list(range(200))
