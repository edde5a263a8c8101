"""The HTTP listener of a broker with all that it serves, made of the broker's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.cluster.cluster_parts import LocalController
from odradek.broker.cluster.peers import Peers
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.coordinators.groups import GroupCoordinatorService
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.server import Server
from odradek.broker.observability.audit_metrics import AuditMetrics
from odradek.broker.observability.cluster_metrics import ClusterMetrics
from odradek.broker.observability.connection_metrics import ConnectionMetrics
from odradek.broker.observability.group_metrics import GroupMetrics
from odradek.broker.observability.health import Health, Lifecycle
from odradek.broker.observability.http_service import Observability, Served
from odradek.broker.observability.loop_monitor import LoopMonitor
from odradek.broker.observability.partition_ends import PartitionEnds
from odradek.broker.observability.partition_metrics import PartitionMetrics
from odradek.broker.observability.process_metrics import ProcessMetrics
from odradek.broker.observability.request_metrics import RequestMetrics
from odradek.broker.observability.storage_metrics import StorageMetrics
from odradek.broker.observability.topic_metrics import TopicMetrics
from odradek.broker.ports import Ports
from odradek.broker.storage.partitions import Partitions
from odradek.log.cleaner.log_cleaner import Cleaner
from odradek.log.directories.log_directories import LogDirectories
from odradek.metadata.image import ClusterImage
from odradek.replication.fetch_sessions import FetchSessions

if TYPE_CHECKING:
    from odradek.broker.delivery.record_queue import RecordQueue
    from odradek.broker.observability.client_telemetry import ClientTelemetry


class Observed(NamedTuple):
    """The parts of a broker whose state is shown."""

    image: Callable[[], ClusterImage]
    partitions: Partitions
    directories: LogDirectories
    cleaner: Cleaner
    controller: LocalController
    peers: Peers
    groups: GroupCoordinatorService
    dispatcher: Dispatcher
    server: Server
    fetch_sessions: FetchSessions
    telemetry: ClientTelemetry | None
    audit: RecordQueue | None


def broker_observability(config: BrokerConfig, ports: Ports, observed: Observed) -> Observability:
    """Make the HTTP listener of a broker. Raises ConfigError for an invalid address."""
    now = ports.clock.monotonic
    lifecycle = Lifecycle()
    monitor = LoopMonitor(asyncio.get_running_loop(), ports.process.loop_cpu_s)

    def most_topics() -> int:
        return config.number("odradek.metrics.max.topics")

    ends = PartitionEnds(config.node_id, observed.partitions, observed.image, observed.peers, ports.clock)
    groups = GroupMetrics(observed.groups.survey, ends, lambda: config.number("odradek.metrics.max.groups"))
    collectors = (
        ProcessMetrics(
            ports.process,
            observed.fetch_sessions,
            monitor,
            observed.dispatcher.slow.holds,
            lambda: lifecycle.is_ready,
        ),
        ConnectionMetrics(observed.server, lambda: [each.api for each in observed.dispatcher.counters.values()]),
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
        StorageMetrics(observed.directories, observed.cleaner, ports.disk, now),
        groups,
        *(() if observed.telemetry is None else (observed.telemetry,)),
        *(() if observed.audit is None else (AuditMetrics(observed.audit),)),
    )
    health = Health(
        lifecycle,
        observed.image,
        observed.partitions,
        observed.directories,
        ports.disk,
        ports.clock,
        lambda: config.number("odradek.health.free.space.min.percent") / 100,
    )
    return Observability(config, ports, Served(lifecycle, monitor, collectors, health.problems, groups.refresh))
