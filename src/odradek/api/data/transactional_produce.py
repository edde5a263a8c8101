"""What Produce has to ask before it appends batches of transactions (KIP-98, KIP-890).

A partition in which the producer has a transaction open needs no question: that is a look into its producers' state.
"""

from __future__ import annotations

from collections.abc import Awaitable
from struct import Struct
from typing import Final, Protocol, TypeAlias

from odradek.api.data.produced_records import is_transactional
from odradek.api.requests.capabilities import HasPartitions, HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.records.topic_partition import PartitionKey
from odradek.transactions.service import Rejections, Verification
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.produce import ProduceRequest, RequestedPartition

RejectedPartitions: TypeAlias = dict[RequestedPartition, ErrorCode]

_producer_at = Struct(">qh").unpack_from
_PRODUCER: Final = 43


class Uses(HasPartitions, HasTransactions, Protocol):
    """What these handlers take of the broker."""


def rejections(
    request: ProduceRequest, context: RequestContext[Uses]
) -> RejectedPartitions | Awaitable[RejectedPartitions]:
    """The partitions that the transaction may not write to; no more than a look where it writes to them already.

    An awaitable's answer counts when it comes, and no later. Unknown partitions are among them: the append may
    find one, as when a descriptor has become free, whose part in the transaction was not verified.
    Raises KafkaError INVALID_PRODUCER_ID_MAPPING if the request mixes producers.
    """
    transactional_id = request.transactional_id
    assert transactional_id is not None
    find = context.services.partitions.require
    producer: tuple[int, int] | None = None
    unknown: dict[PartitionKey, RequestedPartition] = {}
    opened: list[RequestedPartition] = []
    absent: RejectedPartitions = {}
    for topic, partitions in request.topics:
        for index, records in partitions:
            if records is None or not is_transactional(records):
                continue
            found: tuple[int, int] = _producer_at(records, _PRODUCER)
            if producer is not None and found != producer:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request has batches of several producers")
            producer = found
            try:
                partition = find(topic, index)
            except KafkaError as error:
                absent[topic, index] = error.code
                continue
            if partition.log.history.producers.has_open_transaction(*found):
                opened.append((topic, index))
            else:
                unknown[partition.topic, index] = (topic, index)
    if not unknown or producer is None:
        return absent
    wanted = Verification(transactional_id, *producer, list(unknown))
    answer = context.services.transactions.verify_or_add(wanted, context.version)
    if isinstance(answer, dict):
        return absent | {unknown[partition]: code for partition, code in answer.items()}
    return _once_answered(answer, wanted, unknown, opened, absent, context)


async def _once_answered(
    answer: Awaitable[Rejections],
    wanted: Verification,
    unknown: dict[PartitionKey, RequestedPartition],
    opened: list[RequestedPartition],
    absent: RejectedPartitions,
    context: RequestContext[Uses],
) -> RejectedPartitions:
    """The answer; a second request covers partitions in which the transaction was open and has ended since.

    A partition that was not here for the first request is rejected, though it may be here now: it was not verified, and
    its records would belong to no transaction that is ever ended.
    """
    find = context.services.partitions.require
    refused = await answer
    while True:
        still: list[RequestedPartition] = []
        ended: dict[PartitionKey, RequestedPartition] = {}
        for place in opened:
            try:
                partition = find(*place)
            except KafkaError as error:
                absent[place] = error.code
                continue
            if partition.log.history.producers.has_open_transaction(wanted.producer_id, wanted.producer_epoch):
                still.append(place)
            else:
                ended[partition.topic, partition.index] = place
        if not ended:
            return absent | {unknown[partition]: code for partition, code in refused.items()}
        opened = still
        unknown = unknown | ended
        wanted = wanted._replace(partitions=list(unknown))
        again = context.services.transactions.verify_or_add(wanted, context.version)
        refused = again if isinstance(again, dict) else await again


def keep(request: ProduceRequest) -> ProduceRequest:
    """The request with copies of its batches: the receive buffer is used again while it waits."""
    topics = [
        (
            topic,
            [(index, None if records is None else memoryview(bytearray(records))) for index, records in partitions],
        )
        for topic, partitions in request.topics
    ]
    return ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, topics)
