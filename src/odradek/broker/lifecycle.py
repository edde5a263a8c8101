"""A broker from start to stop.

Start: lock and identity of the log directories, metadata store, the cluster image; then the parts, made by
`broker.assembly`; then the stages in order: listeners bound, the broker registered and perhaps elected as the
controller, connections served, background work. Stop runs the stages in reverse, begins with the hand-over of all
leadership, and ends with logs that are marked clean.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.api.requests.declarations import DECLARATIONS
from odradek.api.requests.registry import endpoint
from odradek.broker.assembly import Parts, assemble
from odradek.broker.cluster.cluster_parts import LocalController, Participation
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.membership import IdTaken
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.refusals import SASL_PROTOCOLS, TLS_PROTOCOLS
from odradek.broker.network.addresses import BoundListener, address_notices, bootstrap_of
from odradek.broker.network.limits import receive_buffers
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.opening import Storage, open_storage
from odradek.broker.ports import Ports
from odradek.broker.start_error import StartError
from odradek.broker.storage.partitions import Partitions
from odradek.groups.service import GroupService
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.metadata.image import NO_BROKER, Endpoint
from odradek.metadata.image import Broker as BrokerEntry
from odradek.ports.disk import SystemDisk
from odradek.ports.network import inherited_listener
from odradek.ports.store import StoreError, WrongStore
from odradek.replication.leadership import Leadership
from odradek.wire.errors import KafkaError
from odradek.wire.frames import ReceiveBuffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.broker.audit.assembly import Audit
    from odradek.broker.delivery.topic_writer import TopicWriter
    from odradek.broker.security.sasl_listeners import SaslListener

logger = logging.getLogger("odradek.broker")

DRAIN_SECONDS = 5.0
"""How long a stop waits for the requests under way."""
FAILED_DRAIN_SECONDS = 0.5
"""The same of a broker that cannot continue: others lead its partitions only once its process has ended."""
LOAD_PAUSE_SECONDS = 0.02
"""Pause between the handler modules that are loaded after the start."""

Step = Callable[[], Awaitable[object] | None]


class Stage(NamedTuple):
    """A part of a broker with what starts it and what stops it."""

    start: Step
    stop: Step


class Inspection(NamedTuple):
    """Parts of a broker whose state the simulator checks."""

    directories: LogDirectories
    """Its log directories."""
    partitions: Partitions
    """Its replicas."""
    view: ClusterView
    """The cluster as the broker knows it."""
    controller: LocalController
    """Its controller, active or not."""
    participation: Participation
    """Its part in the cluster."""
    leadership: Leadership | None
    """Its right to act as a leader; None where no leases are needed."""
    audit: Audit | None
    """Its audit topic, if it has one."""
    groups: GroupService
    """Its group coordinator."""


class Broker:
    """One broker. `await start()`, serve until `await stop()`."""

    __slots__ = ("_config", "_parts", "_ports", "bootstrap", "bound", "http", "listeners", "waits_for_store")

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        self._config = config
        self._ports = ports or Ports(disk=SystemDisk(group_reads=config.flag("odradek.group.access")))
        self._parts: Parts | None = None
        self.listeners: tuple[BoundListener, ...] = ()
        """The listeners once they are bound, with their real ports."""
        self.bootstrap = ""
        """HOST:PORT for clients: of the first listener, as it is advertised if it is bound to all interfaces."""
        self.bound = ""
        """HOST:PORT of the first listener's socket."""
        self.http = ""
        """HOST:PORT of the HTTP listener; empty without one."""
        self.waits_for_store = False
        """Whether the start waits for the metadata store. No log is open yet, so that it may be cancelled at once."""

    @property
    def has_failed(self) -> asyncio.Event:
        """Set when a started broker cannot continue: it cannot follow the metadata of its cluster."""
        assert self._parts is not None, "the broker has not been started"
        return self._parts.cluster.participation.has_failed

    def inspect(self) -> Inspection | None:
        """The parts whose state can be checked; None before the storage is open."""
        parts = self._parts
        if parts is None:
            return None
        storage, cluster = parts.storage, parts.cluster
        return Inspection(
            storage.directories,
            cluster.partitions,
            storage.view,
            cluster.controller,
            cluster.participation,
            cluster.replication_parts.environment.leadership,
            parts.audit,
            parts.coordinators.groups,
        )

    async def start(self) -> None:
        """Serve when this returns. Raises StartError."""
        for purpose, names in self._config.without_effect().items():
            logger.warning("settings without effect: %s (%s)", ", ".join(names), purpose)
        secured = [each.name for each in self._config.listeners() if each.security_protocol in TLS_PROTOCOLS]
        controllers: list[str] = []
        if self._config.joins_quorum:
            from odradek.broker.configuration.quorum_addresses import controller_listener

            name, protocol = controller_listener(self._config)
            controllers += [name] * (protocol in TLS_PROTOCOLS)
        try:
            tls = TlsListeners(self._config, secured, self._ports.clock, controllers)
            sasl = _sasl_listeners(self._config, self._ports)
            # A failed start gives back what it took: the next attempt may come from this very process.
            async with AsyncExitStack() as opened:
                for listener in sasl.values():
                    if listener.bearer is not None:
                        opened.callback(listener.bearer.close)
                        await listener.bearer.start()
                self.waits_for_store = True
                buffers = receive_buffers(self._config)
                storage = await _open(self._config, self._ports, tls, buffers, opened)
                self.waits_for_store = False
                parts = self._parts = assemble(self._config, self._ports, storage, buffers, tls, sasl)
                opened.callback(parts.cluster.participation.close)
                opened.callback(parts.server.close)
                opened.callback(tls.close)
                opened.callback(_forget_acls, parts)
                opened.callback(_stop_observing, parts)
                for stage in self._stages(parts):
                    await _run(stage.start)
                opened.pop_all()
        except (LogDirectoryError, ConfigError) as error:
            raise StartError(str(error)) from error
        except StoreError as error:
            misconfigured = isinstance(error, WrongStore | IdTaken)
            raise StartError(f"metadata store: {error}", misconfigured=misconfigured) from error
        self._log_start(storage.cluster_id, tls)

    def accept_from(self, descriptor: int) -> None:
        """Serve clients of a listening socket that this process inherited as those of the first listener.

        For the time from the start to the stop. Raises OSError.
        """
        assert self._parts is not None, "the broker has not been started"
        self._parts.server.adopt(self.listeners[0].listener.name, partial(inherited_listener, descriptor))

    async def stop(self) -> None:
        """Hand over, finish what is being served, make everything durable, mark the logs as clean."""
        assert self._parts is not None, "the broker has not been started"
        for stage in reversed(self._stages(self._parts)):
            await _run(stage.stop)
        logger.info("stopped")

    def _stages(self, parts: Parts) -> tuple[Stage, ...]:
        """The stages in the order of the start."""
        cluster, coordinators, server = parts.cluster, parts.coordinators, parts.server
        participation = cluster.participation
        return (
            Stage(_nothing, lambda: self._close_storage(parts)),
            Stage(parts.tls.watch, parts.tls.close),
            # Before any request can be served: without ACLs a denied client would be refused nothing, or everything.
            Stage(lambda: _load_acls(parts), lambda: _forget_acls(parts)),
            Stage(lambda: self._bind(parts), server.close),
            # Before the broker joins its cluster, and until it has left: probes see a start and a stop that take long.
            Stage(lambda: self._observe(parts), lambda: _stop_observing(parts)),
            Stage(_nothing, cluster.peers.close),
            # Before its connections end: a broker that the controller cannot reach any longer is mistaken for dead.
            Stage(lambda: self._join_cluster(parts), participation.leave),
            Stage(_nothing, cluster.replication.close),
            Stage(_nothing, coordinators.transactions.close),
            # The jobs begin before replica moves and recovery, and end before them.
            Stage(_nothing, parts.log_directories.stop),
            Stage(parts.background.start, parts.background.stop),
            Stage(parts.log_directories.start, _nothing),
            Stage(_nothing, lambda: _drain(parts)),
            # Before the requests are drained: members that wait for others to join are answered at once.
            Stage(_nothing, coordinators.groups.close),
            Stage(_nothing, coordinators.effects.stop),
            Stage(_nothing, server.stop_listening),
            # Before its address refuses connections: other brokers mistake that for the death of the process.
            Stage(_nothing, participation.cease),
            Stage(_nothing, participation.hand_over),
            # Before leadership is handed over: a lone broker writes to itself.
            Stage(lambda: _start_writers(parts), lambda: _stop_writers(parts)),
            Stage(lambda: _set_ready(parts, True), lambda: _set_ready(parts, False)),
        )

    def _bind(self, parts: Parts) -> None:
        """Open the sockets; connections wait."""
        bound = []
        for listener in self._config.listeners():
            try:
                opened = parts.server.listen(listener.name, listener.host, listener.port)
            except OSError as error:
                reason = "the address is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
                raise StartError(f"cannot listen on {listener.host}:{listener.port}: {reason}") from error
            bound.append(BoundListener(listener._replace(port=opened.port), opened.host))
        self.listeners = tuple(bound)
        self.bootstrap, self.bound = bootstrap_of(bound[0], self._endpoints()), bound[0].address

    def _observe(self, parts: Parts) -> None:
        """Serve metrics and health, if the configuration asks for it."""
        if parts.observability is None:
            return
        try:
            parts.observability.start()
        except OSError as error:
            raise StartError(str(error)) from error
        self.http = parts.observability.listener.address

    def _endpoints(self) -> dict[str, Endpoint]:
        """Addresses that clients receive, by the name of the listener."""
        ports = {each.listener.name: each.listener.port for each in self.listeners}
        return {
            listener.name: Endpoint(
                listener.host or self._ports.network.own_host(),
                listener.port or ports[listener.name],
                listener.security_protocol,
            )
            for listener in self._config.advertised_listeners()
        }

    async def _join_cluster(self, parts: Parts) -> None:
        config, view, server = self._config, parts.storage.view, parts.server
        effects, participation = parts.coordinators.effects, parts.cluster.participation
        await effects.begin(view.image)
        participation.follow()
        view.subscribe(effects)
        view.subscribe(parts.cluster.replication.apply)
        unclean = parts.storage.directories.startup.records_may_be_lost
        entry = BrokerEntry(config.node_id, NO_BROKER, config.rack, self._endpoints(), unclean=unclean)
        await participation.join(entry)
        # Other brokers may connect from here on; clients once this one knows the cluster.
        between_brokers = config.inter_broker_listener_name
        server.open(between_brokers, config.control_plane_listener_name or between_brokers)
        await participation.serve()
        server.open()

    def _log_start(self, cluster_id: str, tls: TlsListeners) -> None:
        config = self._config
        addresses = ", ".join(each.address for each in self.listeners)
        logger.info("node %d of cluster %s serves on %s", config.node_id, cluster_id, addresses)
        if self.http:
            logger.info("metrics and health are served on http://%s", self.http)
        is_derived = not config.given("advertised.listeners") and not config.given("advertised.host.name")
        for each in self.listeners:
            has_sasl = each.listener.security_protocol in SASL_PROTOCOLS
            authenticates = has_sasl or tls.authenticates(each.listener.name)
            for level, text in address_notices(
                each, self._endpoints(), is_derived=is_derived, authenticates=authenticates
            ):
                logger.log(level, "%s", text)

    async def load_the_rest(self) -> None:
        """Load what a start does without, a little at a time: on first use there may be no descriptor left for it."""
        for key in DECLARATIONS:
            await asyncio.sleep(LOAD_PAUSE_SECONDS)
            try:
                endpoint(key)
            except OSError as error:
                logger.warning("cannot load the handler of API key %d: %s; it is loaded on first use", key, error)

    async def _close_storage(self, parts: Parts) -> None:
        storage = parts.storage
        # Before the directories are unlocked: a controller in this process writes its vote and its log there.
        try:
            await storage.metadata.close()
        except (KafkaError, OSError) as error:
            logger.warning("cannot close the metadata log: %s; the next start recovers it", error)
        await storage.directories.close(
            clean=True,
            high_watermarks=parts.background.high_watermarks(),
            broker_epoch=parts.cluster.participation.broker_epoch,
            threads=self._config.number("num.recovery.threads.per.data.dir"),
        )


def _sasl_listeners(config: BrokerConfig, ports: Ports) -> Mapping[str, SaslListener]:
    names = [listener.name for listener in config.listeners() if listener.security_protocol in SASL_PROTOCOLS]
    if not names:
        return {}
    # A broker without SASL starts without its modules.
    from odradek.broker.security.sasl_listeners import sasl_listeners

    return sasl_listeners(config, ports.disk, ports.clock, names)


async def _load_acls(parts: Parts) -> None:
    if parts.authorization is not None:
        await parts.authorization.stored.load()
        parts.authorization.stored.follow()


def _forget_acls(parts: Parts) -> None:
    if parts.authorization is not None:
        parts.authorization.stored.close()


async def _open(
    config: BrokerConfig, ports: Ports, tls: TlsListeners, buffers: ReceiveBuffers, opened: AsyncExitStack
) -> Storage:
    if not config.joins_quorum:
        return await open_storage(config, ports, buffers, opened)
    # A broker with a store starts without the modules for a quorum.
    from odradek.broker.kraft.opening import open_quorum_storage

    return await open_quorum_storage(config, ports, tls, buffers, opened)


async def _run(step: Step) -> None:
    result = step()
    if result is not None:
        await result


async def _drain(parts: Parts) -> None:
    has_failed = parts.cluster.participation.has_failed.is_set()
    await parts.dispatcher.drain(FAILED_DRAIN_SECONDS if has_failed else DRAIN_SECONDS)


def _set_ready(parts: Parts, is_ready: bool) -> None:
    if parts.observability is not None:
        parts.observability.lifecycle.set_ready(is_ready)


def _writers(parts: Parts) -> list[TopicWriter]:
    """The writers of this broker's own records."""
    writers = [] if parts.audit is None else [parts.audit.writer]
    if parts.telemetry is not None and parts.telemetry.topic is not None:
        writers.append(parts.telemetry.topic.writer)
    return writers


def _start_writers(parts: Parts) -> None:
    for writer in _writers(parts):
        writer.start()


async def _stop_writers(parts: Parts) -> None:
    for writer in _writers(parts):
        await writer.stop()


def _stop_observing(parts: Parts) -> None:
    if parts.observability is not None:
        parts.observability.stop()


def _nothing() -> None:
    """Of a stage that begins, or ends, with its neighbour."""
