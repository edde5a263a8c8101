"""What `odradek top` shows: which rows, in which order, and what keys change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.cli.terminal.output import Column

VIEWS: Final = ("brokers", "topics", "groups")
COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "brokers": (
        Column("BROKER", "broker", 6),
        Column("HOST", "address", 20),
        Column("LEADS", "leads", 6),
        Column("RECORDS/S", "records_per_second", 12),
        Column("BYTES/S", "bytes_per_second", 12),
        Column("BYTES", "size_bytes"),
        Column("CPU %", "cpu_percent"),
    ),
    "topics": (
        Column("TOPIC", "topic", 20),
        Column("PARTITIONS", "partitions"),
        Column("RECORDS/S", "records_per_second", 12),
        Column("BYTES/S", "bytes_per_second", 12),
        Column("RECORDS", "records", 12),
        Column("BYTES", "size_bytes"),
    ),
    "groups": (
        Column("GROUP", "group", 20),
        Column("STATE", "state", 12),
        Column("PARTITIONS", "partitions"),
        Column("RECORDS/S", "records_per_second", 12),
        Column("LAG", "lag", 12),
        Column("LAG/S", "lag_per_second"),
    ),
}
"""The columns of each view; the first one names the row."""
FIRST_SORT: Final = {"brokers": "records_per_second", "topics": "records_per_second", "groups": "lag"}
KEYS: Final = "b t g: view   s: sort   r: reverse   /: filter   q: quit"

_ESCAPE: Final = "\x1b"
_BACKSPACE: Final = ("\x7f", "\x08")


class TopView(NamedTuple):
    """What is shown. `sorts` is the column by which each view is sorted; `typing` is a filter that is being typed."""

    view: str = "topics"
    sorts: Mapping[str, str] = FIRST_SORT
    is_reversed: bool = False
    filter: str = ""
    typing: str | None = None
    has_ended: bool = False

    def press(self, key: str) -> TopView:
        """The view after a key; an unknown key changes nothing."""
        if self.typing is not None:
            return self._type(key)
        if key in ("q", "\x03", "\x04"):
            return self._replace(has_ended=True)
        chosen = next((each for each in VIEWS if each[0] == key), None)
        if chosen is not None:
            return self._replace(view=chosen)
        if key == "s":
            keys = [each.key for each in COLUMNS[self.view]]
            following = keys[(keys.index(self.sorts[self.view]) + 1) % len(keys)]
            return self._replace(sorts={**self.sorts, self.view: following})
        if key == "r":
            return self._replace(is_reversed=not self.is_reversed)
        return self._replace(typing=self.filter) if key == "/" else self

    def _type(self, key: str) -> TopView:
        typed = self.typing or ""
        if key in ("\r", "\n"):
            return self._replace(filter=typed, typing=None)
        if key == _ESCAPE:
            return self._replace(typing=None)
        if key in _BACKSPACE:
            return self._replace(typing=typed[:-1])
        return self._replace(typing=typed + key) if key.isprintable() else self

    def chosen(self, rows: Sequence[Mapping[str, Any]], view: str | None = None) -> list[Mapping[str, Any]]:
        """The rows of a view (None: the one shown) whose name contains the filter, in order."""
        view = self.view if view is None else view
        name = COLUMNS[view][0].key
        found = [row for row in rows if self.filter.lower() in str(row[name]).lower()]
        return ordered(found, self.sorts[view], self.is_reversed)


def ordered(rows: Sequence[Mapping[str, Any]], key: str, is_reversed: bool) -> list[Mapping[str, Any]]:
    """Rows by a column: numbers from the largest, texts from A; `is_reversed` turns that round.

    Rows without a value are last in both directions.
    """
    known = [row for row in rows if row[key] is not None]
    unknown = [row for row in rows if row[key] is None]
    is_text = any(isinstance(row[key], str) for row in known)
    known.sort(key=lambda row: str(row[key]) if is_text else row[key], reverse=is_reversed == is_text)
    return [*known, *unknown]


def with_short_rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with one decimal place of each rate."""
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}
