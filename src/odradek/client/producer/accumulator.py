"""Records waiting to be sent: batches per partition (Kafka's RecordAccumulator). Callers pass the time; no I/O."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from odradek.client.errors import IllegalState
from odradek.client.model import RecordMetadata
from odradek.client.producer.outcome_wait import OutcomeWait
from odradek.client.producer.sequence_numbers import NO_IDENTITY, NO_SEQUENCE, ProducerIdentity, precedes
from odradek.client.type_parameters import Data
from odradek.records.batch import HEADER_SIZE, NO_LEADER_EPOCH, TRANSACTIONAL_BIT, parse_header, patch_producer
from odradek.records.builder import BatchFields, finish_batch_in_place
from odradek.records.compression import Codec, check_level
from odradek.records.record import decode_records
from odradek.records.section import encode_headers, encode_section
from odradek.records.topic_partition import PartitionKey

logger = logging.getLogger(__name__)

OnDelivery = Callable[[RecordMetadata | None, Exception | None], None]
"""(place of the record, None) or (None, what it was lost with)."""

_NO_OFFSET: Final = -1
_ATTRIBUTES_LOW: Final = 22
_RECORD_OVERHEAD: Final = 21
"""Most bytes of a record besides key, value and headers (Kafka's MAX_RECORD_OVERHEAD)."""
PLAIN_OVERHEAD: Final = 12
"""The same for a record of the present without a key, of at most PLAIN_BYTES, among the first 8,192 of its batch."""
KEYED_OVERHEAD: Final = 13
"""The same with a key: its length may take a second byte."""
PLAIN_BYTES: Final = 8000
PRESENT_MS: Final = 1 << 19
"""Timestamps of a batch differ by less unless records bring their own."""


class Compression(NamedTuple):
    """Codec and level (None: the codec's default) of a producer's batches."""

    codec: int
    level: int | None


class Batch:
    """Records of one partition that are sent together; their deliveries read the outcome from it.

    Until it is taken from its queue it grows, as columns (`timestamps`, `keys`, `values`, `headers`), while `filled`,
    an upper bound of its encoded bytes, stays below `limit`. A batch that accepts no more records has the limit 0.
    `reported` of these bytes are known to the partitioner.
    """

    __slots__ = (
        "_compression",
        "_count",
        "_first_offset",
        "_log_append_time",
        "_waiters",
        "attempts",
        "base_sequence",
        "brief_failures",
        "callbacks",
        "created_at",
        "data",
        "done",
        "error",
        "failure_seen",
        "filled",
        "first_index",
        "headers",
        "identity",
        "key",
        "keys",
        "limit",
        "may_be_written",
        "parts",
        "raw_size",
        "reported",
        "reserved",
        "retry_at",
        "sequence_was_reset",
        "timestamps",
        "transactional",
        "values",
    )  # fmt: skip

    def __init__(
        self, key: PartitionKey, limit: int, compression: Compression, created_at: float, reserved: int
    ) -> None:
        self.key = key
        self.limit = limit
        self.filled = self.reported = HEADER_SIZE
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] | None = None
        self.values: list[bytes | None] = []
        self.headers: dict[int, bytes] = {}
        self.created_at = created_at
        self.reserved = reserved
        self._compression = compression
        self._count = 0
        self.raw_size = 0
        self.data: bytearray | None = None
        self.attempts = 0
        self.brief_failures = 0
        self.retry_at = 0.0
        self.may_be_written = False
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.sequence_was_reset = False
        self.transactional = False
        self.first_index = 0
        self.parts: list[Batch] | None = None
        self.callbacks: list[tuple[int, int, OnDelivery]] | None = None
        self.done = False
        self.error: Exception | None = None
        self.failure_seen = False
        self._first_offset = _NO_OFFSET
        self._log_append_time = -1
        self._waiters: list[OutcomeWait] = []

    @property
    def size(self) -> int:
        """Bytes of the encoded batch; before that, the most that it takes without compression."""
        return self.filled if self.data is None else len(self.data)

    @property
    def count(self) -> int:
        """The number of records."""
        return self._count or len(self.values)

    def has_room(self, key: Data | None, value: Data | None, headers: bytes) -> bool:
        """Whether a record of the present fits; `headers` are encoded, empty for none."""
        return self.filled + _bound(key, value) + len(headers) <= self.limit

    def append(self, timestamp_ms: int, key: Data | None, value: Data | None, headers: bytes) -> bool:
        """Add a record if there is room, and in any case to an empty batch; `headers` are encoded, empty for none."""
        index = len(self.values)
        filled = self.filled + _bound(key, value) + len(headers)
        if timestamp_ms < 0 or (index and abs(timestamp_ms - self.timestamps[0]) > PRESENT_MS):
            filled += _RECORD_OVERHEAD - PLAIN_OVERHEAD
        if filled > self.limit and index:
            return False
        # Bytes are kept as they are; other buffers may change before the batch is encoded.
        if key is not None:
            if self.keys is None:
                self.keys = [None] * index
            self.keys.append(bytes(key))
        elif self.keys is not None:
            self.keys.append(None)
        self.values.append(None if value is None else bytes(value))
        self.timestamps.append(timestamp_ms)
        if headers:
            self.headers[index] = headers
        self.filled = filled
        return True

    def close(self) -> None:
        """Accept no more records."""
        self.limit = 0

    @classmethod
    def of_encoded(cls, key: PartitionKey, data: bytearray, count: int, created_at: float) -> Batch:
        """A batch that the caller has encoded."""
        batch = cls(key, 0, Compression(Codec.NONE, None), created_at, len(data))
        batch.data = data
        batch._count = count
        batch.raw_size = len(data)
        return batch

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
            timestamps = self.timestamps
            count = self._count = len(timestamps)
            batch = encode_section(timestamps, self.keys, self.values, self.headers, HEADER_SIZE)
            self.raw_size = len(batch)
            shape = (count, count - 1, timestamps[0], max(timestamps))
            producer_id, epoch = self.identity
            fields = BatchFields(0, NO_LEADER_EPOCH, producer_id, epoch, self.base_sequence, self.transactional)
            self.data = finish_batch_in_place(batch, *self._compression, shape, fields)
            self._forget_columns()
        return self.data

    def _forget_columns(self) -> None:
        self.limit = 0
        self.keys = None
        self.values = []
        self.headers = {}

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
        self._count = self.count
        self._forget_columns()
        self.data = None
        if self._waiters:
            self.failure_seen = True
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

    def waiter(self) -> OutcomeWait:
        """For one task to await: over when the batch has its outcome or other batches replace it; it never fails.

        Raises IllegalState in another event loop than that of earlier waiters.
        """
        waiter = OutcomeWait(asyncio.get_running_loop())
        if self._waiters and self._waiters[0].get_loop() is not waiter.get_loop():
            raise IllegalState("the delivery belongs to another event loop: await it in that of its producer")
        self._waiters.append(waiter)
        return waiter

    def wake_waiters(self, *, at_once: bool = False) -> None:
        """Wake the tasks that wait for the outcome in the next turn of the loop.

        `at_once`: if there is one task, it continues within this call, and may do anything with the producer.
        """
        waiters, self._waiters = self._waiters, []
        at_once = at_once and len(waiters) == 1
        for waiter in waiters:
            waiter.end(at_once=at_once)

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

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            deliveries = [await producer.send("orders", b"order %d" % number) for number in range(3)]
            print([(await delivery).offset for delivery in deliveries])
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def topic_partition(self) -> PartitionKey:
        """The topic and the partition that the record goes to."""
        return self._batch.key

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = self._batch.part_of(self._index)
        while not batch.done:
            yield from batch.waiter().__await__()
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
            self.close()
        return batch

    def close(self) -> None:
        """Let no more records into the last batch."""
        if self.open is not None:
            self.open.close()
            self.open = None

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
        "_compression",
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
        transactional: bool = False,
    ) -> None:
        """Raises ValueError for an unknown codec or a level that it does not have."""
        self._batch_size = max(batch_size, HEADER_SIZE + 1)
        self._compression = Compression(Codec(codec), check_level(Codec(codec), level))
        self.free_bytes = buffer_memory
        self.queues: dict[PartitionKey, Queue] = {}
        self.transactional = transactional

    def append(
        self,
        key: PartitionKey,
        timestamp_ms: int,
        record_key: Data | None,
        value: Data | None,
        headers: bytes,
        loop_time: Callable[[], float],
    ) -> tuple[Batch, bool, bool] | None:
        """Add a record: (its batch, whether that is new, whether an earlier one was closed for it).

        `headers` are encoded with their count (`encode_headers`), and empty if there are none.
        None when there is no memory for another batch. `loop_time` is called for a new batch only; it must be the
        sender's clock, because uvloop's has whole milliseconds.
        """
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key)
        batch = queue.open
        if batch is not None and batch.append(timestamp_ms, record_key, value, headers):
            return batch, False, False
        size = record_size(record_key, value, headers)
        reserved = max(self._batch_size, size)
        if reserved > self.free_bytes:
            return None
        fresh = Batch(key, self._batch_size, self._compression, loop_time(), reserved)
        fresh.transactional = self.transactional
        fresh.append(timestamp_ms, record_key, value, headers)
        self.free_bytes -= reserved
        queue.close()
        queue.batches.append(fresh)
        queue.open = fresh
        return fresh, True, batch is not None

    def add_encoded(self, key: PartitionKey, data: bytearray, count: int, now: float) -> Batch | None:
        """Queue a batch that the caller has encoded; None when there is no memory for it."""
        if len(data) > self.free_bytes:
            return None
        self.free_bytes -= len(data)
        batch = Batch.of_encoded(key, data, count, now)
        if self.transactional:
            data[_ATTRIBUTES_LOW] |= TRANSACTIONAL_BIT  # the CRC follows when the sequence is patched in
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key)
        queue.close()
        queue.batches.append(batch)
        return batch

    def withdraw(self, batch: Batch) -> None:
        """Take back the batch that was begun last."""
        self.queues[batch.key].batches.remove(batch)
        self.queues[batch.key].close()
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
        # The sum is what the sender sets its timer to. The difference may be less than the linger by a rounding error,
        # and a batch that is not due at the time of its timer would wait for ever.
        return force or batch is not queue.open or batch.attempts > 0 or batch.created_at + linger_s <= now

    def may_join(self, queue: Queue, now: float, linger_s: float) -> bool:
        """Whether the first batch may go with a request that goes anyway though it is not due.

        It waits on if it is young and less than half full: small batches cost as much as full ones.
        """
        batch = queue.batches[0]
        return batch.filled * 2 >= batch.limit or (now - batch.created_at) * 2 >= linger_s

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
        headers = [encode_headers(each.headers) if each.headers else b"" for each in records]
        total = sum(record_size(each.key, each.value, encoded) for each, encoded in zip(records, headers, strict=True))
        limit = max(HEADER_SIZE + 1, min(self._batch_size, total // 2))
        parts: list[Batch] = []
        for index, (record, encoded) in enumerate(zip(records, headers, strict=True)):
            if not parts or not parts[-1].append(record.timestamp, record.key, record.value, encoded):
                part = Batch(batch.key, limit, self._compression, batch.created_at, 0)
                part.first_index = index
                part.attempts = batch.attempts
                part.brief_failures = batch.brief_failures
                part.transactional = batch.transactional
                parts.append(part)
                part.append(record.timestamp, record.key, record.value, encoded)
        parts[0].reserved, batch.reserved = batch.reserved, 0
        callbacks, batch.callbacks = batch.callbacks, None
        for index, timestamp_ms, callback in callbacks or ():
            part = next(each for each in reversed(parts) if each.first_index <= index)
            part.add_callback(index - part.first_index, timestamp_ms, callback)
        return parts


def _bound(key: Data | None, value: Data | None) -> int:
    """The most bytes that a record without headers takes."""
    size = (0 if key is None else len(key)) + (0 if value is None else len(value))
    if size > PLAIN_BYTES:
        return size + _RECORD_OVERHEAD
    return size + (PLAIN_OVERHEAD if key is None else KEYED_OVERHEAD)


def record_size(key: Data | None, value: Data | None, headers: bytes) -> int:
    """An upper bound of the bytes that a record alone takes in a batch, header included; `headers` are encoded."""
    return HEADER_SIZE + _RECORD_OVERHEAD + len(key or b"") + len(value or b"") + len(headers)


Leader = Callable[[str, int], int]
