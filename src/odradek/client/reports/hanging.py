"""Transactions that no coordinator will end: they block `read_committed` readers and compaction (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.admin.requests import raise_first
from odradek.client.admin.transactions import ProducerState, TransactionDescription
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin

GRACE_MS: Final = 5 * 60_000
"""Added to the longest transaction timeout: a coordinator aborts what has timed out with some delay."""


class HangingTransaction(NamedTuple):
    """An open transaction in a partition that its coordinator does not have open there."""

    topic_partition: TopicPartition
    producer: ProducerState
    open_ms: int


def long_open(
    producers: Mapping[TopicPartition, Collection[ProducerState]], now_ms: int, limit_ms: int
) -> list[HangingTransaction]:
    """Transactions whose last record is older than the limit. Pure."""
    return [
        HangingTransaction(place, each, now_ms - each.last_timestamp_ms)
        for place, states in sorted(producers.items())
        for each in states
        if each.transaction_start_offset is not None and now_ms - each.last_timestamp_ms > limit_ms
    ]


def is_hanging(candidate: HangingTransaction, described: TransactionDescription | None) -> bool:
    """Whether the coordinator (None: it does not know the producer id) has the transaction not open there. Pure."""
    if described is None:
        return True
    same = (described.producer_id, described.producer_epoch) == (
        candidate.producer.producer_id,
        candidate.producer.producer_epoch,
    )
    return not same or candidate.topic_partition not in described.partitions


async def find_hanging(
    admin: Admin, partitions: Collection[TopicPartition], *, now_ms: int, max_timeout_ms: int, broker_id: int | None
) -> list[HangingTransaction]:
    """Hanging transactions in partitions, as their leaders (or one broker) report them. Raises KafkaError."""
    described = await admin.transactions.describe_producers(partitions, broker_id=broker_id)
    candidates = long_open(raise_first(described), now_ms, max_timeout_ms + GRACE_MS)
    if not candidates:
        return []
    ids = {each.producer.producer_id for each in candidates}
    listed = await admin.transactions.list(producer_ids=sorted(ids))
    names = {each.producer_id: each.transactional_id for each in listed}
    known: dict[int, TransactionDescription] = {}
    for producer_id, name in names.items():
        found = (await admin.transactions.describe([name]))[name]
        if not isinstance(found, KafkaError):
            known[producer_id] = found
        elif found.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise found
    return [each for each in candidates if is_hanging(each, known.get(each.producer.producer_id))]
