"""TxnOffsetCommit: commit a group's offsets as part of a transaction.

Version notes: 2 leader epoch; 3 the member and its generation are checked (KIP-447); 4 TRANSACTION_ABORTABLE is
understood; 5 adds the group's offsets to the transaction (KIP-890).
"""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.groups.events import CommitRequest, OffsetToCommit
from odradek.transactions.service import Verification
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


@api(ApiKey.TXN_OFFSET_COMMIT)
async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse | None:
    if _is_stale(request, context):
        return None
    offsets, waiting, topics = _split(request, context)
    if offsets:
        codes = await _commit(request, context, offsets)
        if codes is None:
            return None
        for answer, code in zip(waiting, codes, strict=True):
            answer.error_code = code
    return TxnOffsetCommitResponse(topics=topics)


def _is_stale(request: TxnOffsetCommitRequest, context: RequestContext) -> bool:
    """Whether the producer has committed on a newer connection; the one of the request is closed then."""
    connection = context.connection
    producer = (request.producer_id, request.producer_epoch)
    if not context.services.transactions.is_stale_commit(request.group_id, producer, connection.identifier):
        return False
    connection.close(f"{request.transactional_id!r} has gone on with a newer connection")
    return True


def _split(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> tuple[list[OffsetToCommit], list[TxnOffsetCommitResponsePartition], list[TxnOffsetCommitResponseTopic]]:
    """The offsets of partitions that exist, their answers, and all answers."""
    image = context.services.image()
    offsets: list[OffsetToCommit] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        answers: list[TxnOffsetCommitResponsePartition] = []
        found = image.topics.get(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            answer = TxnOffsetCommitResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            answers.append(answer)
            if found is not None and 0 <= index < len(found.partitions):
                waiting.append(answer)
                offsets.append(
                    OffsetToCommit(
                        topic.name,
                        index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        found.id,
                    )
                )
        topics.append(TxnOffsetCommitResponseTopic(topic.name, answers))
    return offsets, waiting, topics


async def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext, offsets: list[OffsetToCommit]
) -> list[ErrorCode] | None:
    """Each offset's code; None if nothing was done, since the producer has gone on with a newer connection."""
    services = context.services
    producer_id, producer_epoch = request.producer_id, request.producer_epoch
    commit = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        offsets,
    )
    wanted = Verification(request.transactional_id, producer_id, producer_epoch, ())
    try:
        code = services.transactions.verify_or_add_offsets(wanted, request.group_id, context.version)
        if not isinstance(code, ErrorCode):
            code = await code
            # Meanwhile the client may have lost patience, repeated this elsewhere and gone on: this would put back what
            # it has committed since, maybe in the transaction after the one that was meant.
            if _is_stale(request, context):
                return None
        if code is not ErrorCode.NONE:
            return [code] * len(offsets)
        return await services.groups.commit_transactional_offsets(commit, producer_id, producer_epoch)
    except KafkaError as error:
        return [error.code] * len(offsets)
