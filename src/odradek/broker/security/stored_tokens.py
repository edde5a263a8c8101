"""Delegation tokens of the cluster: read from the metadata store at each use, so that every broker knows the newest."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from odradek.api.requests.session import Principal, Proven
from odradek.metadata.nodes import id_text
from odradek.metadata.token_nodes import TOKENS, decode_token, encode_token, token_path
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.ports.store import BadVersion, Create, Delete, MetadataStore, NoNode, Put, StoreError
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

Found = tuple[DelegationToken, bytes, int]
"""A token, its HMAC, and the version of its node."""


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

    def __init__(self, settings: TokenSettings, store: MetadataStore, disk: Disk, clock: Clock, random: Random) -> None:
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
        try:
            await self._store.apply([Create(token_path(token_id), encode_token(token))])
        except StoreError as error:
            raise _unavailable(error) from error
        return token, token_hmac(self._settings.secret, token_id)

    async def renew(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Extend a token; when it expires."""
        token, _, version = await self._allowed(mac, requester)
        self._check_valid(token)
        return await self._put(extended(token, period_ms, self._settings, self._clock.now_ms()), version)

    async def expire(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Let a token expire after that time, or delete it if the time is negative; when it expires."""
        token, _, version = await self._allowed(mac, requester)
        now = self._clock.now_ms()
        if period_ms < 0:
            await self._delete(token)
            return now
        self._check_valid(token)
        return await self._put(extended(token, period_ms, self._settings, now), version)

    async def all(self) -> list[tuple[DelegationToken, bytes]]:
        """All valid tokens with their HMACs."""
        self._check_enabled()
        now = self._clock.now_ms()
        return [(token, mac) for token, mac, _ in await self._read() if not token.is_expired(now)]

    # --- logins ---

    async def credential(self, mechanism: Mechanism, token_id: str) -> tuple[ScramCredential, Proven] | None:
        """The credential and the identity of a valid token; None for another id. Raises KafkaError."""
        secret = self._settings.secret
        if not secret or len(token_id) > _MAX_ID or not token_id.replace("-", "").replace("_", "").isalnum():
            return None
        path = token_path(token_id)
        try:
            node = await self._store.get(path)
        except StoreError as error:
            raise _unavailable(error) from error
        if node is None:
            return None
        token = decode_token(path, node.data)
        if token.is_expired(self._clock.now_ms()):
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
        try:
            nodes = await self._store.subtree(TOKENS)
        except StoreError as error:
            raise _unavailable(error) from error
        found = []
        for path, node in nodes.items():
            if path != TOKENS:
                token = decode_token(path, node.data)
                found.append((token, token_hmac(self._settings.secret, token.token_id), node.version))
        return found

    async def _allowed(self, mac: bytes, requester: str) -> Found:
        """The token of an HMAC that the requester may change."""
        self._check_enabled()
        for found in await self._read():
            if hmac.compare_digest(found[1], mac):
                if not found[0].may_be_renewed_by(requester):
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
                return found
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    async def _put(self, token: DelegationToken, version: int) -> int:
        try:
            await self._store.apply([Put(token_path(token.token_id), encode_token(token), version)])
        except (NoNode, BadVersion) as error:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "The token was changed meanwhile.") from error
        except StoreError as error:
            raise _unavailable(error) from error
        return token.expiry_ms

    async def _delete(self, token: DelegationToken) -> None:
        try:
            await self._store.apply([Delete(token_path(token.token_id))])
        except NoNode:
            return
        except StoreError as error:
            raise _unavailable(error) from error

    async def _delete_expired(self) -> None:
        now = self._clock.now_ms()
        for token, _, _ in await self._read():
            if token.is_expired(now):
                await self._delete(token)


def _unavailable(error: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"metadata store: {error}")
