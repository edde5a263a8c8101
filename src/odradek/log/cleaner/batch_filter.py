"""What compaction keeps of a batch: last values, tombstones in their time, markers, last sequences (Cleaner).

Offsets never change, nothing is reordered. A batch of which everything is kept stays byte for byte as it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from odradek.records.builder import BatchFields, finish_batch
from odradek.records.control import ControlRecord, ControlType, decode_control_record
from odradek.records.errors import CorruptRecords
from odradek.records.fields import INT64_MAX, INT64_MIN, read_varint
from odradek.records.record import decode_records, records_section
from odradek.records.section import varint

Walked = tuple[int, int, int, int, int, bytes | None, bool]
"""Of a record: start and end of its bytes, end of its timestamp, timestamp delta, offset delta, key, has a value."""

NOT_IN_MAP: Final = -1


class LastRecord(NamedTuple):
    """The last write of a producer; `data_offset` is None when only a marker of it is known."""

    data_offset: int | None
    epoch: int


def walk(data: bytes, header: BatchHeader) -> list[Walked]:
    """The records of an uncompressed section, as far as compaction looks at them. Raises CorruptRecords."""
    try:
        return _walk(data, header)
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: its records are cut off") from error


def _walk(data: bytes, header: BatchHeader) -> list[Walked]:
    found: list[Walked] = []
    add = found.append
    end = len(data)
    position = 0
    for _ in range(header[12]):
        start = position
        byte = data[position]
        position += 1
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
        elif (second := data[position]) < 0x80:
            length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 1
        else:
            length, position = read_varint(data, start)
        record_end = position + length
        if length <= 0 or record_end > end:
            raise CorruptRecords(f"batch at offset {header.base_offset}: a record of {length} bytes at byte {start}")
        position += 1
        byte = data[position]
        if byte < 0x80:
            timestamp = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            timestamp, position = read_varint(data, position, 64)
        after_timestamp = position
        byte = data[position]
        if byte < 0x80:
            offset = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            offset, position = read_varint(data, position)
        byte = data[position]
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            length, position = read_varint(data, position)
        key = None
        if length >= 0:
            key = data[position : position + length]
            position += length
        if position >= record_end:
            raise CorruptRecords(f"batch at offset {header.base_offset}: the record at byte {start} ends in its key")
        add((start, record_end, after_timestamp, timestamp, offset, key, data[position] != 1))
        position = record_end
    if position != end:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {end - position} bytes after the last record")
    return found


def marker_of(view: memoryview, header: BatchHeader) -> ControlRecord | None:
    """What a control batch says; None for one that compaction has emptied."""
    return decode_control_record(decode_records(view, header)[0]) if header.records_count else None


class Transactions:
    """Follows the transactions while their log is read in order (CleanedTransactionMetadata)."""

    __slots__ = ("_aborted", "_committed", "_ongoing", "_seen")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._aborted)
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch of data belongs to a transaction that was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._ongoing:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, marker: ControlRecord | None) -> tuple[bool, AbortedTransaction | None]:
        """Whether nothing is left of the transaction that the marker ends; and what to index if it was aborted."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if marker is None:
            return True, None
        if marker.type is ControlType.ABORT:
            transaction = self._ongoing.pop(producer_id, None)
            if transaction is not None and producer_id in self._seen:
                self._seen.discard(producer_id)
                return False, transaction
            return True, None
        if marker.type is ControlType.COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data, None
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while aborted and aborted[0][0] <= offset:
            _, transaction = heapq.heappop(aborted)
            self._ongoing.setdefault(transaction.producer_id, transaction)


class Kept(NamedTuple):
    """What is left of a batch: None for nothing, the bytes that came in if all of it."""

    data: memoryview | bytearray | None
    max_timestamp: int
    aborted: AbortedTransaction | None


class Retention:
    """Decides, batch by batch in the order of the log."""

    __slots__ = (
        "_horizon_ms",
        "_last_records",
        "_latest",
        "_levels",
        "_now_ms",
        "_offsets",
        "_transactions",
        "_upper",
    )

    def __init__(
        self,
        offsets: Mapping[bytes, int],
        latest_offset: int,
        transactions: Transactions,
        last_records: Mapping[int, LastRecord],
        times: tuple[int, int],
        levels: Mapping[int, int | None],
    ) -> None:
        """`offsets` are the last ones of each key up to `latest_offset`; `times` are now and delete.retention.ms."""
        self._offsets = offsets
        self._latest = latest_offset
        self._upper = latest_offset + 1
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms, tombstone_ms = times
        # The sum may have more than 64 bits: such tombstones stay for ever.
        self._horizon_ms = min(self._now_ms + tombstone_ms, INT64_MAX)
        self._levels = levels

    def keep(self, view: memoryview, header: BatchHeader) -> Kept:
        """What is left of the batch in `view`. Raises CorruptRecords."""
        horizon = header.base_timestamp if header.has_delete_horizon else None
        aborted = None
        if header.is_control:
            nothing_left, aborted = self._transactions.on_marker(header, marker_of(view, header))
            discard = nothing_left and horizon is not None and horizon <= self._now_ms
            needs_horizon = nothing_left
        else:
            discard = self._transactions.is_aborted(header)
            needs_horizon = False
        if discard or not header.records_count:
            return Kept(self._empty(header, view), header.max_timestamp, aborted)
        data = bytes(records_section(view, header))
        walked = walk(data, header)
        if header.is_control:
            kept = walked
        else:
            kept = self._select(walked, header.base_offset, horizon)
            if not kept:
                return Kept(self._empty(header, view), header.max_timestamp, aborted)
            needs_horizon = any(not record[6] for record in kept)
        needs_horizon = needs_horizon and horizon is None
        if len(kept) == len(walked) and not needs_horizon:
            return Kept(view, header.max_timestamp, aborted)
        max_timestamp = header.max_timestamp
        if not header.attributes & TIMESTAMP_TYPE_BIT:
            max_timestamp = header.base_timestamp + max(record[3] for record in kept)
            if not INT64_MIN <= max_timestamp <= INT64_MAX:
                raise CorruptRecords(f"batch at offset {header.base_offset}: a record has timestamp {max_timestamp}")
        new_base = self._horizon_ms if needs_horizon else None
        return Kept(self._rebuild(data, header, kept, max_timestamp, new_base), max_timestamp, aborted)

    def _select(self, walked: list[Walked], base_offset: int, horizon: int | None) -> list[Walked]:
        offsets = self._offsets
        latest = self._latest
        tombstones = horizon is None or self._now_ms < horizon
        kept = []
        for record in walked:
            offset = base_offset + record[4]
            if offset <= latest:
                key = record[5]
                if key is None or offset < offsets.get(key, NOT_IN_MAP) or not (record[6] or tombstones):
                    continue
            kept.append(record)
        return kept

    def _empty(self, header: BatchHeader, view: memoryview) -> bytearray | memoryview | None:
        """Keep the header alone if it is the last of its producer, or the cleaned range ends there; else nothing."""
        last = self._last_records.get(header.producer_id) if header.has_producer_id else None
        if last is not None:
            if last.data_offset is None:
                wanted = header.is_control and header.producer_epoch == last.epoch
            else:
                wanted = header.last_offset == last.data_offset
        else:
            wanted = False
        if not wanted and header.next_offset != self._upper:
            return None
        if not header.records_count:
            return view
        attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
        shape = (0, header.last_offset_delta, NO_TIMESTAMP, header.max_timestamp)
        return finish_batch(b"", 0, None, shape, _fields(header), attributes)

    def _rebuild(
        self, data: bytes, header: BatchHeader, kept: list[Walked], max_timestamp: int, horizon: int | None
    ) -> bytearray:
        attributes = header.attributes & ~COMPRESSION_MASK
        base_timestamp = header.base_timestamp
        if horizon is None:
            section = b"".join([data[record[0] : record[1]] for record in kept])
        else:
            section = b"".join([_moved(data, record, base_timestamp - horizon) for record in kept])
            base_timestamp = horizon
            attributes |= DELETE_HORIZON_BIT
        shape = (len(kept), header.last_offset_delta, base_timestamp, max_timestamp)
        codec = header.compression
        return finish_batch(section, codec, self._levels.get(codec), shape, _fields(header), attributes)


def _moved(data: bytes, record: Walked, by: int) -> bytes:
    """The record for a batch with another base timestamp. Raises CorruptRecords."""
    start, end, after_timestamp, delta = record[:4]
    moved = delta + by
    if not INT64_MIN <= moved <= INT64_MAX:
        raise CorruptRecords(f"a record's timestamp is {-moved} ms before its delete horizon")
    _, body = read_varint(data, start)
    content = data[body : body + 1] + varint(moved) + data[after_timestamp:end]
    return varint(len(content)) + content


def _fields(header: BatchHeader) -> BatchFields:
    """Attribute bits are handed over apart from these."""
    return BatchFields(
        header.base_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
