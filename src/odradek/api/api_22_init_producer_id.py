"""InitProducerId: a producer id and epoch, for idempotence alone or for a transactional id.

Version notes: 3 a producer may recover with the id and epoch that it has (KIP-360); 4 PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH; 5 TRANSACTION_ABORTABLE is understood.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.api.requests.answers import when
from odradek.api.requests.capabilities import HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.transactions.connections import StaleConnection
from odradek.transactions.events import InitProducerId, ProducerResult
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_FROM = 4


@api(ApiKey.INIT_PRODUCER_ID)
def handle(
    request: InitProducerIdRequest, context: RequestContext[HasTransactions]
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse] | None:
    """Give the producer an id and an epoch, and abort its open transaction.

    None, and the connection is closed, when the producer has used a newer connection since.
    """
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is None:
        return _without_transactions(context)
    wanted = InitProducerId(
        request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
    )
    try:
        answer = context.services.transactions.init_producer_id(wanted, context.connection.identifier)
    except StaleConnection as stale:
        context.connection.close(str(stale))
        return None
    return when(answer, lambda result: _response(result, context.version))


def _response(result: ProducerResult, version: int) -> InitProducerIdResponse:
    code = result.error
    if code is ErrorCode.NONE:
        return InitProducerIdResponse(producer_id=result.producer_id, producer_epoch=result.producer_epoch)
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


async def _without_transactions(context: RequestContext[HasTransactions]) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await context.services.transactions.new_producer_id())
