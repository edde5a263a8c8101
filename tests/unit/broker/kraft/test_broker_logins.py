"""Logins of a broker at others, which it repeats until they succeed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.kraft import broker_logins
from odradek.broker.kraft.broker_logins import TO_CONTROLLERS, broker_login
from odradek.client.errors import AuthenticationFailed, Disconnected, UnsupportedByBroker
from odradek.ports.randomness import SeededRandom

SETTINGS = {
    "process.roles": "broker",
    "node.id": "3",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "c1:9093",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
}
JAAS = "listener.name.controller.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize("failure", [AuthenticationFailed("wrong password"), UnsupportedByBroker("no SASL here")])
def test_failed_login_is_a_broken_connection(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    async def login(_connection: Any, _timeout_ms: float) -> int:
        raise failure

    monkeypatch.setattr(broker_logins, "logins", lambda *_: login)
    config = BrokerConfig({**SETTINGS, JAAS: f'{MODULE} username="b" password="p";'})
    prove = broker_login(config, SeededRandom(1), "CONTROLLER", TO_CONTROLLERS)
    connection: Any = SimpleNamespace(host="c1")
    with pytest.raises(Disconnected, match=f"login at c1 failed: {failure}"):
        asyncio.run(prove(connection, -1, 1000))  # type: ignore[arg-type]


@pytest.mark.parametrize(("module", "problem"), [("", "is not set"), (f"{MODULE};", "sasl_plain_username")])
def test_login_without_a_user_is_rejected_at_the_start(module: str, problem: str) -> None:
    config = BrokerConfig({**SETTINGS, **({JAAS: module} if module else {})})
    with pytest.raises(ConfigError, match=problem):
        broker_login(config, SeededRandom(1), "CONTROLLER", TO_CONTROLLERS)


def test_listener_without_sasl_needs_no_login() -> None:
    prove = broker_login(BrokerConfig(SETTINGS), SeededRandom(1), "PLAINTEXT", TO_CONTROLLERS)
    unused: Any = None
    asyncio.run(prove(unused, -1, 1000))  # type: ignore[arg-type]
