"""What all processes of `odradek serve` do: files for all that they serve, and an end with their supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Final, Protocol

from odradek.cli.serving.service_manager import ServiceManager
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.serve")

_FAILED_STOP_SECONDS: Final = 10.0
"""How long a node that cannot continue may take to close its logs: others lead once its process has ended."""


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


class Node(Protocol):
    """A broker or a controller that has been started."""

    @property
    def has_failed(self) -> asyncio.Event:
        """Set when it cannot continue: its metadata log is bad, or the disk of it."""
        ...

    async def stop(self) -> None:
        """Hand over what it leads, and close its logs."""
        ...


async def until_end(stop: asyncio.Event, node: Node) -> None:
    """Wait until the process is asked to stop, or the node cannot continue."""
    ends = [asyncio.create_task(each.wait()) for each in (stop, node.has_failed)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in ends:
        task.cancel()


async def end(node: Node, manager: ServiceManager, work: str) -> int:
    """Stop the node; the exit status. `work` is what an orderly stop does, for the service manager."""
    if node.has_failed.is_set():
        manager.stopping("the metadata of the cluster cannot be followed")
        await _stop_failed(node)
    else:
        manager.stopping(work)
        await node.stop()
    return 1 if node.has_failed.is_set() else 0


async def _stop_failed(node: Node) -> None:
    """Close what can be closed, so that the next start need not recover it; the bad disk may not let everything."""
    try:
        async with asyncio.timeout(_FAILED_STOP_SECONDS):
            await node.stop()
    except (OSError, KafkaError) as error:
        reason = str(error) or f"the disk does not answer within {_FAILED_STOP_SECONDS:g} s"
        logger.warning("not all logs are closed: %s; the next start recovers them", reason)


def _look_for_end(stop: asyncio.Event) -> None:
    """Set the event when the standard input has ended; what it says is ignored."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()
