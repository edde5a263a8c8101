"""`--watch`: what a command prints, again every two seconds; a terminal is redrawn in place."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable
from typing import Final

from odradek.cli.arguments.errors import CommandError
from odradek.cli.terminal.output import is_terminal
from odradek.cli.terminal.streams import has_lost_reader

INTERVAL_S: Final = 2.0


class Frame(io.StringIO):
    """What a command prints for one look at a terminal, with its colours."""

    def isatty(self) -> bool:
        """A frame is shown on a terminal."""
        return True


def add_watch(parser: argparse.ArgumentParser | argparse._ArgumentGroup, when: str = "") -> None:
    """Add `--watch`; `when` says which action takes it."""
    parser.add_argument("--watch", action="store_true", help=f"repeat every {INTERVAL_S:g} seconds{when}")


def repeat(look: Callable[[], int], pause: Callable[[float], None] = time.sleep) -> int:
    """Call `look`, which prints, until Ctrl-C. The first look may raise; later failures are shown and retried."""
    if not is_terminal(sys.stdout):
        while True:
            look()
            sys.stdout.flush()
            if has_lost_reader():
                return 0
            pause(INTERVAL_S)
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def text(lines: str) -> Text:
        return Text.from_ansi(lines, no_wrap=True, overflow="ellipsis")

    frame = drawn(look)
    console = Console(file=sys.stdout)
    with Live(text(frame), console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            pause(INTERVAL_S)
            try:
                frame = drawn(look)
            except CommandError as error:
                frame = f"{error}\n\n{frame}"
            live.update(text(frame), refresh=True)


def drawn(look: Callable[[], int]) -> str:
    """What one look prints on standard output and standard error."""
    frame = Frame()
    with contextlib.redirect_stdout(frame), contextlib.redirect_stderr(frame):
        look()
    return frame.getvalue()
