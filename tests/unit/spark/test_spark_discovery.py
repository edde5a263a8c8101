"""What Spark imports to find the data source must cost nothing."""

import subprocess
import sys

LIGHT = """
import sys, pyspark.sql.datasource
before = set(sys.modules)
import pyspark_odradek
assert pyspark_odradek.DefaultSource.name() == "odradek"
new = set(sys.modules) - before
assert not {n for n in new if n.startswith(("odradek.client", "odradek.records", "odradek.wire", "asyncio"))}, new
print(len(new))
"""


def test_discovery_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10
