"""The controller of a process that is a broker, too, at the broker's start."""

from __future__ import annotations

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.ports import Ports
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.quorum.local_metadata import LocalMetadata


async def open_local_metadata(
    config: BrokerConfig, ports: Ports, controllers: Controllers
) -> tuple[str, LocalMetadata]:
    """Start the controller: the id of the cluster, and its metadata log. Raises StartError."""
    node = ControllerNode(config, ports)
    await node.start()
    return node.parts.storage.cluster_id, LocalMetadata(node, controllers)
