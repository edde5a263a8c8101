"""A task's reading: fetch answers to Arrow batches of Spark's schema, the next fetch under way while one is decoded."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from odradek.client.consumer.consumer import Consumer
from odradek.client.model import EARLIEST, LATEST, RawFetch
from odradek.client.offsets import list_offsets
from odradek.records.arrow import decode_to_arrow
from odradek.records.arrow_gather import primitive
from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, parse_header
from odradek.records.topic_partition import TopicPartition
from odradek.spark import clients
from odradek.spark.offsets import OffsetRange, SourceError
from odradek.spark.options import SourceOptions
from odradek.spark.topics import id_text
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 500
_RANGES_AHEAD: Final = 4
"""Ranges of a task that are asked for at a time. Tasks with several have few records of each."""
_TOGETHER_BYTES: Final = 1024 * 1024
"""Rows of several ranges become one batch as long as they are fewer."""
_LENGTH: Final = struct.Struct(">i").unpack_from

_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


class Constants:
    """Columns that are the same in every row, made once and sliced."""

    __slots__ = ("_columns", "_partition", "_topic")

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._columns: tuple[Any, Any] = (pa.nulls(0, pa.string()), pa.nulls(0, pa.int32()))

    def columns(self, count: int) -> tuple[Any, Any]:
        """topic and partition, `count` rows."""
        if len(self._columns[0]) < count:
            size = count if count < 4096 else max(count, 65_536)
            name = self._topic.encode()
            offsets: Any = np.arange(0, (size + 1) * len(name), len(name), dtype=np.int32)
            topic = pa.StringArray.from_buffers(size, pa.py_buffer(offsets), pa.py_buffer(name * size))
            self._columns = (topic, primitive(pa.int32(), np.full(size, self._partition, np.int32)))
        topic, partition = self._columns
        return topic.slice(0, count), partition.slice(0, count)


def read_ranges(options: SourceOptions, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
    """Record batches of all records in the ranges, one range after the other; the next ones are asked for meanwhile.

    Raises SourceError where records of a range have expired and failOnDataLoss is set, KafkaError, CorruptRecords.
    """
    waiting = deque(ranges)
    if len(waiting) == 1:
        yield from _read_in_turn(options, waiting)
        return
    # A batch costs Java as much as hundreds of rows, and such tasks have few of each range.
    together: list[Any] = []
    for each in _read_in_turn(options, waiting):
        together.append(each)
        if sum(rows.nbytes for rows in together) >= _TOGETHER_BYTES:
            yield _joined(together)
            together = []
    if together:
        yield _joined(together)


def _joined(batches: list[Any]) -> Any:
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return rows


def _read_in_turn(options: SourceOptions, waiting: deque[OffsetRange]) -> Iterator[Any]:
    consumer = clients.consumer(options.client)
    begun: deque[_Reading] = deque()
    try:
        while waiting or begun:
            while waiting and len(begun) < _RANGES_AHEAD:
                begun.append(_Reading(options, consumer, waiting.popleft()))
                begun[-1].begin()
            yield from _read(begun.popleft())
    finally:
        for each in begun:
            clients.cancel(each.begin())


def _read(reading: _Reading) -> Iterator[Any]:
    """Record batches of a range whose first fetch is under way."""
    wanted = reading.wanted
    position = wanted.start
    task = reading.begin()
    try:
        while True:
            try:
                answer = clients.finish(task)
            except KafkaError as error:
                position = reading.after_loss(error, position)
                if position >= wanted.end:
                    return
                task = clients.start(reading.fetch(position))
                continue
            begin, position = position, reading.next_position(answer, position)
            if position < wanted.end:
                task = clients.start(reading.fetch(position))
            if position > begin:
                rows = reading.decode(answer, begin)
                if rows is not None:
                    yield rows
            if position >= wanted.end:
                return
    finally:
        if not task.done():
            clients.cancel(task)


def _end_offset(batches: memoryview) -> int | None:
    """The offset behind the last complete batch; None without one."""
    last, position, end = None, 0, len(batches)
    while position + HEADER_SIZE <= end:
        after = position + LOG_OVERHEAD + _LENGTH(batches, position + 8)[0]
        if not position + HEADER_SIZE <= after <= end:
            break
        last, position = position, after
    if last is None:
        return None
    header = parse_header(batches, last)
    return header.base_offset + header.last_offset_delta + 1


class _Reading:
    __slots__ = ("_bytes", "_constants", "_consumer", "_first", "_idle_ms", "_options", "_wait_ms", "wanted")

    def __init__(self, options: SourceOptions, consumer: Consumer, wanted: OffsetRange) -> None:
        self._options = options
        self._consumer = consumer
        self._first: asyncio.Task[RawFetch] | None = None
        self.wanted = wanted
        self._constants = Constants(wanted.topic, wanted.partition)
        given = dict(options.client)
        self._bytes = int(given.get("max_partition_fetch_bytes", FETCH_BYTES))
        # An empty answer has to come before the time for all of them is over.
        self._wait_ms = min(_WAIT_MS, max(1, options.poll_timeout_ms // 4))
        self._idle_ms = 0

    def begin(self) -> asyncio.Task[RawFetch]:
        """The first fetch, which is begun once."""
        if self._first is None:
            self._first = clients.start(self.fetch(self.wanted.start))
        return self._first

    async def fetch(self, position: int) -> RawFetch:
        answer = await self._consumer.fetch_raw(
            self.wanted.topic,
            self.wanted.partition,
            position,
            self._bytes,
            max_wait_ms=self._wait_ms,
            timeout_ms=self._options.poll_timeout_ms,
        )
        found = self._consumer.cluster.metadata.topic_id(self.wanted.topic)
        if self.wanted.topic_id and found != ZERO_UUID and id_text(found) != self.wanted.topic_id:
            # The client has found the new topic of this name, whose offsets are others.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {self.wanted.topic} was deleted and created again")
        return answer

    def next_position(self, answer: RawFetch, position: int) -> int:
        """The offset behind the last whole batch of an answer."""
        found = _end_offset(answer.batches)
        if found is not None:
            self._idle_ms = 0
            return max(position, found)
        self._idle_ms += self._wait_ms
        if self._idle_ms >= self._options.poll_timeout_ms:
            where = TopicPartition(self.wanted.topic, self.wanted.partition)
            if not self._options.fail_on_data_loss:
                logger.warning("%s: no record from offset %d up to %d arrived", where, position, self.wanted.end)
                return self.wanted.end
            raise SourceError(
                f"no record of {where} came from offset {position} on within {self._options.poll_timeout_ms} ms, "
                f"though the query goes up to {self.wanted.end}; the partition has up to {answer.high_watermark}"
            )
        return position

    def decode(self, answer: RawFetch, begin: int) -> Any:
        """Rows of an answer in Spark's schema, None where it has none of the range."""
        with_headers = self._options.include_headers
        rows = decode_to_arrow(
            answer.batches,
            start_offset=begin,
            end_offset=self.wanted.end,
            aborted=answer.aborted,
            include_headers=with_headers,
        )
        count = rows.num_rows
        if not count:
            return None
        milliseconds = rows.column(3).to_numpy(zero_copy_only=False)
        timestamp = pa.Array.from_buffers(
            pa.timestamp("us", "UTC"), count, [None, pa.py_buffer(np.multiply(milliseconds, 1000))]
        )
        topic, partition = self._constants.columns(count)
        columns = [rows.column(0), rows.column(1), topic, partition, rows.column(2), timestamp, rows.column(4)]
        if not with_headers:
            return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        columns.append(rows.column(5).cast(_HEADERS))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS)

    def after_loss(self, error: KafkaError, position: int) -> int:
        """The offset to continue at when the log no longer has the position; raises unless data may be lost."""
        gone = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        if error.code not in gone:
            raise error
        key = TopicPartition(self.wanted.topic, self.wanted.partition)
        if self._options.fail_on_data_loss:
            raise SourceError(
                f"offset {position} of {key} is not available: the topic was deleted or records expired before they "
                "were read. failOnDataLoss=false skips them"
            ) from error
        first, end = self.wanted.end, self.wanted.end
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            cluster = self._consumer.cluster
            first = clients.run(list_offsets(cluster, {key: EARLIEST}))[key].offset
            end = clients.run(list_offsets(cluster, {key: LATEST}))[key].offset
        if not position < first <= end:
            first = self.wanted.end
        logger.warning("%s: offsets %d to %d may have been lost", key, position, min(first, self.wanted.end))
        return first
