"""Delta tables without a broker: commits with positions, upserts, evolution, bad records, rivals, time travel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odradek.connect.errors import ConnectError, PositionMoved
from odradek.tables import delta
from odradek.tables.delta import DeltaStore
from odradek.tables.specification import TableSpec, spec_of
from tests.unit.tables.writers import TOPIC_ID, Writer


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., TableSpec]:
    """Specifications of the table `orders` at the same place."""

    def make(name: str = "orders", **settings: str) -> TableSpec:
        given = {each.replace("_", "."): text for each, text in settings.items()}
        return spec_of(name, {"topic": "orders", "path": str(tmp_path / "orders"), **given})

    return make


def rows(spec: TableSpec, *columns: str, path: str = "") -> list[tuple[Any, ...]]:
    found = DeltaTable(path or spec.path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted((tuple(each.values()) for each in found), key=str)


def test_rows_have_fields_keys_and_coordinates(spec: Callable[..., TableSpec]) -> None:
    Writer(spec()).write({"id": 1}, {"id": 2, "tags": ["a"]})
    found = rows(spec(), "__key", "id", "tags", "__topic", "__partition", "__offset")
    assert found == [("k", 1, None, "orders", 0, 0), ("k", 2, '["a"]', "orders", 0, 1)]


def test_positions_survive_and_new_fields_become_columns(spec: Callable[..., TableSpec]) -> None:
    Writer(spec()).write({"id": 1})
    again = Writer(spec())
    assert again.positions == {0: 1}
    again.write({"id": 2, "price": 1.5})
    assert rows(spec(), "id", "price") == [(1, None), (2, 1.5)]


def test_rival_with_the_same_positions_writes_nothing(spec: Callable[..., TableSpec]) -> None:
    first, second = Writer(spec()), Writer(spec())
    first.write({"id": 1}, b"bad")
    with pytest.raises(PositionMoved):
        second.write({"id": 1}, b"bad")
    assert rows(spec(), "id") == [(1,)]
    assert DeltaTable(spec().bad_path).count() == 1


def test_rival_between_look_and_commit_writes_nothing(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table itself rejects the second commit: another one came after the positions were compared."""
    first, second = Writer(spec()), Writer(spec())
    assert isinstance(second.store, DeltaStore)
    commits = second.store._commits
    compared = commits.check

    def check(*arguments: Any) -> None:
        compared(*arguments)
        first.write({"id": 1})

    monkeypatch.setattr(commits, "check", check)
    with pytest.raises(PositionMoved, match="another task has committed"):
        second.write({"id": 1})
    assert rows(spec(), "id") == [(1,)]


def test_rival_that_makes_the_table_of_bad_records_first_wins(
    spec: Callable[..., TableSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is older than the table that the slower one loads then."""
    first, second = Writer(spec()), Writer(spec())
    create = delta._create

    def rivalled(*arguments: Any) -> Any:
        monkeypatch.undo()
        first.write(b"bad")
        return create(*arguments)

    monkeypatch.setattr(delta, "_create", rivalled)
    with pytest.raises(PositionMoved):
        second.write(b"bad")
    assert DeltaTable(spec().bad_path).count() == 1


def test_upsert_replaces_rows_and_deletes_keys(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec(mode="upsert"))
    writer.write(("a", {"n": 1}), ("b", {"n": 2}), ("c", {"n": 3}))
    writer.write(("a", {"n": 4, "m": 1}), ("b", None))
    assert rows(spec(), "__key", "n", "m", "__offset") == [("a", 4, 1, 3), ("c", 3, None, 2)]


def test_upsert_that_changes_nothing_moves_positions(spec: Callable[..., TableSpec]) -> None:
    """A merge without changes makes no commit."""
    Writer(spec(mode="upsert")).write(("a", None))
    assert Writer(spec(mode="upsert")).positions == {0: 1}


def test_bad_records_are_kept_with_their_bytes(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec(columns="id bigint"))
    writer.write(b"\xff{", {"id": "x"}, [1], {"id": 1}, {"__offset": 1})
    assert rows(spec(), "id") == [(1,)]
    found = rows(spec(), "offset", "value", "reason", path=spec().bad_path)
    assert [(offset, reason.partition(":")[0]) for offset, _, reason in found] == [
        (0, "not JSON"), (1, "field id is of type string, its column of type bigint"),
        (2, "a JSON object expected, got list"),
        (4, "field __offset has the name of a column that the table fills itself"),
    ]  # fmt: skip
    assert found[0][1] == b"\xff{"


def test_bad_record_stops_a_table_without_a_place_for_it(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec(bad_records="fail"))
    with pytest.raises(ConnectError, match="record orders-0@1: not JSON"):
        writer.write({"id": 1}, b"x")
    assert rows(spec(), "__offset") == []


@pytest.mark.parametrize(
    ("unit", "value"), [("hour", "2026-01-01-00"), ("day", date(2026, 1, 1)), ("month", "2026-01")]
)
def test_table_is_divided_by_units_of_time(spec: Callable[..., TableSpec], unit: str, value: Any) -> None:
    made = spec(partition_by=f"{unit}(__timestamp)")
    Writer(made).write({"id": 1})
    assert rows(made, f"__timestamp_{unit}") == [(value,)]
    assert DeltaTable(made.path).metadata().partition_columns == [f"__timestamp_{unit}"]


def test_upsert_moves_a_row_to_another_partition(spec: Callable[..., TableSpec]) -> None:
    made = spec(mode="upsert", columns="region string", partition_by="region")
    writer = Writer(made)
    writer.write(("a", {"region": "eu"}))
    writer.write(("a", {"region": "us"}))
    assert rows(made, "region") == [("us",)]


def test_offsets_of_earlier_versions_are_known(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    writer.write({"id": 1})
    version = DeltaTable(spec().path).version()
    writer.write({"id": 2}, {"id": 3})
    assert writer.store.offsets(str(version)) == {0: 1}
    assert writer.store.offsets(None) == {0: 3}


def test_small_files_are_joined_and_positions_stay(spec: Callable[..., TableSpec]) -> None:
    writer = Writer(spec())
    for number in range(4):
        writer.write({"id": number})
    assert writer.store.compact() == 4
    assert len(DeltaTable(spec().path).file_uris()) == 1
    assert writer.store.offsets(None) == {0: 4}
    writer.write({"id": 4})
    assert len(rows(spec(), "id")) == 5


def test_table_of_something_else_is_left_alone(spec: Callable[..., TableSpec]) -> None:
    write_deltalake(spec().path, pa.table({"id": [7]}))
    with pytest.raises(ConnectError, match="=append would add rows to it"):
        Writer(spec())
    assert DeltaTable(spec().path).version() == 0


def test_table_of_something_else_gets_rows_on_request(spec: Callable[..., TableSpec]) -> None:
    write_deltalake(spec().path, pa.table({"id": [7], "list": [[1]]}))
    made = spec(existing_table="append")
    Writer(made).write({"id": 1}, {"list": [2]})
    assert rows(made, "id", "list") == [(1, None), (7, [1])]
    assert DeltaTable(made.bad_path).count() == 1


@pytest.mark.parametrize(
    ("table", "settings", "line"),
    [
        (pa.table({"id": ["x"]}), {"columns": "id bigint"}, "column id is of type string, bigint expected"),
        (pa.table({"id": [1]}), {"new_fields": "reject"}, "it has no column __key"),
        (pa.table({"id": [1]}), {"partition_by": "day(__timestamp)"}, "divided by nothing"),
        (
            pa.table({"n": [1]}, schema=pa.schema([pa.field("n", pa.int64(), nullable=False)])), {},
            "column n cannot be null",
        ),
    ],
)  # fmt: skip
def test_table_that_does_not_fit_is_left_alone(
    spec: Callable[..., TableSpec], table: pa.Table, settings: dict[str, str], line: str
) -> None:
    write_deltalake(spec().path, table)
    store = DeltaStore(spec(existing_table="append", **settings))
    for attempt in (store.check, lambda: store.open([0], TOPIC_ID)):
        with pytest.raises(ConnectError, match=line):
            attempt()
    assert DeltaTable(spec().path).version() == 0


def test_bad_records_never_go_to_a_table_of_something_else(spec: Callable[..., TableSpec]) -> None:
    write_deltalake(spec().bad_path, pa.table({"id": [7]}))
    with pytest.raises(ConnectError, match="not for bad records"):
        Writer(spec()).write(b"x")
    assert DeltaTable(spec().bad_path).version() == 0


def test_topic_that_was_created_again_is_noticed(spec: Callable[..., TableSpec]) -> None:
    Writer(spec()).write({"id": 1})
    with pytest.raises(ConnectError, match="was deleted and created again"):
        Writer(spec(), topic_id=b"\x22" * 16)
    again = Writer(spec("second", existing_table="append"), topic_id=b"\x22" * 16)
    again.write({"id": 1})
    assert len(rows(spec(), "id")) == 2


def test_declared_columns_are_added_to_our_table(spec: Callable[..., TableSpec]) -> None:
    Writer(spec(new_fields="drop", columns="id bigint")).write({"id": 1, "n": 1})
    Writer(spec(new_fields="drop", columns="id bigint,n bigint")).write({"id": 2, "n": 2})
    assert rows(spec(), "id", "n") == [(1, None), (2, 2)]


def test_columns_may_have_names_with_dots_and_quotes(spec: Callable[..., TableSpec]) -> None:
    made = spec(mode="upsert", key_columns="Key.Id")
    writer = Writer(made)
    writer.write(("a", {'x"y': 1, "Ab.C": 2}))
    writer.write(("a", {'x"y': 3, "Ab.C": 4}))
    assert rows(made, "Key.Id", 'x"y', "Ab.C") == [("a", 3, 4)]


def test_table_that_is_missing_has_no_offsets(spec: Callable[..., TableSpec]) -> None:
    with pytest.raises(ConnectError, match="there is no table yet"):
        DeltaStore(spec()).offsets(None)
