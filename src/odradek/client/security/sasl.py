"""SASL of a client's connections: the login after they are opened, and again before their session ends (KIP-368)."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from odradek.client.errors import AuthenticationFailed, ConfigError, Disconnected, TransportError
from odradek.client.network.connection import Connection
from odradek.client.security.bearer_tokens import token_source
from odradek.client.security.kerberos_login import KerberosSteps, kerberos_settings
from odradek.ports.randomness import Random
from odradek.security import gssapi_exchange, oauthbearer, plain
from odradek.security.errors import SaslError
from odradek.security.jaas import JaasError, parse_jaas
from odradek.security.scram import MECHANISMS as SCRAM_MECHANISMS
from odradek.security.scram import ScramClient
from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MECHANISMS: Final = (plain.MECHANISM, *SCRAM_MECHANISMS, oauthbearer.MECHANISM, gssapi_exchange.MECHANISM)
"""Implemented values of `sasl_mechanism`."""
_NONCE_BYTES: Final = 24
_SHOWN_BYTES: Final = 200
"""Of what a broker says about a token."""
_EARLIEST: Final = 0.85
_LATEST: Final = 0.95
"""Shares of a session's lifetime between which a connection authenticates again, as in Kafka's client."""

Login = Callable[[Connection, float], Awaitable[int]]
"""Authenticate on a connection, each answer within some milliseconds; the session's lifetime in milliseconds, 0 without
a limit. Raises AuthenticationFailed, TransportError, UnsupportedByBroker."""


class Steps(Protocol):
    """The client's side of one exchange."""

    @property
    def first(self) -> bytes:
        """The first message."""
        ...

    async def next(self, answer: bytes) -> bytes | None:
        """The message after an answer of the broker; None when the exchange is complete. Raises SaslError."""
        ...


class _Plain:
    """PLAIN has one message."""

    def __init__(self, username: str, password: str) -> None:
        self.first = plain.plain_message(username, password)

    async def next(self, answer: bytes) -> bytes | None:
        if answer:
            raise SaslError("the broker answered the only message with another one")
        return None


class _Scram:
    """SCRAM: a first message, a proof, and the broker's signature."""

    def __init__(self, client: ScramClient) -> None:
        self._client = client
        self._has_proven = False
        self.first = client.first

    async def next(self, answer: bytes) -> bytes | None:
        if self._has_proven:
            self._client.finish(answer)
            return None
        self._has_proven = True
        # PBKDF2 takes milliseconds, and hashlib releases the interpreter's lock.
        return await asyncio.get_running_loop().run_in_executor(None, self._client.prove, answer)


class _Bearer:
    """OAUTHBEARER has one message; an error of the broker is acknowledged."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._rejection = b""
        self.first = oauthbearer.bearer_message(token, extensions)

    async def next(self, answer: bytes) -> bytes | None:
        if self._rejection:
            # a broker is not believed that accepts what it has rejected
            shown = self._rejection[:_SHOWN_BYTES].decode("utf-8", "replace")
            raise SaslError(f"the broker rejected the token: {shown}")
        self._rejection = answer
        return b"\x01" if answer else None


Credentials = Callable[[], Awaitable[tuple[str, str, bool]]]
"""Gives user name, password, and whether they are of a delegation token. Raises SaslError."""


def credentials(config: Mapping[str, Any]) -> tuple[str, str, bool]:
    """User name, password, and whether they are of a delegation token. Raises ConfigError."""
    username, password = config["sasl_plain_username"], config["sasl_plain_password"]
    is_token = False
    if config["sasl_jaas_config"]:
        if username or password:
            raise ConfigError("sasl_jaas_config and sasl_plain_username mean the same: set one of them")
        try:
            module = parse_jaas(config["sasl_jaas_config"])
        except JaasError as error:
            raise ConfigError(f"sasl_jaas_config: {error}") from error
        if config["sasl_mechanism"].upper() not in module.mechanisms:
            raise ConfigError(f"sasl_jaas_config: {module.name} is for {' and '.join(module.mechanisms)}")
        username, password = module.options.get("username", ""), module.options.get("password", "")
        is_token = module.options.get("tokenauth", "").lower() == "true"
    return username, password, is_token


def _credentials_source(config: Mapping[str, Any]) -> Credentials:
    """Gives the credentials for each login: those of the options, or what sasl_credentials_provider returns then."""
    provider = config["sasl_credentials_provider"]
    fixed = None if provider is not None else credentials(config)

    async def ask() -> tuple[str, str, bool]:
        if fixed is not None:
            return fixed
        if inspect.iscoroutinefunction(provider):
            given = await provider()
        else:
            given = await asyncio.get_running_loop().run_in_executor(None, provider)
        if not isinstance(given, tuple) or len(given) != 2 or not all(isinstance(each, str) and each for each in given):
            raise SaslError("sasl_credentials_provider did not return (user name, password)")
        return (*given, False)

    return ask


def check_sasl(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for options that no login is possible with."""
    mechanism = str(config["sasl_mechanism"] or "").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl_mechanism {config['sasl_mechanism']!r}: {', '.join(MECHANISMS)} are supported")
    if mechanism in (oauthbearer.MECHANISM, gssapi_exchange.MECHANISM) and config["sasl_credentials_provider"]:
        raise ConfigError(f"sasl_credentials_provider has no effect with sasl_mechanism={mechanism}")
    if mechanism == oauthbearer.MECHANISM:
        if config["sasl_plain_username"] or config["sasl_plain_password"]:
            raise ConfigError("sasl_plain_username and sasl_plain_password have no effect with OAUTHBEARER")
        if config["sasl_jaas_config"]:
            credentials(config)
        token_source(config)
        return
    if mechanism == gssapi_exchange.MECHANISM:
        kerberos_settings(config)
        return
    if config["sasl_oauth_token_provider"] is not None or config["sasl_oauthbearer_token_endpoint_url"]:
        raise ConfigError(f"options of bearer tokens have no effect with sasl_mechanism={mechanism}")
    if config["sasl_credentials_provider"] is not None:
        for name in ("sasl_plain_username", "sasl_plain_password", "sasl_jaas_config"):
            if config[name]:
                raise ConfigError(f"sasl_credentials_provider and {name} mean the same: set one of them")
        return
    username, password, _ = credentials(config)
    if not username or not password:
        raise ConfigError(
            f"sasl_mechanism={mechanism} needs sasl_plain_username and sasl_plain_password, or "
            f"sasl_credentials_provider"
        )
    if "\0" in username + password:
        raise ConfigError("sasl_plain_username and sasl_plain_password cannot have a zero byte")


def logins(config: Mapping[str, Any], random: Random) -> Login:
    """The login of a client's connections with SASL."""
    mechanism = str(config["sasl_mechanism"]).upper()
    if mechanism == oauthbearer.MECHANISM:
        tokens = token_source(config)

        async def begin_bearer(host: str) -> Steps:
            del host
            return _Bearer(*await tokens())

        return partial(_log_in, mechanism, begin_bearer)
    if mechanism == gssapi_exchange.MECHANISM:
        settings = kerberos_settings(config)
        return partial(_log_in, mechanism, lambda host: KerberosSteps.begin(settings, host))
    source = _credentials_source(config)

    async def begin(host: str) -> Steps:
        del host
        username, password, is_token = await source()
        if mechanism == plain.MECHANISM:
            return _Plain(username, password)
        nonce = base64.b64encode(random.randrange(1 << 8 * _NONCE_BYTES).to_bytes(_NONCE_BYTES, "big")).decode()
        return _Scram(ScramClient(SCRAM_MECHANISMS[mechanism], username, password, nonce, is_token=is_token))

    return partial(_log_in, mechanism, begin)


async def _log_in(
    mechanism: str, begin: Callable[[str], Awaitable[Steps]], connection: Connection, timeout_ms: float
) -> int:
    version = connection.version_of(SaslHandshakeRequest)
    if version < 1:
        raise AuthenticationFailed("the broker is too old: it has no SaslAuthenticate (Kafka 1.0)")
    handshake = await connection.request(SaslHandshakeRequest(mechanism), SaslHandshakeResponse, version, timeout_ms)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"the broker does not have the SASL mechanism {mechanism}, but {', '.join(handshake.mechanisms) or 'none'}"
        )
    if handshake.error_code:
        raise AuthenticationFailed(f"SASL handshake: {_text(handshake.error_code)}")
    version = connection.version_of(SaslAuthenticateRequest)
    try:
        steps = await begin(connection.host)
        message: bytes | None = steps.first
        lifetime_ms = 0
        while message is not None:
            answer = await connection.request(
                SaslAuthenticateRequest(message), SaslAuthenticateResponse, version, timeout_ms
            )
            if answer.error_code:
                raise AuthenticationFailed(answer.error_message or _text(answer.error_code))
            lifetime_ms = answer.session_lifetime_ms
            message = await steps.next(bytes(answer.auth_bytes))
    except SaslError as error:
        raise AuthenticationFailed(f"{mechanism}: {error}") from error
    return lifetime_ms


def _text(code: int) -> str:
    return error_code(code).name


class Reauthentication:
    """Authenticates again on one connection, each time before its session ends."""

    __slots__ = ("_connection", "_log_in", "_random", "_task", "_timeout_ms", "_timer")

    def __init__(self, connection: Connection, log_in: Login, random: Random, timeout_ms: float) -> None:
        self._connection = connection
        self._log_in = log_in
        self._random = random
        self._timeout_ms = timeout_ms
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def schedule(self, lifetime_ms: int) -> None:
        """Authenticate again before a session of that lifetime ends; 0 has no end."""
        if lifetime_ms > 0:
            share = _EARLIEST + (_LATEST - _EARLIEST) * self._random.random()
            self._timer = asyncio.get_running_loop().call_later(lifetime_ms * share / 1000, self._begin)

    def cancel(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        if self._connection.closed is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        connection = self._connection
        # The broker expects nothing but the login until it is complete.
        connection.hold_requests()
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        try:
            lifetime_ms = await self._log_in(connection, self._timeout_ms)
        except TransportError:
            return  # The connection is closed, and requests fail with that.
        except Exception as error:  # noqa: BLE001 - whatever fails, the broker would close the connection soon
            connection.traffic.failed_reauthentications += 1
            connection.close(Disconnected(f"cannot authenticate again: {error}"))
            return
        connection.traffic.reauthenticated(loop.time() - begun_at)
        connection.release_requests()
        self.schedule(lifetime_ms)
