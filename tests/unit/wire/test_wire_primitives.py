"""Primitive types at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire import primitives as p


@settings(max_examples=300, deadline=None, database=None)
@given(value=st.one_of(st.integers(0, (1 << 32) - 1), st.integers(0, 32).map(lambda bits: max(0, (1 << bits) - 1))))
def test_varints(value: int) -> None:
    out = bytearray()
    p.write_unsigned_varint(out, value)
    assert p.read_unsigned_varint(memoryview(out), 0) == (value, len(out))
    assert len(out) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x00"])
def test_too_long_varints_are_rejected(data: bytes) -> None:
    with pytest.raises(p.DecodeError):
        p.read_unsigned_varint(memoryview(data), 0)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 32_767])
def test_strings_of_all_lengths(size: int) -> None:
    value = "x" * size
    pairs: list[tuple[Callable[[bytearray, str | None], None], Callable[[memoryview, int], Any]]] = [
        (p.write_string, p.read_string),
        (p.write_nullable_string, p.read_nullable_string),
        (p.write_compact_string, p.read_compact_string),
        (p.write_compact_nullable_string, p.read_compact_nullable_string),
    ]
    for write, read in pairs:
        out = bytearray(b"..")
        write(out, value)
        assert read(memoryview(out), 2) == (value, len(out))
        with pytest.raises((p.DecodeError, *p.DECODE_FAULTS)):
            read(memoryview(out)[:-1], 2)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 100_000])
def test_bytes_of_all_lengths(size: int) -> None:
    value = b"x" * size
    for write, kinds in ((p.write_bytes, ""), (p.write_compact_bytes, "_compact")):
        for kind in ("bytes", "records"):
            for nullable in ("", "_nullable"):
                out = bytearray()
                write(out, value)
                read = getattr(p, f"read{kinds}{nullable}_{kind}")
                assert read(memoryview(out), 0) == (value, len(out))
                with pytest.raises((p.DecodeError, *p.DECODE_FAULTS)):
                    read(memoryview(out)[:-1], 0)


def test_null() -> None:
    for name in ("string", "bytes"):
        for compact in ("", "_compact"):
            out = bytearray()
            getattr(p, f"write{compact}_nullable_{name}")(out, None)
            assert getattr(p, f"read{compact}_nullable_{name}")(memoryview(out), 0) == (None, len(out))
            with pytest.raises(p.DecodeError):
                getattr(p, f"read{compact}_{name}")(memoryview(out), 0)
            with pytest.raises(p.EncodeError):
                getattr(p, f"write{compact}_{name}")(out, None)
    for compact in ("", "_compact"):
        with pytest.raises(p.EncodeError):
            getattr(p, f"write{compact}_count")(bytearray(), None)


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 20_000])
def test_counts_are_held_against_the_bytes_left(count: int) -> None:
    for compact in ("", "_compact"):
        out = bytearray()
        getattr(p, f"write{compact}_count")(out, [None] * count)
        start = len(out)
        out += bytes(3 * count)
        for nullable in ("", "_nullable"):
            read = getattr(p, f"read{compact}{nullable}_count")
            assert read(memoryview(out), 0, 3) == (count, start)
            if count:
                with pytest.raises(p.DecodeError):
                    read(memoryview(out)[:-1], 0, 3)


def test_records_are_a_view_and_bytes_a_copy() -> None:
    data = bytearray(b"\4abc")
    records, _ = p.read_compact_records(memoryview(data), 0)
    copy, _ = p.read_compact_bytes(memoryview(data), 0)
    data[1] = ord("X")
    assert bytes(records) == b"Xbc"
    assert copy == b"abc"


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (lambda view: p.read_count(view, 0, 1), b"\0\0\0\5" + bytes(5)),
        (lambda view: p.read_nullable_count(view, 0, 1), b"\0\0\0\5" + bytes(5)),
        (lambda view: p.read_compact_count(view, 0, 1), b"\6" + bytes(5)),
        (lambda view: p.read_compact_nullable_count(view, 0, 1), b"\6" + bytes(5)),
        (lambda view: p.skip_tags(view, 0), b"\5" + b"\1\0" * 5),
    ],
    ids=["array", "nullable array", "compact array", "compact nullable array", "tags"],
)
def test_elements_are_counted_against_the_limit_of_a_message(read: Callable[[memoryview], Any], data: bytes) -> None:
    view = memoryview(data)
    with p.elements_at_most(10):
        read(view)
        read(view)
        with pytest.raises(p.DecodeError):
            read(view)
    for _ in range(3):
        read(view)


def test_null_arrays_add_nothing_to_the_limit() -> None:
    with p.elements_at_most(0):
        for _ in range(5):
            p.read_nullable_count(memoryview(b"\xff\xff\xff\xff"), 0, 1)
            p.read_compact_nullable_count(memoryview(b"\0"), 0, 1)
        with pytest.raises(p.DecodeError):
            p.read_compact_count(memoryview(b"\2\0"), 0, 1)
