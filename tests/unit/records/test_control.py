import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import HEADER_SIZE, check_batch, parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import (
    ControlRecord,
    ControlType,
    decode_control_record,
    decode_marker,
    encode_control_key,
    encode_end_transaction,
)
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.record import Record, decode_records


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_round_trip(commit: bool) -> None:
    view = memoryview(
        encode_end_transaction(
            commit=commit, producer_id=9, producer_epoch=2, coordinator_epoch=31, timestamp_ms=5, base_offset=40
        )
    )
    header = check_batch(view, from_client=False)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, -1, -1)
    (record,) = decode_records(view, header)
    assert record.offset == 40
    marker = decode_control_record(record)
    assert marker == ControlRecord(ControlType.COMMIT if commit else ControlType.ABORT, 31)
    assert marker.is_end_transaction
    assert record.key == bytes.fromhex("00000001" if commit else "00000000")
    assert record.value == bytes.fromhex("00000000001f")
    with pytest.raises(InvalidRecords):
        check_batch(view)


MARKERS = st.builds(
    encode_end_transaction,
    commit=st.booleans(),
    producer_id=st.integers(0, 1 << 40),
    producer_epoch=st.integers(0, 100),
    coordinator_epoch=st.integers(0, 1 << 30),
    timestamp_ms=st.integers(0, 1 << 40),
)


@given(MARKERS)
def test_markers_are_decoded_at_once(batch: bytearray) -> None:
    view = memoryview(batch)
    header = parse_header(view)
    assert decode_marker(view, 0, header) == decode_control_record(decode_records(view, header)[0])


@given(MARKERS, st.integers(HEADER_SIZE, HEADER_SIZE + 16), st.integers(0, 255))
def test_what_is_decoded_at_once_is_what_the_records_say(batch: bytearray, place: int, byte: int) -> None:
    """Whatever byte is another one: it is the same, or is left to the usual way."""
    batch[place] = byte
    view = memoryview(batch)
    header = parse_header(view)
    found = decode_marker(view, 0, header)
    if found is not None:
        assert found == decode_control_record(decode_records(view, header)[0])


def test_other_control_batches_are_not_decoded_at_once() -> None:
    for control_type in ControlType:
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            fields = BatchFields(is_control=True)
            view = memoryview(encode_batch([(5, encode_control_key(control_type), bytes(6), ())], fields))
            assert decode_marker(view, 0, parse_header(view)) is None


@pytest.mark.parametrize(
    ("type_id", "expected"),
    [
        (2, ControlType.LEADER_CHANGE),
        (3, ControlType.SNAPSHOT_HEADER),
        (6, ControlType.KRAFT_VOTERS),
        (99, ControlType.UNKNOWN),
    ],
)
def test_other_types_are_recognised_and_their_values_left_alone(type_id: int, expected: ControlType) -> None:
    marker = decode_control_record(Record(0, 0, b"\0\0" + type_id.to_bytes(2), b"whatever"))
    assert marker == ControlRecord(expected)
    assert not marker.is_end_transaction


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0\0\0", b""),
        (b"\xff\xff\0\0", bytes(6)),
        (bytes(4), None),
        (bytes(4), bytes(5)),
        (bytes(4), b"\xff" * 6),
    ],
)
def test_broken_markers(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        decode_control_record(Record(3, 0, key, value))


def test_newer_versions_are_read_as_far_as_they_are_known() -> None:
    record = Record(0, 0, b"\0\7\0\1extra", b"\0\7\0\0\0\5extra")
    assert decode_control_record(record) == ControlRecord(ControlType.COMMIT, 5)
