"""Sets of voters, and which of them is in force at the end of a log."""

from __future__ import annotations

import pytest

from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.raft.voter_history import BEFORE_THE_LOG, VoterHistory
from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from odradek.wire.messages.control_records import KRaftVersionRecord, VotersRecord, VotersRecordVoter


def key(node: int, directory: int = 0) -> ReplicaKey:
    """A replica in the directory of this number; 10 + the node's id by default."""
    return ReplicaKey(node, (directory or 10 + node).to_bytes(16, "big"))


def voter(node: int, directory: int = 0) -> Voter:
    """A voter with one listener."""
    return Voter(key(node, directory), (Endpoint("CONTROLLER", f"h{node}", 9093),))


def voters(*nodes: int) -> VoterSet:
    """The voters with these ids."""
    return VoterSet(voter(each) for each in nodes)


def test_voter_set_equals_the_one_in_its_record() -> None:
    found = voters(3, 1, 2)
    record = found.to_record()
    assert VoterSet.from_record(record) == found
    assert [each.voter_id for each in record.voters] == [1, 2, 3]
    assert hash(VoterSet.from_record(record)) == hash(found)


def test_voter_set_rejects_two_directories_of_one_id() -> None:
    with pytest.raises(ValueError, match="same id"):
        VoterSet([voter(1, 5), voter(1, 6)])


def test_voter_set_distinguishes_directories_of_an_id() -> None:
    found = voters(1, 2, 3)
    assert found.is_voter(key(2))
    assert not found.is_voter(key(2, 99))
    assert not found.is_voter(key(4))


def test_static_voters_are_compared_by_id_alone() -> None:
    found = VoterSet.of_ids([1, 2, 3])
    assert found.is_voter(key(2, 99))
    assert not found.is_voter(key(4))


def test_voter_set_has_one_voter_of_an_id() -> None:
    found = voters(1, 2)
    assert found.with_voter(voter(2, 99)) is None
    assert found.with_voter(voter(3)) == voters(1, 2, 3)


def test_voter_set_removes_a_voter_by_id_and_directory() -> None:
    found = voters(1, 2)
    assert found.without_voter(key(2, 99)) is None
    assert found.without_voter(key(3)) is None
    assert found.without_voter(key(2)) == voters(1)


def test_voter_set_keeps_its_last_voter() -> None:
    assert voters(1).without_voter(key(1)) is None


def test_voter_set_updates_only_its_voters() -> None:
    moved = Voter(key(2), (Endpoint("CONTROLLER", "elsewhere", 1),), 1, 1)
    found = voters(1, 2).with_update(moved)
    assert found is not None
    assert found.find(2) == moved
    assert found.supports(1)
    assert not found.supports(0)
    assert voters(1, 2).with_update(voter(2, 99)) is None


def test_voter_finds_its_listener_by_name() -> None:
    assert voter(1).endpoint("CONTROLLER") == Endpoint("CONTROLLER", "h1", 9093)
    assert voter(1).endpoint("OTHER") is None


def test_majorities_overlap_after_one_change_only() -> None:
    three = voters(1, 2, 3)
    assert three.has_overlapping_majority(voters(1, 2, 3, 4))
    assert three.has_overlapping_majority(voters(1, 2))
    assert not three.has_overlapping_majority(voters(1))
    assert not three.has_overlapping_majority(voters(1, 2, 3, 4, 5))


@pytest.mark.parametrize(("ids", "expected"), [({1}, False), ({1, 2}, True), ({1, 8, 9}, False)])
def test_majority_counts_voters_only(ids: set[int], expected: bool) -> None:
    assert voters(1, 2, 3).is_majority(ids) is expected


def history(*changes: tuple[int, VoterSet]) -> VoterHistory:
    """Of a log with kraft.version 1 at offset 1 and these voter sets."""
    found = VoterHistory()
    found.append(1, KRaftVersionRecord(0, 1))
    for offset, each in changes:
        found.append(offset, each.to_record())
    return found


def test_history_begins_without_voters_and_with_version_0() -> None:
    found = VoterHistory()
    assert (found.voters, found.voters_offset, found.version) == (None, None, 0)


def test_truncation_restores_the_earlier_voters() -> None:
    found = history((2, voters(1, 2)), (8, voters(1, 2, 3)))
    assert (found.voters, found.voters_offset) == (voters(1, 2, 3), 8)
    found.truncate_to(8)
    assert (found.voters, found.voters_offset, found.version) == (voters(1, 2), 2, 1)
    found.truncate_to(1)
    assert (found.voters, found.voters_offset, found.version) == (None, None, 0)


def test_history_begins_with_the_voters_of_a_snapshot() -> None:
    found = history((2, voters(1, 2)), (8, voters(1, 2, 3)))
    found.replace_by(7, [KRaftVersionRecord(0, 1), voters(2, 3).to_record()])
    assert (found.voters, found.voters_offset, found.version) == (voters(2, 3), 6, 1)


def test_voters_of_a_formatted_directory_precede_the_log() -> None:
    found = VoterHistory()
    found.replace_by(0, [KRaftVersionRecord(0, 1), voters(1).to_record()])
    assert found.voters_offset == BEFORE_THE_LOG


def test_history_keeps_the_voters_at_the_start_of_the_log() -> None:
    found = history((2, voters(1)), (4, voters(1, 2)), (8, voters(1, 2, 3)))
    found.forget_before(6)
    found.truncate_to(8)
    assert (found.voters, found.version) == (voters(1, 2), 1)
    found.truncate_to(4)
    assert found.voters is None


def test_history_reports_a_damaged_voters_record() -> None:
    twice = VotersRecord(0, [VotersRecordVoter(1), VotersRecordVoter(1)])
    with pytest.raises(CorruptMetadata, match="offset 5"):
        VoterHistory().append(5, twice)
