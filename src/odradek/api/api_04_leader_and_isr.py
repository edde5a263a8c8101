"""LeaderAndIsr, between brokers: the controller says who leads and who follows which partition.

Served in version 7 only; Apache Kafka removed it with its ZooKeeper mode.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasCluster
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
    LeaderAndIsrResponseTopicError,
)


@api(ApiKey.LEADER_AND_ISR)
async def handle(request: LeaderAndIsrRequest, context: RequestContext[HasCluster]) -> LeaderAndIsrResponse:
    """Lead and follow the partitions named; one error code for each.

    Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
    """
    codes = await context.services.cluster.leader_and_isr(request, context.connection.identifier)
    topics: dict[bytes, list[LeaderAndIsrResponsePartitionError]] = {}
    for (topic_id, index), code in codes.items():
        topics.setdefault(topic_id, []).append(LeaderAndIsrResponsePartitionError(index, code))
    return LeaderAndIsrResponse(topics=[LeaderAndIsrResponseTopicError(*topic) for topic in topics.items()])
