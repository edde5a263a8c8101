"""Logins of brokers at ZooKeeper by SASL: DIGEST-MD5 and, with the extra `gssapi`, Kerberos.

Java has the settings as system properties, where Kafka reads them; a broker's file has them under the same names. The
file of `java.security.auth.login.config` has a section for ZooKeeper, which is read as data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from odradek.ports.foreign_files import ForeignFile
from odradek.ports.installation import install_hint
from odradek.ports.randomness import SystemRandom
from odradek.ports.store import WrongStore
from odradek.security import digest_md5, gssapi_exchange
from odradek.security.digest_md5 import DigestMd5Client
from odradek.security.errors import SaslError
from odradek.security.gssapi_exchange import GssapiClient
from odradek.security.jaas import JaasError, LoginModule, section_of

FILE: Final = "java.security.auth.login.config"
ENABLED: Final = "zookeeper.sasl.client"
SECTION: Final = "zookeeper.sasl.clientconfig"
SERVICE: Final = "zookeeper.sasl.client.username"
PRINCIPAL: Final = "zookeeper.server.principal"
_DIGEST_HOST: Final = "zk-sasl-md5"
"""The name of every server with DIGEST-MD5 (ZooKeeper's `SaslServerPrincipal`)."""
_DIGEST_SERVICE: Final = "zookeeper"
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_MESSAGES: Final = 12


class Exchange(Protocol):
    """The client's side of one login. Calls may block, and raise SaslError."""

    def first(self) -> bytes:
        """The first message."""
        ...

    def next(self, answer: bytes) -> bytes | None:
        """The message after an answer of the server; None when the exchange is complete."""
        ...


class LoginConfig(Protocol):
    """What is read of a broker's configuration."""

    def text(self, name: str) -> str:
        """The value of a textual configuration, empty if it is not set."""
        ...

    def flag(self, name: str) -> bool:
        """The value of a boolean configuration."""
        ...


def zookeeper_login(config: LoginConfig) -> Callable[[str], Exchange] | None:
    """Makes the exchange of a connection to a host; None for no login. Raises WrongStore."""
    path = config.text(FILE)
    if not path or not config.flag(ENABLED):
        return None
    section = config.text(SECTION)
    try:
        with ForeignFile(path) as file:
            content = file.read(0, _MAX_FILE_BYTES)
        module = section_of(content.decode(), section)
    except OSError as error:
        raise WrongStore(f"{FILE}: {path}: {error.strerror}") from error
    except (JaasError, UnicodeDecodeError) as error:
        text = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise WrongStore(f"{FILE}: {path}: {text}") from error
    if module is None:
        raise WrongStore(f"{FILE}: {path} has no section {section} ({SECTION}); {ENABLED}=false leaves the login out")
    if digest_md5.MECHANISM in module.mechanisms:
        return _digest_login(module, f"{FILE}: {path}: {section}")
    if gssapi_exchange.MECHANISM in module.mechanisms:
        return _kerberos_login(module, f"{FILE}: {path}: {section}", _server_name(config))
    raise WrongStore(f"{FILE}: {path}: {section}: {module.name} is not for ZooKeeper")


def _digest_login(module: LoginModule, place: str) -> Callable[[str], Exchange]:
    user, password = module.options.get("username", ""), module.options.get("password", "")
    if not user or not password:
        raise WrongStore(f"{place}: {module.name} needs username and password")

    def begin(_host: str) -> Exchange:
        return DigestMd5Client(user, password, _DIGEST_SERVICE, _DIGEST_HOST, SystemRandom().uuid().hex())

    return begin


def _server_name(config: LoginConfig) -> tuple[str, str]:
    """First and second part of the servers' Kerberos name; the second is empty where it is each server's own host.

    Raises WrongStore.
    """
    principal = config.text(PRINCIPAL)
    if not principal:
        return config.text(SERVICE), ""
    service, _, host = principal.partition("/")
    if not service or not host or "/" in host or "@" in host:
        raise WrongStore(f"{PRINCIPAL}: {principal}: NAME/HOST is expected; Kerberos finds the realm")
    return service, host


def _kerberos_login(module: LoginModule, place: str, server: tuple[str, str]) -> Callable[[str], Exchange]:
    try:
        from odradek.security.kerberos import initiate
    except (ImportError, OSError) as error:
        missing = getattr(error, "name", None) or "Kerberos"
        raise WrongStore(f"{place}: {module.name} needs {missing}: {install_hint('gssapi')}") from error
    options: Mapping[str, str] = module.options
    principal, key_table = options.get("principal", ""), options.get("keyTab", "")
    if options.get("useKeyTab", "").lower() == "true" and not (principal and key_table):
        raise WrongStore(f"{place}: a key table needs keyTab and principal")

    service, named_host = server

    def begin(host: str) -> Exchange:
        return GssapiClient(initiate(service, named_host or host, principal, key_table, options.get("ticketCache", "")))

    return begin


def authenticate(exchange: Exchange, ask: Callable[[bytes], bytes]) -> None:
    """Exchange messages until both sides are satisfied; `ask` sends one and returns the answer. Raises SaslError."""
    message: bytes | None = exchange.first()
    for _ in range(_MAX_MESSAGES):
        if message is None:
            return
        message = exchange.next(ask(message))
    raise SaslError("the exchange does not end")
