"""Fields of JSON objects as columns of tables, with Spark's names of simple types."""

from __future__ import annotations

import json
from typing import Any, Final

_KINDS: Final = {bool: "boolean", int: "bigint", float: "double", bytes: "binary"}


def kind_of(value: Any) -> str | None:
    """The type of a value's column; None for null, which has none."""
    return None if value is None else _KINDS.get(type(value), "string")


def scalar(value: Any) -> Any:
    """A value for one cell: objects and arrays become JSON text."""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value
