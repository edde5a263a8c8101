"""The HTTP listener of a broker with all that it serves, made of the broker's parts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.cluster.cluster_parts import LocalController
from odradek.broker.cluster.peers import Peers
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.coordinators.groups import GroupCoordinatorService
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.server import Server
from odradek.broker.observability.audit_metrics import AuditMetrics
from odradek.broker.observability.cluster_metrics import ClusterMetrics
from odradek.broker.observability.connection_metrics import ConnectionMetrics
from odradek.broker.observability.debug_pages import DebugPages
from odradek.broker.observability.exporter import Exporter
from odradek.broker.observability.group_metrics import GroupMetrics
from odradek.broker.observability.health import Health, Lifecycle
from odradek.broker.observability.http_listener import HttpListener, http_address
from odradek.broker.observability.loop_monitor import LoopMonitor
from odradek.broker.observability.partition_ends import PartitionEnds
from odradek.broker.observability.partition_metrics import PartitionMetrics
from odradek.broker.observability.process_metrics import ProcessMetrics
from odradek.broker.observability.request_metrics import RequestMetrics
from odradek.broker.observability.storage_metrics import StorageMetrics
from odradek.broker.observability.topic_metrics import TopicMetrics
from odradek.broker.ports import Ports
from odradek.broker.storage.partitions import Partitions
from odradek.log.directories.log_directories import LogDirectories
from odradek.metadata.image import ClusterImage
from odradek.replication.fetch_sessions import FetchSessions

if TYPE_CHECKING:
    from odradek.broker.delivery.record_queue import RecordQueue
    from odradek.broker.observability.client_telemetry import ClientTelemetry

SETTING: Final = "odradek.http.listener"


class Observed(NamedTuple):
    """The parts of a broker whose state is shown."""

    image: Callable[[], ClusterImage]
    partitions: Partitions
    directories: LogDirectories
    controller: LocalController
    peers: Peers
    groups: GroupCoordinatorService
    dispatcher: Dispatcher
    server: Server
    fetch_sessions: FetchSessions
    telemetry: ClientTelemetry | None
    audit: RecordQueue | None


class Observability:
    """Serves metrics and health while `odradek.http.listener` is set."""

    __slots__ = ("_address", "_debug", "_monitor", "exporter", "lifecycle", "listener")

    def __init__(self, config: BrokerConfig, ports: Ports, observed: Observed) -> None:
        """Raises ConfigError for an invalid address."""
        now = ports.clock.monotonic
        loop = asyncio.get_running_loop()
        self.lifecycle = Lifecycle()
        """How far the broker is."""
        self._address = http_address(config.text(SETTING))
        self._monitor = LoopMonitor(loop, ports.process.loop_cpu_s)

        def most_topics() -> int:
            return config.number("odradek.metrics.max.topics")

        ends = PartitionEnds(config.node_id, observed.partitions, observed.image, observed.peers, ports.clock)
        groups = GroupMetrics(observed.groups.survey, ends, lambda: config.number("odradek.metrics.max.groups"))
        self.exporter = Exporter(
            (
                ProcessMetrics(
                    ports.process,
                    observed.fetch_sessions,
                    self._monitor,
                    observed.dispatcher.slow.holds,
                    lambda: self.lifecycle.is_ready,
                ),
                ConnectionMetrics(
                    observed.server, lambda: [each.api for each in observed.dispatcher.counters.values()]
                ),
                RequestMetrics(observed.dispatcher.counters, now),
                TopicMetrics(observed.partitions.traffic, most_topics),
                PartitionMetrics(
                    config.node_id,
                    observed.image,
                    observed.partitions,
                    observed.directories,
                    lambda: config.text("odradek.metrics.partitions"),
                    most_topics,
                ),
                ClusterMetrics(observed.controller, most_topics),
                StorageMetrics(observed.directories, ports.disk, now),
                groups,
                *(() if observed.telemetry is None else (observed.telemetry,)),
                *(() if observed.audit is None else (AuditMetrics(observed.audit),)),
            ),
            now,
            ports.process.loop_cpu_s,
            groups.refresh,
        )
        """What `GET /metrics` answers."""
        health = Health(
            self.lifecycle,
            observed.image,
            observed.partitions,
            observed.directories,
            ports.disk,
            ports.clock,
            lambda: config.number("odradek.health.free.space.min.percent") / 100,
        )
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
