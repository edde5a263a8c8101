"""A catalog of Iceberg tables in a database that two tasks use for the first time at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from odradek.connect.table_formats.iceberg import IcebergCatalog


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], IcebergCatalog]]:
    """A task's own catalog, in a database that all tasks share."""
    made: list[IcebergCatalog] = []

    def open_one() -> IcebergCatalog:
        made.append(IcebergCatalog({"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


def test_catalog_opens_when_another_task_makes_its_tables_first(
    opened: Callable[[], IcebergCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg looks for the tables, then makes them: here another task makes them in between."""

    def late(catalog: SqlCatalog) -> None:
        monkeypatch.undo()
        opened().load("lake.numbers")
        try:
            SqlCatalogBaseTable.metadata.create_all(catalog.engine, checkfirst=False)
        finally:
            catalog.close()

    monkeypatch.setattr(SqlCatalog, "create_tables", late)
    assert opened().load("lake.numbers") is None


def test_table_is_made_when_another_task_makes_its_namespace_first(
    opened: Callable[[], IcebergCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, other = opened(), opened()
    for each in (catalog, other):
        assert each.load("lake.numbers") is None
    exists = SqlCatalog.namespace_exists

    def looked_at_before(this: SqlCatalog, namespace: Any) -> bool:
        found = exists(this, namespace)
        monkeypatch.undo()
        other.create("lake.others", {"n": "bigint"})
        return found

    monkeypatch.setattr(SqlCatalog, "namespace_exists", looked_at_before)
    assert catalog.create("lake.numbers", {"n": "bigint"}).name() == ("lake", "numbers")
