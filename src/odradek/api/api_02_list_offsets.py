"""ListOffsets: offsets by timestamp, and the special ones at both ends of a log.

Version notes: 2 isolation level; 4 leader epochs; 7 max timestamp (-3, KIP-734); 8 earliest local (-4, KIP-405); 9
latest tiered (-5); 10 a timeout for remote look-ups; 11 earliest pending upload (-6). There is no remote storage: -4 is
the log's start, -5 and -6 unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from odradek.api.requests.capabilities import HasLongWork, HasPartitions, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import NO_EPOCH, Partition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_AT_THE_START = (EARLIEST, EARLIEST_LOCAL)
CONSUMER = -1
DEBUGGING_REPLICA = -2
"""Who wants to know where a replica's log ends, whether it leads or not (Kafka's DEBUGGING_REPLICA_ID)."""
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class Uses(HasLongWork, HasPartitions, HasQuotas, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.LIST_OFFSETS)
def handle(
    request: ListOffsetsRequest, context: RequestContext[Uses]
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Find one offset for each partition. A partition that the request names twice gets INVALID_REQUEST."""
    seen: set[PartitionKey] = set()
    twice: set[PartitionKey] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            place = (topic.name, wanted.partition_index)
            (twice if place in seen else seen).add(place)
    if context.services.long_work.is_long(len(seen)):
        return _find_in_slices(request, twice, context)
    topics = [
        ListOffsetsResponseTopic(
            topic.name, [_row(topic.name, wanted, twice, request, context) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


async def _find_in_slices(
    request: ListOffsetsRequest, twice: set[PartitionKey], context: RequestContext[Uses]
) -> ListOffsetsResponse:
    slices = context.services.long_work.begin(context)
    await slices.next()
    topics = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            if slices.is_over:
                await slices.next()
            rows.append(_row(topic.name, wanted, twice, request, context))
        topics.append(ListOffsetsResponseTopic(topic.name, rows))
    slices.end()
    return ListOffsetsResponse(topics=topics)


def _row(
    topic: str,
    wanted: ListOffsetsRequestPartition,
    twice: set[PartitionKey],
    request: ListOffsetsRequest,
    context: RequestContext[Uses],
) -> ListOffsetsResponsePartition:
    """The answer for one partition."""
    try:
        if (topic, wanted.partition_index) in twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return _find(topic, wanted, request, context)
    except KafkaError as error:
        return ListOffsetsResponsePartition(wanted.partition_index, error.code)


def _find(
    topic: str, wanted: ListOffsetsRequestPartition, request: ListOffsetsRequest, context: RequestContext[Uses]
) -> ListOffsetsResponsePartition:
    partition = context.services.partitions.require(topic, wanted.partition_index)
    if request.replica_id == DEBUGGING_REPLICA:
        partition.check_epoch(wanted.current_leader_epoch)
    else:
        partition.check_leader(wanted.current_leader_epoch)
    if context.version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    upper_offset = partition.log.end_offset
    if request.replica_id == CONSUMER:
        upper_offset = partition.upper_offset(request.isolation_level)
        if partition.leader_epoch_start_offset > partition.high_watermark and wanted.timestamp not in _AT_THE_START:
            # What an earlier leader had committed is not known to be committed here yet: an answer could go back.
            unknown = ErrorCode.OFFSET_NOT_AVAILABLE if context.version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
            raise KafkaError(unknown)
    offset, timestamp, epoch = _look_up(partition, wanted.timestamp, upper_offset)
    if context.version < 4:
        epoch = NO_EPOCH
    return ListOffsetsResponsePartition(wanted.partition_index, 0, timestamp, offset, epoch)


def _look_up(partition: Partition, timestamp: int, upper_offset: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 if not found."""
    log = partition.log
    if timestamp == LATEST:
        return upper_offset, -1, partition.leader_epoch
    if timestamp in _AT_THE_START:
        start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
        return start, -1, log.history.leader_epochs.epoch_for(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, NO_EPOCH
    found = (
        log.reader.max_timestamp(upper_offset)
        if timestamp == MAX_TIMESTAMP
        else log.reader.find_timestamp(timestamp, upper_offset)
    )
    if found is None:
        return -1, -1, NO_EPOCH
    return found.offset, found.timestamp, found.leader_epoch
