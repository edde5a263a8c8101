"""DescribeProducers (KIP-664): the producers that a partition knows, and where their open transactions began."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasPartitions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseState,
    DescribeProducersResponseTopic,
)


@api(ApiKey.DESCRIBE_PRODUCERS)
def handle(request: DescribeProducersRequest, context: RequestContext[HasPartitions]) -> DescribeProducersResponse:
    """List the producers of each partition; errors are per partition."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(
                topic.name, [_describe(topic.name, index, context) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, context: RequestContext[HasPartitions]) -> DescribeProducersResponsePartition:
    try:
        partition = context.services.partitions.require(topic, index)
        partition.check_leader()
    except KafkaError as error:
        return DescribeProducersResponsePartition(index, error.code, error.message)
    return DescribeProducersResponsePartition(
        index,
        active_producers=[
            DescribeProducersResponseState(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            for entry in partition.log.history.producers.producers.values()
        ],
    )
