"""Records of share groups, and how those of an answer are found: only what the broker acquired for this member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

from odradek.client.consumer.positions import RecordReader
from odradek.client.errors import DeserializationError
from odradek.client.model import Headers, TimestampType
from odradek.client.type_parameters import Key_co, Value_co
from odradek.records.batch import split_batches
from odradek.records.errors import CorruptRecords
from odradek.records.topic_partition import TopicPartition
from odradek.wire.messages.share_fetch import ShareFetchResponseAcquiredRecords


class ShareRecord(NamedTuple, Generic[Key_co, Value_co]):
    """One record as read: the fields of `ConsumerRecord`, and the number of its deliveries with this one."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Key_co
    value: Value_co
    headers: Headers
    leader_epoch: int
    delivery_count: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return TopicPartition(self.topic, self.partition)


class Unreadable(NamedTuple):
    """A record that a deserializer failed on."""

    offset: int
    error: DeserializationError


class Acquired(NamedTuple):
    """The acquired part of an answer: in the order of offsets the records and what cannot be read of them."""

    records: list[ShareRecord[Any, Any] | Unreadable]
    gaps: list[int]
    """Acquired offsets without a record."""
    corrupt: list[int]
    """Acquired offsets of batches whose bytes are broken."""
    corruption: CorruptRecords | None


def read_acquired(
    key: TopicPartition,
    data: memoryview,
    ranges: Sequence[ShareFetchResponseAcquiredRecords],
    reader: RecordReader,
) -> Acquired:
    """Read the acquired records of one partition."""
    counts = {
        offset: each.delivery_count for each in ranges for offset in range(each.first_offset, each.last_offset + 1)
    }
    records: list[ShareRecord[Any, Any] | Unreadable] = []
    corrupt: list[int] = []
    corruption: CorruptRecords | None = None
    try:
        for position, header in split_batches(data, allow_partial_tail=True):
            if header.is_control:
                continue
            offset: int | None = header.base_offset
            try:
                while offset is not None:
                    made, failure = reader.read(key, data, position, header, offset)
                    records += [
                        ShareRecord(*each, delivery_count=counts.pop(each.offset))
                        for each in made
                        if each.offset in counts
                    ]
                    offset = None
                    if failure is not None:
                        offset = failure.offset + 1
                        if counts.pop(failure.offset, None) is not None:
                            records.append(Unreadable(failure.offset, failure))
            except CorruptRecords as error:
                corruption = corruption or error
                broken = [each for each in counts if header.base_offset <= each < header.next_offset]
                corrupt += broken
                for each in broken:
                    del counts[each]
    except CorruptRecords as error:  # where batches begin is unknown from here on
        corruption = corruption or CorruptRecords(f"{key}: {error}")
        corrupt += counts
        counts.clear()
    return Acquired(records, list(counts), corrupt, corruption)
