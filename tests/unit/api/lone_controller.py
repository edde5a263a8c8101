"""A broker that is the controller of a cluster of its own, as API modules see it; no sockets, no logs."""

from __future__ import annotations

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.controller_link import ControllerLink
from odradek.broker.cluster.membership import Membership, cluster_id
from odradek.broker.cluster.peers import Peers
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.errors import Disconnected
from odradek.client.network.connection import Connection
from odradek.metadata.image import NO_BROKER, Broker, Endpoint
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.clock import SystemClock
from odradek.ports.network import TcpNetwork
from odradek.ports.randomness import SeededRandom
from tests.unit.broker.cluster.broker_proofs import no_proof


async def _nobody(broker: Broker) -> Connection:
    raise Disconnected(f"broker {broker.id} is not there")


async def lone_controller(
    config: BrokerConfig, endpoints: dict[str, Endpoint], rack: str | None = None
) -> tuple[ControllerLink, ClusterView]:
    store, clock, random = MemoryStore(), SystemClock(), SeededRandom("api")
    await cluster_id(store, random, "cluster")
    view = ClusterView(config)
    await StoredConfigs(store, view).load()
    controller = Controller(store, config, clock, random, view, _nobody)
    peers = Peers(TcpNetwork(), lambda: view.image, "PLAINTEXT", config.node_id, no_proof)
    await Membership(store, clock, controller).join(Broker(config.node_id, NO_BROKER, rack, endpoints))
    return ControllerLink(controller, view, peers, config), view
