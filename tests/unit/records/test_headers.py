"""Headers that are decoded with the first look at them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given

from odradek.records.batch import parse_header
from odradek.records.builder import finish_batch
from odradek.records.errors import CorruptRecords
from odradek.records.headers import LazyHeaders, decode_headers, lazy_headers
from odradek.records.record import decode_columns, scan_columns
from odradek.records.section import encode_headers
from tests.unit.records.rebuilding import encode_record
from tests.unit.records.strategies import HEADERS

PAIRS = [("source", b"bench"), ("none", None), ("source", b"")]
BROKEN = {
    "more headers than bytes": b"\x7e\0\0",
    "value beyond the end": b"\2\2a\x14x",
    "bytes after the last": encode_headers(PAIRS) + b"\0",
    "key without an end": b"\2\xff",
    "null key": b"\2\1\1",
}


@given(HEADERS)
def test_lazy_headers_equal_what_was_encoded(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert LazyHeaders(encode_headers(headers)) == headers


def test_lazy_headers_behave_as_the_sequence_of_their_pairs() -> None:
    headers = LazyHeaders(encode_headers(PAIRS))
    assert headers == PAIRS == list(headers)
    assert headers == tuple(PAIRS)
    assert headers == LazyHeaders(encode_headers(PAIRS))
    assert headers != PAIRS[:2]
    assert headers != "source"
    assert (len(headers), headers[1], headers[-1], headers[1:]) == (3, PAIRS[1], PAIRS[2], PAIRS[1:])
    assert dict(headers) == dict(PAIRS)
    assert ("none", None) in headers
    assert repr(headers) == repr(PAIRS)
    assert hash(headers) == hash(tuple(PAIRS))


def test_lazy_headers_can_be_pickled_before_and_after_a_look() -> None:
    headers = LazyHeaders(encode_headers(PAIRS))
    assert pickle.loads(pickle.dumps(headers)) == PAIRS
    assert len(headers) == 3
    assert pickle.loads(pickle.dumps(headers)) == PAIRS


def test_column_of_lazy_headers_has_an_empty_tuple_for_none() -> None:
    assert list(lazy_headers([b"", b""])) == [(), ()]
    assert list(lazy_headers([b"", encode_headers(PAIRS)])) == [(), PAIRS]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_headers_raise_corrupt_records_at_each_look(name: str) -> None:
    with pytest.raises(CorruptRecords):
        decode_headers(BROKEN[name])
    headers = LazyHeaders(BROKEN[name])
    for _ in range(2):
        with pytest.raises(CorruptRecords):
            len(headers)


def test_scan_does_not_decode_headers() -> None:
    section = encode_record(0, 0, b"k", b"v", b"\2\2a\x14x")
    view = memoryview(finish_batch(section, 0, None, (1, 0, 0, 0)))
    columns = scan_columns(view, parse_header(view), copy=True)
    assert (list(columns.values), list(columns.headers)) == ([b"v"], [b"\2\2a\x14x"])
    with pytest.raises(CorruptRecords, match="batch at offset 0"):
        decode_columns(view, parse_header(view))
