"""The console of `odradek serve --console`: a process of its own, so that pages never delay the broker's event loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.cli.arguments.errors import UsageError
from odradek.ports.process import signal_child

_STOP_S: Final = 10.0


def check_console(config: BrokerConfig) -> None:
    """Raise UsageError unless the console can connect without credentials. Raises ConfigError."""
    protocol = config.listeners()[0].security_protocol
    if protocol != "PLAINTEXT":
        raise UsageError(
            f"--console connects in plain text, and the first listener is {protocol}: "
            "run `odradek console --command-config FILE` beside the broker"
        )


class ConsoleProcess:
    """`odradek console` as a child process. It ends with this process, however it ends: its input is a pipe from it."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, bootstrap: str, listen: str, http: str = "") -> str | None:
        """Start it for brokers, and return its line when it serves; None if it ended, after it has reported why.

        `http` is the address of the broker's HTTP listener, whose figures it plots; empty without one.
        """
        plotted = [f"--metrics={http}"] if http else []
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "odradek.cli.main", "console", "--until-input-ends", "--allow-changes",
            f"--bootstrap-server={bootstrap}", f"--listen={listen}", *plotted,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().rstrip()
        return line or None

    async def stop(self) -> None:
        """End it and wait until it has ended."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        signal_child(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            signal_child(process, signal.SIGKILL)
            await process.wait()
