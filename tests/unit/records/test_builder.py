import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import check_batch
from odradek.records.builder import BatchBuilder, BatchFields, encode_batch
from odradek.records.record import decode_records
from tests.unit.records.strategies import BATCHES, CODECS, Row, row_of


@given(BATCHES, CODECS, st.integers(61, 4000))
def test_a_builder_takes_records_until_its_limit(rows: list[Row], codec: int, max_bytes: int) -> None:
    builder = BatchBuilder(codec, max_bytes)
    taken = 0
    while taken < len(rows) and builder.append(*rows[taken]):
        taken += 1
        assert builder.size_in_bytes == len(encode_batch(rows[:taken]))
    assert taken == len(builder) >= 1
    assert builder.size_in_bytes <= max_bytes or taken == 1
    if taken < len(rows):
        assert len(encode_batch(rows[: taken + 1])) > max_bytes
    built = builder.build()
    assert built == encode_batch(rows[:taken], compression=codec)
    view = memoryview(built)
    assert [row_of(record) for record in decode_records(view, check_batch(view))] == rows[:taken]
    assert len(built) <= max(max_bytes, builder.size_in_bytes)


def test_building_again_with_other_producer_fields() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    first = builder.build()
    builder.append(0, memoryview(b"key"), bytearray(b"y"), [("h", memoryview(b"z"))])
    second = memoryview(
        builder.build(3, producer_id=1, producer_epoch=2, base_sequence=3, transactional=True, leader_epoch=4)
    )
    assert check_batch(memoryview(first)).records_count == 1
    header = check_batch(second, from_client=False)
    assert (header.base_offset, header.partition_leader_epoch, header.is_transactional) == (3, 4, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1, 1)
    assert row_of(decode_records(second, header)[1]) == (0, b"key", b"y", (("h", b"z"),))


def test_what_does_not_shrink_stays_uncompressed() -> None:
    noise = bytes(range(256))
    for codec in range(1, 5):
        assert check_batch(memoryview(encode_batch([(1, None, noise, ())], compression=codec))).compression == 0
        assert (
            check_batch(memoryview(encode_batch([(1, None, bytes(500), ())], compression=codec))).compression == codec
        )


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder().build()
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([], BatchFields())


def test_codecs_and_levels_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match="5"):
        BatchBuilder(5)
    with pytest.raises(ValueError, match="level"):
        BatchBuilder(1, level=10)
