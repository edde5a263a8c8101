"""The commits of one batch, in the order that `planning` explains, for every format of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from odradek.connect.errors import ConnectError
from odradek.tables.planning import BAD_COLUMNS, BadRecord, Changes, Decoded, changes, wanted_columns
from odradek.tables.schema import Row, arrow_rows, timestamp_of
from odradek.tables.specification import TableSpec
from odradek.tables.store import Written


class OpenTable(Protocol):
    """A table as it was loaded, whose commits fail if another one came since: they raise PositionMoved."""

    def kinds(self) -> dict[str, str]:
        """The types of its columns."""
        ...

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Commit new columns."""
        ...

    def bad_positions(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """The positions of the table of bad records, which is loaded now."""
        ...

    def append_bad(self, bad: Sequence[BadRecord], ends: Mapping[int, int]) -> None:
        """Commit bad records with positions into their table."""
        ...

    def commit(self, made: Changes, kinds: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """Commit changes with positions."""
        ...


def write_batch(table: OpenTable, spec: TableSpec, records: Sequence[Decoded], ends: Mapping[int, int]) -> Written:
    """Write a batch and the positions after it."""
    kinds = table.kinds()
    wanted = wanted_columns(kinds, records, spec.rules)
    if wanted:
        table.add_columns(wanted)
        kinds |= wanted
    known = table.bad_positions(list(ends)) if spec.bad_path else {}
    made = changes(kinds, records, spec.rules, known)
    if made.bad:
        if not spec.bad_path:
            record, reason = made.bad[0]
            raise ConnectError(f"record {spec.topic}-{record.partition}@{record.offset}: {reason}")
        # a rival may have been there with a longer batch
        table.append_bad(made.bad, {each: max(end, known.get(each, 0)) for each, end in ends.items()})
    table.commit(made, kinds, ends)
    return Written(len(made.rows), len(made.deleted), len(made.bad))


def bad_rows(spec: TableSpec, bad: Sequence[BadRecord]) -> Any:
    """Bad records as an Arrow table."""
    rows: list[Row] = [
        {
            "topic": spec.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": timestamp_of(record.timestamp_ms),
            "key": record.key,
            "value": record.value,
            "reason": reason,
        }
        for record, reason in bad
    ]
    return arrow_rows(BAD_COLUMNS, rows)


def bad_description(spec: TableSpec) -> str:
    """How a table of bad records of this one is recognized."""
    return f"records that table {spec.name} of `odradek tables` could not take"


def foreign_bad_table(spec: TableSpec) -> ConnectError:
    """The error about a table of something else at the place for bad records."""
    return ConnectError(f"{spec.bad_path}: a table is there that is not for bad records of this one")
