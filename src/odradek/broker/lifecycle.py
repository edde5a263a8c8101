"""A broker from start to stop: what is made in which order, and who is told of a new cluster image.

Start: lock and identity of the log directories, metadata store, this broker's view of the cluster, coordinators,
listeners bound, the broker registered and perhaps elected as the controller, connections served, and ready once a
controller has told it everything. Stop goes the other way round, after all leadership has been handed over, and leaves
the logs marked clean.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import AsyncExitStack

from odradek.api.requests.context import Services
from odradek.api.requests.declarations import DECLARATIONS
from odradek.api.requests.registry import endpoint
from odradek.broker.cluster.cluster_secret import BrokerProof, ClusterSecret
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.controller_channel import control_connections
from odradek.broker.cluster.controller_link import ControllerLink
from odradek.broker.cluster.controller_watch import ControllerWatch
from odradek.broker.cluster.image_effects import ImageEffects
from odradek.broker.cluster.membership import Membership, cluster_id
from odradek.broker.cluster.peers import Peers
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.coordinators.groups import DYNAMIC_GROUP_CONFIGS, GroupCoordinatorService, group_settings
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.broker.coordinators.transactions import TransactionCoordinatorService
from odradek.broker.log_levels import BrokerLoggers
from odradek.broker.network.addresses import BoundListener, address_notices, bootstrap_of
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.limits import RequestLimits
from odradek.broker.network.server import Server
from odradek.broker.replication.replication_runtime import ReplicationRuntime
from odradek.broker.storage.background import BackgroundJobs
from odradek.broker.storage.log_directory_runtime import LogDirectoryRuntime
from odradek.broker.storage.partitions import Partitions
from odradek.log.config import LogConfig
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.log.directories.ownership import METADATA_FILE, partition_names
from odradek.log.directories.scan import stored_identity
from odradek.log.writing.write_queue import WriteSettings
from odradek.metadata.image import GROUP_METADATA_TOPIC, NO_BROKER, ClusterImage, Endpoint, Topic
from odradek.metadata.image import Broker as BrokerEntry
from odradek.metadata.stores.selection import open_store, patience_seconds
from odradek.ports.clock import Clock, SystemClock
from odradek.ports.disk import Disk, SystemDisk
from odradek.ports.network import Network, TcpNetwork
from odradek.ports.randomness import Random, SystemRandom
from odradek.ports.store import MetadataStore, SessionExpired, StoreError, WrongStore
from odradek.quotas.client_quotas import ClientQuotas
from odradek.replication.fetch_sessions import FetchSessions
from odradek.replication.replica_sessions import ReplicaSessions
from odradek.transactions.connections import NewestConnections
from odradek.wire.errors import KafkaError

log = logging.getLogger("odradek.broker")

DRAIN_SECONDS = 5.0
LOAD_PAUSE_SECONDS = 0.02
_FETCHERS_KNOWN = 4096


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


class Broker:
    """One broker. `await start()`, serve until `await stop()`."""

    __slots__ = (
        "_background",
        "_cluster_id",
        "_config",
        "_controller",
        "_directories",
        "_dispatcher",
        "_effects",
        "_groups",
        "_link",
        "_log_directories",
        "_membership",
        "_partitions",
        "_peers",
        "_ports",
        "_quotas",
        "_replication",
        "_secret",
        "_server",
        "_store",
        "_transactions",
        "_view",
        "_watch",
        "bootstrap",
        "bound",
    )

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        self._config = config
        self._ports = ports or Ports(disk=SystemDisk(group_reads=config.flag("odradek.group.access")))
        self.bootstrap = ""
        """HOST:PORT for clients: of the first listener, as it is advertised if it is bound to all interfaces."""
        self.bound = ""
        """HOST:PORT of the first listener's socket."""

    async def start(self) -> None:
        """Serve when this returns. Raises StartError."""
        config = self._config
        for purpose, names in config.without_effect().items():
            log.warning("settings without effect: %s (%s)", ", ".join(names), purpose)
        try:
            # Whoever cannot start gives back what it took: the next attempt may come from this very process.
            async with AsyncExitStack() as opened:
                await self._start_storage(opened)
                self._start_cluster()
                self._start_services()
                opened.callback(self._view.close)
                opened.callback(self._watch.close)
                opened.callback(self._server.close)
                listeners = self._bind()
                endpoints = self._endpoints(listeners)
                self.bootstrap, self.bound = bootstrap_of(listeners[0], endpoints), listeners[0].address
                await self._join_cluster(endpoints)
                opened.pop_all()
        except (LogDirectoryError, ConfigError) as error:
            raise StartError(str(error)) from error
        except StoreError as error:
            misconfigured = isinstance(error, WrongStore)
            raise StartError(f"metadata store: {error}", misconfigured=misconfigured) from error
        self._background.start()
        self._log_directories.start()
        addresses = ", ".join(each.address for each in listeners)
        log.info("node %d of cluster %s serves on %s", config.node_id, self._cluster_id, addresses)
        is_derived = not config.given("advertised.listeners") and not config.given("advertised.host.name")
        for each in listeners:
            for level, text in address_notices(each, endpoints, is_derived=is_derived):
                log.log(level, "%s", text)

    async def _start_storage(self, opened: AsyncExitStack) -> None:
        config, ports = self._config, self._ports
        paths = config.log_dirs
        writes = WriteSettings(
            config.number("odradek.write.inline.max.bytes"),
            config.number("odradek.write.stall.ms") / 1000,
            config.number("odradek.write.probation.ms") / 1000,
        )
        self._directories = LogDirectories(ports.disk, ports.clock, ports.random, paths, write_settings=writes)
        self._directories.report = log.warning
        self._directories.adopts = config.flag("odradek.adopt.partitions")
        # Locked before anything else is opened: whoever starts a second broker here is told so, and not a consequence.
        self._directories.lock()
        opened.push_async_callback(self._directories.close, clean=False)
        identity = stored_identity(ports.disk, paths)
        self._store = ports.store or await open_store(config, ports.disk, f"{paths[0]}/{METADATA_FILE}")
        opened.push_async_callback(self._store.close)
        self._view = ClusterView(self._store, config)
        image = await self._read_cluster(identity.cluster_id)
        self._directories.load(
            cluster_id=self._cluster_id,
            node_id=config.node_id,
            producer_id_expiration_ms=config.number("producer.id.expiration.ms"),
            topic_id_of=lambda name: None if (topic := image.topics.get(name)) is None else topic.id,
        )
        self._directories.set_aside_strays(
            lambda topic, index: (
                (state := image.partition(topic, index)) is not None and config.node_id in state.replicas
            )
        )
        self._directories.expect(
            (topic.name, index)
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if config.node_id in state.isr or config.node_id in state.elr
        )
        self._partitions = Partitions(config.node_id, self._directories, self._log_config)

    async def _read_cluster(self, expected_id: str | None) -> ClusterImage:
        """What the store has, read in a new session if the first one is over already. Raises StoreError."""
        while True:
            try:
                self._cluster_id = await cluster_id(
                    self._store, self._ports.random, expected_id, holds_data=self._holds_partitions
                )
                return await self._view.load()
            except SessionExpired:
                log.warning("the session with the metadata store is lost")
                await self._store.reopen()

    def _holds_partitions(self) -> bool:
        try:
            return any(partition_names(self._ports.disk, path) for path in self._config.log_dirs)
        except OSError:
            return False

    def _log_config(self, topic: Topic) -> LogConfig:
        settings = self._config.topic_settings(topic.configs)
        return LogConfig.build(
            {
                **settings,
                "batch.validation": self._config.text("odradek.batch.validation"),
                "max.record.headers": self._config.number("odradek.max.record.headers"),
            }
        )

    def _start_cluster(self) -> None:
        """What ties this broker to the others: none of it does anything yet."""
        config, ports, view = self._config, self._ports, self._view
        control_plane = config.control_plane_listener_name or config.inter_broker_listener_name
        self._secret = ClusterSecret(self._store, ports.random)
        prove = BrokerProof(self._secret, config.node_id)
        connect = control_connections(ports.network, control_plane, config.node_id, prove)
        self._controller = Controller(
            self._store,
            config,
            ports.clock,
            ports.random,
            view.take,
            connect,
        )
        self._controller.offline_here = view.offline_replicas
        self._membership = Membership(
            self._store, ports.clock, self._controller, patience_seconds=patience_seconds(config)
        )
        self._membership.on_registered = self._registered
        self._membership.on_judged = self._directories.losses_are_judged
        self._watch = ControllerWatch(config.node_id, connect, self._membership.controller_died)
        self._peers = Peers(ports.network, self._image, config.inter_broker_listener_name, config.node_id, prove)
        self._link = ControllerLink(self._controller, view, self._peers, config)
        self._replication = ReplicationRuntime(
            config,
            self._partitions,
            self._peers,
            self._link,
            ports.clock,
            self._image,
            self._directories.checkpoints.advance_starts,
        )
        view.on_stopped = self._partitions.stop
        view.is_offline = self._partitions.is_offline
        self._directories.on_offline = self._directory_failed

    def _directory_failed(self, _path: str) -> None:
        asyncio.get_running_loop().call_soon(self._replication.directory_failed)
        self._membership.directory_failed()

    def _image(self) -> ClusterImage:
        return self._view.image

    def _registered(self, broker: BrokerEntry) -> None:
        self._view.broker_epoch = broker.epoch

    def _start_services(self) -> None:
        config, ports = self._config, self._ports
        loop = asyncio.get_running_loop()
        self._groups = GroupCoordinatorService(
            group_settings(config),
            self._offsets_partitions,
            self._image,
            ports.clock,
            ports.random,
            loop,
            # Topics that are to be adopted are created one by one, and their offsets may be there before.
            lambda: self._view.is_whole and not self._directories.adopts,
        )
        config.on_change(DYNAMIC_GROUP_CONFIGS, lambda _: self._groups.configure(group_settings(config)))
        self._transactions = TransactionCoordinatorService(
            config,
            CoordinatorClock(ports.clock),
            self._view,
            self._link,
            self._partitions,
            self._groups,
            self._peers,
        )
        self._log_directories = LogDirectoryRuntime(
            config, self._partitions, self._directories, ports.disk, self._image
        )
        self._quotas = ClientQuotas(
            config.number("quota.window.num"),
            config.number("quota.window.size.seconds"),
            config.number("controller.quota.window.num"),
            config.number("controller.quota.window.size.seconds"),
        )
        self._effects = ImageEffects(config.node_id, self._partitions, self._groups, self._transactions, self._quotas)
        self._log_directories.on_recovered = lambda *_: self._effects.lead(self._view.image)
        slots = config.number("max.incremental.fetch.session.cache.slots")
        replica_sessions = ReplicaSessions(ports.random, self._partitions.rules)
        self._replication.serve(replica_sessions)
        services = Services(
            node_id=config.node_id,
            cluster_id=self._cluster_id,
            config=config,
            clock=ports.clock,
            random=ports.random,
            disk=ports.disk,
            partitions=self._partitions,
            fetch_sessions=FetchSessions(slots, ports.random),
            replica_sessions=replica_sessions,
            fetchers=NewestConnections(limit=_FETCHERS_KNOWN),
            controller=self._link,
            elected=self._controller,
            cluster=self._view,
            groups=self._groups,
            transactions=self._transactions,
            loggers=BrokerLoggers(config.node_id),
            quotas=self._quotas,
            log_directories=self._log_directories,
            cluster_secret=self._secret,
            image=self._image,
        )
        limits = RequestLimits(
            config.number("odradek.max.control.request.bytes"),
            config.number("odradek.max.request.topics"),
            config.number("odradek.max.request.partitions"),
        )
        self._dispatcher = Dispatcher(services, loop, limits)
        self._server = Server(ports.network, self._dispatcher, config, ports.clock, self._quotas.connections, limits)
        self._directories.writers.charge_to(self._server.charge)
        self._background = BackgroundJobs(config, self._partitions, self._directories, ports.disk, ports.clock)

    def _offsets_partitions(self) -> int:
        topic = self._view.image.topics.get(GROUP_METADATA_TOPIC)
        return self._config.number("offsets.topic.num.partitions") if topic is None else len(topic.partitions)

    def _bind(self) -> list[BoundListener]:
        """Open the sockets; connections wait."""
        bound = []
        for listener in self._config.listeners():
            try:
                opened = self._server.listen(listener.name, listener.host, listener.port)
            except OSError as error:
                self._server.close()
                reason = "the address is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
                raise StartError(f"cannot listen on {listener.host}:{listener.port}: {reason}") from error
            bound.append(BoundListener(listener._replace(port=opened.port), opened.host))
        return bound

    def _endpoints(self, bound: list[BoundListener]) -> dict[str, Endpoint]:
        """Addresses that clients are told, by the name of the listener."""
        ports = {each.listener.name: each.listener.port for each in bound}
        return {
            listener.name: Endpoint(
                listener.host or self._ports.network.own_host(),
                listener.port or ports[listener.name],
                listener.security_protocol,
            )
            for listener in self._config.advertised_listeners()
        }

    async def _join_cluster(self, endpoints: dict[str, Endpoint]) -> None:
        view = self._view
        await self._effects.begin(view.image)
        view.subscribe(self._effects)
        view.subscribe(self._replication.apply)
        view.subscribe(self._watch.follow)
        view.follow_configs()
        unclean = self._directories.records_may_be_lost
        entry = BrokerEntry(self._config.node_id, NO_BROKER, self._config.rack, endpoints, unclean=unclean)
        await self._membership.join(entry)
        # From here on the controller, if it is another broker, is listened to; clients are once it has told of all.
        between_brokers = self._config.inter_broker_listener_name
        self._server.open(between_brokers, self._config.control_plane_listener_name or between_brokers)
        await view.when_told()
        self._server.open()

    async def load_the_rest(self) -> None:
        """Load what a start does without, a little at a time: on first use there may be no descriptor left for it."""
        for key in DECLARATIONS:
            await asyncio.sleep(LOAD_PAUSE_SECONDS)
            try:
                endpoint(key)
            except OSError as error:
                log.warning("API key %d cannot be loaded now: %s", key, error)

    async def _hand_over(self) -> None:
        """Have the controller move leadership elsewhere, as far as others can take it (Kafka's controlled shutdown)."""
        config = self._config
        if not config.flag("controlled.shutdown.enable") or len(self._view.image.live_brokers()) < 2:
            return
        backoff = config.number("controlled.shutdown.retry.backoff.ms") / 1000
        retries = config.number("controlled.shutdown.max.retries")
        try:
            async with asyncio.timeout(retries * backoff):
                for attempt in range(retries):
                    if attempt:
                        await self._another_controller(backoff)
                    if await self._is_let_go():
                        return
        except TimeoutError:
            log.warning("no controller has answered within %g s; this broker goes as it is", retries * backoff)

    async def _is_let_go(self) -> bool:
        try:
            left = await self._link.controlled_shutdown()
        except KafkaError as error:
            log.warning("the controller does not let this broker go: %s", error)
            return False
        if left:
            log.info("%d partitions have no other in-sync replica to lead them", left)
        return True

    async def _another_controller(self, at_most: float) -> None:
        """Wait until a controller is elected that is not the present one, or so many seconds."""
        view = self._view
        epoch, elected = view.image.controller_epoch, asyncio.Event()

        def look(_old: ClusterImage, new: ClusterImage) -> None:
            if new.controller_epoch != epoch:
                elected.set()

        unsubscribe = view.subscribe(look)
        try:
            async with asyncio.timeout(at_most):
                await elected.wait()
        except TimeoutError:
            log.info("no other controller is known after %g s", at_most)
        finally:
            unsubscribe()

    async def stop(self) -> None:
        """Hand over, finish what is being served, make everything durable, mark the logs as clean."""
        await self._hand_over()
        self._server.stop_listening()
        self._effects.stop()
        # Members that wait for others to join would be waited for: they are told at once to look elsewhere.
        self._groups.close()
        await self._dispatcher.drain(DRAIN_SECONDS)
        await self._background.stop()
        await self._log_directories.stop()
        self._transactions.close()
        self._replication.close()
        # Before the connections end: whose controller cannot reach it any more is taken for dead.
        await self._leave_cluster()
        self._peers.close()
        self._server.close()
        await self._directories.close(
            clean=True,
            high_watermarks=self._background.high_watermarks(),
            broker_epoch=self._membership.broker_epoch,
            threads=self._config.number("num.recovery.threads.per.data.dir"),
        )
        try:
            await self._store.close()
        except StoreError as error:
            log.warning("the metadata store could not be closed: %s", error)
        log.info("stopped")

    async def _leave_cluster(self) -> None:
        self._view.close()
        self._watch.close()
        try:
            await self._membership.leave()
        except StoreError as error:
            # The others learn it when its session ends.
            log.warning("the metadata store could not be told that this broker stops: %s", error)
        await self._controller.settled()
