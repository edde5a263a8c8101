"""StopReplica, between brokers: the controller takes partitions away from a broker, with or without their data.

Served in version 4 only; Apache Kafka removed it with its ZooKeeper mode.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasCluster
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaResponsePartitionError,
)


@api(ApiKey.STOP_REPLICA)
async def handle(request: StopReplicaRequest, context: RequestContext[HasCluster]) -> StopReplicaResponse:
    """Stop the replicas named, and delete those marked; one error code for each.

    Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
    """
    codes = await context.services.cluster.stop_replica(request, context.connection.identifier)
    return StopReplicaResponse(
        partition_errors=[StopReplicaResponsePartitionError(*place, code) for place, code in codes.items()]
    )
