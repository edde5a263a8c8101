"""The values that producer, consumer and admin take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

Headers = Sequence[tuple[str, bytes | None]]
"""Record headers in order; names may repeat."""

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
"""Special timestamps of ListOffsets: log start, log end, and the record with the largest timestamp (KIP-734)."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to read, the leader epoch of the last one read (-1: unknown), free text."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """What ListOffsets finds; timestamp in ms, -1 where the broker gives none."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a produced record lies. offset is -1 with acks=0; timestamp in ms (the broker's with LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple):
    """One record as read. key and value are bytes (or None) unless deserializers are set."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: object
    value: object
    headers: Headers
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class AbortedTransaction(NamedTuple):
    """Records of producer_id from first_offset up to its abort marker were aborted."""

    producer_id: int
    first_offset: int


class RawFetch(NamedTuple):
    """Record batches as they lie in the log: whole batches (maybe but for the last), the first may begin before the
    offset asked for. Offsets are those of the partition at the time of the answer."""

    batches: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]
