"""AllocateProducerIds (KIP-730), between brokers: a block of producer ids for one broker alone."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasElected
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@api(ApiKey.ALLOCATE_PRODUCER_IDS)
async def handle(
    request: AllocateProducerIdsRequest, context: RequestContext[HasElected]
) -> AllocateProducerIdsResponse:
    """Reserve a block of producer ids. Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH."""
    block = await context.services.elected.next_producer_id_block(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
