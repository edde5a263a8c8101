"""One broker whose disk and clock obey commands, wherever it runs: in a child process, or in a thread of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.ports import Ports
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.testing.faulty_ports import DiskFaults, FaultyDisk, ShiftedClock


class FaultyBroker:
    """Belongs to one event loop."""

    __slots__ = ("_broker", "_clock", "_faults", "_loading")

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._faults, self._clock = DiskFaults(), ShiftedClock(SystemClock())
        self._broker = Broker(
            BrokerConfig(settings), Ports(clock=self._clock, disk=FaultyDisk(SystemDisk(), self._faults))
        )
        self._loading: asyncio.Task[None] | None = None

    async def start(self) -> dict[str, Any]:
        """Start it: {"bootstrap": "HOST:PORT", "ports": {listener: port}}. Raises StartError, ConfigError."""
        broker = self._broker
        await broker.start()
        return {
            "bootstrap": broker.bootstrap,
            "ports": {each.listener.name: each.listener.port for each in broker.listeners},
        }

    def load_the_rest(self) -> None:
        """Load in the background what the start did without."""
        self._loading = asyncio.get_running_loop().create_task(self._broker.load_the_rest())

    def obey(self, command: Mapping[str, Any]) -> None:
        """Change the faults: `disk`, `shift_ms`."""
        disk = command.get("disk")
        if disk is not None:
            self._faults.error = disk["error"]
            self._faults.operations = frozenset(disk["operations"])
            self._faults.directory = disk["directory"]
            self._faults.sync_seconds = disk["sync_seconds"]
        self._clock.shift_ms = command.get("shift_ms", self._clock.shift_ms)

    async def stop(self) -> None:
        """An orderly stop."""
        if self._loading is not None:
            self._loading.cancel()
        await self._broker.stop()


def new_runner() -> asyncio.Runner:
    """An event loop as brokers of the command line have it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
