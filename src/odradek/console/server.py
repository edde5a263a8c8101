"""Serves the console over HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from odradek.console.app import build
from odradek.console.settings import ConsoleSettings

STOP_S: Final = 2
"""Seconds that open streams get at a stop."""
NICENESS: Final = 10
"""The process and those that decode and search for it have this lower priority: where a broker is on the same machine
and its processors are busy, a search must not delay producers."""


def serve(settings: ConsoleSettings, ready: Callable[[str], None], until_end_of: int | None = None) -> None:
    """Listen, call `ready` with the URL, and serve until SIGTERM or SIGINT, or until a file descriptor's input ends.

    Lowers the priority of this process. Raises OSError.
    """
    os.nice(NICENESS)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.create_server((settings.host, settings.port), family=family) as listener:
        asyncio.run(_serve(settings, listener, ready, until_end_of))


async def _serve(
    settings: ConsoleSettings, listener: socket.socket, ready: Callable[[str], None], until_end_of: int | None
) -> None:
    config = uvicorn.Config(
        build(settings),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S,
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    def look_for_end(descriptor: int) -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            end()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    if until_end_of is not None:
        loop.add_reader(until_end_of, look_for_end, until_end_of)
    host, port = listener.getsockname()[:2]
    ready(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
    await server.serve(sockets=[listener])
