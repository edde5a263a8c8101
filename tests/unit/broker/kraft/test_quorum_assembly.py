"""What a broker of a KRaft cluster says of its listeners at the start."""

from __future__ import annotations

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.kraft.assembly import shared_listener_notice

JOINING = {
    "process.roles": "broker",
    "node.id": "3",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "c1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}


def test_broker_warns_of_clients_on_the_listener_between_brokers() -> None:
    notice = shared_listener_notice(BrokerConfig(JOINING))
    assert "listener PLAINTEXT serves clients and other brokers" in notice
    assert "set authorizer.class.name" in notice


@pytest.mark.parametrize(
    "settings",
    [
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
    ],
)
def test_broker_with_an_authorizer_or_a_listener_for_clients_does_not_warn(settings: dict[str, str]) -> None:
    assert not shared_listener_notice(BrokerConfig({**JOINING, **settings}))
