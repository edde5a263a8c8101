"""AlterPartitionReassignments (KIP-455).

Version notes: 1 may insist that the replication factor stays (KIP-860).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.reassignments import Reassigned, Reassignment
from odradek.wire.apis import ApiKey
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponseReassignablePartition,
    AlterPartitionReassignmentsResponseReassignableTopic,
)


@api(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext[HasController]
) -> AlterPartitionReassignmentsResponse:
    """Begin, change or cancel reassignments, without waiting for their end; each has its own error."""
    allow_change = request.allow_replication_factor_change
    moves = [
        Reassignment(
            topic.name, partition.partition_index, None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    done = await context.services.controller.alter_reassignments(moves, allow_replication_factor_change=allow_change)
    by_topic: dict[str, list[AlterPartitionReassignmentsResponseReassignablePartition]] = {}
    for result in done:
        by_topic.setdefault(result.topic, []).append(_partition(result))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allow_change,
        error_message=None,
        responses=[
            AlterPartitionReassignmentsResponseReassignableTopic(topic, partitions)
            for topic, partitions in by_topic.items()
        ],
    )


def _partition(result: Reassigned) -> AlterPartitionReassignmentsResponseReassignablePartition:
    if result.failure is None:
        return AlterPartitionReassignmentsResponseReassignablePartition(result.partition, 0, None)
    return AlterPartitionReassignmentsResponseReassignablePartition(
        result.partition, result.failure.code, result.failure.message
    )
