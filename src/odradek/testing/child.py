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
from typing import Any, Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.lifecycle import Broker, StartError
from odradek.broker.log_output import configure_logging
from odradek.broker.ports import Ports
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.testing.faulty_ports import DiskFaults, FaultyDisk, ShiftedClock

_READ_BYTES: Final = 65_536


class _Commands:
    """Lines of standard input, as they arrive."""

    __slots__ = ("_clock", "_ended", "_faults", "_rest")

    def __init__(self, faults: DiskFaults, clock: ShiftedClock, ended: Callable[[], None]) -> None:
        self._faults = faults
        self._clock = clock
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
            self._obey(json.loads(line))
            print("{}", flush=True)

    def _obey(self, command: dict[str, Any]) -> None:
        disk = command.get("disk")
        if disk is not None:
            self._faults.error = disk["error"]
            self._faults.operations = frozenset(disk["operations"])
            self._faults.directory = disk["directory"]
            self._faults.sync_seconds = disk["sync_seconds"]
        self._clock.shift_ms = command.get("shift_ms", self._clock.shift_ms)


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(sys.stdin.fileno(), 1)
        if not data:
            raise SystemExit("standard input ended before the settings")
        line += data
    return line


async def _serve(settings: dict[str, str]) -> int:
    faults, clock = DiskFaults(), ShiftedClock(SystemClock())
    try:
        broker = Broker(BrokerConfig(settings), Ports(clock=clock, disk=FaultyDisk(SystemDisk(), faults)))
        await broker.start()
    except (StartError, ConfigError) as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    ports = {each.listener.name: each.listener.port for each in broker.listeners}
    print(json.dumps({"serves": {"bootstrap": broker.bootstrap, "ports": ports, "pid": os.getpid()}}), flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), _Commands(faults, clock, stop.set).read)
    loading = loop.create_task(broker.load_the_rest())
    await stop.wait()
    loading.cancel()
    await broker.stop()
    return 0


def main() -> int:
    """Serve until the input ends; the exit status."""
    configure_logging("info", "text")
    settings: dict[str, str] = json.loads(_first_line())
    try:
        import uvloop
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        return runner.run(_serve(settings))


if __name__ == "__main__":
    sys.exit(main())
