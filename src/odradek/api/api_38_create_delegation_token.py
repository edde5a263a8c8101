"""CreateDelegationToken (KIP-48, KIP-373: for another owner)."""

from __future__ import annotations

from typing import Final, Protocol

from odradek.api.requests.capabilities import HasAuthorization, HasTokens
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.token_messages import check_token_request, user
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_REQUESTER_FROM: Final = 3


class Uses(HasTokens, HasAuthorization, Protocol):
    """What the handler takes of the broker."""


@api(ApiKey.CREATE_DELEGATION_TOKEN)
async def handle(request: CreateDelegationTokenRequest, context: RequestContext[Uses]) -> CreateDelegationTokenResponse:
    """Create a token of the requester, or of the owner named if the requester has CREATE_TOKENS on that user."""
    requester = str(context.session.principal)
    owner_kind, owner_name = (
        (request.owner_principal_type or "", request.owner_principal_name)
        if request.owner_principal_name
        else (context.session.principal.type, context.session.principal.name)
    )
    answer = CreateDelegationTokenResponse(0, owner_kind, owner_name)
    answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = -1
    if context.version >= _REQUESTER_FROM:
        answer.token_requester_principal_type = context.session.principal.type
        answer.token_requester_principal_name = context.session.principal.name
    try:
        check_token_request(context.session)
        owner = user(owner_kind, owner_name)
        is_restricted = owner != requester and context.services.authorization is not None
        if is_restricted and not context.access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = [user(each.principal_type, each.principal_name) for each in request.renewers]
        token, mac = await context.services.tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issued_ms, token.expiry_ms
    answer.max_timestamp_ms, answer.token_id, answer.hmac = token.max_ms, token.token_id, mac
    return answer
