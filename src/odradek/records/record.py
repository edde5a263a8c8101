"""Single records of a batch: decoding to `Record` tuples, keys and values as slices of the batch's own memory.

A record is, with zigzag varints throughout (Kafka's DefaultRecord):

    length | attributes int8 | timestamp delta | offset delta | key length, key | value length, value
    header count | per header: key length, key, value length, value

A length of -1 is null; header keys may not be null.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, TIMESTAMP_TYPE_BIT, BatchHeader
from odradek.records.compression import MAX_UNCOMPRESSED_BYTES, decompress
from odradek.records.errors import CorruptRecords

Headers: TypeAlias = Sequence[tuple[str, bytes | bytearray | memoryview | None]]
Field: TypeAlias = memoryview | bytes | None
MIN_RECORD_SIZE: Final = 7
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_NULL: Final = 1
"""The length -1 as a varint."""
FEW_RECORDS: Final = 8
"""With fewer records, looking for a common shape costs more than it saves."""
OFFSETS_IN_BYTE: Final = 64
SHORT_OFFSETS: Final = 8192
"""Offset deltas below these are varints of one byte, and of two."""
OFFSET_LOW: Final = (
    bytes(delta << 1 & 0x7F for delta in range(OFFSETS_IN_BYTE)),
    bytes(delta << 1 & 0x7F | 0x80 for delta in range(SHORT_OFFSETS)),
)
OFFSET_HIGH: Final = bytes(delta >> 6 for delta in range(SHORT_OFFSETS))
"""The bytes of offset deltas, by delta."""
_UNZIGZAG: Final = [(byte >> 1) ^ -(byte & 1) for byte in range(0x80)]


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


class RecordColumns(NamedTuple):
    """The records of a batch as columns of one length: absolute offsets, timestamps in ms, and contents."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Field]
    values: Sequence[Field]
    headers: Sequence[Sequence[tuple[str, Field]]]

    def since(self, offset: int) -> RecordColumns:
        """Without the records before an offset."""
        skipped = bisect_left(self.offsets, offset)
        if not skipped:
            return self
        offsets, timestamps, keys, values, headers = self
        return RecordColumns(
            offsets[skipped:], timestamps[skipped:], keys[skipped:], values[skipped:], headers[skipped:]
        )


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
    section = records_section(view, header, position, max_uncompressed_bytes=max_uncompressed_bytes)
    # Indexing bytes is faster than indexing a memoryview by more than a copy costs, unless the records are big.
    cheap = copy or len(section) < 4096 * header[12]
    data = bytes(section) if cheap else section
    source = data if copy else section
    try:
        columns = _decode_uniform(data, source, header) or _decode(data, source, header)
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
    least_delta = _INT64_MIN if is_stamped else timestamp_ms - base_timestamp
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
    position, unzigzag = 0, _UNZIGZAG
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


def _decode_uniform(data: bytes | memoryview, source: bytes | memoryview, header: BatchHeader) -> RecordColumns | None:
    """Records of one shape: keys of one length, values of one length, no headers, no gaps between offsets.

    Column by column with strided slices, so that the cost per record is that of its slices. None for other records;
    then `_decode` judges them.
    """
    count = header[12]
    if count < FEW_RECORDS or count > SHORT_OFFSETS or header[6] != count - 1:
        return None
    length, start = read_varint(data, 0)
    key_length, key_at = read_varint(data, start + 3)
    value_length, value_at = read_varint(data, key_at + max(key_length, 0))
    # Without its length: attributes, timestamp and offset of a byte each, key, value, count of headers.
    if length != value_at + max(value_length, 0) + 1 - start or key_length < -1 or value_length < -1:
        return None
    key_prefix = bytes(data[start + 3 : key_at])
    value_prefix = bytes(data[key_at + max(key_length, 0) : value_at])
    key_offset, value_offset = key_at - start, value_at - start
    timestamps: list[int] = []
    keys: list[Field] = []
    values: list[Field] = []
    position, end = 0, len(data)
    for first, last, longer in ((0, min(count, OFFSETS_IN_BYTE), 0), (OFFSETS_IN_BYTE, count, 1)):
        records = last - first
        if records <= 0:
            break
        prefix = _encoded_length(length + longer)
        at = position + len(prefix)
        size = len(prefix) + length + longer
        stop = position + records * size
        if stop > end:
            return None
        deltas = bytes(data[at + 1 : stop : size])
        if not deltas.isascii() or bytes(data[at + 2 : stop : size]) != OFFSET_LOW[longer][first:last]:
            return None
        if longer and bytes(data[at + 3 : stop : size]) != OFFSET_HIGH[first:last]:
            return None
        constants = (
            (position, prefix),
            (at + 3 + longer, key_prefix),
            (at + value_offset + longer - len(value_prefix), value_prefix),
            (position + size - 1, b"\0"),
        )
        if not all(
            data[place + index : stop : size] == bytes((byte,)) * records
            for place, constant in constants
            for index, byte in enumerate(constant)
        ):
            return None
        timestamps += map(_UNZIGZAG.__getitem__, deltas)
        for column, offset, width in ((keys, key_offset, key_length), (values, value_offset, value_length)):
            if width < 0:
                column += [None] * records
            else:
                begin = at + longer + offset
                column += [source[index : index + width] for index in range(begin, stop, size)]
        position = stop
    base_offset, base_timestamp = header[0], header[7]
    if position != end or not _INT64_MIN <= base_timestamp - 64 <= base_timestamp + 64 <= _INT64_MAX:
        return None
    timestamps = [base_timestamp + delta for delta in timestamps]
    return RecordColumns(range(base_offset, base_offset + count), timestamps, keys, values, [()] * count)


def _encoded_length(length: int) -> bytes:
    """A positive zigzag varint of a few bytes."""
    unsigned, output = length << 1, bytearray()
    while unsigned >= 0x80:
        output.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    output.append(unsigned)
    return bytes(output)


def _decode(data: bytes | memoryview, source: bytes | memoryview, header: BatchHeader) -> RecordColumns:
    """Walks the section. One-byte varints, nearly all of them, are decoded in line: a call would double the cost."""
    end, unzigzag = len(data), _UNZIGZAG
    base_offset, base_timestamp, count = header[0], header[7], header[12]
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[Field] = [None] * count
    values: list[Field] = [None] * count
    all_headers: list[Sequence[tuple[str, Field]]] = [()] * count
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
            keys[index], position = _read_bytes(data, source, position, record_end)
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
            values[index], position = _read_bytes(data, source, length_at, record_end)
        else:
            values[index], position = source[position:stop], stop
        if data[position]:
            all_headers[index], position = _read_headers(data, source, position, record_end)
        else:
            position += 1
        if position != record_end:
            raise CorruptRecords(f"record ends at byte {position} instead of {record_end}")
    _check_end(end - position, previous, header)
    return RecordColumns(offsets, timestamps, keys, values, all_headers)


def _check_end(left: int, last_delta: int, header: BatchHeader) -> None:
    if left:
        raise CorruptRecords(f"{left} bytes after the last record")
    if last_delta > header[6]:
        raise CorruptRecords(f"offset delta {last_delta} beyond the batch's last, {header[6]}")


def _read_timestamp(data: bytes | memoryview, position: int, base: int) -> tuple[int, int]:
    delta, position = read_varint(data, position, 64)
    timestamp = base + delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise CorruptRecords(f"timestamp {timestamp} at byte {position}")
    return timestamp, position


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
