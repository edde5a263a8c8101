"""Single records of a batch: decoding to `Record` tuples, keys and values as slices of the batch's own memory.

A record is, with zigzag varints throughout (Kafka's DefaultRecord):

    length | attributes int8 | timestamp delta | offset delta | key length, key | value length, value
    header count | per header: key length, key, value length, value

A length of -1 is null; header keys may not be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, TIMESTAMP_TYPE_BIT, BatchHeader
from odradek.records.columns import EncodedColumns, RecordColumns
from odradek.records.compression import MAX_UNCOMPRESSED_BYTES, decompress
from odradek.records.errors import CorruptRecords
from odradek.records.fields import INT64_MAX, INT64_MIN, UNZIGZAG, Field, read_field, read_varint
from odradek.records.headers import decode_headers
from odradek.records.uniform import decode_uniform

MIN_RECORD_SIZE: Final = 7
_NULL: Final = 1
"""The length -1 as a varint."""


class Record(NamedTuple):
    """One record: its absolute offset, its timestamp in ms (the batch's, when LogAppendTime), and its content."""

    offset: int
    timestamp: int
    key: memoryview | bytes | None
    value: memoryview | bytes | None
    headers: Sequence[tuple[str, Field]] = ()


def records_section(
    view: memoryview, header: BatchHeader, position: int = 0, *, max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> memoryview:
    """The batch's records, decompressed if need be; a slice of `view` itself if not.

    Raises CorruptRecords for a broken or too large compressed section.
    """
    section = view[position + HEADER_SIZE : position + LOG_OVERHEAD + header[1]]
    codec = header[5] & 7
    if codec:
        section = memoryview(decompress(codec, section, max_uncompressed_bytes))
    if header[12] < 0 or header[12] * MIN_RECORD_SIZE > len(section):
        raise CorruptRecords(
            f"batch at offset {header.base_offset}: {len(section)} bytes cannot hold {header.records_count} records"
        )
    return section


def decode_records(
    view: memoryview,
    header: BatchHeader,
    position: int = 0,
    *,
    copy: bool = False,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> list[Record]:
    """All records of the batch at `position` of `view`.

    Keys and values are memoryview slices (of `view`, or of the decompressed section); with `copy` they are bytes, which
    is as fast and does not keep the batch's memory alive. Raises CorruptRecords for any deviation: lengths beyond the
    record, bytes left over, offsets that do not increase.
    """
    columns = decode_columns(view, header, position, copy=copy, max_uncompressed_bytes=max_uncompressed_bytes)
    return list(map(tuple.__new__, repeat(Record), zip(*columns, strict=True)))


def decode_columns(
    view: memoryview,
    header: BatchHeader,
    position: int = 0,
    *,
    copy: bool = False,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> RecordColumns:
    """As `decode_records`, without an object per record."""
    columns = scan_columns(view, header, position, copy=copy, max_uncompressed_bytes=max_uncompressed_bytes)
    encoded = columns.headers
    headers: Sequence[Sequence[tuple[str, Field]]] = ((),) * len(encoded)
    if any(encoded):
        try:
            headers = [decode_headers(each) if each else () for each in encoded]
        except CorruptRecords as error:
            raise CorruptRecords(f"batch at offset {header.base_offset}: {error}") from error
    return RecordColumns(*columns[:4], headers)


def scan_columns(
    view: memoryview,
    header: BatchHeader,
    position: int = 0,
    *,
    copy: bool = False,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> EncodedColumns:
    """As `decode_columns`, with headers as they are encoded: broken ones are found when they are decoded."""
    section = records_section(view, header, position, max_uncompressed_bytes=max_uncompressed_bytes)
    # Indexing bytes is faster than indexing a memoryview by more than a copy costs, unless the records are big.
    cheap = copy or len(section) < 4096 * header[12]
    data = bytes(section) if cheap else section
    source = data if copy else section
    try:
        columns = decode_uniform(data, source, header, copy=copy) or _walk(data, source, header)
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: its records are cut off") from error
    except CorruptRecords as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {error}") from error
    if header[5] & TIMESTAMP_TYPE_BIT:
        return columns._replace(timestamps=[header[8]] * header[12])
    return columns


def find_timestamp(
    view: memoryview, header: BatchHeader, timestamp_ms: int, start_offset: int = 0
) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record from the start offset on with this timestamp or a later one.

    It reads offsets and timestamps only, and none beyond that record. Raises CorruptRecords for what it cannot read.
    """
    section = records_section(view, header)
    base_offset, base_timestamp = header[0], header[7]
    is_stamped = header[5] & TIMESTAMP_TYPE_BIT
    if is_stamped and header[8] < timestamp_ms:
        return None
    # With LogAppendTime all records have the batch's timestamp, whatever they say.
    least_delta = INT64_MIN if is_stamped else timestamp_ms - base_timestamp
    try:
        found = _find_delta(bytes(section), header[12], least_delta, start_offset - base_offset)
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {base_offset}: its records are cut off") from error
    except CorruptRecords as error:
        raise CorruptRecords(f"batch at offset {base_offset}: {error}") from error
    if found is None:
        return None
    offset, delta = found
    return base_offset + offset, header[8] if is_stamped else base_timestamp + delta


def _find_delta(data: bytes, count: int, least_delta: int, least_offset: int) -> tuple[int, int] | None:
    """(offset delta, timestamp delta) of the first record with these deltas or larger ones."""
    position, unzigzag = 0, UNZIGZAG
    for _ in range(count):
        byte = data[position]
        if byte < 0x80:
            end = position + 1 + unzigzag[byte]
            position += 2  # behind the attributes
        elif (second := data[position + 1]) < 0x80:
            end = position + 2 + (((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1))
            position += 3
        else:
            length, position = read_varint(data, position)
            end = position + length
            position += 1
        if end <= position:
            raise CorruptRecords(f"record without content at byte {position}")
        byte = data[position]
        if byte < 0x80:
            delta = unzigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            delta = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 2
        else:
            delta, position = read_varint(data, position, 64)
        if delta >= least_delta:
            offset, _ = read_varint(data, position)
            if offset >= least_offset:
                return offset, delta
        position = end
    return None


def _walk(data: bytes | memoryview, source: bytes | memoryview, header: BatchHeader) -> EncodedColumns:
    """Walks the section. One-byte varints, nearly all of them, are decoded in line: a call would double the cost."""
    end, unzigzag = len(data), UNZIGZAG
    base_offset, base_timestamp, count = header[0], header[7], header[12]
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[Field] = [None] * count
    values: list[Field] = [None] * count
    headers: list[bytes | memoryview] = [b""] * count
    position, previous = 0, -1
    for index in range(count):
        byte = data[position]
        position += 1
        if byte < 0x80:
            length = unzigzag[byte]
        elif (second := data[position]) < 0x80:
            length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 1
        else:
            length, position = read_varint(data, position - 1)
        record_end = position + length
        if length < MIN_RECORD_SIZE - 1 or record_end > end:
            raise CorruptRecords(f"record of {length} bytes at byte {position} of {end}")
        byte = data[position + 1]
        position += 2
        if byte < 0x80:
            timestamp = base_timestamp + unzigzag[byte]
        else:
            timestamp, position = _read_timestamp(data, position - 1, base_timestamp)
        timestamps.append(timestamp)
        byte = data[position]
        position += 1
        if byte < 0x80:
            offset = unzigzag[byte]
        elif (second := data[position]) < 0x80:
            offset = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 1
        else:
            offset, position = read_varint(data, position - 1)
        if offset <= previous:
            raise CorruptRecords(f"offset delta {offset} after {previous} at byte {position}")
        previous = offset
        offsets.append(base_offset + offset)
        if data[position] == _NULL:
            position += 1
        else:
            keys[index], position = read_field(data, source, position, record_end)
        length_at = position
        byte = data[position]
        if byte < 0x80:
            length = unzigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 2
        else:
            length, position = read_varint(data, position)
        stop = position + length
        if length < 0 or stop > record_end:
            values[index], position = read_field(data, source, length_at, record_end)
        else:
            values[index], position = source[position:stop], stop
        if data[position] and position < record_end:
            headers[index] = source[position:record_end]
        elif position + 1 != record_end:
            raise CorruptRecords(f"record ends at byte {position + 1} instead of {record_end}")
        position = record_end
    _check_end(end - position, previous, header)
    return EncodedColumns(offsets, timestamps, keys, values, headers)


def _check_end(left: int, last_delta: int, header: BatchHeader) -> None:
    if left:
        raise CorruptRecords(f"{left} bytes after the last record")
    if last_delta > header[6]:
        raise CorruptRecords(f"offset delta {last_delta} beyond the batch's last, {header[6]}")


def _read_timestamp(data: bytes | memoryview, position: int, base: int) -> tuple[int, int]:
    delta, position = read_varint(data, position, 64)
    timestamp = base + delta
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise CorruptRecords(f"timestamp {timestamp} at byte {position}")
    return timestamp, position
