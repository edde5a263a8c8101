"""DeleteRecords: forget what lies below an offset (KIP-107). -1 is the high watermark.

The answer waits until the new log start offset is on the disk: deleted records do not come back after a crash. It also
waits until the live followers have deleted them, at most for the request's timeout (Kafka's DelayedDeleteRecords).
"""

from __future__ import annotations

import asyncio

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.metadata.image import INTERNAL_TOPICS
from odradek.replication.partition import Partition
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
    clock = context.services.clock
    deadline = clock.monotonic() + max(0, request.timeout_ms) / 1000
    waiting: list[_Deletion] = []
    topics = []
    for topic in request.topics:
        answers = [
            _delete(topic.name, wanted.partition_index, wanted.offset, context, waiting) for wanted in topic.partitions
        ]
        topics.append(DeleteRecordsResponseTopic(topic.name, answers))
    await context.services.log_directories.persist_log_starts()
    for deletion in waiting:
        await deletion.finish(deadline - clock.monotonic())
    return DeleteRecordsResponse(topics=topics)


def _delete(
    topic: str, index: int, offset: int, context: RequestContext, waiting: list[_Deletion]
) -> DeleteRecordsResponsePartition:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = context.services.partitions.require(topic, index)
        low_watermark = partition.delete_records(offset)
    except KafkaError as error:
        return DeleteRecordsResponsePartition(index, NO_LOW_WATERMARK, error.code)
    answer = DeleteRecordsResponsePartition(index, low_watermark)
    if partition.low_watermark < low_watermark:
        waiting.append(_Deletion(partition, low_watermark, answer))
    return answer


class _Deletion:
    """One that followers have yet to follow."""

    __slots__ = ("_answer", "_done", "_offset", "_partition")

    def __init__(self, partition: Partition, offset: int, answer: DeleteRecordsResponsePartition) -> None:
        self._partition = partition
        self._offset = offset
        self._answer = answer
        self._done = asyncio.Event()

    async def finish(self, seconds: float) -> None:
        partition = self._partition
        partition.when_deleted(self._offset, self._done.set)
        try:
            await asyncio.wait_for(self._done.wait(), max(0.0, seconds))
        except TimeoutError:
            self._answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        else:
            if not partition.is_leader:
                self._answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._answer.low_watermark = NO_LOW_WATERMARK if self._answer.error_code else partition.low_watermark
