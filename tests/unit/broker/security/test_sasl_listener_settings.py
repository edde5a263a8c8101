"""The settings of a SASL listener: what is read for each mechanism, and which mistakes a broker starts not with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.security import sasl_listeners as sasl_listener_settings
from odradek.broker.security.sasl_listeners import SaslListener, sasl_listeners
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
PREFIX = "listener.name.clients."


def listener(settings: Mapping[str, str]) -> SaslListener:
    listeners = {
        "listeners": "CLIENTS://127.0.0.1:9092",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
    }
    config: Any = BrokerConfig({"node.id": "1", **listeners, **settings})
    return sasl_listeners(config, SystemDisk(), SystemClock(), ["CLIENTS"])["CLIENTS"]


def test_plain_listener_has_users_and_limits() -> None:
    found = listener(
        {
            "sasl.enabled.mechanisms": "plain,SCRAM-SHA-256",
            PREFIX + "plain.sasl.jaas.config": PLAIN,
            "connections.max.reauth.ms": "7",
            PREFIX + "plain.connections.max.reauth.ms": "5",
            "sasl.server.max.receive.size": "100",
        }
    )
    assert (found.name, found.mechanisms) == ("CLIENTS", ("PLAIN", "SCRAM-SHA-256"))
    assert found.max_reauth_ms == {"PLAIN": 5, "SCRAM-SHA-256": 7}
    assert found.users is not None
    assert found.max_message_bytes == 100
    assert (found.bearer, found.kerberos) == (None, None)


def test_scram_listener_has_no_users_of_its_own() -> None:
    found = listener({"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    assert (found.mechanisms, found.users) == (("SCRAM-SHA-512",), None)
    assert found.max_message_bytes == 65_536, "whatever the setting allows"


@pytest.mark.parametrize("principal", ["kafka/host@REALM", "kafka/host", "kafka@REALM"])
@pytest.mark.parametrize("service", ["", "kafka"])
def test_kerberos_listener_accepts_the_service_of_its_principal(
    principal: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library that the key needs may be missing.
    monkeypatch.setattr(sasl_listener_settings, "KerberosKey", lambda *given: given)
    found: Any = listener(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            PREFIX
            + "gssapi.sasl.jaas.config": f'{KERBEROS} keyTab="/k" principal="{principal}" serviceName="{service}";',
            "sasl.kerberos.service.name": service,
        }
    )
    assert found.mechanisms == ("GSSAPI",)
    assert found.kerberos[:2] == (principal, "/k")


OF_BEARER = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
OF_KERBEROS = {"sasl.enabled.mechanisms": "GSSAPI"}
OF_PLAIN = {"sasl.enabled.mechanisms": "PLAIN"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST"}, "DIGEST is not implemented"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
        (OF_PLAIN, "plain.sasl.jaas.config is not set"),
        (OF_PLAIN | {PREFIX + "plain.sasl.jaas.config": PLAIN.split(" user_")[0] + ";"}, "names no user"),
        (OF_PLAIN | {PREFIX + "plain.sasl.jaas.config": PLAIN.replace("secret", "")}, "'alice'"),
        (OF_PLAIN | {PREFIX + "plain.sasl.jaas.config": "nonsense"}, "plain.sasl.jaas.config: "),
        (OF_PLAIN | {PREFIX + "plain.sasl.jaas.config": BEARER + ";"}, "is for OAUTHBEARER"),
        (OF_BEARER, "jwks.endpoint.url is not set"),
        (
            OF_BEARER | {PREFIX + "oauthbearer.sasl.jaas.config": BEARER + ' unsecuredLoginStringClaim_sub="a";'},
            "unsecuredLoginStringClaim_sub is rejected",
        ),
        (OF_KERBEROS, 'keyTab="FILE" and principal'),
        (OF_KERBEROS | {PREFIX + "gssapi.sasl.jaas.config": KERBEROS + ' keyTab="/k";'}, "are needed"),
        (OF_KERBEROS | {PREFIX + "gssapi.sasl.jaas.config": KERBEROS + ' principal="kafka/h@R";'}, "are needed"),
        (
            OF_KERBEROS
            | {
                PREFIX + "gssapi.sasl.jaas.config": KERBEROS + ' keyTab="/k" principal="kafka/h@R";',
                "sasl.kerberos.service.name": "other",
            },
            "is not of the service other",
        ),
    ],
    ids=[
        "unknown mechanism",
        "no mechanism",
        "no module",
        "no user",
        "empty password",
        "unreadable module",
        "module of another mechanism",
        "no keys of an issuer",
        "unsecured tokens",
        "no principal and no key table",
        "no principal",
        "no key table",
        "principal of another service",
    ],
)
def test_mistake_in_a_listener_is_rejected_with_its_setting(settings: Mapping[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listener(settings)
    assert text in str(caught.value)
    assert "CLIENTS" in str(caught.value) or PREFIX in str(caught.value)
