"""The parts of a broker, made from its storage and connected. None of them works before it is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.api.requests.context import Services
from odradek.api.requests.long_work import LongWork
from odradek.broker.cluster.assembly import store_parts
from odradek.broker.cluster.cluster_parts import ClusterParts
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.image_effects import ImageEffects
from odradek.broker.cluster.peers import Purpose
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.coordinators.groups import DYNAMIC_GROUP_CONFIGS, GroupCoordinatorService, group_settings
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.broker.coordinators.transactions import TransactionCoordinatorService
from odradek.broker.log_levels import BrokerLoggers
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.limits import request_limits
from odradek.broker.network.loop_holds import LoopHolds
from odradek.broker.network.server import Allowance, Guards, Server
from odradek.broker.network.slow_requests import follow_thresholds
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.network.turns import Turns
from odradek.broker.opening import Storage, StoreMetadata
from odradek.broker.ports import Ports
from odradek.broker.security.logins import Credentials, Logins
from odradek.broker.security.stored_tokens import StoredTokens, token_settings
from odradek.broker.security.token_stores import NodeTokens, TokenStore
from odradek.broker.storage.background import BackgroundJobs
from odradek.broker.storage.log_directory_runtime import LogDirectoryRuntime
from odradek.log.cleaner.log_cleaner import Cleaner
from odradek.metadata.image import ClusterImage
from odradek.ports.installation import install_hint
from odradek.ports.store import MetadataStore
from odradek.quotas.client_quotas import ClientQuotas
from odradek.replication.fetch_sessions import FetchSessions
from odradek.transactions.connections import NewestConnections
from odradek.wire.frames import ReceiveBuffers

if TYPE_CHECKING:
    from odradek.api.audit.trail import AuditTrail
    from odradek.broker.audit.assembly import Audit
    from odradek.broker.authorization.broker_authorization import BrokerAuthorization
    from odradek.broker.observability.client_telemetry import ClientTelemetry
    from odradek.broker.observability.http_service import Observability
    from odradek.broker.observability.telemetry_topic import TelemetryTopic
    from odradek.broker.security.sasl_listeners import SaslListener

_FETCHERS_KNOWN = 4096
_HTTP_LISTENER = "odradek.http.listener"


class Coordinators(NamedTuple):
    """Coordinators of groups and transactions, and what calls them for a new cluster image."""

    groups: GroupCoordinatorService
    """Coordinator of groups."""
    transactions: TransactionCoordinatorService
    """Coordinator of transactions."""
    quotas: ClientQuotas
    """Quotas of clients."""
    effects: ImageEffects
    """Effects of a new cluster image on the parts of this broker."""


class Parts(NamedTuple):
    """All parts of a broker."""

    storage: Storage
    """Log directories, partitions, metadata store."""
    cluster: ClusterParts
    """Connections with the other brokers."""
    coordinators: Coordinators
    """Coordinators of groups and transactions."""
    log_directories: LogDirectoryRuntime
    """Replica moves and recovery in the background."""
    background: BackgroundJobs
    """Periodic jobs: checkpoints, retention, flushes, compaction."""
    dispatcher: Dispatcher
    """Requests under way."""
    server: Server
    """Listeners and connections of clients."""
    tls: TlsListeners
    """Certificates of listeners with TLS."""
    authorization: BrokerAuthorization | None
    """The authorizer and the ACLs; None if none is set."""
    observability: Observability | None
    """Metrics and health over HTTP, if the configuration asks for them."""
    audit: Audit | None
    """The audit topic, if the configuration asks for it."""
    telemetry: ClientTelemetry | None
    """The receiver of clients' metrics, if the configuration asks for it."""


class _ClientParts(NamedTuple):
    """Parts that know clients: who they are, what they may do, what they report of themselves."""

    logins: Logins
    tokens: StoredTokens
    authorization: BrokerAuthorization | None
    telemetry: ClientTelemetry | None
    audit: AuditTrail | None
    certificates: TlsListeners


def assemble(
    config: BrokerConfig,
    ports: Ports,
    storage: Storage,
    buffers: ReceiveBuffers,
    tls: TlsListeners,
    sasl: Mapping[str, SaslListener],
) -> Parts:
    """Make the parts of a broker and connect them. Must run on the event loop that the broker uses."""
    cluster = _cluster_parts(config, ports, storage, tls)
    coordinators = _coordinators(config, ports, storage, cluster)
    view, partitions = storage.view, cluster.partitions

    def recovered(_topic: str, _partition: int) -> None:
        coordinators.effects.lead(view.image)

    log_directories = LogDirectoryRuntime(
        config, partitions, storage.directories, ports.disk, _image_of(view), recovered
    )
    audit = _audit(config, ports, storage, cluster)
    trail = None if audit is None else audit.trail
    clients = _client_parts(config, ports, storage, cluster, sasl, tls, trail)
    holds = LoopHolds(ports.clock.monotonic)
    long_work = _long_work(config, ports)
    cluster.controller.share_turns(long_work)
    services = _services(config, ports, storage, cluster, coordinators, log_directories, clients, long_work)
    limits = request_limits(config)
    turns = Turns()
    dispatcher = Dispatcher(services, asyncio.get_running_loop(), limits, holds, turns=turns)
    allowance = Allowance(limits, coordinators.quotas.connections, buffers, turns)
    server = Server(ports.network, dispatcher, config, ports.clock, allowance, Guards(tls, clients.logins, trail))
    follow_thresholds(config, dispatcher.slow)
    cleaner = Cleaner(storage.directories, ports.disk)
    observability = None
    if config.text(_HTTP_LISTENER):
        # A broker without the listener starts without its modules.
        from odradek.broker.observability.assembly import Observed, broker_observability

        observed = Observed(
            _image_of(view),
            partitions,
            storage.directories,
            cleaner,
            cluster.controller,
            cluster.peers,
            coordinators.groups,
            dispatcher,
            server,
            services.fetch_sessions,
            clients.telemetry,
            None if audit is None else audit.queue,
        )
        observability = broker_observability(config, ports, observed)
    background = BackgroundJobs(config, partitions, storage.directories, cleaner, ports.disk, ports.clock)
    return Parts(
        storage,
        cluster,
        coordinators,
        log_directories,
        background,
        dispatcher,
        server,
        tls,
        clients.authorization,
        observability,
        audit,
        clients.telemetry,
    )


def _long_work(config: BrokerConfig, ports: Ports) -> LongWork:
    """The turns of long requests, as long as the setting says."""
    slice_ms = "odradek.loop.slice.ms"
    long_work = LongWork(ports.clock.monotonic, config.number(slice_ms))
    config.on_change((slice_ms,), lambda _: long_work.configure(config.number(slice_ms)))
    return long_work


def _client_parts(
    config: BrokerConfig,
    ports: Ports,
    storage: Storage,
    cluster: ClusterParts,
    sasl: Mapping[str, SaslListener],
    tls: TlsListeners,
    trail: AuditTrail | None,
) -> _ClientParts:
    view = storage.view
    tokens = StoredTokens(
        token_settings(config), _token_store(config, storage, cluster), ports.disk, ports.clock, ports.random
    )
    credentials = Credentials(cluster.secret, _image_of(view), tokens)
    logins = Logins(config.node_id, config, sasl, credentials, ports.clock, trail)
    authorization = _authorization(config, storage, cluster.store, trail)
    return _ClientParts(logins, tokens, authorization, _telemetry(config, ports, storage, cluster), trail, tls)


def _token_store(config: BrokerConfig, storage: Storage, cluster: ClusterParts) -> TokenStore:
    if not config.joins_quorum:
        return NodeTokens(cluster.store)
    # A broker with a metadata store starts without the modules of a KRaft cluster.
    from odradek.broker.kraft.image_tokens import ImageTokens

    return ImageTokens(_image_of(storage.view))


def _audit(config: BrokerConfig, ports: Ports, storage: Storage, cluster: ClusterParts) -> Audit | None:
    if not config.flag("odradek.audit.topic.enable"):
        return None
    # A broker without an audit topic starts without its modules.
    from odradek.broker.audit.assembly import Audit

    return Audit(config, ports.clock, _image_of(storage.view), cluster.partitions, cluster.link, cluster.peers)


def _authorization(
    config: BrokerConfig, storage: Storage, store: MetadataStore, audit: AuditTrail | None
) -> BrokerAuthorization | None:
    if not config.text("authorizer.class.name"):
        return None
    # A broker without an authorizer starts without its modules.
    from odradek.broker.authorization.broker_authorization import BrokerAuthorization, acls_in, authorizer_settings

    source = acls_in(store)
    if config.joins_quorum:
        from odradek.broker.kraft.assembly import acls_of_image

        source = acls_of_image(storage.view)
    return BrokerAuthorization(authorizer_settings(config), source, audit)


def _telemetry(config: BrokerConfig, ports: Ports, storage: Storage, cluster: ClusterParts) -> ClientTelemetry | None:
    """The receiver of clients' metrics, if they can be read over HTTP and opentelemetry-proto is installed.

    Raises ConfigError if they shall be written to a topic and the package is not installed.
    """
    topic = config.text("odradek.telemetry.topic")
    if not config.text(_HTTP_LISTENER):
        return None
    try:
        from odradek.broker.observability.client_telemetry import ClientTelemetry
    except ImportError:
        if topic:
            reason = f"opentelemetry-proto is not installed: {install_hint('telemetry')}"
            raise ConfigError(f"odradek.telemetry.topic={topic} is refused: {reason}") from None
        # Clients are not asked to push then, as by a Kafka broker without a receiver.
        return None
    image = _image_of(storage.view)
    written = _telemetry_topic(topic, config, ports, image, cluster) if topic else None
    return ClientTelemetry(image, config, ports.clock, ports.random, ports.disk, written)


def _telemetry_topic(
    topic: str, config: BrokerConfig, ports: Ports, image: Callable[[], ClusterImage], cluster: ClusterParts
) -> TelemetryTopic:
    # A broker without the topic starts without its modules.
    from odradek.broker.delivery.record_queue import RecordQueue
    from odradek.broker.delivery.topic_writer import Leaders, TopicDelivery
    from odradek.broker.observability.telemetry_topic import TelemetryTopic

    leaders = Leaders(config.node_id, image, cluster.partitions, cluster.peers, ports.clock.now_ms)
    queue = RecordQueue(lambda: config.number("odradek.telemetry.queue.bytes"))
    delivery = TopicDelivery(topic, Purpose.TELEMETRY, leaders)
    return TelemetryTopic(topic, queue, delivery.write, ports.clock.now_ms)


def _image_of(view: ClusterView) -> Callable[[], ClusterImage]:
    return lambda: view.image


def _cluster_parts(config: BrokerConfig, ports: Ports, storage: Storage, tls: TlsListeners) -> ClusterParts:
    metadata = storage.metadata
    if isinstance(metadata, StoreMetadata):
        return store_parts(config, ports, storage, metadata, tls)
    # A broker with a store starts without the modules for a quorum.
    from odradek.broker.kraft.assembly import quorum_parts

    return quorum_parts(config, ports, storage, metadata, tls)


def _coordinators(config: BrokerConfig, ports: Ports, storage: Storage, cluster: ClusterParts) -> Coordinators:
    view, partitions, directories = storage.view, cluster.partitions, storage.directories

    groups = GroupCoordinatorService(
        group_settings(config),
        config.number("offsets.topic.num.partitions"),
        _image_of(view),
        ports.clock,
        ports.random,
        asyncio.get_running_loop(),
        # Topics that are to be adopted are created one by one, and their offsets may be there before.
        lambda: view.is_whole and not directories.startup.adopts,
    )
    config.on_change(DYNAMIC_GROUP_CONFIGS, lambda _: groups.configure(group_settings(config)))
    transactions = TransactionCoordinatorService(
        config, CoordinatorClock(ports.clock), view, cluster.link, partitions, groups, cluster.peers
    )
    quotas = ClientQuotas(
        config.number("quota.window.num"),
        config.number("quota.window.size.seconds"),
        config.number("controller.quota.window.num"),
        config.number("controller.quota.window.size.seconds"),
    )
    effects = ImageEffects(config.node_id, partitions, groups, transactions, quotas)
    return Coordinators(groups, transactions, quotas, effects)


def _services(
    config: BrokerConfig,
    ports: Ports,
    storage: Storage,
    cluster: ClusterParts,
    coordinators: Coordinators,
    log_directories: LogDirectoryRuntime,
    clients: _ClientParts,
    long_work: LongWork,
) -> Services:
    """What handlers of requests may use."""
    slots = config.number("max.incremental.fetch.session.cache.slots")
    return Services(
        node_id=config.node_id,
        config=config,
        clock=ports.clock,
        disk=ports.disk,
        partitions=cluster.partitions,
        long_work=long_work,
        fetch_sessions=FetchSessions(slots, ports.random),
        replica_sessions=cluster.replication_parts.sessions,
        fetchers=NewestConnections(limit=_FETCHERS_KNOWN),
        controller=cluster.link,
        elected=cluster.controller,
        cluster=cluster.requests,
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        loggers=BrokerLoggers(config.node_id),
        certificates=clients.certificates,
        quotas=coordinators.quotas,
        log_directories=log_directories,
        logins=clients.logins,
        tokens=clients.tokens,
        authorization=clients.authorization,
        telemetry=clients.telemetry,
        audit=clients.audit,
        image=_image_of(storage.view),
        unreachable=cluster.replication.unreachable,
        leadership=cluster.replication_parts.environment.leadership,
        promises=cluster.promises,
    )
