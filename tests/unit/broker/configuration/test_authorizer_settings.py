"""Settings of the authorizer: which names there are, and what restricts nothing without one."""

from __future__ import annotations

import pytest

from odradek.authorization.authorizer import Mode, Settings
from odradek.broker.authorization.broker_authorization import authorizer_settings
from odradek.broker.configuration.authorizers import AUTHORIZERS, super_users
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_authorizer_of_kafka_is_ours(name: str) -> None:
    config = BrokerConfig({"authorizer.class.name": name, "super.users": "User:CN=a,O=b; User:root"})
    assert authorizer_settings(config) == Settings(frozenset(("User:CN=a,O=b", "User:root")))


def test_settings_of_the_authorizer_are_read() -> None:
    config = BrokerConfig(
        {
            "authorizer.class.name": "odradek",
            "allow.everyone.if.no.acl.found": "true",
            "odradek.authorizer.mode": "audit",
        }
    )
    assert authorizer_settings(config) == Settings(frozenset(), True, Mode.AUDIT)


def test_authorizer_that_is_not_implemented_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"com\.example\.Own is refused"):
        BrokerConfig({"authorizer.class.name": "com.example.Own"})


@pytest.mark.parametrize(("name", "value"), [("super.users", "User:root"), ("odradek.authorizer.mode", "enforce")])
def test_restricting_setting_without_an_authorizer_is_an_error(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is refused"):
        BrokerConfig({name: value})


@pytest.mark.parametrize("name", ["odradek.ssl.role.attribute", "listener.name.x.odradek.oauthbearer.role.claim.name"])
def test_roles_of_proofs_without_an_authorizer_are_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"without authorizer\.class\.name roles have no effect"):
        BrokerConfig({name: "OU", "listeners": "X://127.0.0.1:0", "listener.security.protocol.map": "X:SASL_SSL"})


@pytest.mark.parametrize("text", ["root", "User:", ":root", "User:a;b"])
def test_super_user_without_a_type_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a principal"):
        super_users(text)
    with pytest.raises(ConfigError, match=r"super\.users"):
        BrokerConfig({"authorizer.class.name": "odradek", "super.users": text})


def test_exclusion_without_an_audit_topic_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"odradek\.audit\.topic\.enable is not set"):
        BrokerConfig({"odradek.audit.exclude.topics": "orders"})


@pytest.mark.parametrize(("name", "value"), [("events", "logins"), ("principals", "alice")])
def test_exclusion_of_what_there_is_not_is_an_error(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"odradek\.audit\.exclude\.{name}"):
        BrokerConfig({"odradek.audit.topic.enable": "true", f"odradek.audit.exclude.{name}": value})
