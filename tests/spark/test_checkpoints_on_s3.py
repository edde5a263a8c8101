"""Queries whose checkpoints are on S3, which moto serves: Spark by Hadoop's S3A, its Python processes by pyarrow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench.peers import s3a
from odradek.records.topic_partition import TopicPartition
from odradek.spark.checkpoint_files import ArrowFiles
from odradek.spark.checkpoints import source_ends
from odradek.spark.stores.databases import Sqlite
from odradek.spark.stores.sql import read_rows
from tests.s3 import s3_server
from tests.spark.pipelines import ROOT
from tests.spark.support import Record, Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]


@pytest.mark.timeout(600)
def test_each_sink_continues_from_a_checkpoint_on_s3(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs: the group of `sourceGroup` follows, and the stores have each record once."""
    try:
        s3a.jars()
    except LookupError as error:
        pytest.skip(str(error))
    source, target, database = topics.create(1), topics.create(1), tmp_path / "store.db"
    with s3_server() as s3:
        place = f"{s3.url}/{source}"
        for name, value in {**s3.options, "AWS_EC2_METADATA_DISABLED": "true"}.items():
            monkeypatch.setenv(name, value)
        line = [sys.executable, "-m", "tests.spark.s3_job", topics.bootstrap, source, target, place, str(database)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"}
        for end in (20, 30):
            begin = topics.ends(source, 1)[0]
            topics.fill(source, [Record(b"%d" % n) for n in range(begin, end)])
            done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-6_000:]
            found = sorted(int(each.value or b"") for each in topics.read(target, 1, committed=True))
            assert found == list(range(end))
            assert topics.group_offsets(f"{target}-lag") == {TopicPartition(source, 0): end}
            rows = read_rows(Sqlite(str(database)), "records", ["value"])
            assert sorted(int(value) for (value,) in rows) == list(range(end))
            table = DeltaTable(f"{place}/table", storage_options=s3.options).to_pyarrow_table(columns=["value"])
            assert sorted(map(int, table.column("value").to_pylist())) == list(range(end))
        ends = source_ends(ArrowFiles(f"{place}/topic"), 4)
        assert [list(each.offsets.values()) for each in ends] == [[30]]
