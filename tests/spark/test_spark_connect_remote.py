"""A Spark Connect server that has the package, and a remote client that has PySpark only."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.java import ensure_java
from tests.spark.connect_server import connect_server
from tests.spark.support import Record, Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long, pytest.mark.timeout(400)]

CLIENT = """
import sys

# as where the package is not installed
sys.modules["odradek"] = sys.modules["pyspark_odradek"] = None

from pyspark.sql import SparkSession

address, servers, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
options = {"kafka.bootstrap.servers": servers}
rows = spark.read.format("odradek").options(**options, subscribe=source).load()
print(rows.count(), flush=True)
stream = spark.readStream.format("odradek").options(**options, subscribe=source, startingOffsets="earliest").load()
writer = stream.select("key", "value").writeStream.format("odradek").options(**options, topic=target)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
assert query.awaitTermination(120)
spark.stop()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server in a process of its own, whose Python is this one."""
    own = {"JAVA_HOME": ensure_java(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with connect_server("local[2]", {**os.environ, **own}, tmp_path / "server.log") as address:
        yield address


def test_remote_client_without_the_package_reads_and_writes(server: str, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, [Record(b"%d" % n, partition=n % 2) for n in range(50)])
    # the client waits for the server to listen
    arguments = [server, topics.bootstrap, source, target, str(tmp_path / "checkpoint")]
    done = subprocess.run([sys.executable, "-c", CLIENT, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-5000:] + (tmp_path / "server.log").read_text()[-5000:]
    assert done.stdout.split() == ["50"]
    assert sorted(int(each.value or b"") for each in topics.read(target, committed=True)) == list(range(50))
