"""A topic as an Iceberg table. Positions are properties of the snapshots, so that they are those of the rows.

Each snapshot of ours has the positions of all partitions; a snapshot that something else made has those of its nearest
ancestor of ours. A commit names the snapshot that it follows, and the catalog rejects it if there is another one since.
PyIceberg would repeat such a commit behind the other one: here it must fail, or rows would be there twice.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from odradek.connect.errors import ConnectError, PositionMoved, TargetAway
from odradek.spark.stores.patience import first_line
from odradek.tables.batches import bad_description, bad_rows, foreign_bad_table, write_batch
from odradek.tables.fitting import Existing, created_again, missing_columns
from odradek.tables.iceberg_commits import exclusive
from odradek.tables.iceberg_compaction import join_small_files
from odradek.tables.partitioning import Division
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
        self._catalog: Any = None
        self._held: dict[int, int] = {}
        self._topic_id = ""
        # a key that is deleted or replaced for the first time has no row
        warnings.filterwarnings("ignore", message="Delete operation did not match any records")

    def check(self) -> bool:
        """See `TableStore`."""
        with _failures(self._spec):
            table = self._load(self._spec.path)
            if table is not None:
                self._missing(table)
            return table is not None

    def open(self, partitions: Sequence[int], topic_id: bytes) -> Mapping[int, int]:
        """See `TableStore`."""
        spec = self._spec
        with _failures(spec):
            table = self._load(spec.path)
            if table is None:
                table = self._create(spec.path, spec.columns, spec.divisions, self._made_by)
            missing = self._missing(table)
            if missing:
                _add_columns(table, missing)
            known = _marks(table, spec.name)
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
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def compact(self) -> int:
        """See `TableStore`."""
        with _failures(self._spec):
            return join_small_files(self._existing, self._spec.compact_target_bytes, self._mark_again)

    def offsets(self, version: str | None) -> Mapping[int, int]:
        """See `TableStore`. Versions are ids of snapshots."""
        with _failures(self._spec):
            table = self._existing()
            snapshot = table.current_snapshot() if version is None else _snapshot(table, version)
            found = _offsets(_marks(table, self._spec.name, snapshot))
        if not found:
            at = "" if version is None else f" as of version {version}"
            raise ConnectError(f"{self._spec.path} has no positions of table {self._spec.name}{at}")
        return found

    def describe(self) -> Mapping[str, Any]:
        """See `TableStore`."""
        with _failures(self._spec):
            table = self._existing()
            bad = self._load(self._spec.bad_path) if self._spec.bad_path else None
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
        table = self._load(self._spec.path)
        if table is None:
            raise ConnectError(f"{self._spec.path}: there is no table yet")
        return table

    def _load(self, name: str) -> Any:
        """The table as it is now; None if the catalog has none."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        if self._catalog is None:
            options = dict(self._spec.catalog)
            self._catalog = load_catalog(options.pop("name", "default"), **options)
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            return None

    def _create(self, name: str, columns: Mapping[str, str], divisions: Sequence[Division], made_by: str) -> Any:
        """A new table, or the one that another process has made meanwhile."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        schema = _schema(columns)
        try:
            return self._catalog.create_table(
                name, schema, partition_spec=_partition_spec(schema, divisions), properties={_MADE_BY: made_by}
            )
        except TableAlreadyExistsError:
            return self._catalog.load_table(name)

    def _missing(self, table: Any) -> dict[str, str]:
        """Columns that an existing table has to get. Raises ConnectError if the table cannot be written into."""
        existing = Existing(
            kinds=_kinds(table),
            divided_by=[each.name for each in table.spec().fields],
            required=[each.name for each in table.schema().fields if each.required],
            is_ours=table.properties.get(_MADE_BY) == self._made_by or bool(_marks(table, self._spec.name)),
        )
        return missing_columns(self._spec, self._spec.columns, existing)

    def _commit_batch(self, records: Sequence[Decoded], ends: Mapping[int, int]) -> Written:
        with _failures(self._spec):
            table = self._existing()
            found = _offsets(_marks(table, self._spec.name))
            if any(found.get(each) != self._held.get(each) for each in ends):
                raise PositionMoved(f"{self._spec.path}: another task has written to the table since")
            written = write_batch(_LoadedIceberg(self, table), self._spec, records, ends)
        self._held.update(ends)
        return written

    def _mark_again(self, table: Any) -> dict[str, str]:
        """The positions of a table as the properties of a snapshot that changes no row."""
        marks = _marks(table, self._spec.name)
        return {_mark(self._spec.name): json.dumps(marks)} if marks else {}

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
        table = self._load(self._spec.bad_path)
        if table is None:
            table = self._create(self._spec.bad_path, BAD_COLUMNS, (), bad_description(self._spec))
        if table.properties.get(_MADE_BY) != bad_description(self._spec):
            raise foreign_bad_table(self._spec)
        return table

    def bad_offsets(self) -> dict[int, int]:
        """The positions of the table of bad records."""
        table = self._load(self._spec.bad_path)
        return {} if table is None else _offsets(_marks(table, self._spec.name))


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
        _add_columns(self._table, columns)

    def bad_positions(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """See `OpenTable`."""
        self._bad_held = self._store.bad_offsets()
        return {each: at for each, at in self._bad_held.items() if each in partitions}

    def append_bad(self, bad: Sequence[BadRecord], ends: Mapping[int, int]) -> None:
        """See `OpenTable`."""
        table = self._store.load_bad()
        if _offsets(_marks(table, self._spec.name)) != self._bad_held:
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
        marks = _marks(table, self._spec.name)
        offsets = {str(partition): at for partition, at in sorted({**_offsets(marks), **ends}.items())}
        made = {"topic": self._spec.topic, "offsets": offsets}
        if self._store.topic_id:
            made["topic_id"] = self._store.topic_id
        return {_mark(self._spec.name): json.dumps(made)}


def _mark(name: str) -> str:
    return f"odradek-tables.{name}"


def _marks(table: Any, name: str, snapshot: Any = None) -> dict[str, Any]:
    """The marks of the snapshot (default: the current one) or its nearest ancestor of ours. Raises ConnectError."""
    at = snapshot if snapshot is not None else table.current_snapshot()
    while at is not None:
        text = None if at.summary is None else at.summary.additional_properties.get(_mark(name))
        if text is not None:
            found: dict[str, Any] = json.loads(text)
            return found
        parent = at.parent_snapshot_id
        at = None if parent is None else table.snapshot_by_id(parent)
        if parent is not None and at is None:
            raise ConnectError(
                "the snapshots with positions have expired: others have changed the table since; expire fewer"
            )
    return {}


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


def _types() -> dict[str, Any]:
    from pyiceberg import types

    return {
        "boolean": types.BooleanType(), "bigint": types.LongType(), "double": types.DoubleType(),
        "string": types.StringType(), "binary": types.BinaryType(), "timestamp": types.TimestamptzType(),
        "date": types.DateType(),
    }  # fmt: skip


def _schema(columns: Mapping[str, str]) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    made = _types()
    return Schema(*(
        NestedField(number, name, made[kind], required=False) for number, (name, kind) in enumerate(columns.items(), 1)
    ))  # fmt: skip


def _partition_spec(schema: Any, divisions: Sequence[Division]) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform

    transforms = {"": IdentityTransform, "hour": HourTransform, "day": DayTransform, "month": MonthTransform}
    return PartitionSpec(*(
        PartitionField(schema.find_field(each.source).field_id, 1000 + number, transforms[each.unit](), each.column)
        for number, each in enumerate(divisions)
    ))  # fmt: skip


def _add_columns(table: Any, columns: Mapping[str, str]) -> None:
    made = _types()
    with table.update_schema() as update:
        for name, kind in columns.items():
            update.add_column((name,), made[kind])


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


@contextmanager
def _failures(spec: TableSpec) -> Iterator[None]:
    """Raise failures of a commit as PositionMoved, of an absent catalog or store as TargetAway."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError

    try:
        yield
    except ConnectError:
        raise
    except CommitFailedException as error:
        raise PositionMoved(f"{spec.path}: another task has committed to the table") from error
    except (OSError, CommitStateUnknownException, ServiceUnavailableError) as error:
        raise TargetAway(f"the table is away: {first_line(error)}") from error
    except Exception as error:
        # SQLAlchemy is there only with a catalog in a database
        if type(error).__name__ == "OperationalError":
            raise TargetAway(f"the catalog is away: {first_line(error)}") from error
        raise ConnectError(f"the table rejects it: {first_line(error)}") from error
