"""Encoding the records of a batch from columns: what is written must be what the decoder reads."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import check_batch
from odradek.records.builder import encode_batch
from odradek.records.record import decode_records
from odradek.records.section import encode_headers, encode_section, encode_usual_headers
from tests.unit.records.rebuilding import encode_record
from tests.unit.records.strategies import BATCHES, CODECS, Row, row_of

DELTAS = st.one_of(st.integers(-64, 63), st.integers(-70_000, 70_000))


def one_by_one(rows: list[Row]) -> bytes:
    """Each record by itself, in the order of Kafka's DefaultRecord."""
    return b"".join(
        encode_record(stamp - rows[0][0], index, key, value, encode_headers(headers))
        for index, (stamp, key, value, headers) in enumerate(rows)
    )


def section_of(rows: list[Row]) -> bytes:
    timestamps, keys, values, headers = zip(*rows, strict=True)
    encoded = {index: encode_headers(each) for index, each in enumerate(headers) if each}
    return bytes(encode_section(timestamps, None if set(keys) == {None} else keys, values, encoded))


def rows_of(count: int, sizes: tuple[int | None, int, int | None], deltas: list[int]) -> list[Row]:
    """Records whose key, value and header have these sizes, None for no key and no header."""
    key_size, value_size, header_size = sizes
    return [
        (
            1_700_000_000_000 + deltas[index % len(deltas)],
            None if key_size is None else bytes((index % 256,)) * key_size,
            bytes((index * 7 % 256,)) * value_size,
            () if header_size is None else (("h", bytes((index * 3 % 256,)) * header_size),),
        )
        for index in range(count)
    ]


KEY_SIZES = st.one_of(st.none(), st.integers(0, 200))
SIZES = st.tuples(KEY_SIZES, st.integers(0, 9000), st.one_of(st.none(), st.none(), st.integers(0, 200)))


@given(st.integers(1, 300), SIZES, st.lists(DELTAS, min_size=1, max_size=5))
def test_records_of_one_shape_are_encoded_as_one_by_one(
    count: int, sizes: tuple[int | None, int, int | None], deltas: list[int]
) -> None:
    rows = rows_of(count, sizes, deltas)
    assert section_of(rows) == one_by_one(rows)


@given(st.integers(8, 200), SIZES, st.integers(1, 60))
def test_timestamps_that_grow_are_encoded_as_one_by_one(
    count: int, sizes: tuple[int | None, int, int | None], step: int
) -> None:
    rows = rows_of(count, sizes, [index * step for index in range(count)])
    assert section_of(rows) == one_by_one(rows)


def test_section_is_encoded_behind_the_room_for_a_header() -> None:
    for count in (3, 40, 100):
        rows = rows_of(count, (None, 10, None), [0])
        timestamps, _, values, _ = zip(*rows, strict=True)
        assert encode_section(timestamps, None, values, {}, 61) == bytes(61) + one_by_one(rows)


@given(BATCHES)
def test_any_records_are_encoded_as_one_by_one(rows: list[Row]) -> None:
    assert section_of(rows) == one_by_one(rows)


def test_a_batch_beyond_two_byte_offsets_is_encoded_as_one_by_one() -> None:
    rows: list[Row] = [(5, None, b"v", ())] * 9000
    assert section_of(rows) == one_by_one(rows)


@given(BATCHES, CODECS)
def test_an_encoded_batch_is_decoded_to_its_records(rows: list[Row], codec: int) -> None:
    view = memoryview(encode_batch(rows, compression=codec))
    assert [row_of(record) for record in decode_records(view, check_batch(view))] == rows


NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["\ud800", "n" * 9000]), st.binary(max_size=3), st.none())
HEADER_VALUES = st.one_of(st.binary(max_size=40), st.just(b"v" * 9000), st.none(), st.text(max_size=3))
PAIRS = st.lists(st.one_of(st.tuples(NAMES, HEADER_VALUES), st.just(("ab",)), st.just("ab")), max_size=4)


@given(PAIRS)
def test_usual_headers_are_encoded_as_all_headers(pairs: Any) -> None:
    """Or left to the encoder of all headers, which raises for those that are none."""
    encoded = encode_usual_headers(pairs)
    usual = [each for each in pairs if each.__class__ is tuple and len(each) == 2]
    if len(usual) == len(pairs) and all(
        name.__class__ is str and name.isprintable() and value.__class__ is bytes and len(value) < 8192
        for name, value in usual
    ):
        assert encoded == encode_headers(pairs)
    else:
        assert encoded is None or encoded == encode_headers(pairs)


@given(SIZES, st.booleans(), st.integers(0, 61))
def test_a_lone_record_is_encoded_behind_the_room_for_a_header(
    sizes: tuple[int | None, int, int | None], has_value: bool, room: int
) -> None:
    ((stamp, key, value, headers),) = rows_of(1, sizes, [0])
    row = (stamp, key, value if has_value else None, headers)
    encoded = {0: encode_headers(headers)} if headers else {}
    assert encode_section([stamp], [key], [row[2]], encoded, room) == bytes(room) + one_by_one([row])
