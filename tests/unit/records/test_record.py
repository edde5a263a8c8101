import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import HEADER_SIZE, check_batch, parse_header, patch_crc, set_log_append_time
from odradek.records.builder import BatchFields, encode_batch, finish_batch
from odradek.records.compression import Codec
from odradek.records.errors import CorruptRecords
from odradek.records.fields import read_varint
from odradek.records.record import (
    Record,
    _walk,
    decode_columns,
    decode_records,
    find_timestamp,
)
from odradek.records.section import varint
from odradek.records.uniform import decode_uniform
from tests.unit.records.rebuilding import encode_record, rebuild_batch
from tests.unit.records.strategies import BATCHES, CODECS, Row, row_of


@given(BATCHES, CODECS, st.booleans())
def test_what_is_encoded_is_decoded(rows: list[Row], codec: int, copy: bool) -> None:
    view = memoryview(encode_batch(rows, BatchFields(base_offset=7), compression=codec))
    header = check_batch(view, from_client=False)
    records = decode_records(view, header, copy=copy)
    assert [row_of(record) for record in records] == rows
    assert [record.offset for record in records] == list(range(7, 7 + len(rows)))
    assert header.max_timestamp == max(row[0] for row in rows)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = varint(value)
    assert read_varint(encoded, 0, 64) == (value, len(encoded))
    if -(1 << 31) <= value < 1 << 31:
        assert read_varint(encoded, 0) == (value, len(encoded))
    else:
        with pytest.raises(CorruptRecords):
            read_varint(encoded, 0)


KNOWN_VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    8191: "fe7f",
    -8192: "ff7f",
    8192: "808001",
}
KNOWN_VARINTS |= {(1 << 31) - 1: "feffffff0f", -(1 << 31): "ffffffff0f"}


@pytest.mark.parametrize(("value", "encoded"), KNOWN_VARINTS.items())
def test_known_varints(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0)[0] == value


def test_uncompressed_records_are_slices_of_the_batch() -> None:
    data = encode_batch([(1, b"key", b"value", (("h", b"x"),))])
    view = memoryview(data)
    (record,) = decode_records(view, parse_header(view))
    assert isinstance(record.key, memoryview)
    data[data.index(b"value")] = ord("V")
    assert record.value == b"Value"
    assert record.headers[0] == ("h", b"x")


def test_big_records_take_the_same_way() -> None:
    rows = [(5, bytes(70_000), b"v" * 3_000_000, (("h", bytes(9000)),)), (6, None, b"", ())]
    view = memoryview(encode_batch(rows))
    assert [row_of(record) for record in decode_records(view, check_batch(view))] == rows


def test_a_batch_inside_of_a_buffer() -> None:
    view = memoryview(b"x" * 9 + encode_batch([(1, b"a", b"b", ())]) + b"tail")
    assert row_of(decode_records(view, parse_header(view, 9), 9)[0]) == (1, b"a", b"b", ())


def test_log_append_time_is_every_records_timestamp() -> None:
    view = memoryview(encode_batch([(5, b"a", None, ()), (900, b"b", None, ())]))
    for now in (0, 42):
        set_log_append_time(view, 0, parse_header(view), now)
        assert [record.timestamp for record in decode_records(view, check_batch(view))] == [now, now]


def test_bytes_that_are_no_utf8_in_a_header_name_do_not_stop_a_reader() -> None:
    headers = b"\2" + varint(2) + b"\xff\xfe" + b"\1"
    view = memoryview(finish_batch(encode_record(0, 0, None, None, headers), 0, None, (1, 0, 0, 0)))
    assert decode_records(view, check_batch(view))[0].headers == [("\ufffd\ufffd", None)]


def broken(section: bytes, count: int = 1, last: int | None = None) -> memoryview:
    return memoryview(finish_batch(section, 0, None, (count, count - 1 if last is None else last, 0, 0)))


GOOD = encode_record(0, 0, b"k", b"v", b"\0")
BROKEN = {
    "trailing bytes": broken(GOOD + b"\0"),
    "fewer records": broken(GOOD, 2),
    "more records": broken(GOOD + encode_record(0, 1, None, None, b"\0"), 1),
    "record too long": broken(varint(len(GOOD)) + GOOD[1:]),
    "record too short": broken(varint(len(GOOD) - 2) + GOOD[1:]),
    "negative length": broken(varint(-9) + GOOD[1:]),
    "key beyond the record": broken(varint(7) + b"\0\0\0" + varint(50) + b"\0\0\0" + bytes(50)),
    "negative key length": broken(varint(6) + b"\0\0\0" + varint(-2) + b"\0\0"),
    "same offset twice": broken(GOOD + GOOD, 2),
    "negative offset": broken(encode_record(0, -1, b"k", b"v", b"\0")),
    "offset beyond the last": broken(encode_record(0, 3, b"k", b"v", b"\0"), 1, 2),
    "timestamp beyond 64 bits": broken(varint(16) + b"\0" + b"\xff" * 9 + b"\3" + b"\0\1\1\0\0\0\0"),
    "many headers": broken(encode_record(0, 0, b"k", b"v", varint(1 << 30))),
    "negative header count": broken(encode_record(0, 0, b"k", b"v", varint(-1))),
    "header without key": broken(encode_record(0, 0, b"k", b"v", b"\2\1\1")),
    "header value too long": broken(encode_record(0, 0, b"k", b"v", b"\2\2a" + varint(9) + b"xx")),
    "endless varint": broken(b"\xff" * 30),
    "nothing": broken(b"", 3),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_records_raise_the_one_error(name: str) -> None:
    view = BROKEN[name]
    with pytest.raises(CorruptRecords):
        decode_records(view, parse_header(view))


def test_the_limit_holds_for_compressed_records() -> None:
    view = memoryview(encode_batch([(1, None, bytes(100_000), ())], compression=4))
    header = parse_header(view)
    assert len(decode_records(view, header, max_uncompressed_bytes=100_100)) == 1
    with pytest.raises(CorruptRecords):
        decode_records(view, header, max_uncompressed_bytes=99_999)


@given(BATCHES, CODECS, st.data())
def test_mutated_batches_raise_nothing_else(rows: list[Row], codec: int, data: st.DataObject) -> None:
    batch = encode_batch(rows, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(21, len(batch) - 1) | st.integers(HEADER_SIZE, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    view = memoryview(batch)
    patch_crc(view, 0, len(batch) - 12)
    try:
        header = check_batch(view)
        records = decode_records(view, header, max_uncompressed_bytes=1 << 20)
    except CorruptRecords:
        return
    assert len(records) == header.records_count


@given(st.binary(max_size=300))
def test_noise_raises_nothing_else(noise: bytes) -> None:
    with pytest.raises(CorruptRecords):
        check_batch(memoryview(noise))
    if len(noise) > 16:
        view = broken(noise, 1 + noise[0] % 5)
        with contextlib.suppress(CorruptRecords):
            decode_records(view, parse_header(view))


@given(BATCHES, CODECS, st.data())
def test_compaction_keeps_offsets_and_the_last_sequence(rows: list[Row], codec: int, data: st.DataObject) -> None:
    fields = BatchFields(base_offset=100, partition_leader_epoch=4, producer_id=9, producer_epoch=1, base_sequence=3)
    view = memoryview(encode_batch(rows, fields, compression=codec))
    header = check_batch(view, from_client=False)
    kept = [record for record in decode_records(view, header, copy=True) if data.draw(st.booleans())]
    rebuilt = memoryview(rebuild_batch(header, kept))
    new = check_batch(rebuilt, from_client=False)
    assert decode_records(rebuilt, new, copy=True) == kept
    assert (new.base_offset, new.last_offset, new.last_sequence) == (100, header.last_offset, header.last_sequence)
    assert (new.records_count, new.partition_leader_epoch, new.producer_epoch) == (len(kept), 4, 1)


def test_compaction_of_log_append_time_batches() -> None:
    view = memoryview(encode_batch([(i, b"k%d" % i, b"v", ()) for i in range(4)]))
    set_log_append_time(view, 0, parse_header(view), 777)
    header = parse_header(view)
    rebuilt = memoryview(rebuild_batch(header, decode_records(view, header)[2:]))
    assert decode_records(rebuilt, check_batch(rebuilt, from_client=False), copy=True) == [
        Record(2, 777, b"k2", b"v"),
        Record(3, 777, b"k3", b"v"),
    ]


def test_an_empty_batch_decodes_to_nothing() -> None:
    view = memoryview(rebuild_batch(parse_header(memoryview(encode_batch([(1, b"k", b"v", ())]))), []))
    assert decode_records(view, check_batch(view, from_client=False)) == []


LONG = st.sampled_from([8_180, 8_185, 8_190, 8_191, 8_192])
HEADER_LENGTHS = st.sampled_from([None, 0, 1, 40, 130])
SHAPES = st.tuples(st.none() | st.integers(0, 70), st.none() | st.integers(0, 130) | LONG, HEADER_LENGTHS)
COUNTS, STEPS = st.integers(8, 80), st.sampled_from([0, 1, 2, 40, 103])
Shape = tuple[int | None, int | None, int | None]


def uniform_batch(shape: Shape, count: int, step_ms: int = 1, repeated_after: int = 1 << 20) -> memoryview:
    """Records with a key, a value and a header of the lengths in `shape`, None for null keys and values, no header."""
    key_length, value_length, header_length = shape
    key = None if key_length is None else b"k" * key_length
    headers = () if header_length is None else (("h", b"x" * header_length),)
    values = [None if value_length is None else bytes((number & 0xFF,)) * value_length for number in range(count)]
    rows = [(1_000 + step_ms * (number % repeated_after), key, value, headers) for number, value in enumerate(values)]
    return memoryview(bytes(encode_batch(rows, BatchFields(base_offset=5))))


@given(SHAPES, COUNTS, STEPS, st.booleans())
def test_records_of_one_shape_are_decoded_by_columns(shape: Shape, count: int, step_ms: int, copy: bool) -> None:
    view = uniform_batch(shape, count, step_ms)
    header, data = parse_header(view), bytes(view[HEADER_SIZE:])
    source = data if copy else view[HEADER_SIZE:]
    columns = decode_uniform(data, source, header, copy=copy)
    assert columns is not None
    assert [list(column) for column in columns] == [list(column) for column in _walk(data, source, header)]


@given(SHAPES, COUNTS, STEPS, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=3))
def test_columns_are_never_read_where_the_shape_is_broken(
    shape: Shape, count: int, step_ms: int, changes: list[tuple[int, int]]
) -> None:
    """The careful way accepts what the fast one accepts, with the same result."""
    view = uniform_batch(shape, count, step_ms)
    header, data = parse_header(view), bytearray(view[HEADER_SIZE:])
    for place, byte in changes:
        data[place % len(data)] = byte
    changed = bytes(data)
    columns = decode_uniform(changed, changed, header)
    if columns is not None:
        assert [list(column) for column in columns] == [list(each) for each in _walk(changed, changed, header)]


@pytest.mark.parametrize(
    ("shape", "count"),
    [((None, 100, None), 64), ((3, 100, 9), 65), ((None, 61, None), 8192), ((None, 0, 0), 8), ((70, None, None), 100)],
)
def test_widths_of_offsets_do_not_break_a_shape(shape: Shape, count: int) -> None:
    view = uniform_batch(shape, count)
    assert decode_uniform(bytes(view[HEADER_SIZE:]), view[HEADER_SIZE:], parse_header(view)) is not None


@pytest.mark.parametrize(
    ("count", "step_ms", "repeated_after"),
    [(7, 1, 100), (8193, 0, 100), (100, 100, 100), (100, 64, 2)],
    ids=["few records", "offsets of three bytes", "timestamps of three bytes", "widths of timestamps in turns"],
)
def test_other_batches_are_decoded_record_by_record(count: int, step_ms: int, repeated_after: int) -> None:
    view = uniform_batch((None, 10, None), count, step_ms, repeated_after)
    header = parse_header(view)
    assert decode_uniform(bytes(view[HEADER_SIZE:]), view[HEADER_SIZE:], header) is None
    assert len(decode_columns(view, header).values) == count


def test_columns_of_a_batch_with_append_time_have_its_timestamp() -> None:
    data = bytearray(uniform_batch((None, 10, None), 20))
    set_log_append_time(memoryview(data), 0, parse_header(data), 77)
    view = memoryview(bytes(data))
    assert list(decode_columns(view, parse_header(view)).timestamps) == [77] * 20


@given(
    timestamps=st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=40),
    value_size=st.integers(0, 9000),
    wanted=st.integers(-(1 << 40), 1 << 40),
    start=st.integers(0, 60),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    is_stamped=st.booleans(),
)
def test_timestamp_is_found_as_by_decoding_all_records(
    timestamps: list[int], value_size: int, wanted: int, start: int, codec: Codec, is_stamped: bool
) -> None:
    rows = [(timestamp, b"k", bytes(value_size), ()) for timestamp in timestamps]
    data = memoryview(encode_batch(rows, BatchFields(base_offset=10), compression=codec))
    if is_stamped:
        set_log_append_time(data, 0, parse_header(data), 1 << 39)
    header = parse_header(data)
    expected = [
        (record.offset, record.timestamp)
        for record in decode_records(data, header)
        if record.timestamp >= wanted and record.offset >= start
    ]
    assert find_timestamp(data, header, wanted, start) == (expected[0] if expected else None)


@given(cut=st.integers(0, 400))
def test_timestamp_in_records_that_are_cut_off_raises_corrupt_records(cut: int) -> None:
    data = memoryview(encode_batch([(number, b"k", bytes(100), ()) for number in range(4)]))
    header = parse_header(data)
    with contextlib.suppress(CorruptRecords):
        find_timestamp(data[: len(data) - cut], header, 5)


def test_timestamp_of_a_record_without_length_raises_corrupt_records() -> None:
    data = encode_batch([(number, b"k", bytes(100), ()) for number in range(4)])
    data[61] = 0
    with pytest.raises(CorruptRecords):
        find_timestamp(memoryview(data), parse_header(data), 5)
