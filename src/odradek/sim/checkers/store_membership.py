"""What a simulated cluster with a metadata store knows of its brokers, by their sessions."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from odradek.broker.cluster.controller import Controller
from odradek.metadata.nodes import CONTROLLER, BrokerNode, ControllerNode
from odradek.sim.world.hosts import BrokerHost, World

_controller_id = lru_cache(16)(ControllerNode.decode)


class StoreMembership:
    """Implements `Membership` for a cluster with a metadata store."""

    __slots__ = ("_world",)

    def __init__(self, world: World) -> None:
        self._world = world

    def is_registered(self, host: BrokerHost) -> bool:
        """See `Membership`."""
        process, store = host.process, host.store
        if process is None or store is None or not process.alive:
            return False
        node = self._world.tree.find(BrokerNode.path(host.node_id))
        return node is not None and node.owner == store.session

    def registered_epoch(self, host: BrokerHost) -> int | None:
        """See `Membership`."""
        path = BrokerNode.path(host.node_id)
        node = self._world.tree.find(path)
        return None if node is None else BrokerNode.decode(path, node.data).epoch

    def is_trusted(self, host: BrokerHost) -> bool:
        """See `Membership`."""
        path = BrokerNode.path(host.node_id)
        node = self._world.tree.find(path)
        return node is not None and not BrokerNode.decode(path, node.data).unclean

    def is_fenced(self, host: BrokerHost) -> bool:
        """See `Membership`."""
        for each in self._world.brokers:
            found = each.inspect() if each.is_up else None
            controller = None if found is None else found.controller
            if not isinstance(controller, Controller) or not controller.is_active:
                continue
            broker = controller.image.brokers.get(host.node_id)
            if broker is None or not broker.is_active or controller.fencing.fences(broker):
                return True
        return False

    def deciding_epoch(self, awake: Collection[int]) -> int | None:
        """See `Membership`: always the same one, as the store keeps the sessions of brokers."""
        controller = self._world.tree.find(CONTROLLER)
        works = controller is not None and _controller_id(controller.data) in awake
        return 0 if works and not self._world.store_faults.lost else None
