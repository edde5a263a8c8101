"""Single records of a batch: decoding to `Record` tuples, keys and values as slices of the batch's own memory.

A record is, with zigzag varints throughout (Kafka's DefaultRecord):

    length | attributes int8 | timestamp delta | offset delta | key length, key | value length, value
    header count | per header: key length, key, value length, value

A length of -1 is null; header keys may not be null.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, TIMESTAMP_TYPE_BIT, BatchHeader
from odradek.records.compression import MAX_UNCOMPRESSED_BYTES, decompress
from odradek.records.errors import CorruptRecords

Headers: TypeAlias = Sequence[tuple[str, bytes | bytearray | memoryview | None]]
MIN_RECORD_SIZE: Final = 7
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class Record(NamedTuple):
    """One record: its absolute offset, its timestamp in ms (the batch's, when LogAppendTime), and its content."""

    offset: int
    timestamp: int
    key: memoryview | bytes | None
    value: memoryview | bytes | None
    headers: Sequence[tuple[str, memoryview | bytes | None]] = ()


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
    section = records_section(view, header, position, max_uncompressed_bytes=max_uncompressed_bytes)
    # Indexing bytes is faster than indexing a memoryview by more than a copy costs, unless the records are big.
    cheap = copy or len(section) < 4096 * header[12]
    data = bytes(section) if cheap else section
    try:
        return _decode(data, data if copy else section, header)
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: its records are cut off") from error
    except CorruptRecords as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {error}") from error


def _decode(data: bytes | memoryview, source: bytes | memoryview, header: BatchHeader) -> list[Record]:
    """Walks the section. One-byte varints, nearly all of them, are decoded in line: a call would double the cost."""
    end = len(data)
    base_offset = header[0]
    append_time = header[8] if header[5] & TIMESTAMP_TYPE_BIT else None
    base_timestamp = header[7]
    records: list[Record] = []
    add = records.append
    new = tuple.__new__
    position = 0
    previous = -1
    for _ in range(header[12]):
        byte = data[position]
        position += 1
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
        elif (second := data[position]) < 0x80:
            length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 1
        else:
            length, position = read_varint(data, position - 1)
        record_end = position + length
        if length < MIN_RECORD_SIZE - 1 or record_end > end:
            raise CorruptRecords(f"record of {length} bytes at byte {position} of {end}")

        position += 1
        byte = data[position]
        position += 1
        if byte < 0x80:
            timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
        else:
            timestamp, position = read_varint(data, position - 1, 64)
            timestamp += base_timestamp
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise CorruptRecords(f"timestamp {timestamp} at byte {position}")

        byte = data[position]
        position += 1
        if byte < 0x80:
            offset = (byte >> 1) ^ -(byte & 1)
        elif (second := data[position]) < 0x80:
            offset = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
            position += 1
        else:
            offset, position = read_varint(data, position - 1)
        if offset <= previous:
            raise CorruptRecords(f"offset delta {offset} after {previous} at byte {position}")
        previous = offset

        key, position = _read_bytes(data, source, position, record_end)
        value, position = _read_bytes(data, source, position, record_end)
        byte = data[position]
        position += 1
        headers: Sequence[tuple[str, memoryview | bytes | None]] = ()
        if byte:
            headers, position = _read_headers(data, source, position - 1, record_end)
        if append_time is not None:
            timestamp = append_time
        add(new(Record, (base_offset + offset, timestamp, key, value, headers)))
        if position != record_end:
            raise CorruptRecords(f"record ends at byte {position} instead of {record_end}")
    if position != end:
        raise CorruptRecords(f"{end - position} bytes after the last record")
    if previous > header[6]:
        raise CorruptRecords(f"offset delta {previous} beyond the batch's last, {header[6]}")
    return records


def _read_bytes(
    data: bytes | memoryview, source: bytes | memoryview, position: int, end: int
) -> tuple[bytes | memoryview | None, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        if byte == 1:
            return None, position
        length = (byte >> 1) ^ -(byte & 1)
    elif (second := data[position]) < 0x80:
        length = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position - 1)
    stop = position + length
    if length < 0 or stop > end:
        if length == -1:
            return None, position
        raise CorruptRecords(f"field of {length} bytes at byte {position}, the record ends at {end}")
    return source[position:stop], stop


def _read_headers(
    data: bytes | memoryview, source: bytes | memoryview, position: int, end: int
) -> tuple[list[tuple[str, bytes | memoryview | None]], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) >> 1:
        raise CorruptRecords(f"{count} headers in {end - position} bytes at byte {position}")
    headers: list[tuple[str, bytes | memoryview | None]] = []
    for _ in range(count):
        key, position = _read_bytes(data, source, position, end)
        value, position = _read_bytes(data, source, position, end)
        if key is None:
            raise CorruptRecords(f"header without a key before byte {position}")
        # Java decodes names with replacement characters: foreign bytes in a header must not stop a consumer.
        headers.append((str(key, "utf-8", "replace"), value))
    return headers, position


def read_varint(data: bytes | memoryview, position: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag varint of at most `bits` bits and the position after it.

    Raises CorruptRecords when it is longer, IndexError at the end of `data`.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise CorruptRecords(f"varint of more than {bits} bits before byte {position}")
    if value >> bits:
        raise CorruptRecords(f"varint of more than {bits} bits before byte {position}")
    return (value >> 1) ^ -(value & 1), position
