"""Where a broker of a KRaft cluster reaches the controllers (`process.roles=broker`)."""

from __future__ import annotations

from odradek.broker.configuration.broker_config import BrokerConfig, Listener
from odradek.broker.configuration.config_errors import ConfigError
from odradek.kraft.metadata_observer import Server


def controller_listener(config: BrokerConfig) -> tuple[str, str]:
    """The name and the security protocol of the controllers' listener. Raises ConfigError."""
    names = config.words("controller.listener.names")
    if not names:
        raise ConfigError("controller.listener.names is not set: process.roles=broker needs it")
    return names[0].upper(), config.security_protocols()[names[0].upper()]


def controller_listeners(config: BrokerConfig) -> list[Listener]:
    """The listeners that a controller binds. Raises ConfigError."""
    names = {name.upper() for name in config.words("controller.listener.names")}
    found: dict[str, Listener] = {}
    for listener in config.all_listeners():  # the bound ones come before the advertised ones
        if listener.name in names:
            found.setdefault(listener.name, listener)
    return list(found.values())


def advertised_controller_listeners(config: BrokerConfig) -> list[Listener]:
    """The controller's listeners as other nodes reach them; host "" means: a name of this machine. Raises ConfigError.

    Those that `advertised.listeners` does not name are advertised as they are bound (KIP-853).
    """
    found: list[Listener] = []
    for name in (each.upper() for each in config.words("controller.listener.names")):
        same = [each for each in config.all_listeners() if each.name == name]  # the bound ones come first
        if same:
            found.append(same[-1] if same[-1].host not in ("0.0.0.0", "::") else same[-1]._replace(host=""))
    return found


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


def voter_addresses(config: BrokerConfig) -> dict[int, Server]:
    """The voters of `controller.quorum.voters` by id. Raises ConfigError."""
    found: dict[int, Server] = {}
    for text in config.words("controller.quorum.voters"):
        node, at, address = text.partition("@")
        host, colon, port = address.rpartition(":")
        if not at or not node.strip().isdecimal() or not colon or not host or not port.isdecimal():
            raise ConfigError(f"controller.quorum.voters: {text!r} is not ID@HOST:PORT")
        if int(node) in found:
            raise ConfigError(f"controller.quorum.voters: node {node} is named twice")
        found[int(node)] = Server(host.strip("[]"), int(port))
    return found
