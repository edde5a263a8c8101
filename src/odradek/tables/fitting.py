"""Whether a table that exists can be written into, and which columns it lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.connect.errors import ConnectError
from odradek.tables.schema import misfits
from odradek.tables.specification import TableSpec


class Existing(NamedTuple):
    """A table as it is."""

    kinds: Mapping[str, str]
    """The types of its columns."""
    divided_by: Sequence[str]
    """What it is divided by, as `Division.column` names it."""
    required: Sequence[str]
    """Columns that cannot be null."""
    is_ours: bool
    """Whether the table was made for this specification, or has positions of it."""


def missing_columns(spec: TableSpec, wanted: Mapping[str, str], table: Existing) -> dict[str, str]:
    """The wanted columns that the table has to get. Raises ConnectError if it cannot be written into."""
    if not table.is_ours and not spec.may_adopt:
        raise ConnectError(
            f"{spec.path}: a table is there that `odradek tables` has not made as {spec.name}; "
            "existing.table=append would add rows to it"
        )
    wrong = misfits(wanted, table.kinds)
    if list(table.divided_by) != [each.column for each in spec.divisions]:
        wrong.append(f"it is divided by {', '.join(table.divided_by) or 'nothing'}, not as partition.by says")
    required = [each for each in table.required if each not in wanted]
    if required:
        wrong.append(f"column {required[0]} cannot be null, and no record has a value for it")
    missing = {name: kind for name, kind in wanted.items() if name not in table.kinds}
    if missing and not table.is_ours and spec.rules.new_fields != "add":
        wrong.append(f"it has no column {', '.join(missing)}, and new.fields is {spec.rules.new_fields}")
    if wrong:
        raise ConnectError(f"{spec.path}: the table does not fit: {'; '.join(wrong)}")
    return missing


def created_again(spec: TableSpec) -> ConnectError:
    """The error about a topic whose id is not that of the table's positions."""
    return ConnectError(
        f"{spec.path}: topic {spec.topic} was deleted and created again, and the table has positions of the former "
        "one: give the table of the specification another name, with existing.table=append, to add the new topic's "
        "records"
    )
