"""Names, damage and bounds of KRaft's files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.kraft.checkpoints import (
    RECORDS_IN_BATCH,
    CheckpointId,
    encode_checkpoint,
    parse_file_name,
    read_checkpoint,
)
from odradek.kraft.control_records import decode_kraft_control, encode_control_batch
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import encode_metadata_batch, read_entries
from odradek.kraft.metadata_records import VersionedRecord, decode_metadata_record, encode_metadata_record, type_name
from odradek.kraft.quorum_state import decode_quorum_state, encode_quorum_state
from odradek.records.batch import split_batches
from odradek.records.record import Record
from odradek.wire.messages import cluster_metadata as md
from odradek.wire.messages.control_records import LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord
from odradek.wire.messages.quorum_state import QuorumStateData, QuorumStateDataVoter

TOPIC = md.TopicRecord("orders", b"t" * 16)
ID = CheckpointId(7, 1)


def checkpoint(count: int = 1) -> bytes:
    records = [VersionedRecord(TOPIC, 0)] * count
    return encode_checkpoint(ID, records, timestamp_ms=5, last_timestamp_ms=4)


def control(*messages: object, offset: int = 0) -> bytes:
    return encode_control_batch(messages, base_offset=offset, leader_epoch=1, timestamp_ms=0)


def test_type_name_is_apaches() -> None:
    assert type_name(18) == "ACCESS_CONTROL_ENTRY_RECORD"
    assert type_name(20) == "NO_OP_RECORD"


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**10 - 1))
def test_checkpoint_name_is_read_back(offset: int, epoch: int) -> None:
    found = CheckpointId(offset, epoch)
    assert parse_file_name(found.file_name) == found


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "00000000000000000042-0000000003.checkpoint.part",
        "00000000000000000042-0000000003.checkpoint.deleted",
        "42-3.checkpoint",
        "00000000000000000042.log",
    ],
)
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert parse_file_name(name) is None


def test_large_checkpoint_has_several_batches() -> None:
    data = checkpoint(RECORDS_IN_BATCH + 1)
    assert len(list(split_batches(memoryview(data)))) == 4
    assert len(list(read_checkpoint(data).entries)) == RECORDS_IN_BATCH + 1


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "header"),
        (control(SnapshotHeaderRecord()), "footer"),
        (control(SnapshotFooterRecord()), "header"),
        (control(SnapshotHeaderRecord(), SnapshotHeaderRecord(), SnapshotFooterRecord()), "second"),
        (checkpoint()[:-1], "bytes"),
    ],
    ids=["empty", "no footer", "no header", "two headers", "cut off"],
)
def test_incomplete_checkpoint_is_rejected(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptMetadata, match=problem):
        read_checkpoint(data)


def test_cut_off_batch_ends_a_log_that_need_not_be_whole() -> None:
    batch = encode_metadata_batch([VersionedRecord(TOPIC, 0)], base_offset=3, leader_epoch=1, timestamp_ms=0)
    assert [each.offset for each in read_entries(batch + batch[:-1], whole=False)] == [3]
    with pytest.raises(CorruptMetadata):
        list(read_entries(batch + batch[:-1], whole=True))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "index"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x63\x00", "unknown record type 99"),
        (b"\x01\x02\x09", "version 9"),
        (encode_metadata_record(TOPIC, 0) + b"\x00", "1 bytes follow"),
        (encode_metadata_record(TOPIC, 0)[:-2], "TopicRecord"),
    ],
    ids=["empty", "frame", "type", "version", "longer", "shorter"],
)
def test_damaged_metadata_record_is_rejected(value: bytes, problem: str) -> None:
    with pytest.raises(CorruptMetadata, match=problem):
        decode_metadata_record(memoryview(value))


def test_control_record_without_version_is_rejected() -> None:
    (entry,) = read_entries(control(LeaderChangeMessage(0, 1)), whole=True)
    assert entry.leader_epoch == 1
    with pytest.raises(CorruptMetadata, match="no version"):
        decode_kraft_control(Record(0, 0, b"\x00\x00\x00\x02", b"", ()))


ids = st.integers(-1, 2**31 - 1)
states = st.one_of(
    st.tuples(
        st.builds(
            QuorumStateData,
            cluster_id=st.text(),
            leader_id=ids,
            leader_epoch=ids,
            voted_id=ids,
            applied_offset=ids,
            current_voters=st.none() | st.lists(st.builds(QuorumStateDataVoter, voter_id=ids), max_size=3),
        ),
        st.just(0),
    ),
    st.tuples(
        st.builds(
            QuorumStateData,
            leader_id=ids,
            leader_epoch=ids,
            voted_id=ids,
            voted_directory_id=st.binary(min_size=16, max_size=16),
        ),
        st.just(1),
    ),
)


@given(states)
def test_quorum_state_is_read_back(state: tuple[QuorumStateData, int]) -> None:
    assert decode_quorum_state(encode_quorum_state(*state)) == state


def test_quorum_state_has_apaches_form() -> None:
    """As a voter of Apache Kafka 4.3.0 wrote it (data_version 1, and 0 of kraft.version 0)."""
    new = b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    old = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":'
        b'[{"voterId":1}],"data_version":0}'
    )
    for data in (new, old):
        assert encode_quorum_state(*decode_quorum_state(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
        b'{"leaderId":"1","leaderEpoch":2,"votedId":-1,"votedDirectoryId":"","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AA","data_version":1}',
    ],
)
def test_damaged_quorum_state_is_rejected(data: bytes) -> None:
    with pytest.raises(CorruptMetadata, match="quorum-state"):
        decode_quorum_state(data)


def test_quorum_state_of_an_unknown_version_is_not_written() -> None:
    with pytest.raises(ValueError, match="version 2"):
        encode_quorum_state(QuorumStateData(), 2)
