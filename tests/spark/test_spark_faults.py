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
    ("kind", "points"),
    [
        ("lose", ("before-produce", "before-end")),
        ("cut", ("after-offsets",)),
        ("broker", ("before-end",)),
        ("worker", ("after-offset-log",)),
    ],
)
def test_cells_of_the_matrix(world: World, kind: str, points: tuple[str, ...]) -> None:
    for cell in in_session(world, KINDS[kind]._replace(points=points)):
        assert not cell.failure, cell.failure
