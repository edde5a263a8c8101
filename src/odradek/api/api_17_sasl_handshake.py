"""SaslHandshake: the peer chooses a mechanism. Brokers choose that of `broker_proof`; clients have none yet.

As in Kafka, a listener without SASL answers a client's handshake with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from odradek.api.requests.broker_proof import MECHANISM
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.session import Authentication
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_AUTHENTICATE_FROM = 1
"""After a handshake of version 0 tokens would follow without SaslAuthenticate around them."""


@api(ApiKey.SASL_HANDSHAKE)
def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    session = context.session
    is_complete = session.authentication is Authentication.COMPLETE
    if request.mechanism != MECHANISM or context.version < _AUTHENTICATE_FROM or is_complete:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    session.authentication = Authentication.IN_PROGRESS
    session.exchange = None
    return SaslHandshakeResponse(mechanisms=[MECHANISM])
