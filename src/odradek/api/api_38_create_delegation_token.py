"""CreateDelegationToken (KIP-48, KIP-373: for another owner)."""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasAuthorization, HasTokens
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.token_messages import check_token_request, user
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


class Capabilities(HasTokens, HasAuthorization, Protocol):
    """What the handler takes of the broker."""


@api(ApiKey.CREATE_DELEGATION_TOKEN)
async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext[Capabilities]
) -> CreateDelegationTokenResponse:
    """Create a token of the requester, or of the owner named if the requester has CREATE_TOKENS on that user."""
    requester = owner = check_token_request(context.session)
    if request.owner_principal_name:
        owner = user(request.owner_principal_type or "", request.owner_principal_name)
    is_restricted = owner != requester and context.services.authorization is not None
    if is_restricted and not context.access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = [user(each.principal_type, each.principal_name) for each in request.renewers]
    token, mac = await context.services.tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    kind, _, name = owner.partition(":")
    requester_kind, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        0,
        kind,
        name,
        requester_kind,
        requester_name,
        token.issued_ms,
        token.expiry_ms,
        token.max_ms,
        token.token_id,
        mac,
    )
