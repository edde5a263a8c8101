"""Cheap parity cases against recorded outcomes of Spark's own connector, without its classes."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.blocking import Blocking
from tests.spark.parity.batches import run_case
from tests.spark.parity.cases import CASES, Case
from tests.spark.parity.data import Filler, make
from tests.spark.parity.differences import DIFFERENCES
from tests.spark.parity.recording import DATASETS, RECORDED, load, plain
from tests.spark.parity.stream_cases import SCENARIOS
from tests.spark.parity.writes import WRITES
from tests.spark.support import Topics

pytestmark = pytest.mark.xdist_group("spark")

DOCS = Path(__file__).parents[3] / "docs" / "SPARK.md"


@pytest.fixture(scope="module")
def recorded_topics(topics: Topics) -> Iterator[Filler]:
    with Blocking() as blocking:
        found = Filler(topics, blocking, f"recorded-{uuid.uuid4().hex[:8]}")
        make(found, DATASETS)
        yield found


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_batch_equals_recorded_official(spark: Any, recorded_topics: Filler, case: Case) -> None:
    ours = run_case(spark, recorded_topics, case, "ours")
    assert plain(ours, recorded_topics) == load()[case.name], ours.message


def test_every_listed_difference_is_documented() -> None:
    names = [*(each.name for each in CASES), *(each.name for each in SCENARIOS), *(each.name for each in WRITES)]
    assert len(names) == len(set(names))
    assert DIFFERENCES.keys() <= set(names)
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")]
    missing = {each.row for each in DIFFERENCES.values() if not any(row.startswith(f"| {each.row}") for row in rows)}
    assert not missing
