"""Lag in time: the age of the first record that a group has not read, by the record's timestamp."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.client.errors import ClientError
from odradek.client.network.cluster import error_of
from odradek.records.batch import split_batches
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)

if TYPE_CHECKING:
    from odradek.client.admin import Admin

_AT_ONCE: Final = 8
"""Fetches under way at a time: each answer holds a batch, which may be as large as `max.message.bytes`."""


async def first_timestamps(admin: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """The timestamp in ms of the first record at or after each offset.

    None where it is unknown: the record has no timestamp, was deleted, or may not be read by this client. Each answer
    of a broker holds one batch (KIP-74), so the cost does not grow with the lag.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def find(place: TopicPartition, offset: int) -> int | None:
        async with slots:
            try:
                return await _timestamp(admin, place, offset)
            except (KafkaError, ClientError, CorruptRecords):
                return None

    found = await asyncio.gather(*(find(place, offset) for place, offset in offsets.items()))
    return dict(zip(offsets, found, strict=True))


async def _timestamp(admin: Admin, place: TopicPartition, offset: int) -> int | None:
    cluster = admin.cluster
    leader = await cluster.leader(*place)
    topic_id = cluster.metadata.topics[place.topic].topic_id
    # A limit of one byte makes the leader return exactly the batch at the offset.
    partition = FetchRequestPartition(place.partition, leader.leader_epoch, offset, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1, session_epoch=-1, topics=[FetchRequestTopic(place.topic, topic_id, [partition])]
    )
    response = await cluster.request(leader.leader, request, FetchResponse)
    for topic in response.responses:
        for answer in topic.partitions:
            if answer.error_code:
                cluster.want_metadata()
                raise error_of(answer.error_code, str(place))
            return first_timestamp(memoryview(answer.records or b""), offset)
    return None


def first_timestamp(batches: memoryview, offset: int) -> int | None:
    """The timestamp in ms of the first record from `offset` on. Raises CorruptRecords."""
    for position, header in split_batches(batches, allow_partial_tail=True):
        if header.last_offset < offset:
            continue
        for record in decode_records(batches, header, position):
            if record.offset >= offset:
                return record.timestamp if record.timestamp >= 0 else None
    return None
