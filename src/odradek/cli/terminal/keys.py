"""Single keys from a terminal, without Enter and without echo."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


def can_read_keys() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


@contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """Keys as they are pressed, within a running event loop. The terminal has its former mode afterwards.

    Ctrl-C remains a signal. The end of the input (the terminal was closed) is the key Ctrl-D.
    """
    descriptor = sys.stdin.fileno()
    pressed: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = os.read(descriptor, 64)
        if not data:
            loop.remove_reader(descriptor)
            pressed.put_nowait("\x04")
        text = data.decode(errors="ignore")
        # An arrow or function key is a sequence that begins with Escape: it has no meaning here.
        for key in text if not (text.startswith("\x1b") and len(text) > 1) else "":
            pressed.put_nowait(key)

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def no_keys() -> Iterator[asyncio.Queue[str]]:
    """No key is ever pressed: standard input is not a terminal."""
    yield asyncio.Queue()
