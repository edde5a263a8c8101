"""SaslHandshake: the peer chooses a mechanism (KIP-43). Brokers choose that of `broker_proof`, on any listener.

As in Kafka, a listener without SASL answers a client's handshake with ILLEGAL_SASL_STATE, and the connection of a
client that asks for an unknown mechanism ends.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.api.requests.capabilities import HasLogins
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.services.login_service import Choice
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(ApiKey.SASL_HANDSHAKE)
def handle(
    request: SaslHandshakeRequest, context: RequestContext[HasLogins]
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    """Begin the exchange of a mechanism; UNSUPPORTED_SASL_MECHANISM names those that the listener has."""
    chosen = context.services.logins.choose(context.session, request.mechanism, context.version)
    return _rejected(chosen, context) if chosen.ends else _response(chosen)


def _response(chosen: Choice) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(chosen.code, list(chosen.mechanisms))


async def _rejected(chosen: Choice, context: RequestContext[HasLogins]) -> SaslHandshakeResponse:
    await context.services.logins.delay()
    if chosen.code is ErrorCode.NONE:
        context.connection.close(chosen.ends)
    else:
        context.connection.end(chosen.ends)
    return _response(chosen)
