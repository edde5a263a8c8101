"""ListOffsets: offsets by timestamp, and the special ones at both ends of a log.

Version notes: 2 isolation level; 4 leader epochs; 7 max timestamp (-3, KIP-734); 8 earliest local (-4, KIP-405); 9
latest tiered (-5); 10 a timeout for remote look-ups; 11 earliest pending upload (-6). There is no remote storage: -4 is
the log's start, -5 and -6 unknown.
"""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
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
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@api(ApiKey.LIST_OFFSETS)
def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            place = (topic.name, wanted.partition_index)
            (twice if place in seen else seen).add(place)
    answered = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            try:
                if (topic.name, wanted.partition_index) in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partitions.append(_find(topic.name, wanted, request.isolation_level, context))
            except KafkaError as error:
                partitions.append(ListOffsetsResponsePartition(wanted.partition_index, error.code))
        answered.append(ListOffsetsResponseTopic(topic.name, partitions))
    return ListOffsetsResponse(topics=answered)


def _find(
    topic: str, wanted: ListOffsetsRequestPartition, isolation: int, context: RequestContext
) -> ListOffsetsResponsePartition:
    partition = context.services.partitions.find(topic, wanted.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.check_leader(wanted.current_leader_epoch)
    if context.version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    offset, timestamp, epoch = _look_up(partition, wanted.timestamp, partition.upper_offset(isolation))
    if context.version < 4:
        epoch = NO_EPOCH
    return ListOffsetsResponsePartition(wanted.partition_index, 0, timestamp, offset, epoch)


def _look_up(partition: Partition, timestamp: int, upper_offset: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 where there is none."""
    log = partition.log
    if timestamp == LATEST:
        return upper_offset, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.leader_epochs.epoch_for(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, NO_EPOCH
    found = (
        log.max_timestamp(upper_offset) if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp, upper_offset)
    )
    if found is None:
        return -1, -1, NO_EPOCH
    return found.offset, found.timestamp, found.leader_epoch
