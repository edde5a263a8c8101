"""AlterPartition (KIP-497), between brokers: a leader asks the controller for other in-sync replicas.

Served in version 3 only (topic ids, broker epochs of KIP-903).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasElected
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.wire.apis import ApiKey
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)


@api(ApiKey.ALTER_PARTITION)
async def handle(request: AlterPartitionRequest, context: RequestContext[HasElected]) -> AlterPartitionResponse:
    """Change ISRs as their leaders propose; each partition has its own error.

    Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH.
    """
    changes = [
        IsrChange(
            topic.topic_id,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple((member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    changed = await context.services.elected.alter_partitions(request.broker_id, request.broker_epoch, changes)
    topics: dict[bytes, list[AlterPartitionResponsePartition]] = {}
    for each in changed:
        topics.setdefault(each.topic_id, []).append(_answer(each))
    return AlterPartitionResponse(topics=[AlterPartitionResponseTopic(*topic) for topic in topics.items()])


def _answer(changed: IsrChanged) -> AlterPartitionResponsePartition:
    state = changed.state
    if state is None:
        return AlterPartitionResponsePartition(partition_index=changed.partition, error_code=changed.error)
    return AlterPartitionResponsePartition(
        partition_index=changed.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
    )
