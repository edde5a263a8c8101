"""What batches do to the producers that a log knows of: the same when they are appended and when they are recovered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from odradek.log.producers.state import AppendedBatch, ProducerStates
from odradek.log.segments.segment import Segment
from odradek.records.batch import BatchHeader, parse_header, set_log_append_time
from odradek.records.control import ControlRecord, ControlType


def check_producers(
    producers: ProducerStates,
    data: memoryview,
    batches: Iterable[tuple[int, BatchHeader]],
    control: Mapping[int, ControlRecord | None],
    *,
    from_client: bool,
) -> AppendedBatch | None:
    """Return the earlier batch that one of these repeats, if there is one. `control` is of `control_records`.

    Raises KafkaError for what a producer may not append. A client's batch that is not to be appended may come out of
    it with another LogAppendTime.
    """
    for position, header in batches:
        if header.has_producer_id and not header.is_control:
            crc_at = partial(_crc_at, data, position, header) if header.timestamp_type else None
            original = producers.check(header, from_client=from_client, crc_at=crc_at)
            if original is not None:
                return original
        elif header.is_control:
            marker = control[position]
            if marker is not None and marker.is_end_transaction:
                producers.check_marker(header, marker)
    return None


def _crc_at(data: memoryview, position: int, header: BatchHeader, timestamp_ms: int) -> int:
    """The CRC of the batch if it had been appended at that time."""
    set_log_append_time(data, position, header, timestamp_ms)
    return parse_header(data, position).crc


def prepare_markers(segment: Segment, control: Iterable[ControlRecord | None]) -> None:
    """Open what `replay_marker` writes to, before the markers are written: after that it must not fail.

    Raises OSError, and KafkaError for a broken index.
    """
    for record in control:
        if record is not None and record.type is ControlType.ABORT:
            segment.transactions.open()


def replay_marker(
    producers: ProducerStates, segment: Segment, header: BatchHeader, marker: ControlRecord | None
) -> None:
    """A transaction has ended; if it was aborted, its segment's index records it for readers."""
    if marker is None or not marker.is_end_transaction:
        return
    completed = producers.apply_marker(header, header.base_offset, marker)
    if completed is not None:
        aborted = producers.complete(completed)
        if aborted is not None:
            segment.transactions.add(aborted)
