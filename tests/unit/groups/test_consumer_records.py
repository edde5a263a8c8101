"""The records of KIP-848 groups, byte for byte and there and back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.codec import decode_record, encode_record
from odradek.groups.consumer.records import (
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberState,
    OldMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    Subscription,
    SubscriptionRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from odradek.wire.primitives import DecodeError

ID = bytes(range(16))
SUBSCRIPTION = Subscription("i", None, "c", "/h", ("a", "b"), None, 1000, None)

names = st.text(max_size=8)
ids = st.binary(min_size=16, max_size=16)
owned = st.dictionaries(ids, st.dictionaries(st.integers(0, 99), st.integers(0, 9), min_size=1, max_size=4), max_size=3)
targets = st.dictionaries(ids, st.frozensets(st.integers(0, 99), min_size=1, max_size=4), max_size=3)
small = st.integers(0, 2**31 - 1)
big = st.integers(-(2**63), 2**63 - 1)
subscriptions = st.builds(
    Subscription,
    st.none() | names,
    st.none() | names,
    names,
    names,
    st.lists(names, max_size=3).map(lambda found: tuple(sorted(found))),
    st.none() | st.text(min_size=1, max_size=5),
    small,
    st.none() | names,
    st.none()
    | st.builds(ClassicMetadata, small, st.lists(st.tuples(names, st.binary(max_size=5)), max_size=2).map(tuple)),
)
currents = st.builds(CurrentAssignment, small, small, st.sampled_from(list(MemberState)), owned, owned)
resolved = st.builds(ResolvedRegex, st.frozensets(names, max_size=3), big, big)
records = st.one_of(
    st.builds(GroupEpochRecord, names, st.none() | st.builds(GroupEpoch, small, big)),
    st.builds(OldMetadataRecord, names, st.booleans()),
    st.builds(SubscriptionRecord, names, names, st.none() | subscriptions),
    st.builds(TargetEpochRecord, names, st.none() | st.builds(TargetEpoch, small, big)),
    st.builds(TargetRecord, names, names, st.none() | targets),
    st.builds(CurrentAssignmentRecord, names, names, st.none() | currents),
    st.builds(RegexRecord, names, names, st.none() | resolved),
)


@given(records)
def test_record_survives_encoding_and_decoding(record: ConsumerRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_records_have_the_bytes_of_apache_kafka() -> None:
    assert encode_record(GroupEpochRecord("g", GroupEpoch(3, 0))) == (
        b"\x00\x03\x00\x01g",
        b"\x00\x00\x00\x00\x00\x03\x00",
    )
    assert encode_record(TargetEpochRecord("g", None)) == (b"\x00\x06\x00\x01g", None)
    key, value = encode_record(TargetRecord("g", "m", {ID: frozenset({1, 0})}))
    assert key == b"\x00\x07\x00\x01g\x00\x01m"
    assert value == b"\x00\x00\x02" + ID + b"\x03" + struct.pack(">ii", 0, 1) + b"\x00\x00"
    key, value = encode_record(CurrentAssignmentRecord("g", "m", CurrentAssignment(2, 1, MemberState.STABLE, {}, {})))
    assert key == b"\x00\x08\x00\x01g\x00\x01m"
    assert value == b"\x00\x00" + struct.pack(">iib", 2, 1, 1) + b"\x01\x01\x00"
    key, value = encode_record(SubscriptionRecord("g", "m", SUBSCRIPTION))
    assert key == b"\x00\x05\x00\x01g\x00\x01m"
    # A member of the new protocol differs by a classic part that is null, and present.
    assert (
        value == b"\x00\x00\x02i\x00\x02c\x03/h\x03\x02a\x02b\x00" + struct.pack(">i", 1000) + b"\x00\x01\x00\x01\x00"
    )
    assert encode_record(RegexRecord("g", "a.*", None)) == (b"\x00\x10\x00\x01g\x00\x03a.*", None)


def test_members_of_kafka_4_0_have_no_assignment_epochs() -> None:
    body = b"\x00\x00" + struct.pack(">iib", 5, 4, 1) + b"\x02" + ID + b"\x02" + struct.pack(">i", 3) + b"\x00\x01\x00"
    record = decode_record(b"\x00\x08\x00\x01g\x00\x01m", body)
    assert record == CurrentAssignmentRecord("g", "m", CurrentAssignment(5, 4, MemberState.STABLE, {ID: {3: 5}}, {}))


def test_states_of_later_versions_are_unknown() -> None:
    record = decode_record(b"\x00\x08\x00\x01g\x00\x01m", b"\x00\x00" + struct.pack(">iib", 5, 4, 9) + b"\x01\x01\x00")
    assert isinstance(record, CurrentAssignmentRecord)
    assert record.value is not None
    assert record.value.state is MemberState.UNKNOWN


@pytest.mark.parametrize("kind", [3, 4, 5, 6, 7, 8, 16])
def test_damaged_record_is_a_decode_error(kind: int) -> None:
    with pytest.raises(DecodeError):
        decode_record(struct.pack(">h", kind) + b"\x00\x09g", None)
    if kind != 4:
        with pytest.raises(DecodeError):
            decode_record(struct.pack(">h", kind) + b"\x00\x01g\x00\x01m", b"\x00\x00\xff")
