"""Delegation tokens (KIP-48): who may create, renew and expire one, and until when it is valid.

Times are milliseconds since 1970. Kafka's counterpart is `DelegationTokenControlManager`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

ITERATIONS: Final = 4096
"""Iterations of the SCRAM credential of a token."""
_SALT_BYTES: Final = 16


class TokenSettings(NamedTuple):
    """The secret that all brokers share, and limits."""

    secret: str
    """Empty: delegation tokens are disabled."""
    max_lifetime_ms: int
    expiry_ms: int
    """Time until a token must be renewed."""

    def __repr__(self) -> str:
        """Without the secret."""
        return f"TokenSettings(max_lifetime_ms={self.max_lifetime_ms}, expiry_ms={self.expiry_ms})"


class DelegationToken(NamedTuple):
    """A token as it is stored; principals are of the form `User:alice`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    """After this time the token cannot be renewed."""
    expiry_ms: int

    def is_expired(self, now_ms: float) -> bool:
        """Whether the token proves nothing any longer."""
        return now_ms >= self.expiry_ms or now_ms >= self.max_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principals: AbstractSet[str]) -> bool:
        """Whether one of them owns, has requested or may renew the token (Kafka's `ownerOrRenewer`)."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))


def token_hmac(secret: str, token_id: str) -> bytes:
    """The secret part of a token: only its bearer and the brokers know it."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_password(mac: bytes) -> str:
    """The password by which a token logs in."""
    return base64.b64encode(mac).decode()


def token_salt(secret: str, token_id: str) -> bytes:
    """The salt of a token's SCRAM credential, the same one on every broker."""
    return hmac.digest(secret.encode(), b"salt of " + token_id.encode(), "sha512")[:_SALT_BYTES]


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    lifetime_ms: int,
    settings: TokenSettings,
    now: int,
) -> DelegationToken:
    """A token that is valid from now; a lifetime of 0 or less is the longest one."""
    limit = settings.max_lifetime_ms
    max_ms = now + (min(lifetime_ms, limit) if lifetime_ms > 0 else limit)
    expiry_ms = min(max_ms, now + settings.expiry_ms)
    return DelegationToken(token_id, owner, requester, tuple(renewers), now, max_ms, expiry_ms)


def extended(token: DelegationToken, period_ms: int, settings: TokenSettings, now: int) -> DelegationToken:
    """The token, valid for that time from now; a negative time is the usual one."""
    period_ms = settings.expiry_ms if period_ms < 0 else period_ms
    return token._replace(expiry_ms=min(token.max_ms, now + period_ms))
