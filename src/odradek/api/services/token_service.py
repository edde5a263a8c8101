"""Delegation tokens, as the handlers use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.security.delegation_tokens import DelegationToken


class TokenService(Protocol):
    """All raise KafkaError: DELEGATION_TOKEN_AUTH_DISABLED without a secret, others as Kafka does."""

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> tuple[DelegationToken, bytes]:
        """A new token and its HMAC."""
        ...

    async def renew(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Extend a token; when it expires."""
        ...

    async def expire(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Let a token expire after that time, or delete it if the time is negative; when it expires."""
        ...

    async def all(self) -> list[tuple[DelegationToken, bytes]]:
        """All valid tokens with their HMACs."""
        ...
