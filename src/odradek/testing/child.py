"""The child process of `Broker`: one broker whose disk and clock obey commands.

Standard input: a line of JSON with the settings, then a line per command. Standard output: a line of JSON when the
broker serves (`{"serves": {...}}`) or cannot (`{"failed": "..."}`), then one per command. The broker stops when the
input ends, also because the parent died.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.log_output import configure_logging
from odradek.broker.start_error import StartError
from odradek.testing.faulty_broker import FaultyBroker, new_runner

_READ_BYTES: Final = 65_536


class _Commands:
    """Lines of standard input, as they arrive."""

    __slots__ = ("_broker", "_ended", "_rest")

    def __init__(self, broker: FaultyBroker, ended: Callable[[], None]) -> None:
        self._broker = broker
        self._ended = ended
        self._rest = b""

    def read(self) -> None:
        """Obey the commands that have arrived."""
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._ended()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._broker.obey(json.loads(line))
            print("{}", flush=True)


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(sys.stdin.fileno(), 1)
        if not data:
            raise SystemExit("standard input ended before the settings")
        line += data
    return line


async def _serve(settings: dict[str, str]) -> int:
    try:
        broker = FaultyBroker(settings)
        found = await broker.start()
    except (StartError, ConfigError) as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    print(json.dumps({"serves": found}), flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), _Commands(broker, stop.set).read)
    broker.load_the_rest()
    await stop.wait()
    await broker.stop()
    return 0


def main() -> int:
    """Serve until the input ends; the exit status."""
    configure_logging("info", "text")
    settings: dict[str, str] = json.loads(_first_line())
    with new_runner() as runner:
        return runner.run(_serve(settings))


if __name__ == "__main__":
    sys.exit(main())
