"""Logins of a broker of a KRaft cluster at other brokers and at controllers: SASL with PLAIN or SCRAM.

Source: Kafka's `ChannelBuilders` for the inter-broker and the controller listener.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.cluster.cluster_secret import Prove
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.refusals import SASL_PROTOCOLS
from odradek.client import errors
from odradek.client.network.connection import Connection
from odradek.client.security.sasl import check_sasl, logins
from odradek.ports.randomness import Random

BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
"""The setting with the mechanism of logins at other brokers."""
TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
"""The setting with the mechanism of logins at controllers."""


async def _no_login(_connection: Connection, _broker_id: int, _timeout_ms: float) -> None:
    """Of a listener without SASL: its network, or its TLS, says who may use it."""


def broker_login(config: BrokerConfig, random: Random, listener: str, mechanism_setting: str) -> Prove:
    """The login at a listener of others, of brokers or of controllers.

    The listener's `sasl.jaas.config` has user name and password. Raises ConfigError.
    """
    if config.security_protocols().get(listener) not in SASL_PROTOCOLS:
        return _no_login
    mechanism = config.text(mechanism_setting).upper()
    setting = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    jaas = config.mechanism_text(listener, mechanism, "sasl.jaas.config")
    if not jaas:
        raise ConfigError(f"{setting} is not set: the broker logs in at listener {listener} of others")
    options = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "",
        "sasl_plain_password": "",
        "sasl_jaas_config": jaas,
        "sasl_credentials_provider": None,
        "sasl_oauth_token_provider": None,
        "sasl_oauthbearer_token_endpoint_url": "",
    }
    try:
        check_sasl(options)
    except errors.ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from error
    login = logins(options, random)

    async def prove(connection: Connection, _broker_id: int, timeout_ms: float) -> None:
        """Raises TransportError."""
        try:
            await login(connection, timeout_ms)
        except (errors.AuthenticationFailed, errors.UnsupportedByBroker) as error:
            # Another controller or broker, or the next try, may accept it: the caller retries.
            raise errors.Disconnected(f"login at {connection.host} failed: {error}") from error

    return prove
