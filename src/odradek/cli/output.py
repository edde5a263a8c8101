"""Results for people (aligned columns) and for programs (JSON, JSON lines, YAML, TSV).

A command gives rows, as mappings, and columns that say which of their values a table shows and how it is headed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
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
        for line in table(rows, shown, heading=heading, bold=is_terminal(sys.stdout)):
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


def table(rows: Iterable[Row], columns: Sequence[Column], *, heading: bool = True, bold: bool = False) -> Iterable[str]:
    """Lines of aligned columns, the last one not padded; missing values are `-`."""
    cells = [[cell(row.get(each.key)) for each in columns] for row in rows]
    if not columns:
        return
    widths = [
        max([each.min_width, len(each.title) if heading else 0, *(len(line[at]) for line in cells)])
        for at, each in enumerate(columns)
    ]
    widths[-1] = 0
    if heading:
        line = " ".join(each.title.ljust(width) for each, width in zip(columns, widths, strict=True)).rstrip()
        yield f"\x1b[1m{line}\x1b[0m" if bold else line
    for values in cells:
        yield " ".join(value.ljust(width) for value, width in zip(values, widths, strict=True)).rstrip()


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
    """Whether to decorate: a terminal, and its owner has not said no (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


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

    return json.dumps(value, ensure_ascii=False)


def tsv_escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
