import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.formats.framing import FixedSchemas, FramingError, framed, unframed


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_ids_come_back(schema_id: int, payload: bytes) -> None:
    assert unframed(framed(schema_id, payload)) == (schema_id, (), payload)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50), st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_message_indexes_come_back(schema_id: int, payload: bytes, path: list[int]) -> None:
    assert unframed(framed(schema_id, payload, tuple(path)), indexes=True) == (schema_id, tuple(path), payload)


def test_the_bytes_are_those_of_confluents_format() -> None:
    assert framed(7, b"x") == bytes.fromhex("0000000007") + b"x"
    # the first message of a file is one zero byte; others are their zigzag count and indexes
    assert framed(7, b"x", (0,)) == bytes.fromhex("000000000700") + b"x"
    assert framed(7, b"x", (1, 0)) == bytes.fromhex("0000000007040200") + b"x"
    # written out at length, the first message is still the first
    assert unframed(bytes.fromhex("00000000070200") + b"x", indexes=True) == (7, (0,), b"x")


@pytest.mark.parametrize("value", ["", "00", "00000000", "0100000007aa", "7b7d7b7d7b7d"])
def test_other_values_are_rejected(value: str) -> None:
    with pytest.raises(FramingError):
        unframed(bytes.fromhex(value))


@pytest.mark.parametrize(
    "value", ["0000000007", "000000000780", "0000000007ffffffffff7f", "000000000701", "000000000704"]
)
def test_broken_indexes_are_rejected(value: str) -> None:
    with pytest.raises(FramingError):
        unframed(bytes.fromhex(value), indexes=True)


def test_an_unknown_id_is_a_lookup_error() -> None:
    with pytest.raises(LookupError):
        FixedSchemas({1: "a"}).schema(2)
