"""Where a broker of a KRaft cluster reaches the controllers (`process.roles=broker`)."""

from __future__ import annotations

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.kraft.metadata_observer import Server


def controller_listener(config: BrokerConfig) -> tuple[str, str]:
    """The name and the security protocol of the controllers' listener. Raises ConfigError."""
    names = config.words("controller.listener.names")
    if not names:
        raise ConfigError("controller.listener.names is not set: process.roles=broker needs it")
    return names[0].upper(), config.security_protocols()[names[0].upper()]


def quorum_servers(config: BrokerConfig) -> list[Server]:
    """Where controllers are reached: `controller.quorum.bootstrap.servers`, or the voters. Raises ConfigError."""
    servers, voters = "controller.quorum.bootstrap.servers", "controller.quorum.voters"
    found = [(servers, each, each) for each in config.words(servers)]
    found = found or [(voters, each, each.partition("@")[2]) for each in config.words(voters)]
    parsed = []
    for setting, text, address in found:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal():
            form = "HOST:PORT" if setting == servers else "ID@HOST:PORT"
            raise ConfigError(f"{setting}: {text!r} is not {form}")
        parsed.append(Server(host.strip("[]"), int(port)))
    if not parsed:
        raise ConfigError(f"{servers} is not set: process.roles=broker needs the controllers' addresses")
    return parsed
