"""Spark's Python processes stay quick: what is loaded is not walked again, and reading does not load pandas."""

import gc
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
