"""How a table is divided by columns, or by units of time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

UNITS: Final = ("hour", "day", "month")
_DIVISION: Final = re.compile(r"(?:(?P<unit>hour|day|month)\((?P<of>[^()\s]+)\)|(?P<column>[^()\s]+))")


class Division(NamedTuple):
    """One column that a table is divided by, or the unit of time of a column."""

    source: str
    """The column whose values divide."""
    unit: str = ""
    """`hour`, `day` or `month` of a timestamp; empty for the value itself."""

    @property
    def column(self) -> str:
        """The column that holds the values where a format has no transforms of its own (Delta)."""
        return f"{self.source}_{self.unit}" if self.unit else self.source

    @property
    def kind(self) -> str:
        """The type of that column, if it is one of time."""
        return "date" if self.unit == "day" else "string"

    def value(self, row: Mapping[str, Any]) -> Any:
        """The value of that column in a row; days are dates, hours and months are texts in UTC."""
        at: datetime | None = row.get(self.source)
        if at is None:
            return None
        if self.unit == "day":
            return at.date()
        return f"{at:%Y-%m-%d-%H}" if self.unit == "hour" else f"{at:%Y-%m}"


def split_division(text: str) -> Division:
    """The division that a text names. Raises ValueError."""
    match = _DIVISION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: a column expected, or hour(COLUMN), day(COLUMN), month(COLUMN)")
    return Division(match["of"] or match["column"], match["unit"] or "")


def parse_divisions(texts: Iterable[str], kinds: Mapping[str, str]) -> tuple[Division, ...]:
    """The divisions of a table with these columns. Raises ValueError."""
    found: list[Division] = []
    for text in texts:
        made = split_division(text)
        if made.source not in kinds:
            raise ValueError(f"{text!r}: {made.source} has to be one of `columns`, a key, or __timestamp")
        if made.unit and kinds[made.source] != "timestamp":
            raise ValueError(f"{text!r}: {made.source} is of type {kinds[made.source]}, timestamp expected")
        if made in found or (made.unit and made.column in kinds):
            raise ValueError(f"{text!r}: there is a column {made.column} already")
        found.append(made)
    return tuple(found)
