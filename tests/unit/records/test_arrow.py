import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records.arrow import SCHEMA, SCHEMA_WITH_HEADERS, decode_to_arrow, encode_from_arrow
from odradek.records.batch import check_batch, parse_header, patch_crc, set_log_append_time, split_batches
from odradek.records.builder import BatchFields, encode_batch, finish_batch
from odradek.records.control import encode_end_transaction
from odradek.records.errors import CorruptRecords, RecordTooLarge, UnsupportedMagic
from odradek.records.record import decode_records
from odradek.records.section import varint
from tests.unit.records.rebuilding import encode_record, rebuild_batch
from tests.unit.records.strategies import BATCHES, CODECS, Row, row_of
from tests.unit.records.test_record import BROKEN

HEADERS_TYPE = SCHEMA_WITH_HEADERS.field("headers").type
Decoded = list[tuple[int, int, Row]]


def plain_decode(data: bytes) -> Decoded:
    """(offset, timestamp type, row) of every record, by the decoder that this one is measured against."""
    view = memoryview(data)
    return [
        (record.offset, header.timestamp_type, row_of(record))
        for position, header in split_batches(view)
        for record in decode_records(view, header, position)
    ]


def rows_of(table: pa.RecordBatch) -> Decoded:
    table.validate(full=True)
    names = ("offset", "timestamp_type", "timestamp", "key", "value", "headers")
    columns = [table.column(name).to_pylist() for name in names]
    return [
        (offset, kind, (timestamp, key, value, tuple((h["key"], h["value"]) for h in headers or ())))
        for offset, kind, timestamp, key, value, headers in zip(*columns, strict=True)
    ]


def concatenate(batches: list[tuple[list[Row], int]], first_offset: int = 0) -> bytes:
    """Batches of these rows and codecs, with gaps between their offsets; every fourth one is LogAppendTime."""
    parts = []
    offset = first_offset
    for number, (rows, codec) in enumerate(batches):
        batch = memoryview(encode_batch(rows, BatchFields(base_offset=offset), compression=codec))
        if number % 4 == 3:
            set_log_append_time(batch, 0, parse_header(batch), 5000 + number)
        parts.append(bytes(batch))
        offset += len(rows) + number % 3
    return b"".join(parts)


@given(st.lists(st.tuples(BATCHES, CODECS), max_size=12))
def test_decoding_equals_the_plain_decoder(batches: list[tuple[list[Row], int]]) -> None:
    data = concatenate(batches, 90)
    assert rows_of(decode_to_arrow(data, include_headers=True)) == plain_decode(data)
    assert decode_to_arrow(bytearray(data)).schema.equals(SCHEMA)
    assert decode_to_arrow(memoryview(data), include_headers=True).schema.equals(SCHEMA_WITH_HEADERS)


@given(st.lists(st.tuples(BATCHES, st.sampled_from([0, 0, 3])), min_size=1, max_size=6), st.data())
def test_only_the_offsets_asked_for(batches: list[tuple[list[Row], int]], data: st.DataObject) -> None:
    encoded = concatenate(batches)
    everything = plain_decode(encoded)
    start = data.draw(st.integers(-1, everything[-1][0] + 2))
    end = data.draw(st.integers(-1, everything[-1][0] + 2))
    table = decode_to_arrow(encoded, start_offset=start, end_offset=end, include_headers=True)
    assert rows_of(table) == [entry for entry in everything if start <= entry[0] < end]


def test_long_batches_of_equal_and_of_almost_equal_records() -> None:
    rng = random.Random(4)
    batches = []
    for lengths in ([100], [100] * 50 + [101], [9], [0], [8100, 8101], [1, 2, 3], [20_000]):
        rows: list[Row] = [
            (1_700_000_000_000 + number, b"key", bytes(rng.choice(lengths)), ()) for number in range(600)
        ]
        rows += [(1_700_000_000_000, b"key", b"x" * lengths[0], ())] * 1500
        batches.append((rows, 0))
    data = concatenate(batches)
    assert rows_of(decode_to_arrow(data, include_headers=True)) == plain_decode(data)


def test_many_tiny_batches() -> None:
    rng = random.Random(5)
    batches: list[tuple[list[Row], int]] = [
        ([(number, b"k" * rng.randrange(20), b"v" * rng.randrange(200), ())] * rng.randrange(1, 4), number % 3 // 2 * 4)
        for number in range(500)
    ]
    data = concatenate(batches)
    assert rows_of(decode_to_arrow(data, include_headers=True)) == plain_decode(data)


def test_records_with_very_many_headers() -> None:
    many = tuple((f"h{number}", None if number % 7 == 0 else b"x" * (number % 80)) for number in range(3000))
    rows: list[Row] = [(1, None, b"v", many[: number * 3]) for number in range(40)] + [(2, b"k", None, many)]
    data = concatenate([(rows, 0), (rows, 4)])
    assert rows_of(decode_to_arrow(data, include_headers=True)) == plain_decode(data)


def test_no_headers_are_null_and_names_that_are_no_utf8_are_replaced() -> None:
    sections = [encode_record(0, 0, None, b"v", b"\0"), encode_record(0, 1, None, b"v", b"\2\4\xff\xfe\2x")]
    table = decode_to_arrow(bytes(finish_batch(b"".join(sections), 0, None, (2, 1, 0, 0))), include_headers=True)
    assert table.column("headers").to_pylist() == [None, [{"key": "\ufffd\ufffd", "value": b"x"}]]


def test_nothing_to_decode() -> None:
    one = bytes(encode_batch([(1, b"k", b"v", ())]))
    empty = bytes(rebuild_batch(parse_header(memoryview(one)), []))
    for data in (b"", one[:-1], one[:5], empty):
        assert decode_to_arrow(data).num_rows == 0
        assert decode_to_arrow(data, include_headers=True).schema.equals(SCHEMA_WITH_HEADERS)
    assert decode_to_arrow(empty + one + empty).num_rows == 1
    with pytest.raises(CorruptRecords):
        decode_to_arrow(one[:-1], allow_partial_tail=False)


def test_deltas_of_64_bits() -> None:
    far = (1 << 63) - 1
    data = bytes(encode_batch([(0, b"k", b"v", ()), (far, b"k", b"v", ()), (-far - 1, None, b"", ())]))
    assert decode_to_arrow(data).column("timestamp").to_pylist() == [0, far, -far - 1]


def test_compacted_batches_keep_their_offsets() -> None:
    view = memoryview(encode_batch([(i, b"k%d" % i, b"v", ()) for i in range(50)], BatchFields(base_offset=1000)))
    header = parse_header(view)
    kept = decode_records(view, header)[3::7]
    table = decode_to_arrow(bytes(rebuild_batch(header, kept)))
    assert table.column("offset").to_pylist() == [record.offset for record in kept]
    assert table.column("timestamp").to_pylist() == [record.timestamp for record in kept]


def transactions() -> bytes:
    """Producers 1 and 2 interleaved: 1 aborts its first transaction and commits its second, 2 commits; 3 has none."""

    def batch(offset: int, producer: int, transactional: bool = True) -> bytes:
        fields = BatchFields(offset, 0, producer, 0, 0, transactional)
        return bytes(encode_batch([(0, b"%d" % producer, b"a", ()), (0, None, b"b", ())], fields))

    def end(offset: int, producer: int, commit: bool) -> bytes:
        return bytes(
            encode_end_transaction(
                commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0,
                base_offset=offset,
            )
        )  # fmt: skip

    return b"".join(
        [batch(0, 1), batch(2, 2), batch(4, 3, False), batch(6, 1), end(8, 1, False), batch(9, 1), end(11, 2, True),
         end(12, 1, True)]
    )  # fmt: skip


def test_control_and_aborted_records_are_left_out() -> None:
    data = transactions()

    def offsets(**options: Any) -> list[int]:
        result: list[int] = decode_to_arrow(data, **options).column("offset").to_pylist()
        return result

    assert offsets() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert offsets(skip_control=False) == [*range(13)]
    assert offsets(aborted=[(1, 0)]) == [2, 3, 4, 5, 9, 10]
    assert offsets(aborted=[(1, 6)]) == [0, 1, 2, 3, 4, 5, 9, 10]
    assert offsets(aborted=[(2, 2), (1, 0)], start_offset=3) == [4, 5, 9, 10]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_records_raise_the_one_error(name: str) -> None:
    with pytest.raises(CorruptRecords):
        decode_to_arrow(BROKEN[name], include_headers=True)


@given(st.lists(st.tuples(BATCHES, CODECS), min_size=1, max_size=3), st.data())
@settings(max_examples=200)
def test_mutations_are_taken_or_rejected_as_by_the_plain_decoder(
    batches: list[tuple[list[Row], int]], data: st.DataObject
) -> None:
    encoded = bytearray(concatenate(batches))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(encoded)
    expected: Decoded | None = None
    try:
        for position, header in split_batches(view):
            patch_crc(view, position, header.batch_length)
        for position, _ in split_batches(view):
            check_batch(view, position, from_client=False)
        expected = plain_decode(bytes(encoded))
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            decode_to_arrow(encoded, skip_control=False, include_headers=True, allow_partial_tail=False)
    else:
        table = decode_to_arrow(encoded, skip_control=False, include_headers=True, allow_partial_tail=False)
        assert rows_of(table) == expected


def test_checksums_and_magic_are_checked() -> None:
    batch = bytearray(encode_batch([(1, b"k", b"v", ())]))
    batch[-2] ^= 1
    with pytest.raises(CorruptRecords, match="CRC"):
        decode_to_arrow(batch)
    assert decode_to_arrow(batch, check_crcs=False).column("value").to_pylist() == [b"w"]
    batch[16] = 1
    with pytest.raises(UnsupportedMagic):
        decode_to_arrow(batch)


def test_the_limit_holds_for_compressed_records() -> None:
    bomb = bytes(encode_batch([(1, None, bytes(100_000), ())], compression=1))
    assert decode_to_arrow(bomb).num_rows == 1
    with pytest.raises(CorruptRecords, match="limit"):
        decode_to_arrow(bomb, max_uncompressed_bytes=99_999)


def arrow_headers(rows: list[Row]) -> pa.Array:
    values = [[{"key": name, "value": value} for name, value in row[3]] or None for row in rows]
    return pa.array(values, HEADERS_TYPE)


@given(
    BATCHES,
    CODECS,
    st.integers(0, 39),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.integers(900, 6000),
)
def test_encoding_is_byte_for_byte_the_plain_encoders(
    rows: list[Row], codec: int, skip: int, kind: pa.DataType, max_batch_bytes: int
) -> None:
    skip = min(skip, len(rows) - 1)
    key = pa.array([row[1] for row in rows], kind).slice(skip)
    value = pa.array([row[2] for row in rows], pa.binary()).slice(skip)
    timestamps = pa.array([row[0] for row in rows], pa.int64()).slice(skip)
    headers = arrow_headers(rows).slice(skip) if any(row[3] for row in rows) else None
    fields = BatchFields(0, -1, 4, 2, (1 << 31) - 3, is_transactional=True)
    batches = encode_from_arrow(
        key, value, timestamps, headers, compression=codec, max_batch_bytes=max_batch_bytes, fields=fields
    )
    for batch in batches:
        count = check_batch(memoryview(batch)).records_count
        assert batch == encode_batch(rows[skip : skip + count], fields, compression=codec)
        assert len(batch) <= max_batch_bytes
        skip += count
        fields = fields._replace(base_sequence=(fields.base_sequence + count) % (1 << 31))
    assert skip == len(rows)


@pytest.mark.parametrize("timestamp", [1_700_000_000_000, [5, 5, 6, 5, 1000]])
@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, b"v", ()),
        (b"", None, (("h", b"1"), ("i", None))),
        (b"k" * 70, b"v" * 40, ()),
        (b"key", b"v" * 8000, (("h", b"1"),)),
    ],
)
def test_records_of_one_shape_are_encoded_like_others(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], timestamp: int | list[int]
) -> None:
    """Batches share what precedes their keys, as far as offsets of one, two and three bytes."""
    count = 8_300 if len(value or b"") < 8000 else 40
    times = [timestamp] * count if isinstance(timestamp, int) else (timestamp * count)[:count]
    rows: list[Row] = [(time, key, value, headers) for time in times]
    keys, values = (None if each is None else pa.array([each] * count, pa.binary()) for each in (key, value))
    given_times = timestamp if isinstance(timestamp, int) else np.array(times)
    given_headers = arrow_headers(rows) if headers else None
    for limit in (1 << 20, 60_000):
        done = 0
        for batch in encode_from_arrow(keys, values, given_times, given_headers, max_batch_bytes=limit):
            size = check_batch(memoryview(batch)).records_count
            assert batch == encode_batch(rows[done : done + size])
            assert len(batch) <= limit
            done += size
        assert done == count


def test_batches_are_filled_and_windows_are_joined_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.records.arrow_encode._WINDOW_BYTES", 100_000)
    count = 20_000
    value = pa.array([b"v" * 100] * count, pa.binary())
    batches = encode_from_arrow(None, value, np.arange(count) + 1_700_000_000_000, max_batch_bytes=16_384)
    sizes = [len(batch) for batch in batches[:-1]]
    assert min(sizes) > 15_500
    assert max(sizes) <= 16_384
    headers = [check_batch(memoryview(batch)) for batch in batches]
    assert sum(header.records_count for header in headers) == count
    timestamps = [decode_to_arrow(batch).column("timestamp").to_pylist() for batch in batches]
    assert [t for part in timestamps for t in part] == list(range(1_700_000_000_000, 1_700_000_000_000 + count))


def test_arrow_to_batches_to_arrow() -> None:
    rng = random.Random(6)
    count = 5000
    key = pa.array(
        [None if rng.random() < 0.1 else rng.randbytes(rng.randrange(30)) for _ in range(count)], pa.binary()
    )
    value = pa.chunked_array(
        [pa.array([rng.randbytes(rng.randrange(200)) for _ in range(count // 2)], pa.binary())] * 2
    )
    headers = pa.array([[{"key": "a", "value": None}] * (number % 3) or None for number in range(count)], HEADERS_TYPE)
    timestamps = pa.array([rng.randrange(1 << 40) for _ in range(count)], pa.timestamp("ms", "UTC"))
    (batch,) = encode_from_arrow(key, value, timestamps, headers, compression=3)
    table = decode_to_arrow(batch, include_headers=True)
    assert table.column("key").equals(key)
    assert table.column("value").equals(value.combine_chunks())
    assert table.column("timestamp").equals(timestamps.cast(pa.int64()))
    assert table.column("headers").equals(headers)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(3)])
def test_other_types_and_constant_timestamps(kind: pa.DataType) -> None:
    (batch,) = encode_from_arrow(pa.array(["abc", None], kind), pa.array([None, "xyz"], kind), 77)
    assert batch == encode_batch([(77, b"abc", None, ()), (77, None, b"xyz", ())])
    (batch,) = encode_from_arrow(
        pa.nulls(1), pa.array(["x"]), pa.array([1_000_999], pa.timestamp("us")), pa.array([[]], HEADERS_TYPE)
    )
    assert batch == encode_batch([(1000, None, b"x", ())])


def test_nothing_to_encode() -> None:
    assert encode_from_arrow(None, pa.array([], pa.binary()), np.array([], np.int64)) == []


def test_columns_that_do_not_fit_together() -> None:
    value = pa.array([b"v", b"w"], pa.binary())
    with pytest.raises(RecordTooLarge, match="record 1 "):
        encode_from_arrow(None, pa.array([b"v", b"w" * 200], pa.binary()), 1, max_batch_bytes=200)
    with pytest.raises(ValueError, match="1 elements of key"):
        encode_from_arrow(value[:1], value, 1)
    with pytest.raises(ValueError, match="null"):
        encode_from_arrow(None, value, pa.array([1, None]))
    with pytest.raises(ValueError, match="both"):
        encode_from_arrow(None, None, 1)
    nameless = pa.array(
        [[{"key": None, "value": b""}], None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    with pytest.raises(ValueError, match="null"):
        encode_from_arrow(None, value, 1, nameless)
    with pytest.raises(ValueError, match="headers"):
        encode_from_arrow(None, value, 1, pa.array([1, 2]))
    with pytest.raises(ValueError, match="apart"):
        encode_from_arrow(None, value, np.array([-(1 << 62), 1 << 62]))
    with pytest.raises(ValueError, match="level"):
        encode_from_arrow(None, value, 1, compression=2, level=1)


def test_a_varint_of_five_bytes_in_a_length() -> None:
    value = bytes(1 << 21)
    data = bytes(encode_batch([(1, None, value, ()), (2, b"k", value[1:], ())] * 3))
    assert varint(len(value)) in data
    assert decode_to_arrow(data).column("value").to_pylist() == [value, value[1:]] * 3
