"""SaslAuthenticate: the steps of the mechanism that SaslHandshake has chosen (KIP-152).

Version notes: 1 answers with the lifetime of the session (KIP-368); 2 is flexible.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasLogins
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(ApiKey.SASL_AUTHENTICATE)
async def handle(request: SaslAuthenticateRequest, context: RequestContext[HasLogins]) -> SaslAuthenticateResponse:
    """Process one message of the exchange.

    A failed one is answered after `connection.failed.authentication.delay.ms`, then the connection is closed.
    """
    logins = context.services.logins
    answer = await logins.step(context.session, bytes(request.auth_bytes))
    if answer.ends:
        await logins.delay()
        context.connection.end(answer.ends)
    return SaslAuthenticateResponse(answer.code, answer.message, answer.data, answer.lifetime_ms)
