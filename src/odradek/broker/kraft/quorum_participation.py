"""How a broker takes part in a KRaft cluster: registration, heartbeats, and images from the metadata log.

A heartbeat that finds the broker unfenced is its lease of leadership (`broker.kraft.heartbeat_lease`): the controller
fences it, and elects others, no earlier than a session after it has received that heartbeat, unless nothing listens at
its address: then its process has ended (`broker.quorum.broker_watch`).
Source: Kafka's `BrokerServer`, `BrokerLifecycleManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.api.requests.context import Configuration
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.kraft.directory_assignments import DirectoryAssignments
from odradek.broker.kraft.followed_metadata import FollowedMetadata
from odradek.broker.kraft.former_leaders import FormerLeaders
from odradek.broker.kraft.heartbeat_lease import HeartbeatLease
from odradek.broker.kraft.registrar import Registrar
from odradek.kraft.broker_life_cycle import BrokerState
from odradek.metadata.features import metadata_level
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.metadata_versions import DIRECTORIES_SINCE
from odradek.ports.store import StoreError

logger = logging.getLogger("odradek.broker.kraft")

_SHUTDOWN_SECONDS: Final = 300.0
"""How long a stop waits for the controller to move leaders away (Kafka's `BrokerServer`)."""

Registers = Callable[[Broker], Registrar]
"""Makes the registrar of this broker, once its listeners are bound."""


class LeadershipParts(NamedTuple):
    """What decides when this broker may lead."""

    lease: HeartbeatLease
    former_leaders: FormerLeaders


class QuorumParticipation:
    """Implements `Participation`."""

    __slots__ = (
        "_applied",
        "_assignments",
        "_config",
        "_failed_directories",
        "_follower",
        "_former_leaders",
        "_has_ceased",
        "_lease",
        "_metadata_offset",
        "_note_epoch",
        "_registers",
        "_registrar",
        "_view",
        "has_failed",
    )

    def __init__(
        self,
        config: Configuration,
        view: ClusterView,
        follower: FollowedMetadata,
        leading: LeadershipParts,
        registers: Registers,
        assignments: DirectoryAssignments,
        note_epoch: Callable[[int], None],
    ) -> None:
        """`note_epoch` is called with the epoch of this process's registration, before the broker serves."""
        self._assignments = assignments
        self._config = config
        self._view = view
        self._follower = follower
        self._note_epoch = note_epoch
        self._lease, self._former_leaders = leading
        self._registers = registers
        self._registrar: Registrar | None = None
        self._metadata_offset = -1
        self._applied = asyncio.Event()
        self._has_ceased = False
        self._failed_directories: list[bytes] = []
        self.has_failed = asyncio.Event()
        """See `Participation`."""

    @property
    def broker_epoch(self) -> int:
        """See `Participation`."""
        return -1 if self._registrar is None else self._registrar.broker_epoch

    @property
    def incarnation_id(self) -> bytes | None:
        """By which the controllers distinguish this process from earlier ones; None before it asks to be registered."""
        return None if self._registrar is None else self._registrar.incarnation_id

    @property
    def follower(self) -> FollowedMetadata:
        """The metadata log as this broker has it."""
        return self._follower

    @property
    def metadata_offset(self) -> int:
        """The offset of the last record of which the effects are in place."""
        return self._metadata_offset

    # --- life ---

    def follow(self) -> None:
        """See `Participation`."""
        self._view.subscribe(self._former_leaders.follow)
        self._view.subscribe(self._assignments.note)

    async def join(self, broker: Broker) -> None:
        """See `Participation`. Raises StoreError where the controller does not register this broker."""
        registrar = self._registrar = self._registers(broker)
        for directory_id in self._failed_directories:
            registrar.report_offline_log_dir(directory_id)
        self._follower.follow(self._take, self.metadata_failed)
        registrar.start()
        self._assignments.start()
        if await registrar.wait_for(BrokerState.RECOVERY) is not BrokerState.RECOVERY:
            raise StoreError(registrar.problem or "the registration of this broker has ended")
        self._note_epoch(registrar.broker_epoch)

    async def serve(self) -> None:
        """See `Participation`: the controller has unfenced this broker."""
        assert self._registrar is not None, "join comes before"
        self._lease.begin()
        self._registrar.ask_for_unfencing()
        if await self._registrar.wait_for(BrokerState.RUNNING) is not BrokerState.RUNNING:
            raise StoreError(self._registrar.problem or "the registration of this broker has ended")

    async def hand_over(self) -> None:
        """See `Participation`."""
        registrar = self._registrar
        # Once it has ceased it sends no heartbeat, in which it could ask for the permission to end.
        if registrar is None or self._has_ceased or not self._config.flag("controlled.shutdown.enable"):
            return
        registrar.begin_controlled_shutdown()
        # Without a controller no leader can move, and this broker leads no longer than a session.
        session = self._config.number("broker.session.timeout.ms") / 1000
        waited = 0.0
        while waited < _SHUTDOWN_SECONDS:
            try:
                async with asyncio.timeout(session):
                    await registrar.wait_for()
                return
            except TimeoutError:
                waited += session
            if registrar.problem and self._follower.problem:
                break
        logger.warning(
            "controlled shutdown failed: no permission of the controller within %g s (%s); stopping without it",
            waited,
            registrar.problem or "leaders remain here",
        )

    def cease(self) -> None:
        """See `Participation`."""
        self._has_ceased = True
        self._lease.close()
        self._former_leaders.close()
        if self._registrar is not None:
            self._registrar.close()
        self._assignments.close()

    async def leave(self) -> None:
        """See `Participation`: heartbeats have ended with `cease`, the registration stays, as in Kafka."""
        self.close()

    def close(self) -> None:
        """See `Participation`."""
        self.cease()

    def directory_failed(self, directory_id: bytes) -> None:
        """A log directory has failed."""
        if self._registrar is None:
            self._failed_directories.append(directory_id)
        else:
            self._registrar.report_offline_log_dir(directory_id)

    # --- the metadata log ---

    async def _take(self, image: ClusterImage, end_offset: int) -> None:
        """Let an image be the broker's, once it has this process's registration.

        Images before it give leadership to the process that ran here before.
        """
        registered = image.brokers.get(self._view.node_id)
        if registered is not None and registered.epoch == self.broker_epoch:
            self._view.registered(registered)
            if not registered.log_dirs and metadata_level(image) >= DIRECTORIES_SINCE:
                self._add_directories()
            # Every broker forwards what only the controller decides: clients may ask this one.
            await self._view.take(image.with_controller(self._view.node_id, self._follower.epoch))
        self._metadata_offset = end_offset - 1
        self._applied.set()

    async def wait_until_applied(self, end_offset: int) -> None:
        """Wait until the effects of all records before that offset are in place."""
        while self._metadata_offset < end_offset - 1:
            self._applied.clear()
            await self._applied.wait()

    def _add_directories(self) -> None:
        """Register again: at the level of this broker's registration, no record named its log directories.

        Source: Kafka's `BrokerRegistrationTracker`.
        """
        assert self._registrar is not None, "join comes before"
        logger.info("registering again: metadata.version has log directories now, and the registration has none")
        self._registrar.register_again()

    def metadata_failed(self, error: BaseException) -> None:
        """The metadata log cannot be followed: what this broker knows of its leadership may be wrong.

        As in Kafka the process must end: until its start succeeds, other brokers lead what it led.
        """
        if self.has_failed.is_set():
            return
        logger.critical("broker %d cannot continue, and stops: %s", self._view.node_id, error)
        self.has_failed.set()
        self.cease()
