"""A topic as a Delta table. Positions are `txn` actions of the commits: see `DeltaCommits`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from odradek.connect.errors import ConnectError
from odradek.connect.table_formats.delta import DeltaCommits, table_failures
from odradek.records.topic_partition import TopicPartition
from odradek.tables.batches import bad_description, bad_rows, foreign_bad_table, write_batch
from odradek.tables.fitting import Existing, created_again, missing_columns
from odradek.tables.planning import BAD_COLUMNS, BadRecord, Changes, Decoded
from odradek.tables.schema import KINDS, Row, arrow_rows, arrow_type, kind_of_arrow
from odradek.tables.specification import TableSpec
from odradek.tables.store import Written

WRITER: Final = "odradek-tables"
_DELETED: Final = "__deleted"


class DeltaStore:
    """See `TableStore`."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._commits = DeltaCommits(spec.path, spec.storage, f"{WRITER}/{spec.name}")
        self._held: dict[TopicPartition, int] = {}
        self._marks: dict[str, int] = {}

    # --- the table ---

    def check(self) -> bool:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._commits.load()
            if table is not None:
                self._missing(table)
            return table is not None

    def open(self, partitions: Sequence[int], topic_id: bytes) -> Mapping[int, int]:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._commits.load()
            if table is None:
                table = _create(self._commits, self._all_columns(), self._divided_by(), self._description)
            missing = self._missing(table)
            if missing:
                _add_columns(table, missing)
            number = uuid.UUID(bytes=topic_id).int >> 65
            before = table.transaction_version(self._topic_mark)
            if number and before is not None and before != number:
                raise created_again(self._spec)
            self._marks = {self._partitions_mark: max(partitions) + 1}
            if number:
                self._marks[self._topic_mark] = number
            self._held = self._commits.positions(table, [self._partition(each) for each in partitions])
        return {each.partition: at for each, at in self._held.items()}

    def begin(self, offsets: Mapping[int, int]) -> None:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._commits.load()
            ends = self._by_partition(offsets)
            self._commits.check(table, self._held, ends)
            _LoadedDelta(self._spec, table, self._commits, self._marks).append([], _kinds(table), offsets)
        self._held.update(ends)

    def write(self, records: Sequence[Decoded], ends: Mapping[int, int]) -> Written:
        """See `TableStore`."""
        positions = self._by_partition(ends)
        with table_failures(self._spec.path):
            table = self._commits.load()
            self._commits.check(table, self._held, positions)
            written = write_batch(
                _LoadedDelta(self._spec, table, self._commits, self._marks), self._spec, records, ends
            )
        self._held.update(positions)
        return written

    def close(self) -> None:
        """See `TableStore`. Nothing is held between two calls."""

    def compact(self) -> int:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._commits.load()
            done = table.optimize.compact(target_size=self._spec.compact_target_bytes)
        return int(done["numFilesRemoved"])

    def offsets(self, version: str | None) -> Mapping[int, int]:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._existing()
            if version is not None:
                table.load_as_version(_version(version))
            count = table.transaction_version(self._partitions_mark)
            if count is None:
                at = "" if version is None else f" as of version {version}"
                raise ConnectError(f"{self._spec.path} has no positions of table {self._spec.name}{at}")
            found = self._commits.positions(table, [self._partition(each) for each in range(count)])
        return {each.partition: at for each, at in found.items()}

    def describe(self) -> Mapping[str, Any]:
        """See `TableStore`."""
        with table_failures(self._spec.path):
            table = self._existing()
            bad = _bad_commits(self._spec).load() if self._spec.bad_path else None
            return {
                "format": "delta",
                "path": self._spec.path,
                "version": table.version(),
                "columns": _kinds(table),
                "rows": table.count(),
                "files": len(table.file_uris()),
                "bad_records": 0 if bad is None else bad.count(),
            }

    # --- inside ---

    @property
    def _partitions_mark(self) -> str:
        """Its number is that of the partitions that have positions."""
        return f"{WRITER}/{self._spec.name}/{self._spec.topic}/partitions"

    @property
    def _topic_mark(self) -> str:
        """Its number stands for the topic's id: as much of it as a `txn` action holds."""
        return f"{WRITER}/{self._spec.name}/{self._spec.topic}/topic-id"

    @property
    def _description(self) -> str:
        """How a table that was made, and has no commit yet, is recognized."""
        return f"topic {self._spec.topic}, written by `odradek tables` as {self._spec.name}"

    def _partition(self, number: int) -> TopicPartition:
        return TopicPartition(self._spec.topic, number)

    def _by_partition(self, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {self._partition(number): at for number, at in offsets.items()}

    def _existing(self) -> Any:
        table = self._commits.load()
        if table is None:
            raise ConnectError(f"{self._spec.path}: there is no table yet")
        return table

    def _divided_by(self) -> list[str]:
        return [each.column for each in self._spec.divisions]

    def _all_columns(self) -> dict[str, str]:
        return {**self._spec.columns, **{each.column: each.kind for each in self._spec.divisions if each.unit}}

    def _missing(self, table: Any) -> dict[str, str]:
        """Columns that an existing table has to get. Raises ConnectError if the table cannot be written into."""
        has_positions = table.transaction_version(self._partitions_mark) is not None
        existing = Existing(
            kinds=_kinds(table),
            divided_by=table.metadata().partition_columns,
            required=[each.name for each in table.schema().fields if not each.nullable],
            is_ours=has_positions or table.metadata().description == self._description,
        )
        return missing_columns(self._spec, self._all_columns(), existing)


class _LoadedDelta:
    """See `OpenTable`."""

    def __init__(self, spec: TableSpec, table: Any, commits: DeltaCommits, marks: Mapping[str, int]) -> None:
        """`marks` are further numbers of each commit."""
        self._spec = spec
        self._table = table
        self._commits = commits
        self._marks = marks
        self._bad = _bad_commits(spec)
        self._bad_table: Any = None
        self._bad_held: dict[TopicPartition, int] = {}

    def kinds(self) -> dict[str, str]:
        """See `OpenTable`."""
        return _kinds(self._table)

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """See `OpenTable`."""
        _add_columns(self._table, columns)

    def bad_positions(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """See `OpenTable`."""
        self._bad_table = self._bad.load()
        self._bad_held = self._bad.positions(self._bad_table, self._by_partition(dict.fromkeys(partitions, 0)))
        return {each.partition: at for each, at in self._bad_held.items()}

    def append_bad(self, bad: Sequence[BadRecord], ends: Mapping[int, int]) -> None:
        """See `OpenTable`."""
        from deltalake import write_deltalake

        if self._bad_table is None:
            self._bad_table = _create(self._bad, BAD_COLUMNS, [], bad_description(self._spec))
        if self._bad_table.metadata().description != bad_description(self._spec):
            raise foreign_bad_table(self._spec)
        positions = self._by_partition(ends)
        # A rival may have made the table, and committed, since it was found missing.
        self._bad.check(self._bad_table, self._bad_held, positions)
        properties = self._bad.properties(positions)
        write_deltalake(self._bad_table, bad_rows(self._spec, bad), mode="append", commit_properties=properties)

    def commit(self, made: Changes, kinds: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """See `OpenTable`."""
        if not self._spec.rules.keys:
            self.append(made.rows, kinds, ends)
            return
        if made.rows or made.deleted:
            self._merge(made, kinds, ends)
            self._table.update_incremental()
        positions = self._by_partition(ends)
        # A merge that changes no file makes no commit, and so has no positions.
        if self._commits.positions(self._table, positions) != positions:
            self.append([], kinds, ends)

    def append(self, rows: Sequence[Row], kinds: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """Commit rows with positions."""
        from deltalake import write_deltalake

        write_deltalake(
            self._table,
            self._rows(rows, kinds),
            mode="append",
            schema_mode="merge",
            commit_properties=self._commits.properties(self._by_partition(ends), self._marks),
        )

    def _by_partition(self, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self._spec.topic, number): at for number, at in offsets.items()}

    def _rows(self, rows: Sequence[Row], kinds: Mapping[str, str]) -> Any:
        """Rows as an Arrow table, with the columns of units of time."""
        writable = {name: kind for name, kind in kinds.items() if kind in KINDS}
        units = [each for each in self._spec.divisions if each.unit]
        if units:
            rows = [{**row, **{each.column: each.value(row) for each in units}} for row in rows]
        return arrow_rows(writable, rows)

    def _merge(self, made: Changes, kinds: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """Replace the rows of keys, add those of new keys, delete those of deleted ones, in one commit."""
        import pyarrow as pa

        rows = self._rows([*made.rows, *made.deleted], kinds)
        flags = [False] * len(made.rows) + [True] * len(made.deleted)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in rows.schema.names}
        (
            self._table.merge(
                rows.append_column(_DELETED, pa.array(flags, pa.bool_())),
                " AND ".join(f"t.{_quoted(each)} = s.{_quoted(each)}" for each in self._spec.rules.keys),
                source_alias="s",
                target_alias="t",
                commit_properties=self._commits.properties(self._by_partition(ends), self._marks),
            )
            .when_matched_delete(f"s.{_DELETED} = true")
            .when_matched_update(values)
            .when_not_matched_insert(values, f"s.{_DELETED} = false")
            .execute()
        )


def _bad_commits(spec: TableSpec) -> DeltaCommits:
    """The commits of the table of bad records."""
    return DeltaCommits(spec.bad_path, spec.storage, f"{WRITER}/{spec.name}/bad")


def _create(commits: DeltaCommits, columns: Mapping[str, str], divided_by: Sequence[str], description: str) -> Any:
    """A new table, or the one that another process has made meanwhile."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable.create(
            commits.path,
            pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()]),
            mode="error",
            partition_by=list(divided_by) or None,
            description=description,
            storage_options=commits.storage,
        )
    except DeltaError:
        table = commits.load()
        if table is None:
            raise
        return table


def _add_columns(table: Any, columns: Mapping[str, str]) -> None:
    import pyarrow as pa
    from deltalake import Schema

    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    table.alter.add_columns(list(Schema.from_arrow(schema).fields))


def _kinds(table: Any) -> dict[str, str]:
    """The types of a table's columns; of a column that no record has values for, its type in Arrow."""
    import pyarrow as pa

    return {each.name: kind_of_arrow(each.type) or str(each.type) for each in pa.schema(table.schema())}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _version(text: str) -> int | datetime:
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConnectError(f"version {text}: a number or a time in ISO 8601 expected") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
