import pytest

from odradek.records.batch import check_batch
from odradek.records.control import ControlRecord, ControlType, decode_control_record, encode_end_transaction
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
