"""TxnOffsetCommit: commit a group's offsets as part of a transaction.

Version notes: 2 leader epoch; 3 the member and its generation are checked (KIP-447); 4 TRANSACTION_ABORTABLE is
understood; 5 adds the group's offsets to the transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import compress
from typing import Protocol

from odradek.api.requests.capabilities import HasGroups, HasImage, HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
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


class Uses(HasGroups, HasImage, HasTransactions, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.TXN_OFFSET_COMMIT)
async def handle(request: TxnOffsetCommitRequest, context: RequestContext[Uses]) -> TxnOffsetCommitResponse | None:
    """Store pending offsets, with an error code for each partition.

    None, and the connection is closed, when the producer has committed on a newer connection since.
    """
    if _is_stale(request, context):
        return None
    offsets, waiting, topics = _split(request, context)
    if offsets:
        code = _verified(request, context)
        if not isinstance(code, ErrorCode):
            code = await code
            # Meanwhile the client may have timed out, repeated this elsewhere and continued: this would put back what
            # it has committed since, maybe in the transaction after the one that was meant.
            if _is_stale(request, context):
                return None
            # And a topic may have been deleted: the next one of its name would begin at the old one's offsets.
            here = [_is_here(offset, context) for offset in offsets]
            offsets, waiting = list(compress(offsets, here)), list(compress(waiting, here))
        codes = await _commit(request, context, offsets) if code is ErrorCode.NONE else [code] * len(offsets)
        for answer, each in zip(waiting, codes, strict=True):
            answer.error_code = each
    return TxnOffsetCommitResponse(topics=topics)


def _is_stale(request: TxnOffsetCommitRequest, context: RequestContext[Uses]) -> bool:
    """Whether the producer has committed on a newer connection; the one of the request is closed then."""
    connection = context.connection
    producer = (request.producer_id, request.producer_epoch)
    if not context.services.transactions.is_stale_commit(request.group_id, producer, connection.identifier):
        return False
    connection.close(f"{request.transactional_id!r} has continued on a newer connection")
    return True


def _split(
    request: TxnOffsetCommitRequest, context: RequestContext[Uses]
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


def _is_here(offset: OffsetToCommit, context: RequestContext[Uses]) -> bool:
    found = context.services.image().topics.get(offset.topic)
    return found is not None and found.id == offset.topic_id


def _verified(request: TxnOffsetCommitRequest, context: RequestContext[Uses]) -> ErrorCode | Awaitable[ErrorCode]:
    """NONE once the group's offsets are part of the transaction."""
    wanted = Verification(request.transactional_id, request.producer_id, request.producer_epoch, ())
    try:
        return context.services.transactions.verify_or_add_offsets(wanted, request.group_id, context.version)
    except KafkaError as error:
        return error.code


async def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext[Uses], offsets: list[OffsetToCommit]
) -> list[ErrorCode]:
    if not offsets:
        return []
    commit = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        offsets,
    )
    groups = context.services.groups
    try:
        return await groups.commit_transactional_offsets(commit, request.producer_id, request.producer_epoch)
    except KafkaError as error:
        return [error.code] * len(offsets)
