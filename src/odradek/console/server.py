"""Serves the console over HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from odradek.console.app import build
from odradek.console.settings import ConsoleSettings
from odradek.ports.web_server import address_of, listen, serve_web, stop_by_signal

NICENESS: Final = 10
"""The process and those that decode and search for it have this lower priority: where a broker is on the same machine
and its processors are busy, a search must not delay producers."""


def serve(settings: ConsoleSettings, ready: Callable[[str], None], until_end_of: int | None = None) -> None:
    """Listen, call `ready` with the URL, and serve until SIGTERM or SIGINT, or until a file descriptor's input ends.

    Lowers the priority of this process. Raises OSError.
    """
    os.nice(NICENESS)
    with listen(settings.host, settings.port) as listener:
        asyncio.run(_serve(settings, listener, ready, until_end_of))


async def _serve(
    settings: ConsoleSettings, listener: socket.socket, ready: Callable[[str], None], until_end_of: int | None
) -> None:
    stop = stop_by_signal()
    loop = asyncio.get_running_loop()

    def look_for_end(descriptor: int) -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    if until_end_of is not None:
        loop.add_reader(until_end_of, look_for_end, until_end_of)
    ready(f"http://{address_of(listener)}/")
    await serve_web(build(settings), listener, stop)
