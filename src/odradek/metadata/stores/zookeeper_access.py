"""How brokers reach ZooKeeper and what they allow others there: TLS, credentials, ACLs of nodes.

Settings: `zookeeper.ssl.*` as in Kafka, `zookeeper.set.acl`; for credentials those of `zookeeper_login`, or
`odradek.zookeeper.digest`, which needs no login file. ACLs are those of Kafka's `ZkData`: the creator may do
everything, others read, except secrets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.metadata.nodes import BROKER_CONFIGS, CLUSTER_KEY, USER_CONFIGS
from odradek.metadata.stores.zookeeper_login import FILE, Exchange, zookeeper_login
from odradek.ports.store import WrongStore

if TYPE_CHECKING:
    import ssl

_KEY_STORE: Final = "zookeeper.ssl.keystore.location"
_PREFIX: Final = "zookeeper."
_LISTS: Final = {
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
}
_TEXTS: Final = {
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
    "ssl.keystore.location": _KEY_STORE,
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
}
"""Settings of listeners, and those of connections to ZooKeeper that correspond to them; the others do not exist."""
_FALLBACKS: Final = {
    "ssl.client.auth": "none",
    "ssl.protocol": "TLS",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}
_SENSITIVE: Final = (USER_CONFIGS, BROKER_CONFIGS, "/delegation_token", CLUSTER_KEY)
"""Nodes that only brokers may read, with all nodes below them."""
_OPEN: Final = ("/consumers",)
"""Nodes that old clients write."""


class AccessConfig(Protocol):
    """What is read of a broker's configuration."""

    def text(self, name: str) -> str:
        """The value of a textual configuration, empty if it is not set."""
        ...

    def words(self, name: str) -> list[str]:
        """The members of a list."""
        ...

    def flag(self, name: str) -> bool:
        """The value of a boolean configuration."""
        ...


class ZooKeeperAccess(NamedTuple):
    """What a connection to ZooKeeper needs beside the address."""

    context: Callable[[], ssl.SSLContext] | None = None
    """Makes what connections are secured with, from the files as they are then; None for plain text."""
    digest: str = ""
    """`USER:PASSWORD` for ZooKeeper's scheme `digest`; empty for none."""
    sets_acl: bool = False
    """Whether nodes get ACLs when they are created."""
    login: Callable[[str], Exchange] | None = None
    """Begins a login by SASL at a host; None for none."""

    def __repr__(self) -> str:
        return (
            f"ZooKeeperAccess(tls={self.context is not None}, digest={bool(self.digest)}, acl={self.sets_acl}, "
            f"login={self.login is not None})"
        )


OPEN_ACCESS: Final = ZooKeeperAccess()
"""Plain text, without credentials and ACLs."""


def zookeeper_access(config: AccessConfig) -> ZooKeeperAccess:
    """The access that the settings ask for. Raises WrongStore for settings that cannot be followed."""
    is_secured = config.flag("zookeeper.ssl.client.enable")
    digest, sets_acl = config.text("odradek.zookeeper.digest"), config.flag("zookeeper.set.acl")
    if digest and not all(digest.partition(":")):
        raise WrongStore("odradek.zookeeper.digest: USER:PASSWORD is expected")
    login = zookeeper_login(config)
    if sets_acl and not digest and login is None and not (is_secured and config.text(_KEY_STORE)):
        raise WrongStore(f"zookeeper.set.acl needs odradek.zookeeper.digest, or {_KEY_STORE} with TLS, or {FILE}")
    if not is_secured:
        return ZooKeeperAccess(None, digest, sets_acl, login)

    def context() -> ssl.SSLContext:
        return _context(config)

    context()
    return ZooKeeperAccess(context, digest, sets_acl, login)


def _context(config: AccessConfig) -> ssl.SSLContext:
    from odradek.ports.tls_contexts import TlsSettingError, client_context, tls_settings

    def text(name: str) -> str:
        found = config.text(_TEXTS[name]) if name in _TEXTS else ""
        if name in _LISTS:
            found = ",".join(config.words(_LISTS[name]))
        return found or _FALLBACKS.get(name, "")

    try:
        return client_context(tls_settings(text))
    except TlsSettingError as error:
        raise WrongStore(f"{_PREFIX}{error}") from error


def is_sensitive(path: str) -> bool:
    """Whether only brokers may read a node."""
    return any(path == each or path.startswith(f"{each}/") for each in _SENSITIVE)


def is_open(path: str) -> bool:
    """Whether every client may write a node."""
    return any(path == each or path.startswith(f"{each}/") for each in _OPEN)
