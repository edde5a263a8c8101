"""ExpireDelegationToken (KIP-48)."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasTokens
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.token_messages import check_token_request
from odradek.wire.apis import ApiKey
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@api(ApiKey.EXPIRE_DELEGATION_TOKEN)
async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext[HasTokens]
) -> ExpireDelegationTokenResponse:
    """Let a token of which the requester is the owner or a renewer expire; a negative time deletes it."""
    requester = check_token_request(context.session)
    expiry_ms = await context.services.tokens.expire(bytes(request.hmac), requester, request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(0, expiry_ms)
