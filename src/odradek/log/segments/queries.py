"""Questions about the content of a log's segments: by timestamp, by transaction, batch by batch.

`segments` begin with the one that holds the start offset. OSError and KafkaError KAFKA_STORAGE_ERROR pass through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.log.segments.segment import NO_TIMESTAMP, Located, Segment
from odradek.log.segments.transaction_index import AbortedTransaction, collect
from odradek.records.errors import CorruptRecords
from odradek.records.record import find_timestamp as find_record_timestamp


def batches(segments: Sequence[Segment], offset: int, upper_offset: int) -> Iterator[memoryview]:
    """The bytes of each batch from the one that holds the offset up to the upper offset, CRCs checked."""
    for segment in segments:
        start = segment.locate(offset)
        if start is None:
            continue
        for found in segment.scan(start.position):
            if found.header.last_offset >= upper_offset:
                return
            yield segment.read_batch(found)


def locate(segments: Sequence[Segment], offset: int) -> Located | None:
    """The first batch that ends at the offset or later."""
    for segment in segments:
        found = segment.locate(offset)
        if found is not None:
            return found
    return None


class FoundTimestamp(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_timestamp(segments: Sequence[Segment], timestamp_ms: int, start_offset: int) -> FoundTimestamp | None:
    """The first record from the start offset on with this timestamp or a later one."""
    for segment in segments:
        if segment.size and segment.load_max_timestamp()[0] >= timestamp_ms:
            found = _find_in(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _find_in(segment: Segment, timestamp_ms: int, start_offset: int) -> FoundTimestamp | None:
    offset = max(segment.times().lookup(timestamp_ms), start_offset)
    for found in segment.scan(segment.offsets().lookup(offset)):
        header = found.header
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        record = _find_record(segment, found, timestamp_ms, start_offset)
        if record is not None:
            return FoundTimestamp(*record, header.partition_leader_epoch)
    return None


def _find_record(segment: Segment, found: Located, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of a batch's first record from the start offset on with this timestamp or a later one."""
    data = segment.read_batch(found)
    try:
        return find_record_timestamp(data, found.header, timestamp_ms, start_offset)
    except CorruptRecords as error:
        raise segment.broken(found.position, found.header.base_offset, str(error)) from error


def _max_between(segment: Segment, start_offset: int, upper_offset: int) -> tuple[int, int] | None:
    """(timestamp, last offset of its batch) of the largest timestamp of a segment's records within the offsets."""
    best: tuple[int, int] | None = None
    for found in segment.scan(segment.offsets().lookup(start_offset)):
        header = found.header
        if header.last_offset < start_offset or not header.records_count:
            continue
        if header.last_offset >= upper_offset:
            break
        timestamp = header.max_timestamp
        if header.base_offset < start_offset:
            timestamp = max(segment.columns(found).since(start_offset).timestamps, default=NO_TIMESTAMP)
        if best is None or timestamp > best[0]:
            best = timestamp, header.last_offset
    return best


def max_timestamp(
    segments: Sequence[Segment], start_offset: int, upper_offset: int, end_offset: int
) -> FoundTimestamp | None:
    """The first record within the offsets that has the largest timestamp of them."""
    best: tuple[int, int, Segment] | None = None
    for index, segment in enumerate(segments):
        if not segment.size or segment.base_offset >= upper_offset:
            continue
        end = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        known: tuple[int, int] | None = segment.load_max_timestamp()
        if end > upper_offset or segment.base_offset < start_offset:
            known = _max_between(segment, start_offset, upper_offset)
        if known is not None and known[0] >= 0 and (best is None or known[0] > best[0]):
            best = known[0], known[1], segment
    if best is None:
        return None
    timestamp, offset, segment = best
    found = segment.locate(offset)
    if found is None:
        return None
    header = found.header
    record = _find_record(segment, found, timestamp, start_offset)
    if record is not None and record[1] == timestamp:
        return FoundTimestamp(*record, header.partition_leader_epoch)
    # The header names a timestamp that no record has: its producer was wrong, and the batch is all there is to name.
    return FoundTimestamp(max(header.base_offset, start_offset), timestamp, header.partition_leader_epoch)


def aborted(segments: Sequence[Segment], start_offset: int, upper_offset: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions that have records in [start, upper)."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        if collect(segment.transactions.entries(), start_offset, upper_offset, found):
            break
    return [(transaction.producer_id, transaction.first_offset) for transaction in found]
