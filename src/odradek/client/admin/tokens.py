"""Delegation tokens (KIP-48, KIP-373): credentials for a limited time that workers log in by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.client.admin.requests import AdminRequests, raise_failure
from odradek.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenRequestRenewer,
    CreateDelegationTokenResponse,
)
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenRequestOwner,
    DescribeDelegationTokenResponse,
)
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


class DelegationToken(NamedTuple):
    """A token. Clients log in by SCRAM with `token_id`, and `hmac` in base64 as the password; times are in
    milliseconds since 1970."""

    token_id: str
    hmac: bytes
    """The proof that a client knows the token: a secret."""
    owner: str
    """The principal that clients with the token are, for instance `User:alice`."""
    requester: str
    """The principal that created the token; empty from a broker before Kafka 3.3."""
    renewers: tuple[str, ...]
    """Principals that may renew and expire the token beside its owner; `create` leaves them empty."""
    issued_ms: int
    expiry_ms: int
    """When it expires unless it is renewed."""
    max_ms: int
    """When it expires though it is renewed."""

    def __repr__(self) -> str:
        """Without the HMAC: it may be printed in a traceback."""
        return f"DelegationToken(token_id={self.token_id!r}, owner={self.owner!r})"


class TokensAdmin:
    """`admin.tokens`.

    Example:

        token = await admin.tokens.create(renewers=["User:scheduler"], max_lifetime_ms=86_400_000)
        print(token.token_id, await admin.tokens.renew(token.hmac))
        await admin.tokens.expire(token.hmac)
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def create(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationToken:
        """A new token of this client, or of `owner`; -1: it lives as long as the broker allows.

        Raises KafkaError, ValueError for a principal that is not TYPE:NAME.
        """
        kind, name = _principal(owner) if owner else (None, None)
        named = [CreateDelegationTokenRequestRenewer(*_principal(each)) for each in renewers]
        request = CreateDelegationTokenRequest(kind, name, named, max_lifetime_ms)
        made = await self._requests.to_any(request, CreateDelegationTokenResponse)
        raise_failure(made.error_code)
        return DelegationToken(
            made.token_id,
            bytes(made.hmac),
            f"{made.principal_type}:{made.principal_name}",
            _joined(made.token_requester_principal_type, made.token_requester_principal_name),
            (),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )

    async def renew(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire that much later than now, or the broker's time for -1; the time of expiry.

        Raises KafkaError.
        """
        request = RenewDelegationTokenRequest(hmac, period_ms)
        answer = await self._requests.to_any(request, RenewDelegationTokenResponse)
        raise_failure(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    async def expire(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire that much later than now, and delete it at once for -1; the time of expiry.

        Raises KafkaError.
        """
        request = ExpireDelegationTokenRequest(hmac, period_ms)
        answer = await self._requests.to_any(request, ExpireDelegationTokenResponse)
        raise_failure(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    async def describe(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """The tokens of these owners, or all, as far as this client may see them.

        Raises KafkaError, ValueError for a principal that is not TYPE:NAME.
        """
        named = None if owners is None else [DescribeDelegationTokenRequestOwner(*_principal(each)) for each in owners]
        answer = await self._requests.to_any(DescribeDelegationTokenRequest(named), DescribeDelegationTokenResponse)
        raise_failure(answer.error_code)
        return [
            DelegationToken(
                each.token_id,
                bytes(each.hmac),
                f"{each.principal_type}:{each.principal_name}",
                _joined(each.token_requester_principal_type, each.token_requester_principal_name),
                tuple(f"{one.principal_type}:{one.principal_name}" for one in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in answer.tokens
        ]


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not a principal such as User:alice")
    return kind, name


def _joined(kind: str, name: str) -> str:
    return f"{kind}:{name}" if name else ""
