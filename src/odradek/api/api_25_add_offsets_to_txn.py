"""AddOffsetsToTxn: a group's offsets will be committed as part of a transaction.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 4 TRANSACTION_ABORTABLE is understood. Producers
under transaction.version 2 do without this request (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from odradek.api.requests.answers import when
from odradek.api.requests.capabilities import HasController, HasImage, HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.metadata.image import GROUP_METADATA_TOPIC
from odradek.transactions.connections import StaleConnection
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM = 2


class Uses(HasController, HasImage, HasTransactions, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.ADD_OFFSETS_TO_TXN)
def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext[Uses]
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse | None] | None:
    """Add the group's partition of `__consumer_offsets` to the transaction.

    None, and the connection is closed, when the producer has used a newer connection since.
    """
    if GROUP_METADATA_TOPIC not in context.services.image().topics:
        return _with_new_topic(request, context)
    return _add(request, context)


async def _with_new_topic(
    request: AddOffsetsToTxnRequest, context: RequestContext[Uses]
) -> AddOffsetsToTxnResponse | None:
    """As `handle`, once this broker knows the topic.

    Before, it could end the transaction without a marker for the offsets: it takes topics outside its image for deleted
    ones. A client may ask for the group's coordinator, with which the topic is created, only after this request.
    """
    services = context.services
    await services.controller.auto_create([GROUP_METADATA_TOPIC])
    if GROUP_METADATA_TOPIC not in services.image().topics:
        return _response(ErrorCode.COORDINATOR_NOT_AVAILABLE, context.version)
    answer = _add(request, context)
    return await answer if isinstance(answer, Awaitable) else answer


def _add(
    request: AddOffsetsToTxnRequest, context: RequestContext[Uses]
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse] | None:
    try:
        answer = context.services.transactions.add_offsets(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            request.group_id,
            context.connection.identifier,
        )
    except StaleConnection as stale:
        context.connection.close(str(stale))
        return None
    return when(answer, lambda code: _response(code, context.version))


def _response(code: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
