"""UnregisterBroker (KIP-500)."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(ApiKey.UNREGISTER_BROKER)
async def handle(request: UnregisterBrokerRequest, context: RequestContext[HasController]) -> UnregisterBrokerResponse:
    """Remove the registration of a broker that has ended, which outlasts the broker on KRaft.

    INVALID_REQUEST for a running one, BROKER_ID_NOT_REGISTERED for one that is not registered.
    """
    try:
        await context.services.controller.unregister_broker(request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(0, error.code, error.message)
    return UnregisterBrokerResponse(error_message=None)
