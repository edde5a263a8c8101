"""The SASL listeners of a broker: mechanisms and their settings, read from the broker's file at its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from odradek.broker.configuration.broker_config import Listener
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.security.kerberos_logins import KerberosKey
from odradek.broker.security.oauth import BearerTokens, OAuthSettings
from odradek.metadata.configs.definitions import split_list
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.security import gssapi_exchange, oauthbearer, plain, scram
from odradek.security.jaas import JaasError, LoginModule, parse_jaas, plain_users
from odradek.security.plain import PlainUsers

MECHANISMS: Final = (plain.MECHANISM, *scram.MECHANISMS, oauthbearer.MECHANISM, gssapi_exchange.MECHANISM)
"""Implemented mechanisms."""
TIMEOUT_MS: Final = 10_000
"""How long one step of reading keys may take."""
MAX_MESSAGE_BYTES: Final = 65_536
"""Largest message of a peer before it is authenticated, if `sasl.server.max.receive.size` allows more."""


ROLE_CLAIM: Final = "odradek.oauthbearer.role.claim.name"
"""The setting that names the claim with a client's roles."""


class SaslSettings(Protocol):
    """The part of a broker's configuration that is read here."""

    def listeners(self) -> Sequence[Listener]:
        """The listeners of the broker."""
        ...

    def listener_text(self, listener_name: str, name: str) -> str:
        """A setting of one listener from the file, else that of all, else its default."""
        ...

    def mechanism_text(self, listener_name: str, mechanism: str, name: str) -> str:
        """A setting of one listener and mechanism from the file, else that of the listener, else that of all."""
        ...


class SaslListener(NamedTuple):
    """What one listener authenticates its clients by."""

    name: str
    mechanisms: tuple[str, ...]
    users: PlainUsers | None
    """Users of PLAIN; None if it is not enabled."""
    max_reauth_ms: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism; 0 is no limit."""
    max_message_bytes: int
    bearer: BearerTokens | None
    """The check of tokens of OAUTHBEARER; None if it is not enabled."""
    kerberos: KerberosKey | None
    """The broker's key for GSSAPI; None if it is not enabled."""


def sasl_listeners(config: SaslSettings, disk: Disk, clock: Clock, names: Iterable[str]) -> dict[str, SaslListener]:
    """These SASL listeners by name. Raises ConfigError."""
    return {name: _sasl_listener(config, name, disk, clock) for name in names}


def _sasl_listener(config: SaslSettings, name: str, disk: Disk, clock: Clock) -> SaslListener:
    """Read the settings of a SASL listener. Raises ConfigError, which names the listener and the setting."""
    mechanisms = tuple(each.upper() for each in split_list(config.listener_text(name, "sasl.enabled.mechanisms")))
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise ConfigError(
                f"listener {name}: sasl.enabled.mechanisms: {mechanism} is not implemented, {', '.join(MECHANISMS)} are"
            )
    if not mechanisms:
        raise ConfigError(f"listener {name}: sasl.enabled.mechanisms is empty")
    modules = {mechanism: _module(config, name, mechanism) for mechanism in mechanisms}
    users = None
    if plain.MECHANISM in mechanisms:
        users = PlainUsers(_plain_passwords(name, modules[plain.MECHANISM]))
    max_reauth_ms = {
        mechanism: _number(name, config, mechanism, "connections.max.reauth.ms") for mechanism in mechanisms
    }
    most = _number(name, config, mechanisms[0], "sasl.server.max.receive.size")
    bearer = None
    if oauthbearer.MECHANISM in mechanisms:
        _check_bearer_module(name, modules[oauthbearer.MECHANISM])
        bearer = BearerTokens(_oauth_settings(config, name), disk, clock)
    kerberos = None
    if gssapi_exchange.MECHANISM in mechanisms:
        kerberos = _kerberos_key(config, name, modules[gssapi_exchange.MECHANISM], disk)
    return SaslListener(name, mechanisms, users, max_reauth_ms, min(most, MAX_MESSAGE_BYTES), bearer, kerberos)


def _kerberos_key(config: SaslSettings, name: str, module: LoginModule | None, disk: Disk) -> KerberosKey:
    setting = f"listener.name.{name.lower()}.gssapi.sasl.jaas.config"
    options = {} if module is None else module.options
    principal, key_table = options.get("principal", ""), options.get("keyTab", "")
    if not principal or not key_table:
        raise ConfigError(f'{setting}: keyTab="FILE" and principal="SERVICE/HOST@REALM" are needed')
    service = config.mechanism_text(name, gssapi_exchange.MECHANISM, "sasl.kerberos.service.name")
    for text in (service, options.get("serviceName", "")):
        if text and text != principal.partition("/")[0].partition("@")[0]:
            raise ConfigError(f"{setting}: the principal {principal} is not of the service {text}")
    rules = config.mechanism_text(name, gssapi_exchange.MECHANISM, "sasl.kerberos.principal.to.local.rules")
    try:
        return KerberosKey(principal, key_table, split_list(rules), disk)
    except ValueError as error:
        raise ConfigError(f"listener {name}: {error}") from error


def _check_bearer_module(name: str, module: LoginModule | None) -> None:
    """Kafka's default accepts unsecured tokens that such options make."""
    for option in () if module is None else module.options:
        if option.startswith("unsecured"):
            setting = f"listener.name.{name.lower()}.oauthbearer.sasl.jaas.config"
            raise ConfigError(f"{setting}: {option} is rejected: tokens without a signature prove nothing")


def _oauth_settings(config: SaslSettings, name: str) -> OAuthSettings:
    def text(setting: str) -> str:
        return config.mechanism_text(name, oauthbearer.MECHANISM, setting)

    def words(setting: str) -> tuple[str, ...]:
        return tuple(split_list(text(setting)))

    def number(setting: str) -> int:
        return _number(name, config, oauthbearer.MECHANISM, setting)

    url = text("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise ConfigError(
            f"listener {name}: sasl.oauthbearer.jwks.endpoint.url is not set: OAUTHBEARER needs the keys of the issuer"
        )
    return OAuthSettings(
        url,
        words("odradek.oauthbearer.allowed.urls"),
        text("sasl.oauthbearer.expected.issuer"),
        words("sasl.oauthbearer.expected.audience"),
        words("odradek.oauthbearer.required.scopes"),
        text("sasl.oauthbearer.sub.claim.name"),
        text("sasl.oauthbearer.scope.claim.name"),
        number("sasl.oauthbearer.clock.skew.seconds"),
        max(1000, number("sasl.oauthbearer.jwks.endpoint.refresh.ms")),
        max(1, number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")),
        max(1, number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")),
        TIMEOUT_MS,
        text(ROLE_CLAIM).strip(),
    )


def _module(config: SaslSettings, name: str, mechanism: str) -> LoginModule | None:
    setting = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = config.mechanism_text(name, mechanism, "sasl.jaas.config")
    if not text:
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{setting}: {error}") from error
    if mechanism not in module.mechanisms:
        raise ConfigError(f"{setting}: {module.name} is for {' and '.join(module.mechanisms)}")
    return module


def _plain_passwords(name: str, module: LoginModule | None) -> Mapping[str, str]:
    setting = f"listener.name.{name.lower()}.plain.sasl.jaas.config"
    if module is None:
        raise ConfigError(f"{setting} is not set: PLAIN has no other users than those that it names")
    passwords = plain_users(module.options)
    if not passwords:
        raise ConfigError(f'{setting} names no user: user_NAME="PASSWORD" expected')
    empty = sorted(user for user, password in passwords.items() if not user or not password)
    if empty:
        raise ConfigError(f"{setting}: the name or the password of a user is empty ({', '.join(map(repr, empty))})")
    return passwords


def _number(listener: str, config: SaslSettings, mechanism: str, name: str) -> int:
    text = config.mechanism_text(listener, mechanism, name)
    try:
        return max(0, int(text))
    except ValueError:
        raise ConfigError(f"listener {listener}: {name}: {text!r} is not a number") from None
