"""DeleteRecords: forget what lies below an offset (KIP-107). -1 is the high watermark.

The answer waits until the new log start offset is on the disk: deleted records do not come back after a crash.
"""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.metadata.image import INTERNAL_TOPICS
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

NO_LOW_WATERMARK = -1


@api(ApiKey.DELETE_RECORDS)
async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopic(
                topic.name,
                [_delete(topic.name, wanted.partition_index, wanted.offset, context) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    await context.services.log_directories.persist_log_starts()
    return response


def _delete(topic: str, index: int, offset: int, context: RequestContext) -> DeleteRecordsResponsePartition:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        low_watermark = context.services.partitions.require(topic, index).delete_records(offset)
    except KafkaError as error:
        return DeleteRecordsResponsePartition(index, NO_LOW_WATERMARK, error.code)
    return DeleteRecordsResponsePartition(index, low_watermark)
