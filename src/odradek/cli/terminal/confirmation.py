"""Asks before a command destroys more than one thing; a script answers with `--yes`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from odradek.cli.arguments.errors import CommandError, UsageError

_LISTED: Final = 20
"""Names shown before a question; the rest is counted."""


def add_confirmation(parser: argparse.ArgumentParser, *, compatible: str | None = None) -> None:
    """Add `--yes`, and `--apache-compatible` with its help text where Apache's tool behaves differently."""
    group = parser.add_argument_group("safety")
    group.add_argument("-y", "--yes", action="store_true", help="do not ask before destroying more than one thing")
    if compatible is not None:
        group.add_argument("--apache-compatible", action="store_true", help=compatible)


def confirm(arguments: argparse.Namespace, action: str, things: Sequence[str]) -> None:
    """Show what `action` (such as "delete 3 topics") affects and ask on a terminal.

    Raises UsageError without a terminal and without `--yes`, CommandError if the answer is not yes.
    """
    if arguments.yes or getattr(arguments, "apache_compatible", False):
        return
    if not can_ask():
        raise UsageError(f"this would {action} ({shortened(things)}): confirm with --yes")
    for each in things[:_LISTED]:
        print(f"  {each}", file=sys.stderr)
    if len(things) > _LISTED:
        print(f"  … and {len(things) - _LISTED} more", file=sys.stderr)
    print(f"{action[:1].upper()}{action[1:]}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("cancelled; nothing was changed")


def can_ask() -> bool:
    """Whether a person can see a question and answer it; a process may have no standard input at all."""
    streams = (sys.stdin, sys.stderr)
    return all(each is not None and not each.closed and each.isatty() for each in streams)


def shortened(things: Sequence[str], limit: int = 5) -> str:
    """The first names of a list, and the number of the others."""
    shown = ", ".join(things[:limit])
    return shown if len(things) <= limit else f"{shown} and {len(things) - limit} more"
