import pytest

from odradek.records.batch import check_batch
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.headers import Headers
from odradek.records.record import decode_records
from odradek.records.section import Data
from tests.unit.records.strategies import row_of


def test_fields_of_a_batch_are_written() -> None:
    rows: list[tuple[int, Data | None, Data | None, Headers]] = [
        (1, None, b"x", ()),
        (0, memoryview(b"key"), bytearray(b"y"), [("h", memoryview(b"z"))]),
    ]
    view = memoryview(encode_batch(rows, BatchFields(3, 4, 1, 2, 3, is_transactional=True)))
    header = check_batch(view, from_client=False)
    assert (header.base_offset, header.partition_leader_epoch, header.is_transactional) == (3, 4, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1, 1)
    assert row_of(decode_records(view, header)[1]) == (0, b"key", b"y", (("h", b"z"),))


def test_what_does_not_shrink_stays_uncompressed() -> None:
    noise = bytes(range(256))
    for codec in range(1, 5):
        assert check_batch(memoryview(encode_batch([(1, None, noise, ())], compression=codec))).compression == 0
        assert (
            check_batch(memoryview(encode_batch([(1, None, bytes(500), ())], compression=codec))).compression == codec
        )


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([], BatchFields())


def test_unknown_codec_is_rejected() -> None:
    with pytest.raises(ValueError, match="5"):
        encode_batch([(1, None, b"x", ())], compression=5)


def test_level_that_a_codec_lacks_is_rejected() -> None:
    with pytest.raises(ValueError, match="level"):
        encode_batch([(1, None, b"x", ())], compression=1, level=10)
