"""What a batch of records changes in a table, and which records go to the table of bad records. Pure.

The order of commits makes each record appear once, in one of the two tables, whatever crashes between them:

1. the new columns of the table,
2. the bad records, with the positions after the batch in *their* table,
3. the rows, with the positions after the batch.

After step 1 it is decided which records are bad (see `schema`), so that a later attempt, with the records in another
order or other batches, decides the same. It skips bad records before the positions of step 2, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.tables.schema import Row, fitted, new_columns


class Decoded(NamedTuple):
    """A record as a row, or the reason why it makes no row."""

    partition: int
    offset: int
    timestamp_ms: int
    """-1 for none."""
    key: bytes | None
    value: bytes | None
    row: Row | None
    """Fields of key and value, and the coordinates; None if they cannot be read."""
    is_tombstone: bool = False
    """Whether the value is null."""
    reason: str = ""
    """Why there is no row."""
    kinds: Mapping[str, str] = {}
    """The types that the value's schema has for its fields; none without a schema."""


class BadRecord(NamedTuple):
    """A record that makes no row."""

    record: Decoded
    reason: str


class Changes(NamedTuple):
    """What a batch changes in a table."""

    rows: list[Row]
    """Rows to add; of an upsert, the last one of each key."""
    deleted: list[Row]
    """Keys whose last record has a null value, as rows of the key's columns; only of an upsert."""
    bad: list[BadRecord]


class Rules(NamedTuple):
    """How records become changes."""

    keys: tuple[str, ...] = ()
    """The columns of the key that rows are replaced by; none if every record is a row of its own."""
    new_fields: str = "add"
    """What becomes of a field without a column: `add` makes one, `drop` leaves it out, `reject` the record."""


BAD_COLUMNS: Final = {
    "topic": "string",
    "partition": "bigint",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "reason": "string",
}
"""The columns of a table of bad records, and their types."""


def wanted_columns(kinds: Mapping[str, str], records: Sequence[Decoded], rules: Rules) -> dict[str, str]:
    """The columns that the table has to get before these records: step 1."""
    if rules.new_fields != "add":
        return {}
    return new_columns(
        kinds,
        ((each.row, each.kinds) for each in records if each.row is not None and not _lacks_key(each, rules)),
    )


def changes(
    kinds: Mapping[str, str], records: Sequence[Decoded], rules: Rules, bad_positions: Mapping[int, int]
) -> Changes:
    """The changes of a table that has all wanted columns: steps 2 and 3.

    `bad_positions` are those of the table of bad records by partition: earlier bad records are in it.
    """
    rows: list[Row] = []
    latest: dict[tuple[Any, ...], tuple[Row, bool]] = {}
    bad: list[BadRecord] = []
    for each in records:
        try:
            row = _row(kinds, each, rules)
        except ValueError as error:
            if each.offset >= bad_positions.get(each.partition, 0):
                bad.append(BadRecord(each, str(error)))
            continue
        if rules.keys:
            latest[tuple(row[name] for name in rules.keys)] = (row, each.is_tombstone)
        else:
            rows.append(row)
    for row, is_deleted in latest.values():
        if not is_deleted:
            rows.append(row)
    deleted = [{name: row[name] for name in rules.keys} for row, is_deleted in latest.values() if is_deleted]
    return Changes(rows, deleted, bad)


def _lacks_key(record: Decoded, rules: Rules) -> bool:
    return record.row is None or any(record.row.get(name) is None for name in rules.keys)


def _row(kinds: Mapping[str, str], record: Decoded, rules: Rules) -> Row:
    if record.row is None:
        raise ValueError(record.reason)
    if _lacks_key(record, rules):
        raise ValueError(f"the key has no {', '.join(rules.keys)}: rows are replaced by it")
    return fitted(kinds, record.row, drops_unknown=rules.new_fields == "drop")
