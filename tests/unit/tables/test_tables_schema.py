"""Columns of tables: which values make them, and which fit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.tables.schema import KINDS, Row, arrow_rows, fitted, misfits, new_columns, parse_columns

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "A", "no good", "\ud800"])
ROW = st.dictionaries(NAMES, VALUES, max_size=3)
ROWS = st.lists(ROW, max_size=8)
TYPED_ROWS = st.lists(st.tuples(ROW, st.dictionaries(NAMES, st.sampled_from(KINDS), max_size=3)), max_size=8)


def untyped(rows: list[Row]) -> list[tuple[Row, dict[str, str]]]:
    return [(row, {}) for row in rows]


def fits(kinds: dict[str, str], row: Row) -> bool:
    try:
        fitted(kinds, row)
    except ValueError:
        return False
    return True


@given(TYPED_ROWS, TYPED_ROWS)
@settings(max_examples=100, deadline=None)
def test_decision_about_a_row_lasts(
    first: list[tuple[Row, dict[str, str]]], second: list[tuple[Row, dict[str, str]]]
) -> None:
    """What fits a table with the columns of a batch fits it after any further batch; what does not, never will."""
    kinds = new_columns({}, first)
    before = [fits(kinds, row) for row, _ in first]
    later = {**kinds, **new_columns(kinds, second)}
    assert [fits(later, row) for row, _ in first] == before
    assert new_columns(kinds, first) == {}


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_rows_that_fit_become_arrow_rows(rows: list[Row]) -> None:
    kinds = {"__offset": "bigint", **new_columns({}, untyped(rows))}
    kept = [fitted(kinds, row) for row in rows if fits(kinds, row)]
    assert arrow_rows(kinds, kept).num_rows == len(kept)


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        ([{"a": 1}, {"a": 1.5}], {"a": "double"}),
        ([{"a": None}, {"a": "x"}], {"a": "string"}),
        ([{"a": 1}, {"a": "x", "b": 1}], {"a": "bigint"}),
        ([{"a": {"b": 1}}], {"a": "string"}),
        ([{"a": 1 << 70}], {"a": "double"}),
        ([{"a b": 1}, {"a": True}], {"a": "boolean"}),
        ([{"a": 1}, {"A": 1}], {"a": "bigint"}),
    ],
)
def test_first_value_decides_the_type_of_a_new_column(rows: list[Row], kinds: dict[str, str]) -> None:
    assert new_columns({}, untyped(rows)) == kinds


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        ([({"a": None}, {"a": "string"})], {"a": "string"}),
        ([({"a": None, "b": 1}, {"b": "double"})], {"b": "double"}),
        ([({"a": None}, {"a": "bigint"}), ({"a": 1.5}, {"a": "double"})], {"a": "double"}),
        ([({"a": None}, {"a": "string"}), ({"a": 1}, {"a": "bigint"})], {"a": "string"}),
        ([({"a": "x"}, {"a": "string"}), ({"a": None}, {"a": "bigint"})], {"a": "string"}),
        ([({"a": datetime(2026, 1, 1, tzinfo=UTC), "b": date(2026, 1, 1)}, {})], {"a": "timestamp", "b": "date"}),
    ],
)
def test_schema_decides_the_type_of_a_new_column(rows: list[tuple[Row, dict[str, str]]], kinds: dict[str, str]) -> None:
    assert new_columns({}, rows) == kinds


def test_column_of_the_table_keeps_its_type() -> None:
    assert new_columns({"a": "bigint"}, untyped([{"a": 1.5, "b": 1}])) == {}
    with pytest.raises(ValueError, match="field a is of type double, its column of type bigint"):
        fitted({"a": "bigint"}, {"a": 1.5})


def test_whole_numbers_fit_a_column_of_fractions() -> None:
    assert fitted({"a": "double"}, {"a": 2}) == {"a": 2.0}


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (1_500, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
    ],
)
def test_declared_timestamp_takes_texts_and_milliseconds(value: Any, at: datetime) -> None:
    assert fitted({"a": "timestamp"}, {"a": value}) == {"a": at}


@pytest.mark.parametrize("value", ["noon", 1 << 80, True, [1], "0001-01-01T00:00:00+23:00"])
def test_declared_timestamp_takes_nothing_else(value: Any) -> None:
    with pytest.raises(ValueError, match="field a: a time expected"):
        fitted({"a": "timestamp"}, {"a": value})


def test_declared_date_takes_texts() -> None:
    assert fitted({"a": "date"}, {"a": "2026-01-31"}) == {"a": date(2026, 1, 31)}
    with pytest.raises(ValueError, match="a date expected"):
        fitted({"a": "date"}, {"a": 5})


def test_field_without_a_column_is_dropped_on_request() -> None:
    assert fitted({}, {"a": 1}, drops_unknown=True) == {}
    assert fitted({}, {"a": None}) == {}
    with pytest.raises(ValueError, match="no column a"):
        fitted({}, {"a": 1})


def test_half_of_a_character_fits_no_text() -> None:
    with pytest.raises(ValueError, match="half of a character"):
        fitted({"a": "string"}, {"a": "\ud800"})


def test_declared_columns_are_read() -> None:
    assert parse_columns(["id bigint", " at  TIMESTAMP"]) == {"id": "bigint", "at": "timestamp"}


@pytest.mark.parametrize("texts", [["id"], ["id int"], ["id bigint", "id string"], ["Id bigint", "id string"]])
def test_wrong_declarations_are_rejected(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"expected|twice|upper and lower"):
        parse_columns(texts)


def test_columns_of_another_type_are_named() -> None:
    assert misfits({"a": "bigint", "b": "string"}, {"a": "string", "c": "date"}) == [
        "column a is of type string, bigint expected"
    ]
