"""OffsetCommit: store how far a group has read.

Version notes: 2-4 carry a retention time; 5 the broker's retention holds; 6 leader epoch; 7 group instance id; 9
KIP-848, whose GROUP_ID_NOT_FOUND tells of an unknown group; 10 topics by id.
"""

from __future__ import annotations

import asyncio

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.groups.events import CommitRequest, OffsetToCommit
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_BY_ID = 10


Waiting = list[OffsetCommitResponsePartition]


# What is committed is decided before the next request of the connection starts; only the answer waits.
@api(ApiKey.OFFSET_COMMIT, overtaking=True)
def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse] | None:
    generation_id = request.generation_id_or_member_epoch
    if context.services.groups.is_late_commit(
        request.group_id, request.member_id, generation_id, context.connection.identifier
    ):
        context.connection.close(f"{request.member_id!r} has gone on with a newer connection")
        return None
    image = context.services.image()
    offsets: list[OffsetToCommit] = []
    waiting: Waiting = []
    answers: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        name, unknown = topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if context.version >= _BY_ID:
            name, unknown = image.topic_names.get(topic.topic_id, ""), ErrorCode.UNKNOWN_TOPIC_ID
        found = image.topics.get(name)
        if found is not None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if found is None else len(found.partitions)
        partitions: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            index = partition.partition_index
            answer = OffsetCommitResponsePartition(index, unknown)
            partitions.append(answer)
            if found is not None and 0 <= index < count:
                waiting.append(answer)
                offsets.append(
                    OffsetToCommit(
                        name,
                        index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        found.id,
                    )
                )
        answers.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    response = OffsetCommitResponse(topics=answers)
    return _commit(request, context, offsets, waiting, response) if offsets else response


def _commit(
    request: OffsetCommitRequest,
    context: RequestContext,
    offsets: list[OffsetToCommit],
    waiting: Waiting,
    response: OffsetCommitResponse,
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    commit = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        request.retention_time_ms,
        ErrorCode.GROUP_ID_NOT_FOUND if context.version >= 9 else ErrorCode.ILLEGAL_GENERATION,
        context.version,
    )
    try:
        committed = context.services.groups.commit_offsets(commit)
    except KafkaError as error:
        _fill(waiting, [error.code] * len(waiting))
        return response
    answered: asyncio.Future[OffsetCommitResponse] = committed.get_loop().create_future()

    def done(finished: asyncio.Future[list[ErrorCode]]) -> None:
        if finished.cancelled():
            answered.cancel()
            return
        error = finished.exception()
        if error is None:
            _fill(waiting, finished.result())
        elif isinstance(error, KafkaError):
            _fill(waiting, [error.code] * len(waiting))
        else:
            answered.set_exception(error)
            return
        if not answered.done():
            answered.set_result(response)

    committed.add_done_callback(done)
    return answered


def _fill(waiting: Waiting, codes: list[ErrorCode]) -> None:
    for answer, code in zip(waiting, codes, strict=True):
        answer.error_code = code
