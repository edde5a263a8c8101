"""Results for people (aligned columns) and for programs (JSON, JSON lines, YAML, TSV).

A command gives rows, as mappings, and columns that say which of their values a table shows and how it is headed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

Row = Mapping[str, Any]

DOCUMENTS: Final = frozenset({"json", "jsonl", "yaml"})
_PLAIN_START: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/")
_PLAIN: Final = _PLAIN_START | frozenset("0123456789_.-")
_YAML_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class Column(NamedTuple):
    """A column of a table; `wide` ones are shown with `-o wide` and in TSV only."""

    title: str
    key: str
    min_width: int = 0
    wide: bool = False


def show(rows: Sequence[Row], columns: Sequence[Column], output: str | None, *, heading: bool = True) -> None:
    """Print rows in the format; None is a table."""
    if output in DOCUMENTS:
        show_document(rows, output)
    elif output == "tsv":
        for row in rows:
            print("\t".join(tsv_escaped(cell(row.get(each.key))) for each in columns))
    else:
        shown = [each for each in columns if output == "wide" or not each.wide]
        if is_terminal(sys.stdout) and (heading or len(shown) > 1):
            from odradek.cli.terminal import rendering

            titles, cells = aligned(rows, shown, heading=heading, width=rendering.width)
            rendering.print_lines(titles if heading else None, cells, [each.key for each in shown])
            return
        for line in table(rows, shown, heading=heading):
            print(line)


def show_document(document: Any, output: str | None) -> None:
    """Print one JSON or YAML document, or a list as JSON lines."""
    if output == "yaml":
        print("\n".join(yaml_lines(document)))
        return
    import json

    if output == "jsonl" and isinstance(document, (list, tuple)):
        for each in document:
            print(json.dumps(each, ensure_ascii=False))
        return
    indent = 2 if output == "json" and is_terminal(sys.stdout) else None
    print(json.dumps(document, ensure_ascii=False, indent=indent))


def table(rows: Iterable[Row], columns: Sequence[Column], *, heading: bool = True) -> Iterable[str]:
    """Lines of aligned columns, the last one not padded; missing values are `-`."""
    if columns:
        titles, cells = aligned(rows, columns, heading=heading)
        for line in [titles, *cells] if heading else cells:
            yield " ".join(line).rstrip()


def aligned(
    rows: Iterable[Row], columns: Sequence[Column], *, heading: bool = True, width: Callable[[str], int] = len
) -> tuple[list[str], list[list[str]]]:
    """Titles and cells, padded to the widths of their columns but for the last one; `width` measures a text."""
    # Names of clients and groups are strangers' text: a terminal must not execute it, nor a line end break a row.
    cells = [[printable(cell(row.get(each.key))) for each in columns] for row in rows]
    widths = [
        max([each.min_width, width(each.title) if heading else 0, *(width(line[at]) for line in cells)])
        for at, each in enumerate(columns)
    ]
    widths[-1] = 0

    def padded(line: Sequence[str]) -> list[str]:
        return [text + " " * (most - width(text)) for text, most in zip(line, widths, strict=True)]

    return padded([each.title for each in columns]), [padded(line) for line in cells]


def cell(value: Any) -> str:
    """A value as one word of a table; one that is missing or empty is `-`, so that columns can be counted."""
    if value is None or value in ("", [], (), {}):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(cell, value))
    if isinstance(value, dict):
        return ",".join(f"{name}={cell(each)}" for name, each in value.items())
    return str(value)


def is_terminal(stream: TextIO) -> bool:
    """Whether to decorate: a terminal that can, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def yaml_lines(value: Any, indent: int = 0) -> list[str]:
    """YAML in block style, with every text that might be read as something else in quotes."""
    space = " " * indent
    if isinstance(value, Mapping) and value:
        lines = []
        for name, each in value.items():
            if isinstance(each, (Mapping, list, tuple)) and each:
                lines += [f"{space}{_yaml_scalar(name)}:", *yaml_lines(each, indent + 2)]
            else:
                lines.append(f"{space}{_yaml_scalar(name)}: {_yaml_scalar(each)}")
        return lines
    if isinstance(value, (list, tuple)) and value:
        lines = []
        for each in value:
            inner = yaml_lines(each, indent + 2)
            lines += [f"{space}- {inner[0].lstrip()}", *inner[1:]]
        return lines
    return [f"{space}{_yaml_scalar(value)}"]


def _yaml_scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    if isinstance(value, str):
        plain = value and value[0] in _PLAIN_START and _PLAIN.issuperset(value) and value.lower() not in _YAML_WORDS
        if plain:
            return value
    import json

    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    # YAML forbids some characters that JSON allows, and reads others as ends of lines.
    return "".join(each if each.isprintable() or ord(each) > 0xFFFF else f"\\u{ord(each):04x}" for each in text)


def tsv_escaped(text: str) -> str:
    """The text with backslash, tab, newline and carriage return escaped."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def printable(text: str) -> str:
    """The text with control characters escaped, which a terminal would otherwise execute."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
