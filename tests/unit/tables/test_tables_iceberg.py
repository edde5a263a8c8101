"""Iceberg tables without a broker, in a catalog of SQLite: what differs from Delta tables, and what must not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan, FileScanTask

from odradek.connect.errors import ConfigInvalid, ConnectError, PositionMoved
from odradek.connect.table_formats.iceberg import exclusive
from odradek.tables import iceberg
from odradek.tables.specification import TableSpec, spec_of
from tests.unit.tables.writers import TOPIC_ID, Writer


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., TableSpec]:
    """Specifications of the table `lake.orders` of the same catalog."""
    catalog = {"catalog.uri": f"sqlite:///{tmp_path}/catalog.db", "catalog.warehouse": f"file://{tmp_path}/lake"}

    def make(name: str = "orders", **settings: str) -> TableSpec:
        given = {each.replace("_", "."): text for each, text in settings.items()}
        return spec_of(name, {"topic": "orders", "path": "lake.orders", "format": "iceberg", **catalog, **given})

    return make


@pytest.fixture(autouse=True)
def closed_catalogs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test has opened: Python 3.13 warns of a connection to SQLite that is left."""
    made: list[Catalog] = []
    begin = SqlCatalog.__init__

    def remember(self: SqlCatalog, name: str, **properties: str) -> None:
        begin(self, name, **properties)
        made.append(self)

    monkeypatch.setattr(SqlCatalog, "__init__", remember)
    yield
    for each in made:
        each.close()


def catalog_of(spec: TableSpec) -> Catalog:
    return load_catalog("default", **spec.catalog)


def rows(spec: TableSpec, *columns: str, path: str = "") -> list[tuple[Any, ...]]:
    found = catalog_of(spec).load_table(path or spec.path).scan(selected_fields=columns).to_arrow().select(columns)
    return sorted((tuple(each.values()) for each in found.to_pylist()), key=str)


def test_rows_positions_and_new_columns(spec: Callable[..., TableSpec]) -> None:
    Writer(spec()).write({"id": 1}, b"bad")
    again = Writer(spec())
    assert again.positions == {0: 2}
    again.write({"id": 2, "price": 1.5, "Ab.C": "x"})
    assert rows(spec(), "id", "price", "__offset", "__key") == [(1, None, 0, "k"), (2, 1.5, 2, "k")]
    assert rows(spec(), "offset", "value", path=spec().bad_path) == [(1, b"bad")]


def test_first_positions_are_there_without_a_record(spec: Callable[..., TableSpec]) -> None:
    Writer(spec())
    assert Writer(spec()).store.offsets(None) == {0: 0}


def test_rival_with_the_same_positions_writes_nothing(spec: Callable[..., TableSpec]) -> None:
    first, second = Writer(spec()), Writer(spec())
    first.write({"id": 1}, b"bad")
    with pytest.raises(PositionMoved):
        second.write({"id": 1}, b"bad")
    assert rows(spec(), "id") == [(1,)]
    assert len(rows(spec(), "offset", path=spec().bad_path)) == 1


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rival_between_look_and_commit_writes_nothing(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The catalog rejects the second commit; PyIceberg's own retries would add its rows."""
    first, second = Writer(spec(mode=mode)), Writer(spec(mode=mode))
    first.write({"id": 1})
    second.store.open([0], TOPIC_ID)
    second.positions = {0: 1}

    def rivalled(table: Any) -> Any:
        monkeypatch.undo()
        first.write({"id": 2})
        return exclusive(table)

    monkeypatch.setattr("odradek.tables.iceberg.exclusive", rivalled)
    with pytest.raises(PositionMoved, match="another task has committed"):
        second.write({"id": 2})
    assert len(rows(spec(), "id")) == (2 if mode == "append" else 1)


def test_rival_that_adds_bad_records_first_wins(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Writer(spec()), Writer(spec())
    load = iceberg.IcebergStore.load_bad

    def rivalled(store: iceberg.IcebergStore) -> Any:
        monkeypatch.undo()
        first.write(b"bad")
        return load(store)

    monkeypatch.setattr(iceberg.IcebergStore, "load_bad", rivalled)
    with pytest.raises(PositionMoved):
        second.write(b"bad")
    assert len(rows(spec(), "offset", path=spec().bad_path)) == 1


def test_upsert_replaces_rows_and_deletes_keys(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec(mode="upsert"))
    writer.write(("a", {"n": 1}), ("b", {"n": 2}), ("c", {"n": 3}))
    writer.write(("a", {"n": 4, "m": 1}), ("b", None))
    assert rows(spec(), "__key", "n", "m", "__offset") == [("a", 4, 1, 3), ("c", 3, None, 2)]
    writer.write(("z", None))
    assert Writer(spec(mode="upsert")).positions == {0: 6}


def test_upsert_by_several_columns(spec: Callable[..., TableSpec]) -> None:
    made = spec(mode="upsert", key_converter="json", key_columns="a,b", columns="a bigint,b string")
    writer = Writer(made)
    writer.write(*((f'{{"a": {number}, "b": "x"}}', {"n": number}) for number in range(5)))
    writer.write(('{"a": 1, "b": "x"}', {"n": 10}), ('{"a": 1, "b": "y"}', {"n": 11}), ('{"a": 4, "b": "x"}', None))
    assert rows(made, "n") == [(0,), (10,), (11,), (2,), (3,)]


@pytest.mark.parametrize("unit", ["hour", "day", "month"])
def test_table_is_divided_by_units_of_time(spec: Callable[..., TableSpec], unit: str) -> None:
    made = spec(partition_by=f"{unit}(__timestamp)")
    Writer(made).write({"id": 1})
    table = catalog_of(made).load_table(made.path)
    assert [(each.name, str(each.transform)) for each in table.spec().fields] == [(f"__timestamp_{unit}", unit)]
    assert Writer(made).positions == {0: 1}


def test_offsets_of_earlier_snapshots_are_known(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    writer.write({"id": 1})
    version = writer.store.describe()["version"]
    writer.write({"id": 2}, {"id": 3})
    assert writer.store.offsets(str(version)) == {0: 1}
    assert writer.store.offsets((datetime.now(UTC) + timedelta(days=1)).isoformat()) == {0: 3}
    with pytest.raises(ConnectError, match="no such snapshot"):
        writer.store.offsets("17")


def test_positions_outlast_snapshots_of_others(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    writer.write({"id": 1})
    table = catalog_of(spec()).load_table(spec().path)
    table.append(pa.table({"id": [7]}))
    again = Writer(spec())
    assert again.positions == {0: 1}
    again.write({"id": 2})
    assert rows(spec(), "id") == [(1,), (2,), (7,)]


def file_count(spec: TableSpec) -> int:
    return len(catalog_of(spec).load_table(spec.path).inspect.files())


def test_small_files_are_joined_and_positions_stay(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    for number in range(3):
        writer.write({"id": number})
    writer.write({"id": 3, "price": 1.5, "Ab.C": "x"})
    assert writer.store.compact() == 4
    assert file_count(spec()) == writer.store.describe()["files"] == 1
    assert writer.store.offsets(None) == {0: 4}
    assert writer.store.compact() == 0
    writer.write({"id": 4})
    assert Writer(spec()).positions == {0: 5}
    assert rows(spec(), "id", "price", "__offset")[2:] == [(2, None, 2), (3, 1.5, 3), (4, None, 4)]


def test_joined_files_leave_earlier_snapshots_readable(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    writer.write({"id": 1})
    version = writer.store.describe()["version"]
    writer.write({"id": 2})
    assert writer.store.compact() == 2
    assert writer.store.offsets(str(version)) == {0: 1}
    found = catalog_of(spec()).load_table(spec().path).scan(snapshot_id=version).to_arrow()
    assert found.column("id").to_pylist() == [1]


def test_joined_snapshot_keeps_positions_when_others_expire(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    writer.write({"id": 1})
    writer.write({"id": 2})
    writer.store.compact()
    catalog_of(spec()).load_table(spec().path).maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    assert Writer(spec()).positions == {0: 2}


@pytest.mark.parametrize("division", ["hour(__timestamp)", "day(__timestamp)", "month(__timestamp)", "region"])
def test_files_are_joined_within_their_partition(spec: Callable[..., TableSpec], division: str) -> None:
    made = spec(columns="region string", partition_by=division)
    writer = Writer(made)
    for region in ("eu", "us", "eu", "us", None):
        writer.write({"region": region})
    count = 3 if division == "region" else 1
    before = partitions_of(made)
    assert writer.store.compact() == (4 if division == "region" else 5)
    assert file_count(made) == count
    assert partitions_of(made) == before
    found = catalog_of(made).load_table(made.path).scan(row_filter="region = 'us'").to_arrow()
    assert sorted(found.column("__offset").to_pylist()) == [1, 3]


def partitions_of(spec: TableSpec) -> dict[str, int]:
    """The number of records of each partition."""
    found = catalog_of(spec).load_table(spec.path).inspect.partitions().to_pylist()
    return {str(each["partition"]): each["record_count"] for each in found}


def test_files_are_joined_up_to_the_target(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    for number in range(5):
        writer.write({"id": number})
    size = max(catalog_of(spec()).load_table(spec().path).inspect.files().column("file_size_in_bytes").to_pylist())
    assert Writer(spec(compact_target_bytes=str(size))).store.compact() == 0
    assert Writer(spec(compact_target_bytes=str(size * 2))).store.compact() == 4
    assert file_count(spec()) == 3
    assert len(rows(spec(), "id")) == 5


def test_append_while_files_are_joined_is_kept(spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog rejects the joined files once; they follow the rival's snapshot then, with its positions."""
    writer, rival = Writer(spec()), Writer(spec())
    writer.write({"id": 1})
    writer.write({"id": 2})
    rival.store.open([0], TOPIC_ID)
    rival.positions = {0: 2}

    def rivalled(table: Any) -> Any:
        monkeypatch.undo()
        rival.write({"id": 3})
        return exclusive(table)

    monkeypatch.setattr("odradek.tables.iceberg_compaction.exclusive", rivalled)
    assert writer.store.compact() == 2
    assert Writer(spec()).positions == {0: 3}
    assert rows(spec(), "id") == [(1,), (2,), (3,)]
    assert file_count(spec()) == 2


def test_upsert_while_files_are_joined_wins(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has replaced a file that was joined: the joined one is deleted, for it has a row that is gone."""
    made = spec(mode="upsert")
    writer, rival = Writer(made), Writer(made)
    writer.write(("a", {"n": 1}))
    writer.write(("b", {"n": 2}))
    rival.store.open([0], TOPIC_ID)
    rival.positions = {0: 2}
    files: list[int] = []

    def rivalled(table: Any) -> Any:
        monkeypatch.undo()
        rival.write(("a", {"n": 3}))
        files.append(len(list(tmp_path.rglob("*.parquet"))))
        return exclusive(table)

    monkeypatch.setattr("odradek.tables.iceberg_compaction.exclusive", rivalled)
    with pytest.raises(PositionMoved, match="other writers"):
        writer.store.compact()
    assert rows(made, "__key", "n") == [("a", 3), ("b", 2)]
    assert len(list(tmp_path.rglob("*.parquet"))) == files[0] - 1
    assert writer.store.compact() == 2
    assert rows(made, "__key", "n") == [("a", 3), ("b", 2)]


def test_kill_before_the_commit_of_joined_files_changes_nothing(spec: Callable[..., TableSpec]) -> None:
    made = spec()
    writer = Writer(made)
    writer.write({"id": 1})
    writer.write({"id": 2})
    settings = {"topic": "orders", "path": made.path, "format": "iceberg"}
    settings |= {f"catalog.{name}": text for name, text in made.catalog.items()}
    words = [sys.executable, "-c", KILLED_COMPACTION, json.dumps(settings)]
    assert subprocess.run(words, timeout=60).returncode == -signal.SIGKILL
    assert file_count(made) == 2
    assert Writer(made).positions == {0: 2}
    assert writer.store.compact() == 2
    assert rows(made, "id") == [(1,), (2,)]


KILLED_COMPACTION = """
import json, os, signal, sys
from pyiceberg.table import Transaction
from odradek.tables.iceberg import IcebergStore
from odradek.tables.specification import spec_of

Transaction.commit_transaction = lambda self: os.kill(os.getpid(), signal.SIGKILL)
IcebergStore(spec_of("orders", json.loads(sys.argv[1]))).compact()
"""


def test_files_with_deletes_of_others_are_not_joined(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their deletes name the file: its rows would come back in another one."""
    writer = Writer(spec())
    for number in range(3):
        writer.write({"id": number})
    plan = DataScan.plan_files

    def with_deletes(scan: DataScan) -> list[FileScanTask]:
        first, *others = plan(scan)
        return [FileScanTask(first.file, {first.file}), *others]

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    assert writer.store.compact() == 2


def test_table_of_something_else_is_left_alone(spec: Callable[..., TableSpec]) -> None:
    catalog = catalog_of(spec())
    catalog.create_namespace("lake")
    catalog.create_table("lake.orders", pa.schema([("id", pa.int64())])).append(pa.table({"id": [7]}))
    with pytest.raises(ConnectError, match="=append would add rows"):
        Writer(spec())
    Writer(spec(existing_table="append")).write({"id": 1})
    assert rows(spec(), "id") == [(1,), (7,)]


def test_topic_that_was_created_again_is_noticed(spec: Callable[..., TableSpec]) -> None:
    Writer(spec()).write({"id": 1})
    with pytest.raises(ConnectError, match="was deleted and created again"):
        Writer(spec(), topic_id=b"\x22" * 16)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"path": "orders"}, "NAMESPACE.TABLE expected"),
        ({"storage_x": "5"}, "storage.x has no effect"),
        ({"format": "delta"}, "catalog.uri has no effect on a table in Delta"),
    ],
)
def test_settings_of_the_other_format_are_rejected(
    spec: Callable[..., TableSpec], settings: dict[str, str], line: str
) -> None:
    with pytest.raises(ConfigInvalid, match=line):
        spec(**settings)


def test_closed_store_has_no_connection_to_its_catalog(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[SqlCatalog] = []
    close = SqlCatalog.close

    def note(catalog: SqlCatalog) -> None:
        closed.append(catalog)
        close(catalog)

    monkeypatch.setattr(SqlCatalog, "close", note)
    writer = Writer(spec())
    writer.write({"id": 1})
    writer.store.close()
    writer.store.close()
    assert len(closed) == 1
    assert writer.store.offsets(None) == {0: 1}
