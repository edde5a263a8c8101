"""ControlledShutdown, between brokers: a broker that stops asks the controller to move its leadership elsewhere.

Served in version 3 only; Apache Kafka removed it with its ZooKeeper mode.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasElected
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlledShutdownResponseRemainingPartition,
)


@api(ApiKey.CONTROLLED_SHUTDOWN)
async def handle(request: ControlledShutdownRequest, context: RequestContext[HasElected]) -> ControlledShutdownResponse:
    """Elect other leaders for the broker's partitions; respond with those that it still leads.

    Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH.
    """
    remaining = await context.services.elected.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[ControlledShutdownResponseRemainingPartition(*place) for place in remaining]
    )
