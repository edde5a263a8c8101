"""Metrics and health of a controller of a KRaft quorum, made of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.server import Server
from odradek.broker.observability.cluster_metrics import ClusterMetrics, ObservedController
from odradek.broker.observability.connection_metrics import ConnectionMetrics
from odradek.broker.observability.controller_health import ControllerHealth
from odradek.broker.observability.health import ClockSteps, Lifecycle
from odradek.broker.observability.http_service import Observability, Served
from odradek.broker.observability.loop_monitor import LoopMonitor
from odradek.broker.observability.process_metrics import ProcessMetrics
from odradek.broker.observability.quorum_metrics import QuorumFigures, QuorumMetrics
from odradek.broker.observability.request_metrics import RequestMetrics
from odradek.broker.ports import Ports


class ObservedParts(NamedTuple):
    """The parts of a controller whose state is shown."""

    figures: Callable[[], QuorumFigures]
    controller: ObservedController
    dispatcher: Dispatcher
    server: Server
    directory: str
    """The directory of the metadata log."""


async def _nothing_to_prepare() -> None:
    """A controller's figures are all at hand."""


def controller_observability(config: BrokerConfig, ports: Ports, observed: ObservedParts) -> Observability:
    """Make the HTTP listener of a controller. Raises ConfigError for an invalid address."""
    lifecycle = Lifecycle("controller")
    monitor = LoopMonitor(asyncio.get_running_loop(), ports.process.loop_cpu_s)
    dispatcher = observed.dispatcher
    collectors = (
        ProcessMetrics(ports.process, (), monitor, dispatcher.slow.holds, lambda: lifecycle.is_ready),
        ConnectionMetrics(observed.server, lambda: [each.api for each in dispatcher.counters.values()]),
        RequestMetrics(dispatcher.counters, ports.clock.monotonic),
        ClusterMetrics(observed.controller, lambda: config.number("odradek.metrics.max.topics")),
        QuorumMetrics(observed.figures),
    )
    health = ControllerHealth(
        lifecycle,
        observed.figures,
        observed.directory,
        ports.disk,
        ClockSteps(ports.clock),
        lambda: config.number("odradek.health.free.space.min.percent") / 100,
    )
    return Observability(config, ports, Served(lifecycle, monitor, collectors, health.problems, _nothing_to_prepare))
