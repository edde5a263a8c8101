"""OffsetDelete: forget a group's offsets of topics that it does not subscribe to (KIP-496)."""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasGroups, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.records.topic_partition import PartitionKey
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class Uses(HasGroups, HasImage, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.OFFSET_DELETE)
async def handle(request: OffsetDeleteRequest, context: RequestContext[Uses]) -> OffsetDeleteResponse:
    """Delete committed offsets, with an error code for each partition: GROUP_SUBSCRIBED_TO_TOPIC while the group reads
    the topic.
    """
    image = context.services.image()
    answers: list[OffsetDeleteResponseTopic] = []
    waiting: list[OffsetDeleteResponsePartition] = []
    wanted: list[PartitionKey] = []
    for topic in request.topics:
        partitions = [
            OffsetDeleteResponsePartition(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for partition in topic.partitions
        ]
        answers.append(OffsetDeleteResponseTopic(topic.name, partitions))
        for partition in partitions:
            if image.partition(topic.name, partition.partition_index) is not None:
                waiting.append(partition)
                wanted.append((topic.name, partition.partition_index))
    try:
        codes = await context.services.groups.delete_offsets(request.group_id, wanted)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    for partition, code in zip(waiting, codes, strict=True):
        partition.error_code = code
    return OffsetDeleteResponse(topics=answers)
