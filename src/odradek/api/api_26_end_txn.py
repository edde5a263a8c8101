"""EndTxn: commit or abort a producer's transaction.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 4 TRANSACTION_ABORTABLE is understood; 5 the answer
has the epoch, and at times the producer id, of the next transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.api.requests.answers import when
from odradek.api.requests.capabilities import HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.transactions.connections import StaleConnection
from odradek.transactions.events import EndTransaction, ProducerResult
from odradek.transactions.records import TV_0, TV_2
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM = 2
_BUMPING_FROM = 5


@api(ApiKey.END_TXN)
def handle(
    request: EndTxnRequest, context: RequestContext[HasTransactions]
) -> EndTxnResponse | Awaitable[EndTxnResponse] | None:
    """Decide the transaction; the response comes once the decision is stored, markers follow.

    None, and the connection is closed, when the producer has used a newer connection since.
    """
    wanted = EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        TV_2 if context.version >= _BUMPING_FROM else TV_0,
    )
    try:
        answer = context.services.transactions.end(wanted, context.connection.identifier)
    except StaleConnection as stale:
        context.connection.close(str(stale))
        return None
    return when(answer, lambda result: _response(result, context.version))


def _response(result: ProducerResult, version: int) -> EndTxnResponse:
    code = result.error
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
