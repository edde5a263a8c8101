"""The parts that connect a broker with its cluster, whichever way the cluster keeps its metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.api.services.cluster_service import ClusterMember, ElectedController, PromiseGiver
from odradek.api.services.controller_service import ControllerService
from odradek.broker.cluster.cluster_secret import ClusterSecret
from odradek.broker.cluster.cluster_view import controller_check
from odradek.broker.cluster.peers import Peers
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.opening import Storage
from odradek.broker.ports import Ports
from odradek.broker.replication.replication_parts import ReplicationParts, replication_parts
from odradek.broker.replication.replication_runtime import ReplicationRuntime
from odradek.broker.storage.partitions import Partitions
from odradek.controller.election_counts import ElectionCounts
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.log.config import LogConfig
from odradek.metadata.configs.catalog import rejected_topic_settings
from odradek.metadata.image import Broker, ClusterImage, Topic
from odradek.metrics.invariants import InvariantCounters
from odradek.ports.store import MetadataStore
from odradek.replication.leadership import Leadership

if TYPE_CHECKING:
    from odradek.api.requests.long_work import LongWork

logger = logging.getLogger(__name__)

_MOST_KNOWN: Final = 1_000
"""Different settings of topics that are remembered at a time."""


class Participation(Protocol):
    """How a broker takes part in its cluster, from its start to its stop."""

    @property
    def broker_epoch(self) -> int:
        """Of this broker's newest registration; -1 before the first."""
        ...

    @property
    def has_failed(self) -> asyncio.Event:
        """Set when this broker can follow its cluster no longer, and must end."""
        ...

    def follow(self) -> None:
        """Take the changes of the image that concern leadership, before any other part does."""
        ...

    async def join(self, broker: Broker) -> None:
        """Register. Other brokers may connect when this returns. Raises StoreError and ConfigError."""
        ...

    async def serve(self) -> None:
        """Return when this broker knows the cluster, and may be asked by clients."""
        ...

    async def hand_over(self) -> None:
        """Have leadership moved away, as far as other replicas can lead: Kafka's controlled shutdown."""
        ...

    def cease(self) -> None:
        """Act as a leader no longer."""
        ...

    async def leave(self) -> None:
        """End the registration."""
        ...

    def close(self) -> None:
        """Stop all timers, watches and tasks, at the end or after a failed start."""
        ...


class BrokerLink(ControllerService, Protocol):
    """The controller, as APIs and the broker's own parts ask it."""

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        """Ask for other in-sync replicas of partitions that this broker leads. Raises KafkaError."""
        ...


class LocalController(ElectedController, Protocol):
    """The controller in this process; it is active while this broker is the elected one."""

    is_active: bool
    image: ClusterImage
    elections: ElectionCounts

    def share_turns(self, work: LongWork) -> None:
        """Give way to other requests while a decision takes long."""
        ...


class ClusterParts(NamedTuple):
    """Parts that connect a broker with the other brokers."""

    store: MetadataStore
    """What brokers of the cluster share beside the image: secrets, tokens, ACLs."""
    secret: ClusterSecret
    """The proof that a connection is of a broker of this cluster."""
    controller: LocalController
    """The controller in this process."""
    participation: Participation
    """Registration of this broker, and its right to lead."""
    peers: Peers
    """Connections to other brokers."""
    link: BrokerLink
    """The active controller, in this process or another."""
    partitions: Partitions
    """Replicas of this broker; their logs open on first use."""
    replication_parts: ReplicationParts
    """What partitions refer to."""
    replication: ReplicationRuntime
    """Fetchers of followed partitions."""
    requests: ClusterMember
    """What a controller on another broker asks of this one."""
    promises: PromiseGiver | None
    """What leaders on other brokers ask of this one; None where they ask for nothing."""


class Replicas(NamedTuple):
    """The replicas of a broker, and what they refer to."""

    partitions: Partitions
    parts: ReplicationParts
    runtime: ReplicationRuntime


def replicas_of(
    config: BrokerConfig, ports: Ports, storage: Storage, link: BrokerLink, peers: Peers, leadership: Leadership
) -> Replicas:
    """Make the replicas. Must run on the event loop that the broker uses."""
    view = storage.view
    invariants = InvariantCounters()
    view.subscribe(controller_check(invariants))
    advance_starts = storage.directories.checkpoints.advance_starts

    def image() -> ClusterImage:
        return view.image

    parts = replication_parts(config, link, ports.clock, ports.random, image, advance_starts, leadership, invariants)
    partitions = Partitions(config.node_id, storage.replicas, LogConfigs(config), parts.environment)
    runtime = ReplicationRuntime(config, partitions, peers, parts, ports.clock, image)
    storage.directories.events.subscribe_moves(runtime.replica_moved)
    return Replicas(partitions, parts, runtime)


def report_failed_directories(storage: Storage, replicas: Replicas, report: Callable[[str], None]) -> None:
    """Stop fetching into a log directory that fails, and pass its path on, for the controller."""
    loop = asyncio.get_running_loop()

    def directory_failed(path: str) -> None:
        loop.call_soon(replicas.runtime.directory_failed)
        report(path)

    storage.directories.events.subscribe_failures(directory_failed)


def _valid(topic: Topic) -> dict[str, str]:
    """The settings of a topic without values that this version rejects, which are logged.

    Another version, a controller of Apache Kafka or an administrator of ZooKeeper may have stored them.
    """
    rejected = rejected_topic_settings(topic.configs)
    for name, error in rejected.items():
        logger.warning("setting %s of topic %s is ignored: %s", name, topic.name, error)
    return {name: text for name, text in topic.configs.items() if name not in rejected}


class LogConfigs:
    """What the logs of a topic obey. Topics with the same settings share one object, as most topics set nothing."""

    __slots__ = ("_config", "_known", "_revision")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._known: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self._revision = config.revision

    def __call__(self, topic: Topic) -> LogConfig:
        """The settings of the topic's logs, with the broker's present values for what the topic does not set."""
        if self._revision != self._config.revision or len(self._known) >= _MOST_KNOWN:
            self._known.clear()
            self._revision = self._config.revision
        key = tuple(topic.configs.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._build(topic)
        return found

    def _build(self, topic: Topic) -> LogConfig:
        config = self._config
        return LogConfig.build(
            {
                **config.topic_settings(_valid(topic)),
                "batch.validation": config.text("odradek.batch.validation"),
                "max.record.headers": config.number("odradek.max.record.headers"),
                "max.decompressed.bytes": config.number("odradek.max.decompressed.bytes"),
            }
        )
