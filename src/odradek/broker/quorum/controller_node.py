"""A controller of a KRaft quorum from start to stop (`process.roles=controller`).

Start: the directory locked, its metadata log read, the listener bound, the quorum joined. Stop: the leadership handed
to another voter, then everything ended in reverse. Source: Kafka's `ControllerServer`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.peers import Purpose
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.quorum_addresses import advertised_controller_listeners, controller_listeners
from odradek.broker.configuration.refusals import SASL_PROTOCOLS, TLS_PROTOCOLS, is_controller_only
from odradek.broker.network.addresses import BoundListener, controller_notice
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.ports import Ports
from odradek.broker.quorum.assembly import ControllerParts, assemble
from odradek.broker.quorum.controller_registration import OwnRegistration, registration_features
from odradek.broker.quorum.opening import open_controller_storage
from odradek.broker.start_error import StartError
from odradek.broker.task_failures import logs_failure
from odradek.kraft.checkpoints import Checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.raft.effects import LeaderAndEpoch
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.metadata.image import ClusterImage, ControllerRegistration, Endpoint
from odradek.ports.disk import SystemDisk
from odradek.wire.errors import KafkaError, error_code
from odradek.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse

if TYPE_CHECKING:
    from odradek.broker.security.sasl_listeners import SaslListener

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "taking an image failed")

_DRAIN_SECONDS: Final = 2.0
_RESIGN_SECONDS: Final = 1.0
"""How long a stop waits for the other voters to learn that this leader resigns."""


class ControllerNode:
    """One controller. `await start()`, serve until `await stop()`; `has_failed` is set when it cannot continue."""

    __slots__ = (
        "_config",
        "_followers",
        "_incarnation",
        "_parts",
        "_ports",
        "_registration",
        "_stack",
        "bound",
        "has_failed",
    )

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        self._config = config
        self._ports = ports or Ports(disk=SystemDisk(group_reads=config.flag("odradek.group.access")))
        self._parts: ControllerParts | None = None
        self._registration: OwnRegistration | None = None
        self._stack = AsyncExitStack()
        self._followers: list[Callable[[], None]] = []
        self._incarnation = self._ports.random.uuid()
        self.bound = ""
        """HOST:PORT of the first listener's socket."""
        self.has_failed = asyncio.Event()
        """Set when the disk or the metadata log is bad."""

    @property
    def has_parts(self) -> bool:
        """Whether the parts are made: the directory is open."""
        return self._parts is not None

    @property
    def parts(self) -> ControllerParts:
        """The parts of a started controller."""
        assert self._parts is not None, "the controller has not been started"
        return self._parts

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call after each replay of committed records, and each change of the leader or the epoch."""
        self._followers.append(changed)

    async def start(self) -> None:
        """Take part in the quorum when this returns. Raises StartError."""
        config, ports = self._config, self._ports
        if is_controller_only(config):
            for purpose, names in config.without_effect().items():
                logger.warning("settings without effect: %s (%s)", ", ".join(names), purpose)
        try:
            async with AsyncExitStack() as opened:
                tls = TlsListeners(
                    config, [n.name for n in controller_listeners(config) if n.security_protocol in TLS_PROTOCOLS],
                    ports.clock,
                )  # fmt: skip
                storage = open_controller_storage(config, ports, opened)
                sasl = _sasl(config, ports)
                parts = self._parts = assemble(config, ports, storage, tls, sasl, self.failed)
                opened.callback(parts.controllers.close)
                opened.push_async_callback(parts.metadata.close)
                opened.callback(parts.replica.stop)
                opened.callback(parts.controller.close)
                opened.callback(tls.close)
                opened.callback(parts.server.close)
                endpoints = self._bind(parts)
                own = ControllerRegistration(config.node_id, self._incarnation, endpoints, registration_features())
                self._registration = OwnRegistration(own, self._register)
                opened.callback(self._registration.close)
                await parts.metadata.load()
                if sasl:
                    parts.credentials.load()
                parts.metadata.subscribe(self._publish)
                parts.view.subscribe(self._took)
                if parts.authorization is not None:
                    await parts.authorization.stored.load()
                    parts.authorization.stored.follow()
                tls.watch()
                parts.replica.start(self)
                parts.server.open()
                self._observe(parts, opened)
                self._stack = opened.pop_all()
        except (LogDirectoryError, ConfigError) as error:
            raise StartError(str(error)) from error
        except CorruptMetadata as error:
            raise StartError(f"the metadata log cannot be read: {error}", misconfigured=False) from error
        logger.info("controller %d of cluster %s serves on %s", config.node_id, storage.cluster_id, self.bound)

    async def stop(self) -> None:
        """Let another voter lead, finish what is being served, and close the log."""
        parts = self.parts
        if parts.observability is not None:
            parts.observability.lifecycle.set_ready(False)
        parts.server.stop_listening()
        parts.replica.resign()
        try:
            async with asyncio.timeout(_RESIGN_SECONDS):
                await parts.replica.flush()
        except TimeoutError:
            logger.warning("not all voters have learned within %g s that this controller stops", _RESIGN_SECONDS)
        await parts.dispatcher.drain(_DRAIN_SECONDS)
        await self._stack.aclose()
        logger.info("stopped")

    def _observe(self, parts: ControllerParts, opened: AsyncExitStack) -> None:
        """Serve metrics and health, if the configuration asks for it."""
        if parts.observability is None:
            return
        opened.callback(parts.observability.stop)
        try:
            parts.observability.start()
        except OSError as error:
            raise StartError(str(error)) from error
        parts.observability.lifecycle.set_ready(True)
        logger.info("metrics and health are served on http://%s", parts.observability.listener.address)

    def _bind(self, parts: ControllerParts) -> Mapping[str, Endpoint]:
        """Open the sockets; connections wait. The listeners as other nodes reach them."""
        endpoints = {}
        own = parts.addresses[self._config.node_id]
        advertised = {each.name: each for each in advertised_controller_listeners(self._config)}
        for listener in controller_listeners(self._config):
            try:
                opened = parts.server.listen(listener.name, listener.host, listener.port)
            except OSError as error:
                reason = "the address is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
                raise StartError(f"cannot listen on {listener.host}:{listener.port}: {reason}") from error
            bound = BoundListener(listener._replace(port=opened.port), opened.host)
            self.bound = self.bound or bound.address
            self._warn_of_strangers(bound, parts)
            known = advertised[listener.name]
            endpoints[listener.name] = Endpoint(
                known.host or own.host, known.port or opened.port, listener.security_protocol
            )
        return endpoints

    def _warn_of_strangers(self, bound: BoundListener, parts: ControllerParts) -> None:
        has_sasl = bound.listener.security_protocol in SASL_PROTOCOLS
        notice = controller_notice(
            bound,
            authenticates=has_sasl or parts.tls.authenticates(bound.listener.name),
            has_authorizer=parts.authorization is not None,
        )
        if notice:
            logger.warning("%s", notice)

    # --- what follows the log: `raft_replica.Follower` ---

    def appended(self, batches: bytes | memoryview) -> None:
        """See `Follower`."""
        self.parts.metadata.appended(batches)

    def truncated(self, offset: int) -> None:
        """See `Follower`."""
        self.parts.metadata.truncated(offset)

    def installed(self, content: Checkpoint, end_offset: int) -> None:
        """See `Follower`."""
        self.parts.metadata.installed(content, end_offset)

    def committed(self, high_watermark: int) -> None:
        """See `Follower`."""
        self.parts.metadata.committed(high_watermark)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """See `Follower`."""
        parts = self.parts
        server = parts.addresses.get(leader.leader_id)
        parts.controllers.note_active(None if leader.leader_id == self._config.node_id else server)
        parts.state.note_leader(leader.leader_id)
        parts.controller.leader_changed(leader)
        self._publish()

    def failed(self, error: BaseException) -> None:
        """See `Follower`. A voter that cannot keep the log must not lead, nor extend sessions of brokers."""
        logger.critical("controller %d cannot continue, and stops: %s", self._config.node_id, error)
        self.has_failed.set()
        self.parts.replica.end()
        for changed in self._followers:
            changed()

    # --- images ---

    def _publish(self) -> None:
        """Let handlers and the authorizer see the committed metadata."""
        parts = self.parts
        leader = parts.replica.leader
        image = parts.metadata.image.with_controller(leader.leader_id, leader.epoch)
        task = asyncio.get_running_loop().create_task(parts.view.take(image))
        task.add_done_callback(_log_failure)
        for changed in self._followers:
            changed()

    def _took(self, old: ClusterImage, new: ClusterImage) -> None:
        parts = self.parts
        if new.client_configs is not old.client_configs:
            parts.quotas.update(new.client_configs)
        if self._registration is not None and new.controller_id >= 0 and new.features:
            self._registration.look(new)

    async def _register(self, request: ControllerRegistrationRequest) -> None:
        parts = self.parts
        if parts.controller.is_active:
            await parts.brokers.register_controller(request)
            return
        timeout_ms = self._config.number("controller.quorum.request.timeout.ms")
        answer = await parts.controllers.ask(request, ControllerRegistrationResponse, timeout_ms, Purpose.FORWARDED)
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), answer.error_message)


def _sasl(config: BrokerConfig, ports: Ports) -> Mapping[str, SaslListener]:
    names = [each.name for each in controller_listeners(config) if each.security_protocol in SASL_PROTOCOLS]
    if not names:
        return {}
    # A controller without SASL starts without its modules.
    from odradek.broker.security.sasl_listeners import sasl_listeners

    return sasl_listeners(config, ports.disk, ports.clock, names)
