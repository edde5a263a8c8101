"""Fetched batches whose records are decoded when a program looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from odradek.client.consumer.positions import PartitionState, consumer_records
from odradek.client.model import ConsumerRecord, Headers
from odradek.records.batch import BatchHeader, verify_crc
from odradek.records.columns import EncodedColumns
from odradek.records.errors import CorruptRecords
from odradek.records.headers import decode_headers
from odradek.records.record import scan_columns
from odradek.records.topic_partition import TopicPartition

Encoded = ConsumerRecord[bytes | None, bytes | None]


class RecordBatch(Sequence[Encoded]):
    """Records of one partition in the order of their offsets, as columns or one by one.

    The columns are decoded at the first look at any of them, headers at the first look at them; that raises
    CorruptRecords for records that contradict their batch. Keys and values are bytes as they were sent: deserializers
    and interceptors are not called.

    Example:

        async for batch in consumer.batches():
            print(batch.topic_partition, len(batch), sum(len(value or b"") for value in batch.values))
    """

    __slots__ = ("_columns", "_from_offset", "_header", "_headers", "_position", "_view", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, view: memoryview, position: int, header: BatchHeader, from_offset: int
    ) -> None:
        self.topic_partition = topic_partition
        """Topic and partition of all its records."""
        self._view = view
        self._position = position
        self._header = header
        self._from_offset = from_offset
        self._columns: EncodedColumns | None = None
        self._headers: Sequence[Headers] | None = None

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.topic_partition} before offset {self.next_offset}>"

    @property
    def next_offset(self) -> int:
        """The offset after the batch: the consumer's position once the batch is returned."""
        return self._header.next_offset

    def __len__(self) -> int:
        header = self._header
        if self._columns is None and header.records_count == header.last_offset_delta + 1:
            return min(header.records_count, header.next_offset - self._from_offset)  # no gaps, no need to look
        return len(self._decoded().offsets)

    def _decoded(self) -> EncodedColumns:
        if self._columns is None:
            self._columns = self._decode(copy=True)
        return self._columns

    def _decode(self, *, copy: bool) -> EncodedColumns:
        try:
            columns = scan_columns(self._view, self._header, self._position, copy=copy)
        except CorruptRecords as error:
            raise CorruptRecords(f"{self.topic_partition}: {error}") from error
        return columns.since(self._from_offset)

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""
        return self._decoded().offsets

    @property
    def timestamps(self) -> Sequence[int]:
        """The timestamp of each record, in ms since the epoch."""
        return self._decoded().timestamps

    @property
    def keys(self) -> Sequence[bytes | None]:
        """The key of each record."""
        return self._decoded().keys  # type: ignore[return-value]  # with copy there are only bytes

    @property
    def values(self) -> Sequence[bytes | None]:
        """The value of each record."""
        return self._decoded().values  # type: ignore[return-value]  # with copy there are only bytes

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each record."""
        if self._headers is None:
            encoded = self._decoded().headers
            try:
                self._headers = [decode_headers(each) if each else () for each in encoded]  # type: ignore[misc]
            except CorruptRecords as error:
                raise CorruptRecords(f"{self.topic_partition}: {error}") from error
        return self._headers

    def views(self) -> tuple[Sequence[memoryview | None], Sequence[memoryview | None]]:
        """Keys and values as memoryviews of the answer that brought them, which lives as long as one of them."""
        columns = self._decode(copy=False)
        return columns.keys, columns.values  # type: ignore[return-value]  # without copy there are only views

    def __iter__(self) -> Iterator[Encoded]:
        return iter(self._records())

    @overload
    def __getitem__(self, index: int) -> Encoded: ...

    @overload
    def __getitem__(self, index: slice) -> list[Encoded]: ...

    def __getitem__(self, index: int | slice) -> Encoded | list[Encoded]:
        return self._records()[index]

    def _records(self) -> list[Encoded]:
        topic, partition = self.topic_partition
        return consumer_records(topic, partition, self._header, self._decoded())


def take_batch(state: PartitionState, *, check_crcs: bool) -> RecordBatch | None:
    """The next fetched batch of a partition, if there is one; the position moves past it. Raises CorruptRecords."""
    before = state.position, state.position_epoch
    taken = state.take_batch()
    if taken is None:
        return None
    chunk, position, header, first = taken
    if check_crcs:
        try:
            verify_crc(chunk.view, position, header)
        except CorruptRecords as error:
            state.seek(*before)  # the next call meets the failure again
            raise CorruptRecords(f"{state.key}: {error}") from error
    return RecordBatch(state.key, chunk.view, position, header, first)
