"""A broker from start to stop: what is made in which order, and who is told of a new cluster image.

Start: lock and identity of the log directories, metadata store, controller and image, listeners bound, coordinators,
the broker registered, connections served. Stop goes the other way round and leaves the logs marked clean.
"""

from __future__ import annotations

import asyncio
import errno
import logging

from odradek.api.context import Services
from odradek.broker.background import BackgroundJobs
from odradek.broker.config import BrokerConfig, ConfigError, Listener
from odradek.broker.controller_runtime import ControllerRuntime
from odradek.broker.coordinator_shard import ShardClock
from odradek.broker.dispatch import Dispatcher, RequestLimits
from odradek.broker.group_runtime import GroupRuntime, group_settings
from odradek.broker.log_directory_runtime import LogDirectoryRuntime
from odradek.broker.loggers import BrokerLoggers
from odradek.broker.partitions import Partitions
from odradek.broker.peers import Peers
from odradek.broker.server import Server
from odradek.broker.transaction_runtime import TransactionRuntime
from odradek.log.config import LogConfig
from odradek.log.directories import LogDirectories
from odradek.log.log_directory import LogDirectoryError
from odradek.metadata.image import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ClusterImage,
    Endpoint,
    Topic,
)
from odradek.metadata.image import Broker as BrokerEntry
from odradek.metadata.sqlite_store import SqliteStore
from odradek.ports.clock import Clock, SystemClock
from odradek.ports.disk import Disk, SystemDisk
from odradek.ports.network import Network, TcpNetwork
from odradek.ports.randomness import Random, SystemRandom
from odradek.ports.store import MetadataStore, StoreError
from odradek.quotas.client_quotas import ClientQuotas
from odradek.replication.fetch_sessions import FetchSessions
from odradek.replication.replica_sessions import ReplicaSessions
from odradek.wire.errors import KafkaError

log = logging.getLogger("odradek.broker")

METADATA_FILE = "odradek-metadata.sqlite"
DRAIN_SECONDS = 5.0


class StartError(Exception):
    """The broker cannot start. `misconfigured` tells a mistake of the user from a failure of the machine."""

    def __init__(self, text: str, *, misconfigured: bool = True) -> None:
        self.misconfigured = misconfigured
        super().__init__(text)


class Ports:
    """Where a broker meets the world; the machine's own unless said otherwise."""

    __slots__ = ("clock", "disk", "network", "random", "store")

    def __init__(
        self,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        random: Random | None = None,
        store: MetadataStore | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.disk = disk or SystemDisk()
        self.network = network or TcpNetwork()
        self.random = random or SystemRandom()
        self.store = store


def _address(listener: Listener) -> str:
    """HOST:PORT as clients write it, of this machine where the listener is bound to all interfaces."""
    host = listener.host or "127.0.0.1"
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


class Broker:
    """One broker. `await start()`, serve until `await stop()`."""

    __slots__ = (
        "_background",
        "_config",
        "_controller",
        "_directories",
        "_dispatcher",
        "_groups",
        "_led",
        "_log_directories",
        "_partitions",
        "_peers",
        "_ports",
        "_quotas",
        "_server",
        "_transactions",
        "bootstrap",
    )

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        self._config = config
        self._ports = ports or Ports()
        self._led: dict[str, set[int]] = {}
        self.bootstrap = ""

    async def start(self) -> None:
        """Serve when this returns. Raises StartError."""
        config = self._config
        unused = config.unused_names()
        if unused:
            log.warning("settings without effect in this version: %s", ", ".join(unused))
        try:
            await self._start_storage()
            self._start_services()
            listeners = self._bind()
            await self._join_cluster(listeners)
        except (LogDirectoryError, ConfigError) as error:
            raise StartError(str(error)) from error
        except StoreError as error:
            raise StartError(f"metadata store: {error}", misconfigured=False) from error
        self._background.start()
        self._log_directories.start()
        self._server.open()
        self.bootstrap = _address(listeners[0])
        log.info(
            "node %d of cluster %s serves on %s", config.node_id, self._controller.image.cluster_id, self.bootstrap
        )

    async def _start_storage(self) -> None:
        config, ports = self._config, self._ports
        paths = config.log_dirs
        self._directories = LogDirectories(ports.disk, ports.clock, ports.random, paths)
        self._directories.report = log.warning
        self._directories.adopts = config.flag("odradek.adopt.partitions")
        # Locked before anything else is opened: whoever starts a second broker here is told so, and not a consequence.
        self._directories.lock()
        identity = LogDirectories.stored_identity(ports.disk, paths)
        store = ports.store or await SqliteStore.open(f"{paths[0]}/{METADATA_FILE}", ports.disk)
        self._controller = ControllerRuntime(store, config, ports.clock, ports.random)
        image = await self._controller.start(identity.cluster_id)
        self._directories.load(
            cluster_id=image.cluster_id,
            node_id=config.node_id,
            producer_id_expiration_ms=config.number("producer.id.expiration.ms"),
        )
        self._directories.set_aside_strays(
            lambda topic, index: (
                (state := image.partition(topic, index)) is not None and config.node_id in state.replicas
            )
        )
        self._partitions = Partitions(config.node_id, self._directories, self._log_config)

    def _log_config(self, topic: Topic) -> LogConfig:
        settings = self._config.topic_settings(topic.configs)
        return LogConfig.build({**settings, "batch.validation": self._config.text("odradek.batch.validation")})

    def _start_services(self) -> None:
        config, ports = self._config, self._ports
        loop = asyncio.get_running_loop()
        self._peers = Peers(
            ports.network, lambda: self._controller.image, config.inter_broker_listener_name, config.node_id
        )
        self._groups = GroupRuntime(
            group_settings(config),
            self._offsets_partitions,
            lambda: self._controller.image,
            ports.clock,
            ports.random,
            loop,
        )
        self._transactions = TransactionRuntime(
            config,
            ShardClock(ports.clock),
            lambda: self._controller.image,
            self._controller,
            self._partitions,
            self._groups,
            self._peers,
        )
        self._log_directories = LogDirectoryRuntime(
            config, self._partitions, self._directories, ports.disk, lambda: self._controller.image
        )
        self._log_directories.on_recovered = lambda *_: self._lead(self._controller.image)
        self._quotas = ClientQuotas(config.number("quota.window.num"), config.number("quota.window.size.seconds"))
        self._quotas.update(self._controller.image.client_configs)
        slots = config.number("max.incremental.fetch.session.cache.slots")
        services = Services(
            node_id=config.node_id,
            cluster_id=self._controller.image.cluster_id,
            config=config,
            clock=ports.clock,
            random=ports.random,
            disk=ports.disk,
            partitions=self._partitions,
            fetch_sessions=FetchSessions(slots, ports.random),
            replica_sessions=ReplicaSessions(ports.random, self._partitions.rules),
            controller=self._controller,
            groups=self._groups,
            transactions=self._transactions,
            loggers=BrokerLoggers(config.node_id),
            quotas=self._quotas,
            log_directories=self._log_directories,
            image=lambda: self._controller.image,
        )
        limits = RequestLimits(
            config.number("odradek.max.control.request.bytes"), config.number("odradek.max.request.topics")
        )
        self._dispatcher = Dispatcher(services, loop, limits)
        self._server = Server(ports.network, self._dispatcher, config, ports.clock)
        self._background = BackgroundJobs(config, self._partitions, self._directories, ports.disk, ports.clock)

    def _offsets_partitions(self) -> int:
        topic = self._controller.image.topics.get(GROUP_METADATA_TOPIC)
        return self._config.number("offsets.topic.num.partitions") if topic is None else len(topic.partitions)

    def _bind(self) -> list[Listener]:
        """Open the sockets; connections wait. The listeners with the ports that they got."""
        bound = []
        for listener in self._config.listeners():
            if listener.security_protocol != "PLAINTEXT":
                raise StartError(f"listener {listener.name}: {listener.security_protocol} is not supported yet")
            try:
                opened = self._server.listen(listener.name, listener.host, listener.port)
            except OSError as error:
                self._server.close()
                reason = "the address is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
                raise StartError(f"cannot listen on {listener.host}:{listener.port}: {reason}") from error
            bound.append(listener._replace(port=opened.port))
        return bound

    async def _join_cluster(self, bound: list[Listener]) -> None:
        ports = {listener.name: listener.port for listener in bound}
        endpoints = {
            listener.name: Endpoint(
                listener.host or self._own_host(), listener.port or ports[listener.name], listener.security_protocol
            )
            for listener in self._config.advertised_listeners()
        }
        self._controller.subscribe(self._on_image)
        self._partitions.apply(self._controller.image)
        await self._partitions.settle()
        self._lead(self._controller.image)
        entry = BrokerEntry(self._config.node_id, self._ports.clock.now_ms(), self._config.rack, endpoints)
        await self._controller.register(entry)

    def _own_host(self) -> str:
        return self._ports.network.own_host()

    async def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self._partitions.apply(new)
        await self._partitions.settle()
        self._lead(new)
        if new.client_configs is not old.client_configs:
            self._quotas.update(new.client_configs)
        gone = [name for name, topic in old.topics.items() if name not in new.topics or new.topics[name].id != topic.id]
        if gone:
            self._groups.topics_deleted(gone)
        if new.topics is not old.topics:
            self._tell_groups(old, new)

    def _tell_groups(self, old: ClusterImage, new: ClusterImage) -> None:
        """Which topics came, went or grew."""
        changed = [name for name in old.topics if name not in new.topics]
        grown: list[tuple[Topic, int]] = []
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is topic:
                continue
            if before is None or before.id != topic.id:
                changed.append(name)
            elif len(before.partitions) != len(topic.partitions):
                changed.append(name)
                grown.append((topic, len(before.partitions)))
        if changed:
            self._groups.topics_changed(changed, grown)

    def _lead(self, image: ClusterImage) -> None:
        """Tell the coordinators which partitions of their topics are led here."""
        self._lead_topic(image, GROUP_METADATA_TOPIC, self._groups)
        self._lead_topic(image, TRANSACTION_STATE_TOPIC, self._transactions)

    def _lead_topic(self, image: ClusterImage, name: str, coordinator: GroupRuntime | TransactionRuntime) -> None:
        topic = image.topics.get(name)
        states = () if topic is None else topic.partitions
        led = {index for index, state in enumerate(states) if state.leader == self._config.node_id}
        before = self._led.get(name, set())
        for index in before - led:
            coordinator.resigned(index)
        for index in sorted(led - before):
            try:
                partition = self._partitions.find(name, index)
            except KafkaError as error:
                # Its log is checked after a crash, which ends in `on_recovered`, or its directory is offline.
                log.info("%s-%d is not coordinated yet: %s", name, index, error.message)
                led.discard(index)
                continue
            if partition is not None:
                coordinator.elected(partition)
        self._led[name] = led

    async def stop(self) -> None:
        """Finish what is being served, make everything durable, mark the logs as clean."""
        self._server.stop_listening()
        # Members that wait for others to join would be waited for: they are told at once to look elsewhere.
        self._groups.close()
        await self._dispatcher.drain(DRAIN_SECONDS)
        await self._background.stop()
        await self._log_directories.stop()
        self._transactions.close()
        self._peers.close()
        self._server.close()
        await self._directories.close(clean=True, high_watermarks=self._background.high_watermarks())
        try:
            await self._controller.stop()
        except StoreError:
            log.exception("the metadata store could not be closed")
        log.info("stopped")
