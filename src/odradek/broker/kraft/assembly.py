"""The parts that connect a broker with a KRaft cluster."""

from __future__ import annotations

import logging

from odradek.broker.authorization.broker_authorization import ClusterAcls, Source
from odradek.broker.cluster.cluster_parts import ClusterParts, replicas_of, report_failed_directories
from odradek.broker.cluster.cluster_secret import ClusterSecret
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.peers import PeerLimits, Peers
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.refusals import metadata_directory
from odradek.broker.kraft.absent_parts import NoAclChanges, NoLocalController, NoPushes
from odradek.broker.kraft.broker_logins import BETWEEN_BROKERS, broker_login
from odradek.broker.kraft.committed_end import CommittedEnd
from odradek.broker.kraft.directory_assignments import DirectoryAssignments, Locate
from odradek.broker.kraft.former_leaders import FormerLeaders
from odradek.broker.kraft.heartbeat_lease import HeartbeatLease, lease_ms
from odradek.broker.kraft.image_acls import ImageAcls
from odradek.broker.kraft.quorum_link import QuorumLink
from odradek.broker.kraft.quorum_participation import LeadershipParts, QuorumParticipation
from odradek.broker.kraft.registrar import Registrar
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.opening import QuorumMetadata, Storage
from odradek.broker.ports import Ports
from odradek.kraft.broker_life_cycle import BrokerLifeCycle, Identity, Timing
from odradek.metadata.directories import LOST
from odradek.metadata.features import BROKER_FEATURES
from odradek.metadata.image import Broker
from odradek.metadata.kraft.registration_records import protocol_number
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.store import StoreError
from odradek.replication.leadership import Leadership
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
)

logger = logging.getLogger("odradek.broker.kraft")


def quorum_parts(
    config: BrokerConfig, ports: Ports, storage: Storage, metadata: QuorumMetadata, tls: TlsListeners
) -> ClusterParts:
    """Make the parts and connect them. Must run on the event loop that the broker uses."""
    if notice := shared_listener_notice(config):
        logger.warning("%s", notice)
    view = storage.view
    between = config.inter_broker_listener_name
    connector = tls.connector(between)
    limits = PeerLimits.of(config)
    prove = broker_login(config, ports.random, between, BETWEEN_BROKERS)
    peers = Peers(ports.network, lambda: view.image, between, config.node_id, prove, connector, limits)
    view.subscribe(peers.follow)
    link = QuorumLink(metadata.controllers, view, config)
    leadership = Leadership(config.node_id, ports.clock.monotonic)
    replicas = replicas_of(config, ports, storage, link, peers, leadership)
    request_ms = config.number("broker.session.timeout.ms") / 2
    committed_end = CommittedEnd(metadata.controllers.ask, metadata.follower, storage.cluster_id, request_ms)

    async def catch_up() -> None:
        await participation.wait_until_applied(await committed_end.find())

    lease = HeartbeatLease(config, leadership, ports.clock.monotonic, catch_up, replicas.partitions.opened)

    def registers(broker: Broker) -> Registrar:
        now_ms = ports.clock.monotonic() * 1000
        life = BrokerLifeCycle(_identity(ports, storage, metadata, broker), _timing(config), now_ms)
        return Registrar(
            life,
            metadata.controllers.ask,
            ports.clock,
            lambda: participation.metadata_offset,
            lease.unfenced,
            request_ms,
        )

    directories = storage.directories

    timeout_ms = config.number("controller.quorum.request.timeout.ms")
    assignments = DirectoryAssignments(
        config.node_id, metadata.controllers.ask, _locate(storage), lambda: participation.broker_epoch, timeout_ms
    )
    directories.events.subscribe_moves(assignments.moved)
    opened = replicas.partitions.opened
    leading = LeadershipParts(lease, FormerLeaders(config, leadership, peers, ports.clock.monotonic, opened))
    participation = QuorumParticipation(
        config, view, metadata.follower, leading, registers, assignments, directories.startup.registered
    )
    ids = {directory.path: directory.directory_id for directory in directories.directories}
    metadata_path = metadata_directory(config)

    def failed(path: str) -> None:
        if path not in ids:
            # One replica, which was given up: see `ReplicaDirectories.fail`.
            topic, _, partition = path.rpartition("-")
            assignments.moved(topic, int(partition))
            return
        participation.directory_failed(ids[path])
        if path == metadata_path:
            participation.metadata_failed(StoreError(f"the log directory of the metadata log, {path}, has failed"))
        elif all(each.offline is not None for each in directories.directories):
            participation.metadata_failed(StoreError("all log directories have failed"))

    report_failed_directories(storage, replicas, failed)
    # Nothing but the image is shared: no broker proves itself by a secret, and no token or ACL is stored.
    store = MemoryStore()
    secret = ClusterSecret(store, ports.random)
    local = NoLocalController()
    return ClusterParts(store, secret, local, participation, peers, link, *replicas, NoPushes(view), promises=None)


def _locate(storage: Storage) -> Locate:
    """Where a replica lies; a replica that was given up counts as one in a directory that is offline."""

    def locate(topic: str, partition: int) -> bytes | None:
        known = storage.view.image.topics.get(topic)
        if known is not None and storage.replicas.has_failed((topic, partition), known.id):
            return LOST
        found = storage.directories.directory_of(topic, partition)
        return None if found is None else found.directory_id

    return locate


def shared_listener_notice(config: BrokerConfig) -> str:
    """A warning where clients could act as brokers; empty where they cannot, or have a listener of their own."""
    controllers = {name.upper() for name in config.words("controller.listener.names")}
    serving = [each.name for each in config.listeners() if each.name not in controllers]
    if config.text("authorizer.class.name") or len(serving) > 1:
        return ""
    return (
        f"listener {config.inter_broker_listener_name} serves clients and other brokers, and no authorizer is set: a "
        "client that can connect may act as a broker; set authorizer.class.name, or add a listener for clients"
    )


def acls_of_image(view: ClusterView) -> Source:
    """The ACLs of the metadata log."""
    return lambda on_change: ClusterAcls(ImageAcls(view, on_change), NoAclChanges())


def _identity(ports: Ports, storage: Storage, metadata: QuorumMetadata, broker: Broker) -> Identity:
    """What this process registers."""
    return Identity(
        broker.id,
        storage.cluster_id,
        ports.random.uuid(),
        [
            BrokerRegistrationRequestListener(name, each.host, each.port, protocol_number(each))
            for name, each in broker.endpoints.items()
        ],
        [BrokerRegistrationRequestFeature(each.name, each.min_level, each.max_level) for each in BROKER_FEATURES],
        broker.rack,
        [directory.directory_id for directory in storage.directories.directories if directory.offline is None],
        metadata.previous_broker_epoch,
    )


def _timing(config: BrokerConfig) -> Timing:
    # Twice in a lease at least: a lost heartbeat must not cost leadership.
    interval_ms = min(config.number("broker.heartbeat.interval.ms"), lease_ms(config) / 2)
    return Timing(
        interval_ms,
        config.number("initial.broker.registration.timeout.ms"),
    )
