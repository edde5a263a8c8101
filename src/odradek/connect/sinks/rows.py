"""Records as rows of a table in Delta or Iceberg. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.connect.columns import check_new_columns, joined_kind, kind_of, scalar
from odradek.connect.errors import ConnectError, RecordRejected
from odradek.connect.model import SinkRecord

COORDINATES: Final = {"__topic": "string", "__partition": "int", "__offset": "bigint", "__timestamp": "timestamp"}
"""Columns for the place and the time of a row's record, and their types."""
_KINDS: Final = {
    "bool": "boolean", "int64": "bigint", "double": "double", "binary": "binary", "binary_view": "binary",
    "large_binary": "binary", "string": "string", "string_view": "string", "large_string": "string",
}  # fmt: skip


def kinds_of(schema: Any) -> dict[str, str]:
    """The types of a table's own columns by name, from its schema in Arrow.

    Raises ConnectError for a column that no field of JSON fits.
    """
    found = {}
    for field in schema:
        if field.name in COORDINATES:
            continue
        kind = _KINDS.get(str(field.type))
        if kind is None:
            raise ConnectError(f"column {field.name} is of type {field.type}, which no field of JSON fits")
        found[field.name] = kind
    return found


class Rows:
    """Records as columns of one table, whose types are those of the table or of the first values."""

    def __init__(self, kinds: Mapping[str, str], *, evolves: bool, ignores_case: bool = False) -> None:
        """`kinds` are the types of the table's columns by name."""
        self._fixed = dict(kinds)
        self._evolves = evolves or not kinds
        self._ignores_case = ignores_case
        self.kinds: dict[str, str] = dict(kinds)
        """Types by column, those of new ones included."""
        self.rows: list[dict[str, Any]] = []
        """The rows."""

    def add(self, record: SinkRecord) -> None:
        """Add a record. Raises ValueError for one that makes no row of this table."""
        if not isinstance(record.value, dict):
            raise ValueError(f"a JSON object expected, got {type(record.value).__name__}")  # noqa: TRY004 - data
        row = {name: scalar(value) for name, value in record.value.items()}
        reserved = [name for name in COORDINATES if name in row]
        if reserved:
            raise ValueError(f"field {reserved[0]} has the name of a column for the record's place")
        found = {name: kind for name, value in row.items() if (kind := kind_of(value)) is not None}
        kinds = {name: self._kind(name, kind) for name, kind in found.items()}
        self.kinds.update(kinds)
        at_us = None if record.timestamp < 0 else record.timestamp * 1000
        row.update(zip(COORDINATES, (*record.origin, record.offset, at_us), strict=True))
        self.rows.append(row)

    def _kind(self, name: str, kind: str) -> str:
        """The type of a column that has a value of this type. Raises ValueError."""
        before = self.kinds.get(name)
        if before is not None:
            return joined_kind(name, before, kind, is_fixed=name in self._fixed)
        if not self._evolves:
            raise ValueError(f"the table has no column {name}: auto.evolve is false")
        check_new_columns((name,), (*self.kinds, *COORDINATES), ignores_case=self._ignores_case)
        return kind

    def arrow(self) -> Any:
        """The rows as an Arrow table. Raises RecordRejected for the first one with a value beyond its column's type."""
        import pyarrow as pa

        types = {"boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(),
                 "binary": pa.binary(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}  # fmt: skip

        def made(name: str, kind: str, rows: Sequence[Mapping[str, Any]]) -> Any:
            values = [row.get(name) for row in rows]
            if kind == "double":
                values = [None if value is None else float(value) for value in values]
            return pa.array(values, types[kind])

        columns = {}
        for name, kind in (self.kinds | COORDINATES).items():
            try:
                columns[name] = made(name, kind, self.rows)
            except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
                for index, row in enumerate(self.rows):
                    try:
                        made(name, kind, [row])
                    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid) as error:
                        raise RecordRejected(index, f"field {name}: {error}") from error
                raise
        return pa.table(columns)
