"""The parts that connect a broker with a cluster whose metadata lies in a store."""

from __future__ import annotations

from odradek.broker.cluster.cluster_parts import ClusterParts, replicas_of, report_failed_directories
from odradek.broker.cluster.cluster_secret import BrokerProof, ClusterSecret
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.controller_channel import control_connections
from odradek.broker.cluster.controller_link import ControllerLink
from odradek.broker.cluster.controller_requests import ControllerRequests
from odradek.broker.cluster.controller_watch import ControllerWatch
from odradek.broker.cluster.departure import Departure
from odradek.broker.cluster.lease_holder import LeaseHolder
from odradek.broker.cluster.membership import Membership
from odradek.broker.cluster.peers import PeerLimits, Peers
from odradek.broker.cluster.promises import Promises
from odradek.broker.cluster.store_participation import StoreParticipation
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.opening import Storage, StoreMetadata
from odradek.broker.ports import Ports
from odradek.metadata.image import Broker
from odradek.metadata.stores.selection import patience_seconds
from odradek.replication.leadership import Leadership


def store_parts(
    config: BrokerConfig, ports: Ports, storage: Storage, metadata: StoreMetadata, tls: TlsListeners
) -> ClusterParts:
    """Make the parts and connect them. Must run on the event loop that the broker uses."""
    store, view = metadata.store, storage.view
    between = config.inter_broker_listener_name
    control_plane = config.control_plane_listener_name or between
    secret = ClusterSecret(store, ports.random)
    prove = BrokerProof(secret, config.node_id)
    limits = PeerLimits.of(config)
    connect = control_connections(
        ports.network, control_plane, config.node_id, prove, tls.connector(control_plane), limits
    )
    offline_replicas = storage.replicas.offline_replicas
    controller = Controller(store, config, ports.clock, ports.random, view, connect, offline_replicas)
    peers = Peers(ports.network, lambda: view.image, between, config.node_id, prove, tls.connector(between), limits)
    link = ControllerLink(controller, view, peers, config)
    view.subscribe(peers.follow)
    view.subscribe(link.follow)
    view.subscribe(controller.leases.follow)
    leadership = Leadership(config.node_id, ports.clock.monotonic)
    promises = Promises(config, ports.disk, ports.clock, storage.directories, leadership)
    replicas = replicas_of(config, ports, storage, link, peers, leadership)
    leases = LeaseHolder(config, ports.clock, leadership, view, link, peers, replicas.partitions.opened)
    controller.leases.watch_changes(leases.wake)

    def registered(broker: Broker) -> None:
        storage.directories.startup.note_use(broker.epoch)
        view.registered(broker)
        leases.registered()

    membership = Membership(
        store,
        ports.clock,
        controller,
        patience_seconds=patience_seconds(config),
        registering=leases.surrender,
        registered=registered,
        judged=storage.directories.startup.accept_losses,
    )
    controller.fencing.watch_yield(membership.step_down)
    watch = ControllerWatch(config.node_id, connect, membership.controller_died)
    departure = Departure(config, view, link)
    participation = StoreParticipation(view, metadata.configs, controller, membership, leases, watch, departure)
    report_failed_directories(storage, replicas, lambda _path: membership.directory_failed())
    requests = ControllerRequests(config.node_id, store, view, replicas.partitions)
    return ClusterParts(store, secret, controller, participation, peers, link, *replicas, requests, promises)
