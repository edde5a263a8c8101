"""DeleteRecords: forget what lies below an offset (KIP-107). -1 is the high watermark.

No client sees the new log start offset before it is on the disk: deleted records do not come back after a crash (Kafka
shows and answers it at once and writes it within a minute). The answer also waits until the live followers have deleted
them, at most for the request's timeout (Kafka's DelayedDeleteRecords).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasLogDirectories, HasPartitions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.metadata.image import INTERNAL_TOPICS
from odradek.records.topic_partition import PartitionKey
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


class Uses(HasClock, HasLogDirectories, HasPartitions, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.DELETE_RECORDS)
async def handle(request: DeleteRecordsRequest, context: RequestContext[Uses]) -> DeleteRecordsResponse:
    """Advance log starts, and respond when all live replicas have done so; REQUEST_TIMED_OUT for partitions that have
    not by `timeout_ms`.
    """
    clock = context.services.clock
    deadline = clock.monotonic() + max(0, request.timeout_ms) / 1000
    deletions: list[_Deletion] = []
    topics = []
    for topic in request.topics:
        answers = [
            _begin(topic.name, wanted.partition_index, wanted.offset, context, deletions) for wanted in topic.partitions
        ]
        topics.append(DeleteRecordsResponseTopic(topic.name, answers))

    def delete() -> None:
        for deletion in deletions:
            deletion.delete()

    starts: dict[PartitionKey, int] = {}
    for deletion in deletions:
        # A request may name a partition twice.
        starts[deletion.key] = max(deletion.offset, starts.get(deletion.key, 0))
    await context.services.log_directories.advance_log_starts(starts, delete)
    for deletion in deletions:
        await deletion.finish(deadline - clock.monotonic())
    return DeleteRecordsResponse(topics=topics)


def _begin(
    topic: str, index: int, offset: int, context: RequestContext[Uses], deletions: list[_Deletion]
) -> DeleteRecordsResponsePartition:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = context.services.partitions.require(topic, index)
        answer = DeleteRecordsResponsePartition(index, partition.deletion.check(offset))
    except KafkaError as error:
        return DeleteRecordsResponsePartition(index, NO_LOW_WATERMARK, error.code)
    deletions.append(_Deletion(partition, answer))
    return answer


class _Deletion:
    """Of one partition's records. The answer's low watermark is the wanted offset until it is done."""

    __slots__ = ("_answer", "_done", "_partition", "key", "offset")

    def __init__(self, partition: Partition, answer: DeleteRecordsResponsePartition) -> None:
        self.key = (partition.topic, partition.index)
        self.offset = answer.low_watermark
        self._partition = partition
        self._answer = answer
        self._done = asyncio.Event()

    def delete(self) -> None:
        """In this broker's log."""
        try:
            self._answer.low_watermark = self._partition.deletion.delete(self.offset)
        except KafkaError as error:
            self._fail(error.code)

    async def finish(self, seconds: float) -> None:
        """Wait for the followers."""
        partition = self._partition
        if self._answer.error_code:
            return
        # It may have been deposed while the partitions before it waited, and then it knows no followers.
        if partition.is_leader and partition.deletion.low_watermark >= self.offset:
            return
        partition.deletion.when_deleted(self.offset, self._done.set)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._done.wait()
        except TimeoutError:
            self._fail(ErrorCode.REQUEST_TIMED_OUT)
        else:
            if partition.is_leader:
                self._answer.low_watermark = partition.deletion.low_watermark
            else:
                self._fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _fail(self, code: ErrorCode) -> None:
        self._answer.error_code = code
        self._answer.low_watermark = NO_LOW_WATERMARK
