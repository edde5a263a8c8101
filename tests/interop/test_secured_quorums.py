"""Controllers of both products that ask each other, and their brokers, for TLS and SASL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.certificates import Authority
from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import Load, assert_nothing_is_lost, create, kill_active, start_cluster, until
from tests.interop.kraft_nodes import KraftNodes

pytestmark = pytest.mark.long

CONTROLLERS = (100, 101, 102)
PLAIN = "PLAIN"
CERTIFICATES = "certificates"
"""Clients are known by their certificates alone."""
_LISTENER = "listener.name.controller"
_MODULES = "org.apache.kafka.common.security"
_JAAS = f'{_MODULES}.plain.PlainLoginModule required username="node" password="secret" user_node="secret";'

Make = Callable[[str], KraftNodes]


def protection(authority: Authority, mechanism: str) -> Mapping[str, str]:
    """Settings of all nodes. Clients of brokers need no login: they are users without a name."""
    certificate = authority.issue("/CN=node")
    lines = {
        f"{_LISTENER}.ssl.keystore.type": "PEM",
        f"{_LISTENER}.ssl.keystore.location": certificate.both,
        f"{_LISTENER}.ssl.truststore.type": "PEM",
        f"{_LISTENER}.ssl.truststore.location": authority.file,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:CN=node;User:ANONYMOUS",
    }
    if mechanism == CERTIFICATES:
        return lines | {
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            f"{_LISTENER}.ssl.client.auth": "required",
        }
    return lines | {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": mechanism,
        f"{_LISTENER}.sasl.enabled.mechanisms": mechanism,
        f"{_LISTENER}.{mechanism.lower()}.sasl.jaas.config": _JAAS,
    }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def make(java_tools: JavaTools, tmp_path: Path, authority: Authority) -> Iterator[Make]:
    """Formats the nodes of a cluster whose controllers ask for a mechanism, and ends them."""
    made: list[KraftNodes] = []

    def nodes(mechanism: str) -> KraftNodes:
        settings = protection(authority, mechanism)
        made.append(KraftNodes(tmp_path, settings=settings, controllers=CONTROLLERS, is_static=True, is_protected=True))
        return made[-1]

    yield nodes
    for each in made:
        each.close()


def kill_leaders(nodes: KraftNodes, load: Load, odradek: tuple[int, ...], turns: int) -> None:
    """Kill who leads, and start it again, several times: each needs the new leader's login, and a broker's."""
    for turn in range(turns):
        killed = kill_active(nodes, load)
        create(AdminClient({"bootstrap.servers": nodes.bootstrap}), f"made-{turn}")
        (nodes.start_odradek if killed in odradek else nodes.start_apache)(killed)
        nodes.wait_until_serving(killed)


def test_brokers_of_apache_log_in_at_our_controllers(make: Make) -> None:
    """Also at the one that leads after the kill of the first, and controllers at each other."""
    nodes = make(PLAIN)
    start_cluster(nodes, odradek=CONTROLLERS, apache=(1, 2, 3))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        kill_leaders(nodes, load, CONTROLLERS, 1)
    assert_nothing_is_lost(nodes, load)


@pytest.mark.parametrize(
    ("mechanism", "odradek"),
    [(PLAIN, (101, 102)), (CERTIFICATES, (102,))],
    ids=["PLAIN-two-of-ours", "certificates-one-of-ours"],
)
def test_protected_mixed_quorum_loses_nothing(make: Make, mechanism: str, odradek: tuple[int, ...]) -> None:
    """Whoever leads next admits controllers and brokers of both kinds."""
    nodes = make(mechanism)
    apache = tuple(node for node in CONTROLLERS if node not in odradek)
    start_cluster(nodes, odradek=(*odradek, 3), apache=(*apache, 1, 2))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        kill_leaders(nodes, load, odradek, 2)
    assert_nothing_is_lost(nodes, load)
