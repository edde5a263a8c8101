"""Controllers of Odradek that ask for TLS and SASL, and Apache Kafka's brokers on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.certificates import Authority
from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import Load, assert_nothing_is_lost, create, kill_active, start_cluster, until
from tests.interop.kraft_nodes import KraftNodes

pytestmark = pytest.mark.long

CONTROLLERS = (100, 101, 102)
_LISTENER = "listener.name.controller"
_MODULES = "org.apache.kafka.common.security"
_JAAS = f'{_MODULES}.plain.PlainLoginModule required username="node" password="secret" user_node="secret";'


def protection(authority: Authority) -> Mapping[str, str]:
    """Settings of all nodes. Clients of brokers need no login: they are users without a name."""
    return {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
        f"{_LISTENER}.ssl.keystore.type": "PEM",
        f"{_LISTENER}.ssl.keystore.location": authority.issue("/CN=node").both,
        f"{_LISTENER}.ssl.truststore.type": "PEM",
        f"{_LISTENER}.ssl.truststore.location": authority.file,
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN",
        f"{_LISTENER}.plain.sasl.jaas.config": _JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:ANONYMOUS",
    }


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    settings = protection(Authority(tmp_path / "certificates"))
    made = KraftNodes(tmp_path, settings=settings, controllers=CONTROLLERS, is_static=True, is_protected=True)
    yield made
    made.close()


def test_brokers_of_apache_log_in_at_our_controllers(nodes: KraftNodes) -> None:
    """Also at the one that leads after the kill of the first, and controllers at each other."""
    start_cluster(nodes, odradek=CONTROLLERS, apache=(1, 2, 3))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        killed = kill_active(nodes, load)
        create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "made")
        nodes.start_odradek(killed)
        nodes.wait_until_serving(killed)
    assert_nothing_is_lost(nodes, load)
