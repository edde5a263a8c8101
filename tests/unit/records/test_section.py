"""Encoding the records of a batch from columns: what is written must be what the decoder reads."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import check_batch
from odradek.records.builder import encode_batch
from odradek.records.record import decode_records
from odradek.records.section import encode_headers, encode_section
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


@given(
    st.integers(1, 300),
    st.one_of(st.none(), st.integers(0, 200)),
    st.integers(0, 9000),
    st.lists(DELTAS, min_size=1, max_size=5),
)
def test_records_of_one_shape_are_encoded_as_one_by_one(
    count: int, key_size: int | None, value_size: int, deltas: list[int]
) -> None:
    rows: list[Row] = [
        (
            1_700_000_000_000 + deltas[index % len(deltas)],
            None if key_size is None else bytes((index % 256,)) * key_size,
            bytes((index * 7 % 256,)) * value_size,
            (),
        )
        for index in range(count)
    ]
    assert section_of(rows) == one_by_one(rows)


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
