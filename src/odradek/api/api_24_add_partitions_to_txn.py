"""AddPartitionsToTxn: partitions that a producer is about to write to as part of its transaction.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 4 several transactions at once, added or only looked
up: this is what brokers ask each other (KIP-890); 5 TRANSACTION_ABORTABLE is understood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from odradek.api.requests.answers import when
from odradek.api.requests.capabilities import HasAuthorization, HasImage, HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.metadata.image import ClusterImage
from odradek.records.topic_partition import PartitionKey
from odradek.transactions.connections import StaleConnection
from odradek.transactions.events import AddPartitions
from odradek.transactions.records import TV_2
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    AddPartitionsToTxnResponseTransaction,
)

_FENCED_FROM = 2
_BATCHED_FROM = 4


class Uses(HasAuthorization, HasImage, HasTransactions, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.ADD_PARTITIONS_TO_TXN)
def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext[Uses]
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse] | None:
    """Add partitions to a producer's transaction; from version 4 on, for brokers, to those of several producers.

    OPERATION_NOT_ATTEMPTED for the others when a partition of a request is unknown.
    """
    if context.version >= _BATCHED_FROM:
        if not context.may_act_as_broker:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _batched(request, context)
    topics = request.v3_and_below_topics
    missing = _missing(topics, context.services.image())
    if missing:
        return _answer_one(topics, ErrorCode.NONE, missing)
    wanted = AddPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        _partitions(topics),
    )
    try:
        answer = context.services.transactions.add_partitions(wanted, context.connection.identifier)
    except StaleConnection as stale:
        context.connection.close(str(stale))
        return None
    return when(answer, lambda code: _answer_one(topics, _for_version(code, context.version), {}))


def _answer_one(
    topics: list[AddPartitionsToTxnRequestTopic], code: ErrorCode, codes: dict[PartitionKey, ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, code, codes))


def _results(
    topics: list[AddPartitionsToTxnRequestTopic], code: ErrorCode, codes: dict[PartitionKey, ErrorCode]
) -> list[AddPartitionsToTxnResponseTopic]:
    """Each partition with its own code, or else with `code`."""
    return [
        AddPartitionsToTxnResponseTopic(
            topic.name,
            [
                AddPartitionsToTxnResponsePartition(index, codes.get((topic.name, index), code))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _partitions(topics: list[AddPartitionsToTxnRequestTopic]) -> frozenset[PartitionKey]:
    return frozenset((topic.name, index) for topic in topics for index in topic.partitions)


def _missing(topics: list[AddPartitionsToTxnRequestTopic], image: ClusterImage) -> dict[PartitionKey, ErrorCode]:
    """All or nothing: if one partition does not exist none is added, and every one has its code."""
    wanted = _partitions(topics)
    unknown = {place for place in wanted if image.partition(*place) is None}
    if not unknown:
        return {}
    codes = dict.fromkeys(wanted, ErrorCode.OPERATION_NOT_ATTEMPTED)
    codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return codes


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def _batched(request: AddPartitionsToTxnRequest, context: RequestContext[Uses]) -> AddPartitionsToTxnResponse:
    results = await asyncio.gather(*(_one_of_batch(transaction, context) for transaction in request.transactions))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _one_of_batch(
    transaction: AddPartitionsToTxnRequestTransaction, context: RequestContext[Uses]
) -> AddPartitionsToTxnResponseTransaction:
    code, codes = ErrorCode.NONE, _missing(transaction.topics, context.services.image())
    wanted = AddPartitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        _partitions(transaction.topics),
        TV_2,
    )
    try:
        if not codes and transaction.verify_only:
            codes = context.services.transactions.verify_partitions(wanted)
        elif not codes:
            code = await context.services.transactions.add_partitions(wanted, None)
    except KafkaError as error:
        code = error.code
    return AddPartitionsToTxnResponseTransaction(
        transaction.transactional_id, _results(transaction.topics, code, codes)
    )
