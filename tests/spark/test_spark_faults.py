"""Some cells of the matrix of faults in the shared session; `./dev spark-faults` runs all of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.matrix import KINDS, World, in_session

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def world(spark: Any, faults_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World("odradek", tmp_path_factory.mktemp("matrix"), faults_file) as made:
        made.spark = spark
        yield made


@pytest.mark.parametrize(
    ("kind", "points", "few"),
    [
        ("lose", ("before-produce", "before-end"), False),
        ("cut", ("after-offsets",), False),
        ("broker", ("before-end",), False),
        ("worker", ("after-offset-log",), False),
        ("worker", ("before-commit-log",), True),
        ("task", ("after-produce",), True),
    ],
)
def test_cells_of_the_matrix(world: World, kind: str, points: tuple[str, ...], few: bool) -> None:
    for cell in in_session(world, KINDS[kind]._replace(points=points, few=few)):
        assert not cell.failure, cell.failure
