"""The reference of the command line, made from the argument parsers: `python -m odradek.cli.reference > FILE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from odradek.cli.arguments.examples import examples_of
from odradek.cli.catalog import COMMANDS, load, parser_of
from odradek.cli.main import kcat_parser

FILE: Final = "docs/CLI_REFERENCE.md"
"""Where the page is kept."""

REGENERATE: Final = f"./dev run python -m odradek.cli.reference > {FILE}"
"""The command that writes the page."""

_HEAD: Final = f"""\
# Command-line reference

All commands of `odradek` with their options. This page is generated from the code: `{REGENERATE}`.
How commands relate to those of Apache Kafka, kcat and rpk is in [CLI.md](CLI.md).

Exit status: 0 for success, 1 if the cluster rejected the request or it failed, 2 for a mistake on the command line or
in a configuration file. An error is one line on standard error.
"""


def reference() -> str:
    """The page as Markdown."""
    names = sorted(COMMANDS)
    parts = [_HEAD, "\n".join(f"- [{name}](#odradek-{name}): {COMMANDS[name]}" for name in names)]
    parts += [section(f"odradek {name}", COMMANDS[name], parser_of(name, load(name))) for name in names]
    about = "The options of kcat, without a command. [CLI.md](CLI.md) has the details"
    parts.append(section("odradek -C, -P, -L, -G", about, kcat_parser()))
    return "\n\n".join(each.strip("\n") for each in parts) + "\n"


def section(title: str, about: str, parser: argparse.ArgumentParser) -> str:
    """The heading, examples and options of one command."""
    lines = [f"## {title}", "", f"{about[:1].upper()}{about[1:]}.", ""]
    examples = examples_of(parser)
    if examples:
        lines += ["```sh", *examples, "```", ""]
    for group in parser._action_groups:
        rows = [each for each in group._group_actions if is_shown(each)]
        if rows:
            heading = {"positional arguments": "argument", "options": "option"}.get(group.title or "", group.title)
            lines += [f"| {heading} | |", "|---|---|", *map(row, rows), ""]
    return "\n".join(lines)


def is_shown(action: argparse.Action) -> bool:
    """Whether `--help` shows an option that is not in every command."""
    return action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)


def row(action: argparse.Action) -> str:
    """A line of the table of options."""
    about = escaped((action.help or "").replace("%%", "%"))
    if action.choices is not None and action.metavar is None and len(list(action.choices)) > 1:
        about = f"{about} ({', '.join(map(str, action.choices))})" if about else ", ".join(map(str, action.choices))
    return f"| {', '.join(forms(action))} | {about} |"


def forms(action: argparse.Action) -> Iterator[str]:
    """How an option is written: `-b`, `--bootstrap-server HOST:PORT,…`."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if not metavar and action.nargs != 0:
        metavar = "VALUE" if action.option_strings else action.dest.upper()
    if action.nargs in ("?", argparse.OPTIONAL) and action.option_strings:
        metavar = f"[{metavar}]"
    if not action.option_strings:
        yield f"`{escaped(metavar)}`"
    for number, name in enumerate(action.option_strings, 1):
        value = f" {escaped(metavar)}" if metavar and number == len(action.option_strings) else ""
        yield f"`{name}{value}`"


def escaped(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|") if text.strip() else ""


if __name__ == "__main__":
    sys.stdout.write(reference())
