"""How a broker takes part in a cluster whose metadata lies in a store: SQLite or ZooKeeper."""

from __future__ import annotations

import asyncio
import logging

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.controller_watch import ControllerWatch
from odradek.broker.cluster.departure import Departure
from odradek.broker.cluster.lease_holder import LeaseHolder
from odradek.broker.cluster.membership import Membership
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.metadata.image import Broker
from odradek.ports import hosts
from odradek.ports.store import StoreError

logger = logging.getLogger("odradek.broker")


class StoreParticipation:
    """Implements `Participation`: a session with the store, an election in it, and leases from the controller."""

    __slots__ = ("_configs", "_controller", "_departure", "_leases", "_membership", "_view", "_watch", "has_failed")

    def __init__(
        self,
        view: ClusterView,
        configs: StoredConfigs,
        controller: Controller,
        membership: Membership,
        leases: LeaseHolder,
        watch: ControllerWatch,
        departure: Departure,
    ) -> None:
        self._view = view
        self._configs = configs
        self._controller = controller
        self._membership = membership
        self._leases = leases
        self._watch = watch
        self._departure = departure
        self.has_failed = asyncio.Event()
        """See `Participation`. A store that is away is no reason: it comes back."""

    @property
    def broker_epoch(self) -> int:
        """See `Participation`."""
        return self._membership.broker_epoch

    @property
    def membership(self) -> Membership:
        """Session, registration and election of this broker."""
        return self._membership

    def follow(self) -> None:
        """See `Participation`."""
        self._view.watch_failures(self._image_failed)
        self._view.subscribe(self._leases.follow)

    def _image_failed(self, error: Exception) -> None:
        """A part of this broker has not taken an image, which counts as known: it may act by the one before."""
        if self.has_failed.is_set():
            return
        logger.critical("broker %d cannot apply the cluster image, and stops: %s", self._view.node_id, error)
        self.has_failed.set()
        self.cease()
        # A start waits for an image.
        self._view.note_metadata()

    async def join(self, broker: Broker) -> None:
        """See `Participation`."""
        self._view.subscribe(self._watch.follow)
        self._configs.follow()
        # Every machine has these addresses: they do not identify the machine of a broker with the same id.
        is_local = all(hosts.is_loopback(each.host) for each in broker.endpoints.values())
        await self._membership.join(broker, hosts.machine_name() if is_local else "")

    async def serve(self) -> None:
        """See `Participation`: a controller has sent the complete image. Raises StoreError if it cannot be applied."""
        await self._view.wait_for_metadata()
        if self.has_failed.is_set():
            raise StoreError(f"broker {self._view.node_id} cannot apply the cluster image")

    async def hand_over(self) -> None:
        """See `Participation`."""
        await self._departure.hand_over()

    def cease(self) -> None:
        """See `Participation`."""
        self._leases.close()

    async def leave(self) -> None:
        """See `Participation`."""
        self._configs.close()
        self._watch.close()
        try:
            await self._membership.leave()
        except StoreError as error:
            # The others learn it when its session ends.
            logger.warning(
                "cannot end this broker's registration before it stops: %s; its session expires later", error
            )
        await self._controller.wait_until_idle()

    def close(self) -> None:
        """See `Participation`."""
        self._configs.close()
        self._watch.close()
        self._leases.close()
