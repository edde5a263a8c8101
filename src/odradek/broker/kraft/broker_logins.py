"""Logins of a broker of a KRaft cluster at other brokers and at controllers: SASL with PLAIN or SCRAM.

Source: Kafka's `ChannelBuilders` for the inter-broker and the controller listener.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.refusals import SASL_PROTOCOLS
from odradek.client import errors
from odradek.client.network.connection import Connection
from odradek.client.security.sasl import Login, check_sasl, logins
from odradek.ports.randomness import Random

BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
"""The setting with the mechanism of logins at other brokers."""
TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
"""The setting with the mechanism of logins at controllers."""


def broker_login(config: BrokerConfig, random: Random, listener: str, mechanism_setting: str) -> Login | None:
    """The login at a listener of others; None for one without SASL.

    The listener's `sasl.jaas.config` has user name and password. Raises ConfigError.
    """
    if config.security_protocols().get(listener) not in SASL_PROTOCOLS:
        return None
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
    return logins(options, random)


async def log_in(login: Login | None, connection: Connection, timeout_ms: float) -> Connection:
    """The connection once the broker has logged in on it; it is closed if that fails. Raises TransportError."""
    if login is None:
        return connection
    try:
        await login(connection, timeout_ms)
    except errors.AuthenticationFailed as error:
        connection.close()
        raise errors.Disconnected(f"login at {connection.host} failed: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection
