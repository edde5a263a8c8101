"""Runs a worker and serves its REST interface until it is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping

import uvicorn

from odradek.connect.rest import build
from odradek.connect.worker import Worker, WorkerSettings

STOP_S = 2
"""Seconds that requests get at a stop."""


def serve(
    settings: WorkerSettings,
    connectors: Mapping[str, Mapping[str, str]],
    address: tuple[str, int],
    hosts: frozenset[str],
    ready: Callable[[str], None],
) -> None:
    """Listen, start the connectors, call `ready` with the URL, and work until SIGTERM or SIGINT.

    Raises OSError, ConnectError, KafkaError, ClientError.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        asyncio.run(_serve(settings, connectors, listener, hosts, ready))


async def _serve(
    settings: WorkerSettings,
    connectors: Mapping[str, Mapping[str, str]],
    listener: socket.socket,
    hosts: frozenset[str],
    ready: Callable[[str], None],
) -> None:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    worker = Worker(settings._replace(worker_id=name))
    config = uvicorn.Config(
        build(worker, hosts),
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

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        await worker.start()
        for connector, given in connectors.items():
            await worker.create(connector, given)
        ready(f"http://{name}/")
        await server.serve(sockets=[listener])
    finally:
        await worker.close()
