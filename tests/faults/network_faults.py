"""Faults of a network of namespaces: cuts that drop silently, in one or both directions, and slow links."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.faults.namespaces import CLIENTS, STORE, Namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.deployment import Node
    from tests.faults.nemesis import Torment


@contextmanager
def _healed(torment: Torment) -> Iterator[Namespaces]:
    network = torment.deployment.network
    assert network is not None
    try:
        yield network
    finally:
        network.heal()


def _others(torment: Torment, node: Node) -> list[str]:
    return [each.host for each in torment.deployment.nodes if each is not node]


def _silenced(torment: Torment, node: Node, peers: Iterable[str]) -> None:
    with _healed(torment) as network:
        for peer in peers:
            network.cut_both(node.host, peer)
        torment.hold(1.0, 8.0)


def silence_leader(torment: Torment) -> None:
    """Nothing reaches it and nothing leaves it: other brokers, clients, the store."""
    node = torment.leader()
    with _healed(torment) as network:
        for peer in (*_others(torment, node), CLIENTS):
            network.cut_both(node.host, peer)
        network.cut_both(node.host, STORE)
        torment.hold(1.0, 8.0)


def silence_controller(torment: Torment) -> None:
    """The controller and the other brokers do not reach each other, and it does not reach the store."""
    node = torment.controller()
    with _healed(torment) as network:
        for peer in _others(torment, node):
            network.cut_both(node.host, peer)
        network.cut_both(node.host, STORE)
        torment.hold(1.0, 8.0)


def leave_leader_with_clients(torment: Torment) -> None:
    """A leader reaches its clients only, neither other brokers nor the store."""
    node = torment.leader()
    with _healed(torment) as network:
        for peer in _others(torment, node):
            network.cut_both(node.host, peer)
        network.cut_both(node.host, STORE)
        torment.hold(1.0, 8.0)


def cut_leader_from_brokers(torment: Torment) -> None:
    """A leader and the other brokers do not reach each other; clients and the store reach both."""
    node = torment.leader()
    _silenced(torment, node, _others(torment, node))


def cut_leader_from_clients(torment: Torment) -> None:
    """Clients do not reach a leader; brokers do."""
    _silenced(torment, torment.leader(), [CLIENTS])


def cut_leader_from_store(torment: Torment) -> None:
    """A leader does not reach the store; all else does."""
    with _healed(torment) as network:
        network.cut_both(torment.leader().host, STORE)
        torment.hold(1.0, 8.0)


def deafen_leader(torment: Torment) -> None:
    """What the other brokers send to a leader vanishes; what it sends arrives."""
    node = torment.leader()
    with _healed(torment) as network:
        for peer in _others(torment, node):
            network.cut(peer, node.host)
        torment.hold(1.0, 8.0)


def mute_leader(torment: Torment) -> None:
    """What a leader sends to the other brokers vanishes; what they send arrives."""
    node = torment.leader()
    with _healed(torment) as network:
        for peer in _others(torment, node):
            network.cut(node.host, peer)
        torment.hold(1.0, 8.0)


def cut_in_a_ring(torment: Torment) -> None:
    """Each broker reaches the next one, and nothing comes back."""
    hosts = [node.host for node in torment.chance.sample(torment.deployment.nodes, len(torment.deployment.nodes))]
    with _healed(torment) as network:
        for sender, receiver in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
            network.cut(receiver, sender)
        torment.hold(1.0, 8.0)


def slow_leader(torment: Torment) -> None:
    """All that a leader sends is slow."""
    with _healed(torment) as network:
        network.slow(torment.leader().broker_id)
        torment.hold(2.0, 8.0)


NETWORK: Final[dict[str, Callable[[Torment], None]]] = {
    "silence a leader": silence_leader,
    "silence the controller": silence_controller,
    "leave a leader with its clients": leave_leader_with_clients,
    "cut a leader from brokers": cut_leader_from_brokers,
    "cut a leader from clients": cut_leader_from_clients,
    "cut a leader from the store": cut_leader_from_store,
    "deafen a leader": deafen_leader,
    "mute a leader": mute_leader,
    "cut in a ring": cut_in_a_ring,
    "slow leader": slow_leader,
}
