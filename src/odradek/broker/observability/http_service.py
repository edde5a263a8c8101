"""The HTTP listener of a node with all that it serves: metrics, health and debug pages."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.observability.debug_pages import DebugPages
from odradek.broker.observability.exporter import Exporter
from odradek.broker.observability.health import HealthPages, Lifecycle, Problem
from odradek.broker.observability.http_listener import HttpListener, http_address
from odradek.broker.observability.loop_monitor import LoopMonitor
from odradek.broker.ports import Ports
from odradek.metrics.definition import Collector

SETTING: Final = "odradek.http.listener"


class Served:
    """What a kind of nodes shows: `collectors` of its metrics, and the `problems` of its health."""

    __slots__ = ("collectors", "lifecycle", "monitor", "prepare", "problems")

    def __init__(
        self,
        lifecycle: Lifecycle,
        monitor: LoopMonitor,
        collectors: Sequence[Collector],
        problems: Callable[[], Awaitable[list[Problem]]],
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        """`prepare` is awaited before each scrape."""
        self.lifecycle = lifecycle
        self.monitor = monitor
        self.collectors = collectors
        self.problems = problems
        self.prepare = prepare


class Observability:
    """Serves metrics and health while `odradek.http.listener` is set."""

    __slots__ = ("_address", "_debug", "_monitor", "exporter", "lifecycle", "listener")

    def __init__(self, config: BrokerConfig, ports: Ports, served: Served) -> None:
        """Raises ConfigError for an invalid address."""
        self.lifecycle = served.lifecycle
        """How far the node is."""
        self._address = http_address(config.text(SETTING))
        self._monitor = served.monitor
        self.exporter = Exporter(served.collectors, ports.clock.monotonic, ports.process.loop_cpu_s, served.prepare)
        """What `GET /metrics` answers."""
        health = HealthPages(served.lifecycle, served.problems)
        self._debug = DebugPages(ports.disk, ports.clock, ports.process.loop_cpu_s)
        self.listener = HttpListener(
            ports.network,
            {
                "/metrics": self.exporter.answer,
                "/healthy": health.healthy,
                "/ready": health.ready,
                "/health": health.health,
                "/debug/stacks": self._debug.stacks,
                "/debug/profile": self._debug.profile,
            },
        )
        """The HTTP listener; it listens between `start` and `stop`."""

    def start(self) -> None:
        """Listen, if the setting asks for it. Raises OSError with the address in its text."""
        address = self._address
        if address is None:
            return
        try:
            self.listener.listen(address)
        except OSError as error:
            reason = "the address is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise OSError(f"cannot listen on {address.host}:{address.port} ({SETTING}): {reason}") from error
        self._monitor.start()

    def stop(self) -> None:
        """Serve no more."""
        self._monitor.stop()
        self._debug.close()
        self.listener.close()
