"""Spark's Python processes stay quick: what is loaded is not walked again, and reading does not load pandas."""

import gc
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from odradek.records.arrow import encode_from_arrow
from odradek.spark import workers

READING = """
import sys
import numpy as np, pyarrow as pa
import odradek.spark.reading
from odradek.records.arrow_decode import decode_to_arrow
from odradek.records.arrow_gather import primitive

rows = decode_to_arrow(bytes.fromhex(sys.argv[1]), include_headers=False)
assert rows.column(1).to_pylist() == [b"a", b"bb", b"ccc"] and rows.column(2).to_pylist() == [0, 1, 2]
assert primitive(pa.int64(), np.arange(6)[::2]).to_pylist() == [0, 2, 4]
print("pandas" in sys.modules)
"""

WRITING = """
import resource, sys
import pyarrow as pa
from odradek.records.arrow import encode_from_arrow
from odradek.spark.workers import keep_memory

keep_memory()
values = pa.array([b"x" * 100] * 65_536, pa.binary())
for number in range(12):
    if number == 6:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    encode_from_arrow(None, values, 1, max_batch_bytes=524_288)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 6)
"""


@pytest.fixture(autouse=True)
def _thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers._Frozen, "modules", 0)
    # Tests of Spark's tasks freeze modules in this very process: those would not be counted again.
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("at_leisure", [True, False])
def test_what_is_loaded_is_left_out_of_collections(at_leisure: bool) -> None:
    before = gc.get_freeze_count()
    workers.freeze_modules(at_leisure=at_leisure)
    assert gc.get_freeze_count() > before + 1000


def test_once_until_more_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    workers.freeze_modules(at_leisure=False)
    frozen = gc.get_freeze_count()
    held = [[each] for each in range(10_000)]
    workers.freeze_modules(at_leisure=False)
    assert gc.get_freeze_count() <= frozen
    monkeypatch.setitem(sys.modules, "odradek_loaded_later", sys)
    workers.freeze_modules(at_leisure=False)
    assert gc.get_freeze_count() > frozen + 9000, len(held)


def test_reading_does_not_load_pandas() -> None:
    pytest.importorskip("pandas")
    batches = b"".join(encode_from_arrow(pa.nulls(3, pa.binary()), pa.array([b"a", b"bb", b"ccc"]), 1))
    command = [sys.executable, "-c", READING, batches.hex()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


on_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="what the allocator keeps is set for glibc only"
)


@on_glibc
def test_memory_of_written_columns_is_used_again() -> None:
    """Without it a round of 8 MB takes more than 2,000 page faults, each time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    faults = _page_faults_of_writing(environment)
    assert faults < 500, faults


@on_glibc
def test_memory_is_left_to_an_allocator_that_is_configured() -> None:
    faults = _page_faults_of_writing({**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "0"})
    assert faults > 1000, faults


def _page_faults_of_writing(environment: dict[str, str]) -> int:
    """Of one round of rows, in a process that has written some."""
    command = [sys.executable, "-c", WRITING]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
