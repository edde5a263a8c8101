"""Delegation tokens of the cluster: who may create, change and use them, wherever they are kept."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from odradek.api.requests.session import Principal, Proven
from odradek.broker.security.token_stores import StoredToken, TokenStore
from odradek.metadata.nodes import id_text
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.security.delegation_tokens import (
    ITERATIONS,
    DelegationToken,
    TokenSettings,
    extended,
    new_token,
    token_hmac,
    token_password,
    token_salt,
)
from odradek.security.scram import Mechanism, ScramCredential, credential_of, salted_password
from odradek.wire.errors import ErrorCode, KafkaError

_LANE: Final = "delegation tokens"
_MAX_CREDENTIALS: Final = 1000
_MAX_ID: Final = 64

Found = tuple[StoredToken, bytes]
"""A token and its HMAC."""


class TokenConfig(Protocol):
    """The part of a broker's configuration that is read here."""

    def text(self, name: str) -> str:
        """A text; empty when it is not set."""
        ...

    def number(self, name: str) -> int:
        """A numeric setting."""
        ...


def token_settings(config: TokenConfig) -> TokenSettings:
    """The settings of delegation tokens; `delegation.token.master.key` is the older name of the secret."""
    return TokenSettings(
        config.text("delegation.token.secret.key") or config.text("delegation.token.master.key"),
        config.number("delegation.token.max.lifetime.ms"),
        config.number("delegation.token.expiry.time.ms"),
    )


class StoredTokens:
    """Implements TokenService, and finds the credential of a token that logs in."""

    __slots__ = ("_clock", "_credentials", "_disk", "_random", "_settings", "_store")

    def __init__(self, settings: TokenSettings, store: TokenStore, disk: Disk, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._store = store
        self._disk = disk
        self._clock = clock
        self._random = random
        self._credentials: OrderedDict[tuple[str, Mechanism], ScramCredential] = OrderedDict()

    # --- TokenService ---

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> tuple[DelegationToken, bytes]:
        """A new token and its HMAC."""
        self._check_enabled()
        await self._delete_expired()
        token_id = id_text(self._random.uuid())
        now = self._clock.now_ms()
        token = new_token(token_id, owner, requester, renewers, lifetime_ms, self._settings, now)
        await self._store.create(token)
        return token, token_hmac(self._settings.secret, token_id)

    async def renew(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Extend a token; when it expires."""
        found, _ = await self._allowed(mac, requester)
        self._check_valid(found.token)
        return await self._extend(found, period_ms)

    async def expire(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Let a token expire after that time, or delete it if the time is negative; when it expires."""
        found, _ = await self._allowed(mac, requester)
        if period_ms < 0:
            await self._store.delete(found.token.token_id)
            return self._clock.now_ms()
        self._check_valid(found.token)
        return await self._extend(found, period_ms)

    async def all(self) -> list[tuple[DelegationToken, bytes]]:
        """All valid tokens with their HMACs."""
        self._check_enabled()
        now = self._clock.now_ms()
        return [(found.token, mac) for found, mac in await self._read() if not found.token.is_expired(now)]

    # --- logins ---

    async def credential(self, mechanism: Mechanism, token_id: str) -> tuple[ScramCredential, Proven] | None:
        """The credential and the identity of a valid token; None for another id. Raises KafkaError."""
        secret = self._settings.secret
        if not secret or len(token_id) > _MAX_ID or not token_id.replace("-", "").replace("_", "").isalnum():
            return None
        token = await self._store.find(token_id)
        if token is None or token.is_expired(self._clock.now_ms()):
            return None
        kind, _, name = token.owner.partition(":")
        proven = Proven(Principal(kind, name, True), float(token.expiry_ms))
        return await self._credential(mechanism, token_id), proven

    async def _credential(self, mechanism: Mechanism, token_id: str) -> ScramCredential:
        key = (token_id, mechanism)
        found = self._credentials.get(key)
        if found is None:
            secret = self._settings.secret
            password, salt = token_password(token_hmac(secret, token_id)), token_salt(secret, token_id)
            salted = await self._disk.run(_LANE, salted_password, mechanism, password, salt, ITERATIONS)
            found = self._credentials[key] = credential_of(mechanism, salted, salt, ITERATIONS)
            if len(self._credentials) > _MAX_CREDENTIALS:
                self._credentials.popitem(last=False)
        return found

    # --- the store ---

    def _check_enabled(self) -> None:
        if not self._settings.secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _check_valid(self, token: DelegationToken) -> None:
        if token.is_expired(self._clock.now_ms()):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    async def _read(self) -> list[Found]:
        secret = self._settings.secret
        return [(found, token_hmac(secret, found.token.token_id)) for found in await self._store.read()]

    async def _allowed(self, mac: bytes, requester: str) -> Found:
        """The token of an HMAC that the requester may change."""
        self._check_enabled()
        for found, known in await self._read():
            if hmac.compare_digest(known, mac):
                if not found.token.may_be_renewed_by(requester):
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
                return found, known
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    async def _extend(self, found: StoredToken, period_ms: int) -> int:
        token = extended(found.token, period_ms, self._settings, self._clock.now_ms())
        await self._store.replace(found, token)
        return token.expiry_ms

    async def _delete_expired(self) -> None:
        now = self._clock.now_ms()
        for found, _ in await self._read():
            if found.token.is_expired(now):
                await self._store.delete(found.token.token_id)
