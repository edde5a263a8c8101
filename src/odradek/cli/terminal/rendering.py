"""Tables with colours on a terminal. Imported only where standard output is one: rich takes some 30 ms to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GOOD: Final = frozenset({"stable", "successful", "deleted", "created", "altered"})
_BAD: Final = frozenset({"dead", "none"})
_COUNTS_OF_TROUBLE: Final = frozenset({"lag", "out_of_sync", "offline_replicas"})
"""Columns whose value is 0 or empty while all is well."""


def print_lines(titles: Sequence[str] | None, cells: Sequence[Sequence[str]], keys: Sequence[str]) -> None:
    """Print cells that are aligned already, with a bold heading and a colour for the state that a cell shows."""
    console = Console(highlight=False, emoji=False, markup=False)
    if titles is not None:
        console.print(Text(" ".join(titles).rstrip(), "bold"), soft_wrap=True)
    for line in cells:
        text = Text()
        for number, (cell, key) in enumerate(zip(line, keys, strict=True)):
            text.append(f"{' ' if number else ''}{cell}", style_of(key, cell.strip()))
        text.rstrip()
        console.print(text, soft_wrap=True)


def style_of(key: str, text: str) -> str:
    """rich's style for a cell of the column `key`."""
    if text == "-":
        return "dim"
    word = text.lower()
    if key == "error" or word in _BAD or word.startswith("error"):
        return "red"
    if word in _GOOD:
        return "green"
    if key in _COUNTS_OF_TROUBLE and text != "0":
        return "yellow"
    return ""


def width(text: str) -> int:
    """Columns that text takes on a terminal: two for each wide character."""
    return cell_len(text)
