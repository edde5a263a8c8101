"""The columns of a table: types, how they follow from values, and which values fit. Pure.

A table's columns only grow. A column that is in the table keeps its type, so whether a record fits depends on the
record and on columns that are there: a record that does not fit now will never fit, and one that fits always will.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from odradek.connect.columns import joined_kind, kind_of, scalar

KINDS: Final = ("boolean", "bigint", "double", "string", "binary", "timestamp", "date")
"""Types of columns, with Spark's names."""
COORDINATES: Final = {
    "__topic": "string",
    "__partition": "bigint",
    "__offset": "bigint",
    "__timestamp": "timestamp",
}
"""Columns for the place and the time of a row's record, and their types."""
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]
"""Values by column; a column without a value may be missing."""


def parse_columns(texts: Iterable[str]) -> dict[str, str]:
    """Types by name of `NAME TYPE` texts. Raises ValueError."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, kind = text.strip().rpartition(" ")
        name, kind = name.strip(), kind.lower()
        if not name or kind not in KINDS:
            raise ValueError(f"{text!r}: NAME TYPE expected, where TYPE is one of {', '.join(KINDS)}")
        if name in found:
            raise ValueError(f"{name} is declared twice")
        check_name(name, found)
        found[name] = kind
    return found


def check_name(name: str, columns: Iterable[str]) -> None:
    """Raises ValueError for a name that a new column beside these cannot have."""
    if not name or not _NOT_IN_NAMES.isdisjoint(name):
        raise ValueError(f"field {name!r} cannot be a column: it is empty, or has one of the characters ' ,;{{}}()='")
    _check_text(name, name)
    folded = name.casefold()
    for each in columns:
        if each != name and each.casefold() == folded:
            raise ValueError(f"field {name} differs from column {each} only in upper and lower case")


def new_columns(kinds: Mapping[str, str], rows: Iterable[tuple[Row, Mapping[str, str]]]) -> dict[str, str]:
    """The columns that a table with columns of these types has to get for rows, and their types.

    A row comes with the types that its schema has, if there is a schema. Its fields become columns also where they are
    null. Without a type, the first value decides; a whole number gives way to a fraction. A row that does not fit adds
    no columns.
    """
    added: dict[str, str] = {}
    for row, typed in rows:
        try:
            added.update(_wanted(kinds, added, row, typed))
        except ValueError:
            continue
    return added


def _wanted(kinds: Mapping[str, str], added: Mapping[str, str], row: Row, typed: Mapping[str, str]) -> dict[str, str]:
    """The types of the new columns of a row's fields. Raises ValueError if the row does not fit."""
    wanted: dict[str, str] = {}
    for name, value in row.items():
        if name in kinds:
            _fitted(name, kinds[name], value)
            continue
        kind = typed.get(name) or _kind(value)
        before = added.get(name)
        if kind is None or (before is not None and value is None):
            continue
        if before is None:
            check_name(name, (*kinds, *added, *wanted))
            wanted[name] = kind
        else:
            wanted[name] = joined_kind(name, before, kind, is_fixed=False)
    return wanted


def fitted(kinds: Mapping[str, str], row: Row, *, drops_unknown: bool = False) -> Row:
    """A row with values of the types of its columns. Raises ValueError with the reason if it does not fit.

    A field without a column is an error unless its value is null, or `drops_unknown`.
    """
    made: Row = {}
    for name, value in row.items():
        kind = kinds.get(name)
        if kind is not None:
            made[name] = _fitted(name, kind, value)
        elif value is not None and not drops_unknown:
            raise ValueError(f"the table has no column {name}")
    return made


def _kind(value: Any) -> str | None:
    """As `kind_of`, with dates and times; whole numbers beyond 64 bits are double, as Arrow reads them."""
    if isinstance(value, date):
        return "timestamp" if isinstance(value, datetime) else "date"
    kind = kind_of(value)
    return "double" if kind == "bigint" and not -(1 << 63) <= value < 1 << 63 else kind


def _fitted(name: str, kind: str, value: Any) -> Any:
    """A value as one of this type. Raises ValueError."""
    if value is None:
        return None
    if kind == "timestamp":
        return to_datetime(name, value)
    if kind == "date":
        return _to_date(name, value)
    found = _kind(value)
    assert found is not None
    joined_kind(name, kind, found, is_fixed=True)
    if kind == "double":
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"field {name}: the number is too large") from None
    made = scalar(value)
    if kind == "string" and not made.isascii():
        _check_text(name, made)
    return made


def _check_text(name: str, text: str) -> None:
    """Raises ValueError for what JSON's escapes allow and UTF-8 does not: halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"field {name!r}: the text has half of a character, which UTF-8 cannot hold") from None


def timestamp_of(timestamp_ms: int) -> datetime | None:
    """The time of a record; None for none, and for one beyond the year 9999."""
    try:
        return None if timestamp_ms < 0 else _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def to_datetime(name: str, value: Any) -> datetime:
    """A time of ISO 8601 (UTC unless it says otherwise) or of ms since the epoch. Raises ValueError."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    try:
        if isinstance(value, str):
            return to_datetime(name, datetime.fromisoformat(value)).astimezone(UTC)
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return _EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"field {name}: a time expected (ISO 8601, or ms since 1970), got {str(value)[:40]!r}")


def _to_date(name: str, value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise ValueError(f"field {name}: a date expected (ISO 8601), got {str(value)[:40]!r}")


def misfits(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Why a table with the columns `found` is not one with `wanted`: a line for each column of another type."""
    return [
        f"column {name} is of type {found[name]}, {kind} expected"
        for name, kind in wanted.items()
        if name in found and found[name] != kind
    ]


def arrow_type(kind: str) -> Any:
    """The Arrow type of a column's type."""
    import pyarrow as pa

    types = {
        "boolean": pa.bool_(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string(),
        "binary": pa.binary(), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(),
    }  # fmt: skip
    return types[kind]


def kind_of_arrow(kind: Any) -> str | None:
    """The type of a column of this Arrow type; None if records have no such values."""
    names = {
        "bool": "boolean", "int64": "bigint", "double": "double", "string": "string", "large_string": "string",
        "string_view": "string", "binary": "binary", "large_binary": "binary", "binary_view": "binary",
        "date32[day]": "date",
    }  # fmt: skip
    text = str(kind)
    return "timestamp" if text.startswith("timestamp[us, tz=") else names.get(text)


def arrow_rows(kinds: Mapping[str, str], rows: Iterable[Row]) -> Any:
    """Rows as an Arrow table with all of these columns."""
    import pyarrow as pa

    schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
    return pa.Table.from_pylist(list(rows), schema)
