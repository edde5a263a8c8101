"""OffsetForLeaderEpoch (KIP-101, KIP-320): where an epoch ended in the leader's log, so that a reader finds a
divergence.

Version notes: 2 current leader epoch; 3 replica id; 4 flexible.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasPartitions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopic,
)


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext[HasPartitions]
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of an epoch for each partition, -1 where the log knows no such epoch."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic.topic, [_end_of_epoch(topic.topic, wanted, context) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(
    topic: str, wanted: OffsetForLeaderEpochRequestPartition, context: RequestContext[HasPartitions]
) -> OffsetForLeaderEpochResponseEpochEndOffset:
    try:
        partition = context.services.partitions.require(topic, wanted.partition)
        partition.check_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        return OffsetForLeaderEpochResponseEpochEndOffset(error.code, wanted.partition)
    log = partition.log
    epoch, end_offset = log.history.leader_epochs.end_offset_for(wanted.leader_epoch, log.end_offset)
    return OffsetForLeaderEpochResponseEpochEndOffset(0, wanted.partition, epoch, end_offset)
