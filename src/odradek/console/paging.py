"""Long tables in pages that the server cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from starlette.requests import Request

T = TypeVar("T")

SIZES: Final = (50, 100, 500, 1000)
"""Rows of a page that a reader can choose."""


class Part(NamedTuple, Generic[T]):
    """A page of a table. `number` counts from 1; `first` and `last` are positions from 1, 0 for an empty table."""

    rows: Sequence[T]
    number: int
    pages: int
    total: int
    first: int
    last: int
    size: int


def cut(rows: Sequence[T], asked: str, size: int) -> Part[T]:
    """The asked page, or the nearest one that exists."""
    pages = max(1, -(-len(rows) // size))
    number = min(max(1, int(asked)), pages) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else 1
    start = (number - 1) * size
    part = rows[start : start + size]
    return Part(part, number, pages, len(rows), start + 1 if part else 0, start + len(part), size)


def part_of(request: Request, rows: Sequence[T], size: int) -> Part[T]:
    """The page that `?page=` names, of `?rows=` rows or else `size`."""
    asked = request.query_params.get("rows", "")
    return cut(rows, request.query_params.get("page", "1"), next((each for each in SIZES if str(each) == asked), size))


def ordered(rows: Sequence[T], key: Callable[[T], Any], *, is_reversed: bool) -> list[T]:
    """Rows by a key; those with None come last in both directions."""
    keyed = [(key(row), row) for row in rows]
    known = [each for each in keyed if each[0] is not None]
    known.sort(key=itemgetter(0), reverse=is_reversed)
    return [row for _, row in known] + [row for value, row in keyed if value is None]


def order_of(request: Request, columns: Sequence[str], default: str) -> tuple[str, bool]:
    """The column of `?sort=` and whether the order is reversed (`-column`)."""
    asked = request.query_params.get("sort", default)
    name = asked.removeprefix("-")
    return (name, asked.startswith("-")) if name in columns else (default.removeprefix("-"), default.startswith("-"))
