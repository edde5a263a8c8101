"""Fields of JSON objects as columns of tables, with Spark's names of simple types."""

from __future__ import annotations

import json
from typing import Any, Final

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


def scalar(value: Any) -> Any:
    """A value for one cell: objects and arrays become JSON text."""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value
