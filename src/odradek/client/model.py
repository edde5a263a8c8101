"""Values that producer, consumer and admin accept and return."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple

from odradek.client.type_parameters import Key_co, Value_co
from odradek.records.topic_partition import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]
"""Record headers in order; names may repeat."""


class TimestampType(IntEnum):
    """Whose clock a record's timestamp is of (Kafka's TimestampType)."""

    CREATE_TIME = 0
    """The producer's, or what the program gave."""
    LOG_APPEND_TIME = 1
    """The broker's, by the topic's `message.timestamp.type`."""


CREATE_TIME: Final = TimestampType.CREATE_TIME
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class OffsetSpec(IntEnum):
    """Offsets that ListOffsets finds without a timestamp (Kafka's OffsetSpec)."""

    LATEST = -1
    """The end of the log, or the last stable offset with READ_COMMITTED."""
    EARLIEST = -2
    """The start of the log."""
    MAX_TIMESTAMP = -3
    """The record with the largest timestamp (KIP-734)."""
    EARLIEST_LOCAL = -4
    """The start of what the leader has on its own disks (KIP-405)."""
    LATEST_TIERED = -5
    """The last offset in tiered storage (KIP-1005)."""
    EARLIEST_PENDING_UPLOAD = -6
    """The first offset that tiered storage does not have yet (KIP-1023)."""


EARLIEST: Final = OffsetSpec.EARLIEST
LATEST: Final = OffsetSpec.LATEST
MAX_TIMESTAMP: Final = OffsetSpec.MAX_TIMESTAMP


class IsolationLevel(IntEnum):
    """Which records a reader sees (KIP-98)."""

    READ_UNCOMMITTED = 0
    """All."""
    READ_COMMITTED = 1
    """Those before the first open transaction, without those of aborted ones."""


READ_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to read, the leader epoch of the last one read (-1: unknown), free text."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """An offset found by time; timestamp in ms, -1 where the broker returns none."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """The place of a produced record. offset is -1 with acks=0; timestamp in ms (the broker's with LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple, Generic[Key_co, Value_co]):
    """One record as read: `ConsumerRecord[KeyType, ValueType]`, by default bytes.

    timestamp is in ms; leader_epoch is that of the leader that appended the record. The value of a tombstone is None:
    consumers of compacted topics name that in the type (`Consumer[str, Order | None]`).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Key_co
    value: Value_co
    headers: Headers
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return TopicPartition(self.topic, self.partition)


class AbortedTransaction(NamedTuple):
    """Records of producer_id from first_offset up to its abort marker were aborted."""

    producer_id: int
    first_offset: int


class GroupMembershipOperation(Enum):
    """What becomes of a consumer's membership when it is closed (KIP-1092)."""

    DEFAULT = "default"
    """Leave the group; a static member remains in it for its session's timeout."""
    LEAVE_GROUP = "leave_group"
    """Leave the group, also as a static member: others get the partitions at once."""
    REMAIN_IN_GROUP = "remain_in_group"
    """Remain in the group: no other member gets the partitions before the session's timeout."""


class RawFetch(NamedTuple):
    """Record batches as the log stores them. The first may begin before the requested offset, the last may be cut.

    The three offsets are the partition's at the time of the answer.
    """

    batches: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]
