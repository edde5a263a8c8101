"""What all processes of `odradek serve` do: files for all that they serve, and an end with their supervisor."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress


def allow_most_files() -> None:
    """Raise the limit of open files to the most that the process may set itself, as Java does (MaxFDLimit).

    Shells and service managers often give 1,024, for the sake of programs that call select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems report no limit, and reject a number above one that they do not report.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def until_stop(*, until_input_ends: bool = False) -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets, and with `until_input_ends` also the end of the standard input."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_input_ends:
        loop.add_reader(sys.stdin.fileno(), _look_for_end, stop)
    return stop


def _look_for_end(stop: asyncio.Event) -> None:
    """Set the event when the standard input has ended; what it says is ignored."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()
