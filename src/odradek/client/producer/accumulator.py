"""Records waiting to be sent: batches per partition (Kafka's RecordAccumulator). Callers pass the time; no I/O."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from odradek.client.errors import IllegalState
from odradek.client.model import RecordMetadata
from odradek.client.producer.sequence_numbers import NO_IDENTITY, NO_SEQUENCE, ProducerIdentity, precedes
from odradek.client.type_parameters import Data
from odradek.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, parse_header, patch_producer
from odradek.records.builder import BatchBuilder
from odradek.records.record import Headers, decode_records
from odradek.records.topic_partition import PartitionKey

logger = logging.getLogger(__name__)

OnDelivery = Callable[[RecordMetadata | None, Exception | None], None]
"""(place of the record, None) or (None, what it was lost with)."""

_NO_OFFSET: Final = -1
_ATTRIBUTES_LOW: Final = 22
_RECORD_OVERHEAD: Final = 21
"""Most bytes of a record besides key, value and headers (Kafka's MAX_RECORD_OVERHEAD)."""


class Batch:
    """Records of one partition that are sent together; their deliveries read the outcome from it."""

    __slots__ = (
        "_first_offset",
        "_log_append_time",
        "_waiter",
        "attempts",
        "base_sequence",
        "builder",
        "callbacks",
        "count",
        "created_at",
        "data",
        "done",
        "error",
        "failure_seen",
        "first_index",
        "identity",
        "key",
        "may_be_written",
        "parts",
        "raw_size",
        "reserved",
        "retry_at",
        "sequence_was_reset",
        "timestamps",
        "transactional",
    )  # fmt: skip

    def __init__(self, key: PartitionKey, builder: BatchBuilder | None, created_at: float, reserved: int) -> None:
        self.key = key
        self.builder = builder
        self.created_at = created_at
        self.reserved = reserved
        self.count = 0
        self.raw_size = 0
        self.data: bytearray | None = None
        self.attempts = 0
        self.retry_at = 0.0
        self.may_be_written = False
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.sequence_was_reset = False
        self.transactional = False
        self.first_index = 0
        self.timestamps: list[int] | None = None
        self.parts: list[Batch] | None = None
        self.callbacks: list[tuple[int, int, OnDelivery]] | None = None
        self.done = False
        self.error: Exception | None = None
        self.failure_seen = False
        self._first_offset = _NO_OFFSET
        self._log_append_time = -1
        self._waiter: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """Bytes of the encoded batch; before that, of the batch without compression."""
        if self.data is not None:
            return len(self.data)
        return self.builder.size_in_bytes if self.builder is not None else 0

    def set_sequence(self, identity: ProducerIdentity, base_sequence: int, *, reset: bool = False) -> None:
        """Assign producer id, epoch and first sequence number."""
        self.identity = identity
        self.base_sequence = base_sequence
        self.sequence_was_reset = reset
        if self.data is not None:
            patch_producer(memoryview(self.data), 0, identity.producer_id, identity.epoch, base_sequence)

    def encode(self) -> bytearray:
        """The bytes to send: encoded by the first call, patched when sequence numbers change."""
        if self.data is None:
            assert self.builder is not None
            self.raw_size = self.builder.size_in_bytes
            self.data = self.builder.build(
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.base_sequence,
                transactional=self.transactional,
            )
            self.builder = None
        return self.data

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """The batch is in the log; -1 where the broker returned no offset or time."""
        self._first_offset = base_offset
        self._log_append_time = log_append_time_ms
        self._finish()

    def fail(self, error: Exception) -> None:
        """The batch is lost."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        self.done = True
        self.builder = None
        self.data = None
        if self._waiter is not None:
            self.failure_seen = True
            self._waiter.set_result(None)
        if self.callbacks is not None:
            self._call_back(self.callbacks)

    def _call_back(self, callbacks: list[tuple[int, int, OnDelivery]]) -> None:
        self.callbacks = None
        self.failure_seen = True
        for index, timestamp_ms, callback in callbacks:
            try:
                if self.error is None:
                    callback(self.metadata(index, timestamp_ms), None)
                else:
                    callback(None, self.error)
            except Exception:  # the user's code: the other records' callbacks are still called
                logger.exception("delivery callback %r failed for a record of %s-%d", callback, *self.key)

    def add_callback(self, index: int, timestamp_ms: int, callback: OnDelivery) -> None:
        """Call back with the outcome of a record; at once if there is one."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, timestamp_ms, callback))
        if self.done:
            self._call_back(self.callbacks)

    def waiter(self) -> asyncio.Future[None]:
        """Done when the outcome is known; never fails."""
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
            if self.done:
                self._waiter.set_result(None)
        return self._waiter

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """The place of a record. Raises the error that the batch failed with."""
        if self.error is not None:
            self.failure_seen = True
            raise self.error
        topic, partition = self.key
        offset = self._first_offset + index if self._first_offset >= 0 else _NO_OFFSET
        return RecordMetadata(
            topic, partition, offset, self._log_append_time if self._log_append_time >= 0 else timestamp_ms
        )

    def part_of(self, index: int) -> tuple[Batch, int]:
        """The batch that carries a record now (after splits) and the record's index in it."""
        batch = self
        while batch.parts is not None:
            batch = next(each for each in reversed(batch.parts) if each.first_index <= index)
            index -= batch.first_index
        return batch, index


class Delivery:
    """The outcome of one record: `await` it for its RecordMetadata or the error.

    Await it in the event loop of the producer. An unawaited delivery costs nothing.
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = self._batch.part_of(self._index)
        while not batch.done:
            waiter = batch.waiter()
            if waiter.get_loop() is not asyncio.get_running_loop():
                raise IllegalState("the delivery belongs to another event loop: await it in that of its producer")
            yield from asyncio.shield(waiter).__await__()
            batch, index = batch.part_of(index)
        return batch.metadata(index, self._timestamp_ms)

    def add_callback(self, callback: OnDelivery) -> None:
        """Call `callback(metadata, None)` when the record is acknowledged, or `callback(None, error)` when it is lost.

        At once if the outcome is known. A failure that is passed to a callback is not raised again by `flush`.
        """
        batch, index = self._batch.part_of(self._index)
        batch.add_callback(index, self._timestamp_ms, callback)

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.part_of(self._index)[0].done

    def result(self) -> RecordMetadata:
        """The metadata of a finished delivery. Raises its error, asyncio.InvalidStateError while it is unfinished."""
        batch, index = self._batch.part_of(self._index)
        if not batch.done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        return batch.metadata(index, self._timestamp_ms)


class Queue:
    """One partition's batches, oldest first. Only the last one accepts records."""

    __slots__ = ("batches", "in_flight", "key", "open")

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.in_flight = 0

    def take(self) -> Batch:
        """Remove the oldest batch."""
        batch = self.batches.popleft()
        if batch is self.open:
            self.open = None
        return batch

    def put_back(self, batch: Batch) -> None:
        """Return a batch for a retry: to the front, in the order of sequences among other retries."""
        batches = self.batches
        at = 0
        if batch.base_sequence != NO_SEQUENCE:
            for each in batches:
                if each.base_sequence == NO_SEQUENCE or precedes(batch.base_sequence, each.base_sequence):
                    break
                at += 1
        batches.insert(at, batch)


class Accumulator:
    """The batches of all partitions and the memory they use."""

    __slots__ = (
        "_batch_size",
        "_codec",
        "_keep_timestamps",
        "_level",
        "free_bytes",
        "open_bytes",
        "queues",
        "transactional",
    )

    def __init__(
        self,
        batch_size: int,
        buffer_memory: int,
        codec: int,
        level: int | None,
        *,
        keep_timestamps: bool = False,
        transactional: bool = False,
    ) -> None:
        self._batch_size = max(batch_size, HEADER_SIZE + 1)
        self._codec = codec
        self._level = level
        self._keep_timestamps = keep_timestamps
        self.free_bytes = buffer_memory
        self.queues: dict[PartitionKey, Queue] = {}
        self.transactional = transactional

    def append(
        self,
        key: PartitionKey,
        timestamp_ms: int,
        record_key: Data | None,
        value: Data | None,
        headers: Headers,
        monotonic: Callable[[], float],
    ) -> tuple[Batch, bool, bool] | None:
        """Add a record: (its batch, whether that is new, whether an earlier one was closed for it).

        None when there is no memory for another batch. `monotonic` is called for a new batch only.
        """
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key)
        batch = queue.open
        if batch is not None:
            assert batch.builder is not None
            if batch.builder.append(timestamp_ms, record_key, value, headers):
                batch.count += 1
                if batch.timestamps is not None:
                    batch.timestamps.append(timestamp_ms)
                return batch, False, False
        size = record_size(record_key, value, headers)
        reserved = max(self._batch_size, size)
        if reserved > self.free_bytes:
            return None
        fresh = Batch(key, BatchBuilder(self._codec, self._batch_size, self._level), monotonic(), reserved)
        fresh.transactional = self.transactional
        assert fresh.builder is not None
        fresh.builder.append(timestamp_ms, record_key, value, headers)
        self.free_bytes -= reserved
        fresh.count = 1
        if self._keep_timestamps:
            fresh.timestamps = [timestamp_ms]
        queue.batches.append(fresh)
        queue.open = fresh
        return fresh, True, batch is not None

    def add_encoded(self, key: PartitionKey, data: bytearray, count: int, now: float) -> Batch | None:
        """Queue a batch that the caller has encoded; None when there is no memory for it."""
        if len(data) > self.free_bytes:
            return None
        self.free_bytes -= len(data)
        batch = Batch(key, None, now, len(data))
        batch.data = data
        batch.raw_size = len(data)
        batch.count = count
        if self.transactional:
            data[_ATTRIBUTES_LOW] |= TRANSACTIONAL_BIT  # the CRC follows when the sequence is patched in
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key)
        queue.open = None
        queue.batches.append(batch)
        return batch

    def withdraw(self, batch: Batch) -> None:
        """Take back the batch that was begun last."""
        self.queues[batch.key].batches.remove(batch)
        self.queues[batch.key].open = None
        self.release(batch)

    def release(self, batch: Batch) -> None:
        """Give back a finished batch's memory."""
        self.free_bytes += batch.reserved
        batch.reserved = 0

    def is_due(self, queue: Queue, now: float, linger_s: float, *, force: bool) -> bool:
        """Whether the queue's first batch is due: full, old enough, sent before, or `force`."""
        batch = queue.batches[0]
        if batch.retry_at > now:
            return False
        return force or batch is not queue.open or batch.attempts > 0 or now - batch.created_at >= linger_s

    def expired(self, now: float, timeout_s: float) -> list[Batch]:
        """Take out the batches that have waited too long in their queues."""
        found: list[Batch] = []
        for queue in self.queues.values():
            while queue.batches and now - queue.batches[0].created_at >= timeout_s:
                found.append(queue.take())
        return found

    def take_all(self) -> list[Batch]:
        """Take out everything (abort, close)."""
        found: list[Batch] = []
        for queue in self.queues.values():
            while queue.batches:
                found.append(queue.take())
        return found

    def split(self, batch: Batch) -> list[Batch]:
        """The records of a batch that is too large for the broker, in batches of at most half its size.

        Their deliveries follow. One record alone cannot be split: the answer is empty then.
        """
        if batch.count < 2:
            return []
        view = memoryview(batch.encode())
        records = decode_records(view, parse_header(view))
        limit = max(
            HEADER_SIZE + 1, min(self._batch_size, sum(record_size(r.key, r.value, r.headers) for r in records) // 2)
        )
        parts: list[Batch] = []
        for index, record in enumerate(records):
            if not parts or not _grow(parts[-1], record.timestamp, record.key, record.value, record.headers):
                part = Batch(batch.key, BatchBuilder(self._codec, limit, self._level), batch.created_at, 0)
                part.first_index = index
                part.attempts = batch.attempts
                part.transactional = batch.transactional
                if batch.timestamps is not None:
                    part.timestamps = []
                parts.append(part)
                _grow(part, record.timestamp, record.key, record.value, record.headers)
        parts[0].reserved, batch.reserved = batch.reserved, 0
        callbacks, batch.callbacks = batch.callbacks, None
        for index, timestamp_ms, callback in callbacks or ():
            part = next(each for each in reversed(parts) if each.first_index <= index)
            part.add_callback(index - part.first_index, timestamp_ms, callback)
        return parts


def _grow(batch: Batch, timestamp: int, key: Data | None, value: Data | None, headers: Headers) -> bool:
    assert batch.builder is not None
    if not batch.builder.append(timestamp, key, value, headers):
        return False
    batch.count += 1
    if batch.timestamps is not None:
        batch.timestamps.append(timestamp)
    return True


def record_size(key: Data | None, value: Data | None, headers: Headers | Sequence[Any]) -> int:
    """An upper bound of the bytes that a record alone takes in a batch, header included."""
    size = HEADER_SIZE + _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name.encode()) + len(content or b"")
    return size


Leader = Callable[[str, int], int]
