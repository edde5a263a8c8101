"""The records of `__consumer_offsets`, byte for byte, in the versions that Kafka has written."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.classic.records import ClassicGroupRecord, GroupValue, MemberValue
from odradek.groups.codec import decode_record, encode_record
from odradek.groups.offsets.records import OffsetRecord, OffsetValue
from odradek.wire.messages.consumer_offsets import OffsetCommitValue
from odradek.wire.primitives import DecodeError

KEY = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x05"


def test_an_offset_commit_is_key_1_and_value_4_with_the_topic_id_as_a_tag() -> None:
    topic_id = bytes(range(16))
    key, value = encode_record(OffsetRecord("g", "t", 5, OffsetValue(7, 2, "m", 1000, -1, topic_id)))
    assert key == KEY
    head = struct.pack(">hqi", 4, 7, 2)
    assert value == head + b"\x02m" + struct.pack(">q", 1000) + b"\x01\x00\x10" + topic_id


def test_an_offset_with_an_expiry_is_value_1() -> None:
    _, value = encode_record(OffsetRecord("g", "t", 5, OffsetValue(7, 2, "m", 1000, 5000)))
    assert value == struct.pack(">hq", 1, 7) + b"\x00\x01m" + struct.pack(">qq", 1000, 5000)
    assert decode_record(KEY, value) == OffsetRecord("g", "t", 5, OffsetValue(7, -1, "m", 1000, 5000))


def test_a_group_is_key_2_and_value_3() -> None:
    member = MemberValue("m", "i", "c", "/h", 30, 10, b"S", b"A")
    record = ClassicGroupRecord("g", GroupValue("consumer", 4, "range", "m", 9, (member,)))
    key, value = encode_record(record)
    assert key == b"\x00\x02\x00\x01g"
    assert value == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x04\x00\x05range\x00\x01m" + struct.pack(">q", 9) + b"\x00\x00\x00\x01"
        b"\x00\x01m\x00\x01i\x00\x01c\x00\x02/h\x00\x00\x00\x1e\x00\x00\x00\x0a\x00\x00\x00\x01S\x00\x00\x00\x01A"
    )
    assert decode_record(key, value) == record


def test_tombstone_has_a_key_and_no_value() -> None:
    assert encode_record(OffsetRecord("g", "t", 5, None)) == (KEY, None)
    assert decode_record(KEY, None) == OffsetRecord("g", "t", 5, None)
    assert decode_record(b"\x00\x02\x00\x01g", None) == ClassicGroupRecord("g", None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (struct.pack(">hq", 0, 7) + b"\x00\x01m" + struct.pack(">q", 9), OffsetValue(7, -1, "m", 9)),
        (struct.pack(">hq", 2, 7) + b"\x00\x01m" + struct.pack(">q", 9), OffsetValue(7, -1, "m", 9)),
        (struct.pack(">hqi", 3, 7, 6) + b"\x00\x01m" + struct.pack(">q", 9), OffsetValue(7, 6, "m", 9)),
    ],
)
def test_older_versions_of_offset_values_are_read(value: bytes, expected: OffsetValue) -> None:
    assert decode_record(KEY, value) == OffsetRecord("g", "t", 5, expected)
    assert decode_record(memoryview(KEY), memoryview(value)) == OffsetRecord("g", "t", 5, expected)


def test_the_oldest_group_value_takes_the_session_timeout_for_rebalances() -> None:
    value = (
        b"\x00\x00\x00\x08consumer\x00\x00\x00\x04\x00\x05range\x00\x01m\x00\x00\x00\x01"
        b"\x00\x01m\x00\x01c\x00\x02/h\x00\x00\x00\x0a\x00\x00\x00\x01S\x00\x00\x00\x01A"
    )
    record = decode_record(b"\x00\x02\x00\x01g", value)
    assert record == ClassicGroupRecord(
        "g", GroupValue("consumer", 4, "range", "m", -1, (MemberValue("m", None, "c", "/h", 10, 10, b"S", b"A"),))
    )


def test_unknown_record_type_is_decoded_as_none() -> None:
    assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00\x00\x00\x00\x01") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", None),
        (KEY[:-1], None),
        (KEY, b""),
        (KEY, b"\x00"),
        (KEY, b"\x00\x09abc"),
        (KEY, b"\x00\x03"),
    ],
)
def test_damage_is_a_decode_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(key, value)


names = st.text(max_size=20)
small = st.binary(max_size=20)
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
offset_values = st.builds(
    OffsetValue, int64, st.integers(-1, 2**31 - 1), names, int64, st.just(-1), st.binary(min_size=16, max_size=16)
)
members = st.builds(MemberValue, names, st.none() | names, names, names, int32, int32, small, small)
groups = st.builds(
    GroupValue, names, int32, st.none() | names, st.none() | names, int64, st.lists(members, max_size=3).map(tuple)
)


@given(
    st.builds(OffsetRecord, names, names, int32, st.none() | offset_values)
    | st.builds(ClassicGroupRecord, names, st.none() | groups)
)
def test_record_survives_encoding_and_decoding(record: OffsetRecord | ClassicGroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_a_commit_without_metadata_is_the_same_as_through_the_codec() -> None:
    topic_id = bytes(range(16))
    _, value = encode_record(OffsetRecord("g", "t", 5, OffsetValue(7, -1, "", 1000, -1, topic_id)))
    out = bytearray(b"\x00\x04")
    OffsetCommitValue(7, -1, "", 1000, -1, topic_id).encode(out, 4)
    assert value == bytes(out)
