from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from odradek.records.murmur import murmur2, murmur2_column, partition_column, partition_for_key, to_positive
from tests.unit.records.strategies import BLOBS

# From Apache Kafka's own tests (UtilsTest.testMurmur2).
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_kafkas_vectors() -> None:
    assert {key: murmur2(key) for key in VECTORS} == VECTORS
    assert murmur2_column(pa.array(list(VECTORS), pa.binary())).tolist() == list(VECTORS.values())


def test_positive_clears_the_sign_bit() -> None:
    assert [to_positive(value) for value in (0, 5, -1, -(1 << 31))] == [0, 5, (1 << 31) - 1, 0]


@given(st.binary(max_size=70))
def test_one_key_as_kafka_python_does_it(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == kafka_python_murmur2(key) & 0xFFFFFFFF
    assert murmur2(memoryview(key)) == murmur2(key)


@given(
    st.lists(BLOBS, max_size=60),
    st.integers(0, 60),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.integers(1, 50),
)
def test_a_column_is_hashed_like_its_elements(
    keys: list[bytes | None], skip: int, kind: pa.DataType, count: int
) -> None:
    column = pa.array(keys, kind).slice(skip)
    keys = keys[skip:]
    hashes = murmur2_column(column)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [0 if key is None else murmur2(key) for key in keys]
    partitions = partition_column(column, count)
    assert partitions.dtype == np.int32
    assert partitions.tolist() == [-1 if key is None else partition_for_key(key, count) for key in keys]


@given(st.integers(0, 23), st.integers(15, 40), st.integers(0, 3), st.binary(min_size=1), st.sets(st.integers(0, 40)))
def test_keys_of_one_length_are_hashed_like_others(
    length: int, count: int, skip: int, content: bytes, nulls: set[int]
) -> None:
    """Their words are read in strides, also behind the first rows of an array and between nulls."""
    text = content * (length * count // len(content) + 1)
    keys = [text[number * length : (number + 1) * length] for number in range(count)]
    offsets: Any = np.arange(count + 1, dtype=np.int32) * np.int32(length)
    valid = np.array([number not in nulls for number in range(count)])
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(offsets), pa.py_buffer(text)]
    column = pa.Array.from_buffers(pa.binary(), count, buffers).slice(skip)
    expected = [murmur2(key) if there else 0 for key, there in zip(keys, valid, strict=True)][skip:]
    assert murmur2_column(column).tolist() == expected


def test_strings_and_long_stragglers() -> None:
    keys = ["é" * n for n in range(40)] + ["x" * 100_003, "y" * 50_000] + ["same"] * 50
    for kind in (pa.string(), pa.large_string()):
        assert murmur2_column(pa.array(keys, kind)).tolist() == [murmur2(key.encode()) for key in keys]


@pytest.mark.parametrize("keys", [[], [None], [None] * 20, [b""], [b"", None]])
def test_columns_with_nothing_in_them(keys: list[bytes | None]) -> None:
    expected = [0 if key is None else murmur2(key) for key in keys]
    assert murmur2_column(pa.array(keys, pa.binary())).tolist() == expected
