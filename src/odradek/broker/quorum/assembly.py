"""The parts of a controller, made from its storage and connected. None of them works before it is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from odradek.broker.authorization.broker_authorization import BrokerAuthorization, ClusterAcls, authorizer_settings
from odradek.broker.cluster.cluster_secret import ClusterSecret
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.peers import PeerLimits
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.quorum_addresses import (
    advertised_controller_listeners,
    controller_listener,
    quorum_servers,
    voter_addresses,
)
from odradek.broker.configuration.refusals import has_static_voters, is_controller_only
from odradek.broker.kraft.broker_logins import TO_CONTROLLERS, broker_login
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.image_acls import ImageAcls
from odradek.broker.kraft.image_tokens import ImageTokens
from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.broker.log_levels import BrokerLoggers
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.limits import receive_buffers, request_limits
from odradek.broker.network.loop_holds import LoopHolds
from odradek.broker.network.server import Allowance, Guards, Server
from odradek.broker.network.slow_requests import follow_thresholds
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.network.turns import Turns
from odradek.broker.ports import Ports
from odradek.broker.quorum.acl_records import AclRecords
from odradek.broker.quorum.broker_requests import BrokerRequests
from odradek.broker.quorum.broker_watch import BrokerWatch
from odradek.broker.quorum.committed_metadata import CommittedMetadata
from odradek.broker.quorum.controller_service import DecidingController
from odradek.broker.quorum.endpoints import controller_endpoint, guarded_controller_endpoint
from odradek.broker.quorum.opening import ControllerStorage
from odradek.broker.quorum.quorum_controller import QuorumController
from odradek.broker.quorum.quorum_state import QuorumState
from odradek.broker.quorum.raft_replica import RaftReplica
from odradek.broker.quorum.raft_requests import RaftRequests
from odradek.broker.quorum.replica_addresses import ReplicaAddresses
from odradek.broker.quorum.services import ControllerServices
from odradek.broker.quorum.start_credentials import StartCredentials
from odradek.broker.quorum.voter_requests import VoterRequests
from odradek.broker.security.logins import Credentials, Logins
from odradek.broker.security.stored_tokens import StoredTokens, token_settings
from odradek.controller.outcome import Decision
from odradek.kraft.metadata_observer import Server as Address
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.quorum import Identity
from odradek.kraft.raft.settings import QuorumSettings
from odradek.kraft.raft.voters import Endpoint
from odradek.kraft.raft.wire_requests import Sender
from odradek.metadata.image import ClusterImage
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.quotas.client_quotas import ClientQuotas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.api.requests.context import Services
    from odradek.broker.observability.http_service import Observability
    from odradek.broker.security.sasl_listeners import SaslListener


class ControllerParts(NamedTuple):
    """All parts of a controller."""

    storage: ControllerStorage
    replica: RaftReplica
    metadata: CommittedMetadata
    credentials: StartCredentials
    controller: QuorumController
    brokers: BrokerRequests
    controllers: Controllers
    """Connections to the other controllers."""
    addresses: ReplicaAddresses
    view: ClusterView
    """The committed metadata, as handlers and the authorizer see them."""
    quotas: ClientQuotas
    authorization: BrokerAuthorization | None
    dispatcher: Dispatcher
    server: Server
    tls: TlsListeners
    state: QuorumState
    observability: Observability | None
    """Metrics and health over HTTP, if `odradek.http.listener` is set."""


def assemble(
    config: BrokerConfig,
    ports: Ports,
    storage: ControllerStorage,
    tls: TlsListeners,
    sasl: Mapping[str, SaslListener],
    failed: Callable[[BaseException], None],
) -> ControllerParts:
    """Make the parts and connect them. Must run on the event loop that the controller uses. Raises ConfigError."""
    name, _protocol = controller_listener(config)
    machine = _machine(config, ports, storage)
    addresses = _addresses(config, ports, machine)
    prove = broker_login(config, ports.random, name, TO_CONTROLLERS)
    limits = PeerLimits.of(config)
    controllers = Controllers(ports.network, config.node_id, tls.connector(name), prove, limits)
    replica = _replica(config, ports, storage, machine, controllers, addresses)
    metadata = CommittedMetadata(
        storage.log, ports.clock, _snapshots(config, ports), storage.cluster_id, replica.snapshot_written, failed
    )
    controller = QuorumController(replica, metadata, config, ports.clock, ports.random, storage.bootstrap)
    watch = BrokerWatch(ports.network, controller, ports.clock)
    brokers = BrokerRequests(controller, watch, storage.cluster_id, ports.clock)
    view = ClusterView(config)
    view.begin(ClusterImage(storage.cluster_id))
    authorization = _authorization(config, ports, view, controller)
    quotas = _quotas(config)
    raft = RaftRequests(replica, addresses, name, ports.clock)
    # A leader resigns after this time without a majority: see Kafka's `LeaderState`.
    absent_ms = 1.5 * config.number("controller.quorum.fetch.timeout.ms")
    state = QuorumState(replica, raft, metadata, ports.clock, absent_ms)
    deciding = DecidingController(controller, view, config)
    credentials = StartCredentials(view, metadata, storage.bootstrap)
    tokens = _tokens(config, ports, controller)
    logins = _logins(config, ports, credentials, tokens, sasl)
    services = ControllerServices(
        config.node_id,
        config,
        ports.clock,
        deciding,
        deciding,
        raft,
        brokers,
        BrokerLoggers(config.node_id),
        tls,
        quotas,
        logins,
        lambda: view.image,
        tokens,
        authorization,
    )
    requests = request_limits(config)
    endpoints = controller_endpoint if authorization is None else guarded_controller_endpoint
    # A dispatcher reads no other services than those that both kinds of nodes have.
    holds = LoopHolds(ports.clock.monotonic)
    loop, turns = asyncio.get_running_loop(), Turns()
    dispatcher = Dispatcher(cast("Services", services), loop, requests, holds, endpoints=endpoints, turns=turns)
    follow_thresholds(config, dispatcher.slow)
    allowance = Allowance(requests, quotas.connections, receive_buffers(config), turns)
    server = Server(ports.network, dispatcher, config, ports.clock, allowance, Guards(tls, logins))
    server.on_closed(watch.connection_closed)
    seen = _observability(config, ports, state, controller, (dispatcher, server), storage.log.directory)
    return ControllerParts(
        storage, replica, metadata, credentials, controller, brokers, controllers, addresses, view, quotas,
        authorization, dispatcher, server, tls, state, seen,
    )  # fmt: skip


def _snapshots(config: BrokerConfig, ports: Ports) -> MetadataSnapshots:
    return MetadataSnapshots(
        ports.clock,
        config.number("metadata.log.max.record.bytes.between.snapshots"),
        config.number("metadata.log.max.snapshot.interval.ms") / 1000,
    )


def _quotas(config: BrokerConfig) -> ClientQuotas:
    return ClientQuotas(
        config.number("quota.window.num"),
        config.number("quota.window.size.seconds"),
        config.number("controller.quota.window.num"),
        config.number("controller.quota.window.size.seconds"),
    )


def _observability(
    config: BrokerConfig,
    ports: Ports,
    state: QuorumState,
    controller: QuorumController,
    network: tuple[Dispatcher, Server],
    directory: str,
) -> Observability | None:
    """A controller without the listener starts without its modules; one that is a broker, too, has the broker's."""
    if not is_controller_only(config) or not config.text("odradek.http.listener"):
        return None
    from odradek.broker.observability.controller_assembly import ObservedParts, controller_observability

    return controller_observability(config, ports, ObservedParts(state.figures, controller, *network, directory))


def _authorization(
    config: BrokerConfig, ports: Ports, view: ClusterView, controller: QuorumController
) -> BrokerAuthorization | None:
    if not config.text("authorizer.class.name"):
        return None
    return BrokerAuthorization(
        authorizer_settings(config),
        lambda on_change: ClusterAcls(ImageAcls(view, on_change), AclRecords(controller, ports.random)),
        knows_acls=False,
    )


def _tokens(config: BrokerConfig, ports: Ports, controller: QuorumController) -> StoredTokens:
    """The delegation tokens of the metadata log, which the active controller changes."""

    async def change(decide: Callable[[ClusterImage], Decision[None]]) -> None:
        await controller.decide(lambda c: c.step(decide))

    store = ImageTokens(lambda: controller.image, change)
    return StoredTokens(token_settings(config), store, ports.disk, ports.clock, ports.random)


def _logins(
    config: BrokerConfig,
    ports: Ports,
    known: StartCredentials,
    tokens: StoredTokens,
    sasl: Mapping[str, SaslListener],
) -> Logins:
    """Logins by the credentials of the metadata log and of the file; secrets of a store there are none."""
    credentials = Credentials(ClusterSecret(MemoryStore(), ports.random), known.image, tokens)
    return Logins(config.node_id, config, sasl, credentials, ports.clock, None)


def _own_endpoints(config: BrokerConfig, ports: Ports) -> tuple[Endpoint, ...]:
    """The listeners of this controller as the other replicas reach them. Raises ConfigError."""
    return tuple(
        Endpoint(each.name, each.host or ports.network.own_host(), each.port)
        for each in advertised_controller_listeners(config)
    )


def _bootstrap_servers(config: BrokerConfig, ports: Ports) -> list[Address]:
    """Where a replica looks for the leader; none where the voters are in the configuration. Raises ConfigError."""
    if has_static_voters(config):
        return []
    own = {Address(each.host, each.port) for each in _own_endpoints(config, ports)}
    return [each for each in quorum_servers(config) if each not in own]


def _addresses(config: BrokerConfig, ports: Ports, machine: RaftMachine) -> ReplicaAddresses:
    name, _protocol = controller_listener(config)
    settings = voter_addresses(config)
    first = _own_endpoints(config, ports)[0]
    settings.setdefault(config.node_id, Address(first.host, first.port))
    return ReplicaAddresses(machine.quorum, name, settings, _bootstrap_servers(config, ports))


def _machine(config: BrokerConfig, ports: Ports, storage: ControllerStorage) -> RaftMachine:
    settings = QuorumSettings(
        election_timeout_ms=config.number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.number("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.number("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.number("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.number("controller.quorum.retry.backoff.ms"),
        append_linger_ms=config.number("controller.quorum.append.linger.ms"),
        auto_join=config.flag("controller.quorum.auto.join.enable"),
    )
    return RaftMachine(
        Identity(
            storage.cluster_id,
            config.node_id,
            frozenset(voter_addresses(config)),
            storage.directory_id,
            _own_endpoints(config, ports),
            len(_bootstrap_servers(config, ports)),
        ),
        settings,
        storage.log_index,
        storage.state,
        ports.random.random,
        ports.clock.monotonic() * 1000,
    )


def _replica(
    config: BrokerConfig,
    ports: Ports,
    storage: ControllerStorage,
    machine: RaftMachine,
    controllers: Controllers,
    addresses: ReplicaAddresses,
) -> RaftReplica:
    name, _protocol = controller_listener(config)
    sender = Sender(name, addresses[config.node_id])
    ask = VoterRequests(controllers, addresses, sender, config.number("controller.quorum.request.timeout.ms"))
    return RaftReplica(machine, storage.log, ports.disk, ports.clock, ask)
