"""What a broker asks about the records of a producer's batch, found without an object for each of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from odradek.records.batch import NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, BatchHeader
from odradek.records.compression import MAX_UNCOMPRESSED_BYTES
from odradek.records.errors import CorruptRecords
from odradek.records.fields import INT64_MAX, INT64_MIN, UNZIGZAG, read_varint
from odradek.records.headers import decode_headers
from odradek.records.record import MIN_RECORD_SIZE, records_section
from odradek.records.uniform import Run, uniform_runs
from odradek.records.varied import VariedFacts, varied_facts


class RecordFacts(NamedTuple):
    """About all records of a batch."""

    has_null_key: bool
    least_timestamp: int
    """In ms, of the records that have one; NO_TIMESTAMP if none has."""
    largest_timestamp: int
    has_gaps: bool
    """Whether an offset delta is not the record's number in the batch."""
    most_headers: int
    """The headers of the record that has most of them."""


def examine_records(
    view: memoryview, header: BatchHeader, position: int = 0, *, max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> RecordFacts:
    """The facts about the records of the batch at `position` of `view`.

    Raises CorruptRecords for what `decode_columns` raises it for.
    """
    data = bytes(records_section(view, header, position, max_uncompressed_bytes=max_uncompressed_bytes))
    try:
        runs = uniform_runs(data, header)
        if runs is not None:
            facts = _of_runs(data, runs)
        elif (varied := varied_facts(data, header)) is not None:
            facts = _of_varied(varied, header)
        else:
            facts = _walk(data, header)
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: its records are cut off") from error
    except CorruptRecords as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {error}") from error
    if header.attributes & TIMESTAMP_TYPE_BIT and header.records_count:
        return facts._replace(least_timestamp=header.max_timestamp, largest_timestamp=header.max_timestamp)
    return facts


def _of_runs(data: bytes, runs: list[Run]) -> RecordFacts:
    timestamps = [timestamp for run in runs for timestamp in run.timestamps]
    most_headers = 0
    for position, stop, _, shape, _ in runs:
        if shape.has_headers:
            for end in range(position + shape.size, stop + 1, shape.size):
                encoded = data[end - shape.size + shape.headers : end]
                most_headers = max(most_headers, len(decode_headers(encoded)))
    has_null_key = any(run.shape.key_length < 0 for run in runs)
    return RecordFacts(has_null_key, *_bounds(timestamps, 0), False, most_headers)


def _of_varied(varied: VariedFacts, header: BatchHeader) -> RecordFacts:
    return RecordFacts(varied.has_null_key, *_bounds(varied.deltas, header.base_timestamp), False, 0)


def _bounds(deltas: Collection[int], base: int) -> tuple[int, int]:
    """The least timestamp of records that have one, and the largest timestamp. Raises CorruptRecords."""
    if not deltas:
        return NO_TIMESTAMP, NO_TIMESTAMP
    least, largest = base + min(deltas), base + max(deltas)
    if least < INT64_MIN or largest > INT64_MAX:
        raise CorruptRecords(f"timestamps from {least} to {largest}")
    if least == NO_TIMESTAMP:
        least = min((base + delta for delta in deltas if base + delta != NO_TIMESTAMP), default=NO_TIMESTAMP)
    return least, largest


def _walk(data: bytes, header: BatchHeader) -> RecordFacts:
    """The facts about records of any shape, in three passes over them."""
    bodies, ends = _bodies(data, header.records_count)
    if ends and ends[-1] != len(data):
        raise CorruptRecords(f"{len(data) - ends[-1]} bytes after the last record")
    keys, deltas, last_delta = _keys(data, bodies)
    if last_delta > header.last_offset_delta:
        raise CorruptRecords(f"offset delta {last_delta} beyond the batch's last, {header.last_offset_delta}")
    # Deltas grow from record to record: only with a gap the last one exceeds the last record's number.
    has_gaps = last_delta != header.records_count - 1
    has_null_key, most_headers = _contents(data, keys, ends)
    return RecordFacts(has_null_key, *_bounds(deltas, header.base_timestamp), has_gaps, most_headers)


# Varints of one and two bytes, nearly all of them, are decoded in line: a call costs more than the rest of a record.


def _bodies(data: bytes, count: int) -> tuple[list[int], list[int]]:
    """Where the records begin behind their lengths, and where they end."""
    unzigzag, end, least_length = UNZIGZAG, len(data), MIN_RECORD_SIZE - 1
    bodies: list[int] = []
    ends: list[int] = []
    position = 0
    for _ in range(count):
        byte = data[position]
        if byte < 0x80:
            length = unzigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 2
        else:
            length, position = read_varint(data, position)
        bodies.append(position)
        position += length
        if length < least_length or position > end:
            raise CorruptRecords(f"record of {length} bytes at byte {position - length} of {end}")
        ends.append(position)
    return bodies, ends


def _keys(data: bytes, bodies: list[int]) -> tuple[list[int], list[int], int]:
    """Where the keys' lengths are, the timestamp deltas in ms, and the last offset delta."""
    unzigzag = UNZIGZAG
    keys: list[int] = []
    deltas: list[int] = []
    previous = -1
    for body in bodies:
        byte = data[body + 1]  # behind the attributes
        if byte < 0x80:
            deltas.append(unzigzag[byte])
            position = body + 2
        elif (second := data[body + 2]) < 0x80:
            deltas.append(((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1))
            position = body + 3
        else:
            delta, position = read_varint(data, body + 1, 64)
            deltas.append(delta)
        byte = data[position]
        if byte < 0x80:
            offset = unzigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            offset = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 2
        else:
            offset, position = read_varint(data, position)
        if offset <= previous:
            raise CorruptRecords(f"offset delta {offset} after {previous} at byte {position}")
        previous = offset
        keys.append(position)
    return keys, deltas, previous


def _contents(data: bytes, keys: list[int], ends: list[int]) -> tuple[bool, int]:
    """Whether a key is null, and the most headers of a record."""
    unzigzag = UNZIGZAG
    has_null_key, most_headers = False, 0
    for key, end in zip(keys, ends, strict=True):
        byte = data[key]
        if byte < 0x80:
            length = unzigzag[byte]
            position = key + 1
        else:
            length, position = read_varint(data, key)
        if length >= 0:
            position += length
        elif length == -1:
            has_null_key = True
        else:
            raise CorruptRecords(f"key of {length} bytes at byte {position}")
        byte = data[position]
        if byte < 0x80:
            length = unzigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 2
        else:
            length, position = read_varint(data, position)
        if length >= 0:
            position += length
        elif length != -1:
            raise CorruptRecords(f"value of {length} bytes at byte {position}")
        # A key or value that reaches beyond its record leaves no byte for headers.
        if position + 1 != end or data[position]:
            most_headers = max(most_headers, len(decode_headers(data[position:end])))
    return has_null_key, most_headers
