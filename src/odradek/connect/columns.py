"""Fields of JSON objects as columns of tables, with Spark's names of simple types."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

_KINDS: Final = {bool: "boolean", int: "bigint", float: "double", bytes: "binary"}


def kind_of(value: Any) -> str | None:
    """The type of a value's column; None for null, which has none."""
    return None if value is None else _KINDS.get(type(value), "string")


def joined_kind(name: str, before: str, kind: str, *, is_fixed: bool) -> str:
    """The type of a column of the type `before` that gets a value of this type. Raises ValueError if there is none.

    A column that is not yet in a table (`is_fixed` is false) becomes double for a number with a fraction.
    """
    if before == kind or (before == "double" and kind == "bigint"):
        return before
    if before == "bigint" and kind == "double" and not is_fixed:
        return kind
    raise ValueError(f"field {name} is of type {kind}, its column of type {before}")


def check_new_columns(names: Iterable[str], known: Iterable[str], *, ignores_case: bool) -> None:
    """Raises ValueError for the name of a field that no column can have beside the known ones."""
    taken = {each.lower(): each for each in known} if ignores_case else {}
    for name in names:
        try:
            is_name = bool(name.encode()) and "\0" not in name
        except UnicodeEncodeError:
            is_name = False
        if not is_name:
            raise ValueError(f"field {name!r}: this is no name of a column")
        if ignores_case and taken.setdefault(name.lower(), name) != name:
            raise ValueError(f"field {name}: column {taken[name.lower()]} has the same name but for the case")


def scalar(value: Any) -> Any:
    """A value for one cell: objects and arrays become JSON text."""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value


def plain_value(value: Any) -> Any:
    """A value of a column, or of Avro, as JSON has it: times are ISO 8601, decimals text, bytes base64."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | UUID | dt.timedelta):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain_value(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
