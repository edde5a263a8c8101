"""Bearer tokens at a broker: the keys of the issuer, read at the start and again, and the check of each token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.api.requests.session import Principal, Proven
from odradek.broker.configuration.config_errors import ConfigError
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.http import FetchError, check_url, fetch
from odradek.ports.installation import install_hint
from odradek.security.errors import ReportedSaslError, SaslError
from odradek.security.oauthbearer import INVALID_TOKEN, MECHANISM, BearerMessage, parse_bearer

if TYPE_CHECKING:
    from odradek.security.jwt_rules import JwtRules, VerificationKey

logger = logging.getLogger("odradek.security")

_LANE: Final = "bearer tokens"
_EARLIEST_SECONDS: Final = 10.0
"""Pause between two reads of the keys that tokens of unknown keys cause."""


class OAuthSettings(NamedTuple):
    """The settings of OAUTHBEARER of one listener; times in milliseconds."""

    url: str
    allowed_urls: tuple[str, ...]
    issuer: str
    audiences: tuple[str, ...]
    scopes: tuple[str, ...]
    subject_claim: str
    scope_claim: str
    clock_skew_seconds: int
    refresh_ms: int
    retry_ms: int
    retry_max_ms: int
    timeout_ms: int
    role_claim: str = ""


class BearerTokens:
    """Checks the tokens of one listener. `start` reads the keys; without them no broker starts."""

    __slots__ = ("_asked", "_clock", "_disk", "_failures", "_keys", "_refreshing", "_rules", "_settings", "_timer")

    def __init__(self, settings: OAuthSettings, disk: Disk, clock: Clock) -> None:
        """Raises ConfigError for a URL that is not allowed, and without the extra `oauth`."""
        try:
            from odradek.security.jwt_rules import JwtRules
        except ImportError as error:
            raise ConfigError(f"OAUTHBEARER needs {error.name}: {install_hint('oauth')}") from error
        try:
            check_url(settings.url, settings.allowed_urls)
        except FetchError as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from error
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._rules: JwtRules = JwtRules(
            settings.issuer, settings.audiences, settings.scopes, settings.subject_claim, settings.scope_claim,
            settings.clock_skew_seconds, settings.role_claim,
        )  # fmt: skip
        self._keys: list[VerificationKey] = []
        self._failures = 0
        self._asked = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Read the keys, and again from time to time until `close`. Raises ConfigError if there are none."""
        try:
            await self._read()
        except (FetchError, ValueError) as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: no keys: {error}") from error
        if not self._settings.audiences or not self._settings.issuer:
            logger.warning(
                "OAUTHBEARER accepts tokens for any %s of the keys at %s: set sasl.oauthbearer.expected.audience and "
                "sasl.oauthbearer.expected.issuer", "audience" if self._settings.issuer else "audience and issuer",
                self._settings.url.partition("?")[0],
            )  # fmt: skip
        self._schedule(self._settings.refresh_ms)

    def close(self) -> None:
        """Read the keys no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def check(self, message: BearerMessage) -> Proven:
        """The client that a token proves. Raises SaslError."""
        from odradek.security.jwt_rules import UnknownKey, accept_token

        now = self._clock.now_ms() / 1000
        try:
            found = await self._disk.run(_LANE, accept_token, message.token, self._keys, self._rules, now)
        except UnknownKey:
            if not await self._read_early():
                raise
            found = await self._disk.run(_LANE, accept_token, message.token, self._keys, self._rules, now)
        if message.authorization_id not in ("", found.name):
            raise SaslError("the authorization id is not the name in the token")
        return Proven(Principal("User", found.name, roles=found.roles), found.expires_ms)

    async def _read(self) -> None:
        from odradek.security.jwt_rules import parse_keys

        settings = self._settings
        body = await self._disk.run(f"{_LANE} {settings.url}", fetch, settings.url, settings.timeout_ms / 1000)
        self._keys = parse_keys(body)

    async def _read_early(self) -> bool:
        """Read the keys for a token of an unknown one, not often; whether they were read."""
        now = self._clock.monotonic()
        if now - self._asked < _EARLIEST_SECONDS:
            return False
        self._asked = now
        try:
            await self._read()
        except (FetchError, ValueError) as error:
            logger.warning("cannot read the keys of bearer tokens: %s; the previous ones stay in effect", error)
            return False
        return True

    def _schedule(self, delay_ms: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._begin_refresh)

    def _begin_refresh(self) -> None:
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        settings = self._settings
        try:
            await self._read()
        except (FetchError, ValueError) as error:
            pause_ms = min(settings.retry_ms * 2**self._failures, settings.retry_max_ms)
            self._failures = min(self._failures + 1, 30)
            logger.warning(
                "cannot read the keys of bearer tokens: %s; the previous ones stay in effect, retrying in %d ms",
                error, pause_ms,
            )  # fmt: skip
            self._schedule(pause_ms)
            return
        self._failures = 0
        self._schedule(settings.refresh_ms)


class BearerLogin:
    """OAUTHBEARER."""

    __slots__ = ("_rejected", "_report", "_tokens", "claimed", "mechanism", "proven")

    def __init__(self, tokens: BearerTokens, report: Callable[[str], None]) -> None:
        """`report` is called with the reason when a token is rejected: the client may never acknowledge it."""
        self._tokens = tokens
        self._report = report
        self._rejected: ReportedSaslError | None = None
        self.mechanism = MECHANISM
        self.claimed: str | None = None
        """See `Login`."""
        self.proven: Proven | None = None
        """The client, once it has proven itself."""

    async def step(self, message: bytes) -> bytes:
        """The empty answer to a valid token, else an error that the client acknowledges. Raises SaslError then."""
        if self._rejected is not None:
            raise self._rejected
        try:
            self.proven = await self._tokens.check(parse_bearer(message))
        except SaslError as error:
            self._rejected = ReportedSaslError(str(error))
            self._report(str(error))
            return INVALID_TOKEN
        return b""
