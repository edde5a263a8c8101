"""Runs a command's work against a cluster: a broker must answer soon, and failures become one line."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from odradek.cli.arguments.errors import CommandError, client_session
from odradek.cli.arguments.options import ANSWER_MS, client_settings, connect_ms
from odradek.client.admin import Admin
from odradek.client.config import ADMIN_DEFAULTS
from odradek.client.errors import AuthenticationFailed, ClientError, UnsupportedByBroker
from odradek.client.network.cluster import Cluster

T = TypeVar("T")

_AGAIN_S = 0.1


async def reach(cluster: Cluster, limit_ms: int) -> None:
    """Connect to one of the bootstrap servers. Raises CommandError when none answers in time."""
    last: ClientError | None = None
    client = logging.getLogger("odradek.client")
    level = client.level
    client.setLevel(logging.ERROR)  # this command reports the failure itself, in one line
    try:
        async with asyncio.timeout(limit_ms / 1000):
            while True:
                try:
                    await cluster.connections.any()
                    return
                except (UnsupportedByBroker, AuthenticationFailed):
                    raise
                except ClientError as error:
                    last = error
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError as error:
        servers = cluster.options["bootstrap_servers"]
        why = f"{servers}: no answer within {limit_ms} ms"
        if last is not None:
            why = str(last).removeprefix("no broker can be reached: ")
        raise CommandError(f"cannot reach a broker: {why}", "UNREACHABLE") from error
    finally:
        client.setLevel(level)


def run_admin(
    arguments: argparse.Namespace, work: Callable[[Admin], Awaitable[T]], given: Mapping[str, str] | None = None
) -> T:
    """The result of `work` with an admin client; `given` are properties. Raises UsageError, CommandError."""

    async def session() -> T:
        with client_session():
            settings = client_settings(arguments, ADMIN_DEFAULTS, given)
            limit = ANSWER_MS if arguments.timeout is None else max(1, arguments.timeout)
            settings["default_api_timeout_ms"] = limit
            settings["request_timeout_ms"] = limit
            async with Admin(**settings) as admin:
                await reach(admin.cluster, connect_ms(arguments))
                return await work(admin)

    return asyncio.run(session())
