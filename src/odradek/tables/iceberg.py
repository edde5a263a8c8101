"""A topic as an Iceberg table. Positions are properties of the snapshots: see `connect.table_formats.iceberg`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from odradek.connect.errors import ConnectError, PositionMoved
from odradek.connect.table_formats.iceberg import IcebergCatalog, add_columns, exclusive, marks, table_failures
from odradek.tables.batches import bad_description, bad_rows, foreign_bad_table, write_batch
from odradek.tables.fitting import Existing, created_again, missing_columns
from odradek.tables.iceberg_compaction import join_small_files
from odradek.tables.planning import BAD_COLUMNS, BadRecord, Changes, Decoded
from odradek.tables.schema import KINDS, Row, arrow_rows, kind_of_arrow
from odradek.tables.specification import TableSpec
from odradek.tables.store import Written

_MADE_BY: Final = "odradek.tables"
"""Property of a table: what it was made for."""


class IcebergStore:
    """See `TableStore`."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._catalog = IcebergCatalog(spec.catalog)
        self._held: dict[int, int] = {}
        self._topic_id = ""
        # a key that is deleted or replaced for the first time has no row
        warnings.filterwarnings("ignore", message="Delete operation did not match any records")

    def check(self) -> bool:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._catalog.load(self._spec.path)
            if table is not None:
                self._missing(table)
            return table is not None

    def open(self, partitions: Sequence[int], topic_id: bytes) -> Mapping[int, int]:
        """See `TableStore`."""
        spec = self._spec
        with table_failures(spec.path):
            table = self._catalog.load(spec.path)
            if table is None:
                table = self._catalog.create(spec.path, spec.columns, spec.divisions, {_MADE_BY: self._made_by})
            missing = self._missing(table)
            if missing:
                add_columns(table, missing)
            known = marks(table, _mark(spec.name))
            self._topic_id = topic_id.hex() if any(topic_id) else ""
            if self._topic_id and known.get("topic_id", self._topic_id) != self._topic_id:
                raise created_again(spec)
            self._held = _offsets(known)
        return {each: at for each, at in self._held.items() if each in partitions}

    def begin(self, offsets: Mapping[int, int]) -> None:
        """See `TableStore`."""
        self._commit_batch([], offsets)

    def write(self, records: Sequence[Decoded], ends: Mapping[int, int]) -> Written:
        """See `TableStore`."""
        return self._commit_batch(records, ends)

    def close(self) -> None:
        """See `TableStore`."""
        self._catalog.close()

    def compact(self) -> int:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            return join_small_files(self._existing, self._spec.compact_target_bytes, self._mark_again)

    def offsets(self, version: str | None) -> Mapping[int, int]:
        """See `TableStore`. Versions are ids of snapshots."""
        with table_failures(self._spec.path):
            table = self._existing()
            snapshot = table.current_snapshot() if version is None else _snapshot(table, version)
            found = _offsets(marks(table, _mark(self._spec.name), snapshot))
        if not found:
            at = "" if version is None else f" as of version {version}"
            raise ConnectError(f"{self._spec.path} has no positions of table {self._spec.name}{at}")
        return found

    def describe(self) -> Mapping[str, Any]:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._existing()
            bad = self._catalog.load(self._spec.bad_path) if self._spec.bad_path else None
            snapshot = table.current_snapshot()
            return {
                "format": "iceberg",
                "path": self._spec.path,
                "version": None if snapshot is None else snapshot.snapshot_id,
                "columns": _kinds(table),
                "rows": _total(table, "total-records"),
                "files": _total(table, "total-data-files"),
                "bad_records": 0 if bad is None else _total(bad, "total-records"),
            }

    # --- inside ---

    @property
    def _made_by(self) -> str:
        return f"topic {self._spec.topic} as {self._spec.name}"

    def _existing(self) -> Any:
        table = self._catalog.load(self._spec.path)
        if table is None:
            raise ConnectError(f"{self._spec.path}: there is no table yet")
        return table

    def _missing(self, table: Any) -> dict[str, str]:
        """Columns that an existing table has to get. Raises ConnectError if the table cannot be written into."""
        existing = Existing(
            kinds=_kinds(table),
            divided_by=[each.name for each in table.spec().fields],
            required=[each.name for each in table.schema().fields if each.required],
            is_ours=table.properties.get(_MADE_BY) == self._made_by or bool(marks(table, _mark(self._spec.name))),
        )
        return missing_columns(self._spec, self._spec.columns, existing)

    def _commit_batch(self, records: Sequence[Decoded], ends: Mapping[int, int]) -> Written:
        with table_failures(self._spec.path):
            table = self._existing()
            found = _offsets(marks(table, _mark(self._spec.name)))
            if any(found.get(each) != self._held.get(each) for each in ends):
                raise PositionMoved(f"{self._spec.path}: another task has written to the table since")
            written = write_batch(_LoadedIceberg(self, table), self._spec, records, ends)
        self._held.update(ends)
        return written

    def _mark_again(self, table: Any) -> dict[str, str]:
        """The positions of a table as the properties of a snapshot that changes no row."""
        found = marks(table, _mark(self._spec.name))
        return {_mark(self._spec.name): json.dumps(found)} if found else {}

    # --- for the batch ---

    @property
    def spec(self) -> TableSpec:
        """The specification."""
        return self._spec

    @property
    def topic_id(self) -> str:
        """The topic's id in hexadecimal digits; empty if the cluster has none."""
        return self._topic_id

    def load_bad(self) -> Any:
        """The table of bad records, made if it is not there. Raises ConnectError for one of something else."""
        table = self._catalog.load(self._spec.bad_path)
        if table is None:
            table = self._catalog.create(
                self._spec.bad_path, BAD_COLUMNS, properties={_MADE_BY: bad_description(self._spec)}
            )
        if table.properties.get(_MADE_BY) != bad_description(self._spec):
            raise foreign_bad_table(self._spec)
        return table

    def bad_offsets(self) -> dict[int, int]:
        """The positions of the table of bad records."""
        table = self._catalog.load(self._spec.bad_path)
        return {} if table is None else _offsets(marks(table, _mark(self._spec.name)))


class _LoadedIceberg:
    """See `OpenTable`."""

    def __init__(self, store: IcebergStore, table: Any) -> None:
        self._store = store
        self._spec = store.spec
        self._table = table
        self._bad_held: dict[int, int] = {}

    def kinds(self) -> dict[str, str]:
        """See `OpenTable`."""
        return _kinds(self._table)

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """See `OpenTable`."""
        add_columns(self._table, columns)

    def bad_positions(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """See `OpenTable`."""
        self._bad_held = self._store.bad_offsets()
        return {each: at for each, at in self._bad_held.items() if each in partitions}

    def append_bad(self, bad: Sequence[BadRecord], ends: Mapping[int, int]) -> None:
        """See `OpenTable`."""
        table = self._store.load_bad()
        if _offsets(marks(table, _mark(self._spec.name))) != self._bad_held:
            raise PositionMoved(f"{self._spec.bad_path}: another task has written to the table since")
        transaction = exclusive(table)
        transaction.append(bad_rows(self._spec, bad), snapshot_properties=self._properties(table, ends))
        transaction.commit_transaction()

    def commit(self, made: Changes, kinds: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """See `OpenTable`. Deleted and added rows are snapshots of one commit; the last one has the positions."""
        writable = {name: kind for name, kind in kinds.items() if kind in KINDS}
        transaction = exclusive(self._table)
        if made.deleted or (made.rows and self._spec.rules.keys):
            transaction.delete(_of_keys(self._spec.rules.keys, [*made.rows, *made.deleted]))
        rows = arrow_rows(writable, made.rows)
        transaction.append(rows, snapshot_properties=self._properties(self._table, ends))
        transaction.commit_transaction()

    def _properties(self, table: Any, ends: Mapping[int, int]) -> dict[str, str]:
        before = _offsets(marks(table, _mark(self._spec.name)))
        offsets = {str(partition): at for partition, at in sorted({**before, **ends}.items())}
        made = {"topic": self._spec.topic, "offsets": offsets}
        if self._store.topic_id:
            made["topic_id"] = self._store.topic_id
        return {_mark(self._spec.name): json.dumps(made)}


def _mark(name: str) -> str:
    return f"odradek-tables.{name}"


def _offsets(marks: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): at for partition, at in marks.get("offsets", {}).items()}


def _of_keys(keys: Sequence[str], rows: Sequence[Row]) -> Any:
    """The condition that a row has the key of one of these."""
    from pyiceberg.expressions import And, EqualTo, In, Or

    if len(keys) == 1:
        return In(keys[0], {row[keys[0]] for row in rows})
    parts = [And(*(EqualTo(name, row[name]) for name in keys)) for row in rows]
    # halves instead of a chain: conditions are visited recursively
    while len(parts) > 1:
        parts = [Or(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def _kinds(table: Any) -> dict[str, str]:
    """The types of a table's columns; of a column that no record has values for, its type in Arrow."""
    return {each.name: kind_of_arrow(each.type) or str(each.type) for each in table.schema().as_arrow()}


def _total(table: Any, name: str) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary.additional_properties[name])


def _snapshot(table: Any, version: str) -> Any:
    """The snapshot of an id, or of a time. Raises ConnectError."""
    if version.isdecimal():
        found = table.snapshot_by_id(int(version))
    else:
        try:
            at = datetime.fromisoformat(version)
        except ValueError:
            raise ConnectError(f"version {version}: a number or a time in ISO 8601 expected") from None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        found = table.snapshot_as_of_timestamp(int(at.timestamp() * 1000))
    if found is None:
        raise ConnectError(f"version {version}: the table has no such snapshot")
    return found
