"""SaslAuthenticate: the steps of the mechanism that SaslHandshake has chosen."""

from __future__ import annotations

import logging

from odradek.api.requests.broker_proof import NONCE_BYTES, AcceptingSide, Claim, ProofError
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.session import Authentication, Principal
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

logger = logging.getLogger("odradek.security")


@api(ApiKey.SASL_AUTHENTICATE)
async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    session = context.session
    if session.authentication is not Authentication.IN_PROGRESS:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes before SaslAuthenticate.")
    services = context.services
    try:
        exchange = session.exchange
        if exchange is None:
            claim = Claim.decode(request.auth_bytes)
            secret = await services.cluster_secret.read()
            nonce = services.random.randrange(1 << 8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
            session.exchange = AcceptingSide(secret, services.node_id, claim, nonce)
            return SaslAuthenticateResponse(error_message=None, auth_bytes=session.exchange.challenge)
        exchange.verify(request.auth_bytes)
    except ProofError as error:
        session.authentication, session.exchange = Authentication.NOT_REQUIRED, None
        logger.warning("rejected the proof of a broker from %s: %s", session.peer_host, error)
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed.")
    session.authentication, session.exchange = Authentication.COMPLETE, None
    session.broker_id = exchange.broker_id
    session.principal = Principal("Broker", str(exchange.broker_id))
    return SaslAuthenticateResponse(error_message=None)
