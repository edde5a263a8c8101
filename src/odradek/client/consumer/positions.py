"""State of a consumer's assigned partitions: positions, pauses, fetched batches not yet returned. No I/O."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

from odradek.client.errors import DeserializationError
from odradek.client.interceptors import ConsumerInterceptor
from odradek.client.metrics.counts import TopicReads
from odradek.client.model import AbortedTransaction, ConsumerRecord, TimestampType
from odradek.records.batch import BatchHeader, split_batches, verify_crc
from odradek.records.columns import EncodedColumns
from odradek.records.control import ControlType, decode_control_record
from odradek.records.errors import CorruptRecords
from odradek.records.headers import lazy_headers
from odradek.records.record import decode_records, scan_columns
from odradek.records.topic_partition import TopicPartition
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

Record = ConsumerRecord[Any, Any]

_TIMESTAMP_TYPES: Final = tuple(TimestampType)
MAX_CHUNKS: Final = 2
"""Answers per partition that may wait: one is consumed while the next arrives."""


class Chunk:
    """The record batches of one answer for one partition."""

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_batches",
        "_read_committed",
        "aborted",
        "leader_epoch",
        "next_offset",
        "view",
    )

    def __init__(self, view: memoryview, aborted: Sequence[AbortedTransaction] | None, fetch_offset: int) -> None:
        """`aborted` is None for read_uncommitted. Raises CorruptRecords."""
        self.view = view
        self._batches = deque(split_batches(view, allow_partial_tail=True))
        self.next_offset = max(self._batches[-1][1].next_offset, fetch_offset) if self._batches else fetch_offset
        self.leader_epoch = self._batches[-1][1].partition_leader_epoch if self._batches else -1
        """That of the last batch."""
        self._read_committed = aborted is not None
        self.aborted: Sequence[AbortedTransaction] = aborted or ()
        """The transactions whose records are not to be returned."""
        self._aborted = deque(sorted(self.aborted, key=lambda each: each.first_offset))
        self._aborted_producers: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def records_left(self) -> int:
        """Records in the batches that were not returned yet, by their headers."""
        return sum(header.records_count for _, header in self._batches if not header.is_control)

    def next_batch(self) -> tuple[int, BatchHeader, bool] | None:
        """(position, header, whether its records are to be returned) of the next batch."""
        if not self._batches:
            return None
        position, header = self._batches.popleft()
        return position, header, self._wanted(position, header)

    def _wanted(self, position: int, header: BatchHeader) -> bool:
        if self._read_committed and header.has_producer_id:
            while self._aborted and self._aborted[0].first_offset <= header.last_offset:
                self._aborted_producers.add(self._aborted.popleft().producer_id)
            if header.is_control:
                if self._is_abort(position, header):
                    self._aborted_producers.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in self._aborted_producers:
                return False
        return not header.is_control

    def _is_abort(self, position: int, header: BatchHeader) -> bool:
        records = decode_records(self.view, header, position)
        return bool(records) and decode_control_record(records[0]).type is ControlType.ABORT


class PartitionState:
    """One assigned partition.

    `position` is the offset of the next record to return, `fetch_offset` of the next fetch, after buffered records.
    """

    __slots__ = (
        "_at", "_kept", "_position", "_position_epoch", "_ready", "_rejected", "chunks", "fetch_offset",
        "high_watermark", "key", "last_stable_offset", "log_start_offset", "pause", "preferred_replica",
        "preferred_until", "reads", "reset_to", "retry_at", "topic_id", "validated_epoch",
    )  # fmt: skip

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.topic_id = ZERO_UUID
        """The topic that the position is of; zeros before the first fetch."""
        self._position = -1
        self._position_epoch = -1
        self._rejected = -1
        self._kept = -1
        self.fetch_offset = -1
        self.validated_epoch = -1
        self.reset_to: int | None = None
        self.pause = False
        self.retry_at = 0.0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_replica = -1
        self.preferred_until = 0.0
        self.chunks: deque[Chunk] = deque()
        self.reads = TopicReads()
        """What was returned of the topic; the fetcher puts the topic's own object here, which partitions share."""
        self._ready: list[Record] = []
        self._at = 0

    @property
    def position(self) -> int:
        """The offset of the next record to return, -1 while it is unknown."""
        # Derived while a batch is being returned: a write for each record would cost more than all else here.
        if self._at:
            after: int = self._ready[self._at - 1].offset + 1
            return after
        return self._position

    @property
    def position_epoch(self) -> int:
        """The leader epoch of the last record returned, -1 while it is unknown."""
        if self._at:
            epoch: int = self._ready[self._at - 1].leader_epoch
            return epoch
        return self._position_epoch

    @property
    def has_position(self) -> bool:
        """Whether the position is known, and not about to be reset."""
        return self._position >= 0 and self.reset_to is None

    @property
    def has_records(self) -> bool:
        """Whether fetched records wait."""
        return self._at < len(self._ready) or bool(self.chunks)

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at an offset; buffered records are dropped, and the answer of a fetch in flight is ignored."""
        self.drop()
        self._position = self.fetch_offset = offset
        self._position_epoch = leader_epoch
        self.reset_to = None

    def want_reset(self, timestamp: int, rejected: int = -1) -> None:
        """Have the position looked up (EARLIEST or LATEST) before anything is fetched.

        `rejected` is a position that a leader's log lacked, for `keeps_position`.
        """
        self.reset_to = timestamp
        self._rejected = rejected
        self.fetch_offset = -1
        self.drop()

    def keeps_position(self, earliest: int) -> bool:
        """Whether to fetch again at the position that a leader rejected, where the log begins before it.

        That leader had deleted more than its successor, of which the position is asked for now.
        """
        if not 0 <= earliest < self._rejected or self._rejected == self._kept:
            return False
        self._kept = self._rejected
        return True

    def is_of(self, topic_id: bytes) -> bool:
        """Whether the position is one in the topic of this id, as far as is known."""
        return topic_id in (self.topic_id, ZERO_UUID) or self.topic_id == ZERO_UUID

    def observe_topic(self, topic_id: bytes) -> bool:
        """Note the id of the topic, zeros while it is unknown; return whether the position is still of that topic.

        If the topic was deleted and created again, the position says nothing about the new one, and is forgotten.
        """
        is_same = self.is_of(topic_id)
        if topic_id != ZERO_UUID:
            self.topic_id = topic_id
        if not is_same:
            self.seek(-1)
            self.validated_epoch = -1
        return is_same

    def drop(self) -> None:
        """Forget fetched records."""
        self._position, self._position_epoch = self.position, self.position_epoch
        self.chunks.clear()
        self._ready = []
        self._at = 0

    def needs_validation(self, leader_epoch: int) -> bool:
        """Whether another leader took over since the last record read: it may have less (KIP-320)."""
        return self.position_epoch >= 0 and self.validated_epoch < leader_epoch

    @property
    def is_full(self) -> bool:
        """Whether it is not fetched only because enough of it waits to be read."""
        return self._position >= 0 and self.reset_to is None and not self.pause and len(self.chunks) >= MAX_CHUNKS

    @property
    def is_at_end(self) -> bool:
        """Whether the last answer had all records, so that a fetch would wait for new ones."""
        return 0 <= self.high_watermark <= self.fetch_offset

    def may_fetch(self, now: float) -> bool:
        """Whether a fetch may be sent now."""
        return self.has_position and not self.pause and len(self.chunks) < MAX_CHUNKS and self.retry_at <= now

    def take(self, limit: int, reader: RecordReader) -> list[Record]:
        """Up to `limit` records; the position moves past them. Raises CorruptRecords, DeserializationError."""
        if self._at >= len(self._ready) and not self._refill(reader):
            return []
        start = self._at
        ready = self._ready
        if start == 0 and len(ready) <= limit:
            records = ready
        else:
            records = ready[start : start + limit]
        self._at = start + len(records)
        if self._at >= len(ready):
            self._end_batch()
        return records

    def each(self, reader: RecordReader) -> Iterator[Record]:
        """Records of a batch one by one; the position moves with each. A seek or a lost partition ends it at once."""
        if self._at >= len(self._ready) and not self._refill(reader):
            return
        ready = self._ready
        last = len(ready) - 1
        while (at := self._at) < last:
            self._at = at + 1
            yield ready[at]
            if self.pause or self._ready is not ready:
                return
        self._at = last + 1
        self._end_batch()
        yield ready[last]

    def _end_batch(self) -> None:
        """All its records are returned: the position is after them, and after a gap that follows."""
        self._position, self._position_epoch = self.position, self.position_epoch
        self._ready = []
        self._at = 0
        self._advance_past_gap()

    def take_chunk(self) -> tuple[Chunk, int] | None:
        """A whole answer with the offset of the first record that was not returned yet; the position moves past it.

        Records that are decoded already are fetched again.
        """
        if self._at < len(self._ready):
            self.seek(self.position, self.position_epoch)
        if not self.chunks:
            return None
        chunk = self.chunks.popleft()
        self.reads.records += chunk.records_left
        self.reads.bytes += len(chunk.view)
        first, self._position = self._position, max(self._position, chunk.next_offset)
        self._position_epoch = chunk.leader_epoch
        return chunk, first

    def take_batch(self) -> tuple[Chunk, int, BatchHeader, int] | None:
        """An answer, place and header of its next batch, and the first offset wanted; the position moves past it.

        Records that are decoded already are fetched again.
        """
        if self._at < len(self._ready):
            self.seek(self.position, self.position_epoch)
        while self.chunks:
            chunk = self.chunks[0]
            found = chunk.next_batch()
            if not chunk:
                self.chunks.popleft()
            if found is None:
                continue
            position, header, wanted = found
            if wanted and header.next_offset > self._position and header.records_count:
                self.reads.records += header.records_count
                self.reads.bytes += header.size
                first, self._position = self._position, header.next_offset
                self._position_epoch = header.partition_leader_epoch
                return chunk, position, header, first
        self._advance_past_gap()
        return None

    def _advance_past_gap(self) -> None:
        """With no buffered records left, move to the next fetch offset: after gaps and markers."""
        if not self.chunks and self.fetch_offset > self._position:
            self._position = self.fetch_offset

    def _refill(self, reader: RecordReader) -> bool:
        chunks = self.chunks
        while chunks:
            chunk = chunks[0]
            found = chunk.next_batch()
            if found is None:
                chunks.popleft()
                continue
            position, header, wanted = found
            if wanted and header.next_offset > self.position:
                try:
                    records, failure = reader.read(self.key, chunk.view, position, header, self.position)
                except BaseException:
                    # The batch is fetched again, and later ones too: otherwise the next call would skip it.
                    self.seek(self.position, self.position_epoch)
                    raise
                if failure is not None:
                    if not records:
                        self.seek(self.position, self.position_epoch)
                        raise failure
                    # Records before the failing one are returned; fetching resumes at the failing one.
                    self.chunks.clear()
                    self.fetch_offset = failure.offset
                    self.reads.records += len(records)
                    self._ready, self._at = records, 0
                    return True
                if not chunk:
                    chunks.popleft()
                if records:
                    self.reads.records += len(records)
                    self.reads.bytes += header.size
                    self._ready, self._at = records, 0
                    return True
        self._advance_past_gap()
        return False


def consumer_records(topic: str, partition: int, header: BatchHeader, columns: EncodedColumns) -> list[Record]:
    """Records of a batch as objects; those without headers are made without a step of the interpreter for each."""
    offsets, timestamps, keys, values, headers = columns
    kind, epoch = _TIMESTAMP_TYPES[header.timestamp_type], header.partition_leader_epoch
    lazy = lazy_headers(headers)  # type: ignore[arg-type]  # copied columns are bytes
    topics, partitions, kinds, epochs = map(repeat, (topic, partition, kind, epoch))
    # The four that are repeated do not end.
    fields = zip(topics, partitions, offsets, timestamps, kinds, keys, values, lazy, epochs, strict=False)
    return list(map(tuple.__new__, repeat(ConsumerRecord), fields))


class RecordReader:
    """Turns batches into ConsumerRecords."""

    __slots__ = ("_check_crcs", "_interceptors", "_key_deserializer", "_value_deserializer")

    def __init__(
        self,
        *,
        check_crcs: bool,
        key_deserializer: Callable[[str, Any], Any] | None = None,
        value_deserializer: Callable[[str, Any], Any] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        """Deserializers take (topic, bytes) and are not called for nulls."""
        self._check_crcs = check_crcs
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._interceptors = [each for each in interceptors if hasattr(each, "on_consume")]

    def read(
        self, key: TopicPartition, view: memoryview, position: int, header: BatchHeader, from_offset: int
    ) -> tuple[list[Record], DeserializationError | None]:
        """The batch's records from an offset on, up to the first that a deserializer failed on, and that failure.

        Raises CorruptRecords, naming the partition.
        """
        topic, partition = key
        try:
            if self._check_crcs:
                verify_crc(view, position, header)
            columns = scan_columns(view, header, position, copy=True).since(from_offset)
        except CorruptRecords as error:
            raise CorruptRecords(f"{key}: {error}") from error
        made: list[Record] = consumer_records(topic, partition, header, columns)
        failure: DeserializationError | None = None
        if self._key_deserializer is not None or self._value_deserializer is not None:
            made, failure = self._deserialized(key, made)
        for each in self._interceptors:
            try:
                made = list(each.on_consume(made))
            except Exception:  # the user's code: as in Kafka, reading continues without it
                logger.exception("interceptor %r failed on records of %s; they are returned unchanged", each, key)
        return made, failure

    def _deserialized(
        self, partition: TopicPartition, records: list[Record]
    ) -> tuple[list[Record], DeserializationError | None]:
        topic = partition.topic
        of_key, of_value = self._key_deserializer, self._value_deserializer
        new = tuple.__new__
        made: list[Record] = []
        part = "key"
        for record in records:
            key, value = record[5], record[6]
            try:
                if key is not None and of_key is not None:
                    part = "key"
                    key = of_key(topic, key)
                if value is not None and of_value is not None:
                    part = "value"
                    value = of_value(topic, value)
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it becomes the cause
                failure = DeserializationError(
                    f"cannot deserialize the {part} of {partition} at offset {record.offset}: {error!r}; "
                    f"seek to {record.offset + 1} to skip it",
                    partition,
                    record.offset,
                )
                failure.__cause__ = error
                return made, failure
            made.append(new(ConsumerRecord, (*record[:5], key, value, *record[7:])))
        return made, None
