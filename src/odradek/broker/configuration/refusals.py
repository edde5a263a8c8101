"""Values that are refused beside other settings: other controllers, metadata elsewhere, listeners that are not plain.

`odradek.metadata.configs.effects` has the settings that are refused by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from odradek.broker.configuration.config_errors import Problem

_LOCAL_HOSTS: Final = frozenset(("", "localhost", "127.0.0.1", "::1", "0.0.0.0"))

_OTHER_ROLES: Final = {
    "controller": "every broker can be the controller, there are no nodes of that role alone",
    "broker": "its controllers are nodes of Apache Kafka, whose cluster Odradek does not join (broker,controller with "
    "this node as the only voter, or zookeeper.connect, are possible)",
}
_OTHER_CONTROLLERS: Final = (
    "this node would not join the others but lead a cluster of its own (several brokers need zookeeper.connect, or "
    "`odradek serve --brokers N`)"
)


class RoleSettings(Protocol):
    """The part of a broker's configuration that is read here."""

    @property
    def node_id(self) -> int:
        """The id of this node."""
        ...

    @property
    def log_dirs(self) -> list[str]:
        """Directories of the logs."""
        ...

    def words(self, name: str) -> list[str]:
        """The members of a list."""
        ...

    def text(self, name: str) -> str:
        """A text; empty when it is not set."""
        ...

    def all_listeners(self) -> Sequence[tuple[str, str, int, str]]:
        """Name, host, port and security protocol of all listeners that are bound or advertised."""
        ...


def refusals(config: RoleSettings) -> Iterator[Problem]:
    """Each value that this node cannot follow."""
    for name, _host, _port, protocol in dict.fromkeys(config.all_listeners()):
        if protocol != "PLAINTEXT":
            text = f"listeners: {name} is refused: {protocol} is not implemented, connections are PLAINTEXT"
            yield Problem("listeners", text)
    yield from _roles(config)
    yield from _quorum(config)
    metadata, first = config.text("metadata.log.dir"), config.log_dirs[:1]
    if metadata and [metadata] != first:
        reason = f"metadata lies in the first of log.dirs ({''.join(first)}), or where odradek.metadata.store says"
        yield Problem("metadata.log.dir", f"metadata.log.dir={metadata} is refused: {reason}")


def _roles(config: RoleSettings) -> Iterator[Problem]:
    roles = ",".join(config.words("process.roles"))
    if roles in _OTHER_ROLES:
        yield Problem("process.roles", f"process.roles={roles} is refused: {_OTHER_ROLES[roles]}")


def _quorum(config: RoleSettings) -> Iterator[Problem]:
    voters = config.words("controller.quorum.voters")
    others = [voter for voter in voters if voter.partition("@")[0].strip() != str(config.node_id)]
    hosts = {host for _name, host, _port, _protocol in config.all_listeners()} | _LOCAL_HOSTS
    servers = config.words("controller.quorum.bootstrap.servers")
    foreign = [server for server in servers if ":" not in server or server.rpartition(":")[0].strip("[]") not in hosts]
    for name, found in (
        ("controller.quorum.voters", others or voters[1:]),
        ("controller.quorum.bootstrap.servers", foreign or servers[1:]),
    ):
        if found:
            yield Problem(name, f"{name}={','.join(config.words(name))} is refused: {_OTHER_CONTROLLERS}")
