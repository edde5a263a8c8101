"""Runs a worker and serves its REST interface until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from odradek.connect.rest import build
from odradek.connect.worker import Worker, WorkerSettings
from odradek.ports.web_server import address_of, listen, serve_web, stop_by_signal


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
    with listen(*address) as listener:
        asyncio.run(_serve(settings, connectors, listener, hosts, ready))


async def _serve(
    settings: WorkerSettings,
    connectors: Mapping[str, Mapping[str, str]],
    listener: socket.socket,
    hosts: frozenset[str],
    ready: Callable[[str], None],
) -> None:
    name = address_of(listener)
    worker = Worker(settings._replace(worker_id=name))
    stop = stop_by_signal()
    try:
        await worker.start()
        for connector, given in connectors.items():
            await worker.create(connector, given)
        ready(f"http://{name}/")
        await serve_web(build(worker, hosts), listener, stop)
    finally:
        await worker.close()
