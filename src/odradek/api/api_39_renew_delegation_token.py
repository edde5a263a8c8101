"""RenewDelegationToken (KIP-48)."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasTokens
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.token_messages import check_token_request
from odradek.wire.apis import ApiKey
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@api(ApiKey.RENEW_DELEGATION_TOKEN)
async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext[HasTokens]
) -> RenewDelegationTokenResponse:
    """Extend a token of which the requester is the owner or a renewer."""
    requester = check_token_request(context.session)
    expiry_ms = await context.services.tokens.renew(bytes(request.hmac), requester, request.renew_period_ms)
    return RenewDelegationTokenResponse(0, expiry_ms)
