"""Serves an ASGI application until this process is to end. Needs uvicorn, of the extras `console` and `connect`."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any, Final

import uvicorn

STOP_S: Final = 2
"""Seconds that open requests and streams get at a stop."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def address_of(listener: socket.socket) -> str:
    """The host and port that a socket listens on, as a URL has them."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def stop_by_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def serve_web(application: Any, listener: socket.socket, stop: asyncio.Event) -> None:
    """Answer requests on a listening socket until `stop` is set."""
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_S,
        )
    )

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()
