"""DescribeDelegationToken (KIP-48): own tokens, those that one may renew, and those that ACLs show."""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasAuthorization, HasTokens
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.token_messages import check_token_request
from odradek.security.delegation_tokens import DelegationToken
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeDelegationTokenResponseRenewer,
    DescribeDelegationTokenResponseToken,
)


class Uses(HasTokens, HasAuthorization, Protocol):
    """What the handler takes of the broker."""


@api(ApiKey.DESCRIBE_DELEGATION_TOKEN)
async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext[Uses]
) -> DescribeDelegationTokenResponse:
    """Return tokens that concern the users named, or of all; others are left out as if they did not exist.

    An empty list is how `kafka-delegation-tokens.sh` asks for the tokens of its user; Apache Kafka answers with none.
    """
    requester = check_token_request(context.session)
    wanted = None
    if request.owners is not None:
        wanted = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners} or {requester}
    found = await context.services.tokens.all()
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, mac)
            for token, mac in sorted(found)
            if (wanted is None or token.concerns(wanted)) and _is_visible(token, requester, context)
        ]
    )


def _is_visible(token: DelegationToken, requester: str, context: RequestContext[Uses]) -> bool:
    if token.concerns({requester}):
        return True
    if context.services.authorization is None:
        return False
    access = context.access
    return access.allows(
        AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, quiet=True
    ) or access.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, quiet=True)


def _described(token: DelegationToken, mac: bytes) -> DescribeDelegationTokenResponseToken:
    kind, _, name = token.owner.partition(":")
    requester_kind, _, requester_name = token.requester.partition(":")
    renewers = [DescribeDelegationTokenResponseRenewer(*each.split(":", 1)) for each in token.renewers]
    return DescribeDelegationTokenResponseToken(
        kind, name, requester_kind, requester_name, token.issued_ms, token.expiry_ms, token.max_ms, token.token_id, mac,
        renewers,
    )  # fmt: skip
