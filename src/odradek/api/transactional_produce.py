"""What Produce has to ask before it appends batches of transactions (KIP-98, KIP-890).

A partition in which the producer has a transaction open needs no question: that is a look into its producers' state.
"""

from __future__ import annotations

from collections.abc import Awaitable
from struct import Struct
from typing import Final

from odradek.api.context import RequestContext
from odradek.api.produced_records import is_transactional
from odradek.transactions.records import TopicPartition
from odradek.transactions.service import Refusals, Verification
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.produce import ProduceRequest, TopicKey

_producer_at = Struct(">qh").unpack_from
_PRODUCER: Final = 43


def refusals(request: ProduceRequest, context: RequestContext) -> Refusals | Awaitable[Refusals]:
    """The partitions that the transaction may not write to; no more than a look where it writes to them already.

    An awaitable's answer counts when it comes, and no later. Raises KafkaError INVALID_PRODUCER_ID_MAPPING if the
    request mixes producers.
    """
    transactional_id = request.transactional_id
    assert transactional_id is not None
    find = context.services.partitions.require
    producer: tuple[int, int] | None = None
    unknown: list[TopicPartition] = []
    opened: list[tuple[TopicKey, int]] = []
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
            except KafkaError:
                continue  # the append finds the same and says so
            if partition.log.producers.has_open_transaction(*found):
                opened.append((topic, index))
            else:
                unknown.append((partition.topic, index))
    if not unknown or producer is None:
        return {}
    wanted = Verification(transactional_id, *producer, unknown)
    answer = context.services.transactions.verify_or_add(wanted, context.version)
    return answer if isinstance(answer, dict) or not opened else _while_open(answer, wanted, opened, context)


async def _while_open(
    answer: Refusals | Awaitable[Refusals],
    wanted: Verification,
    opened: list[tuple[TopicKey, int]],
    context: RequestContext,
) -> Refusals:
    """The answer; asked for once more with those partitions in which the transaction was open and has ended since."""
    find = context.services.partitions.require
    while not isinstance(answer, dict):
        refused = await answer
        still: list[tuple[TopicKey, int]] = []
        ended: list[TopicPartition] = []
        for place in opened:
            try:
                partition = find(*place)
            except KafkaError:
                continue  # the append finds the same and says so
            if partition.log.producers.has_open_transaction(wanted.producer_id, wanted.producer_epoch):
                still.append(place)
            else:
                ended.append((partition.topic, partition.index))
        if not ended:
            return refused
        opened = still
        wanted = wanted._replace(partitions=[*wanted.partitions, *ended])
        answer = context.services.transactions.verify_or_add(wanted, context.version)
    return answer


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
