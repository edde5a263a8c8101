"""Changes of the voters, in the situations that Kafka's KafkaRaftClientReconfigTest has."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import Answered, InstallSnapshot, Received, Resign, SnapshotInstalled
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import (
    AddVoterRequest,
    Batch,
    BeginEpochRequest,
    EndEpochRequest,
    FetchAnswer,
    FetchRequest,
    RemoveVoterRequest,
    SnapshotAnswer,
    SnapshotRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoteAnswer,
    VoterChangeAnswer,
    VoteRequest,
)
from odradek.kraft.raft.quorum import BOOTSTRAP_NODE, Identity
from odradek.kraft.raft.voter_history import VoterHistory
from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.kraft.raft.raft_bench import CLUSTER, Replica
from tests.unit.kraft.raft.test_voters import key, voter, voters

GRANTED = VoteAnswer(ErrorCode.NONE, -1, 0, True)


def formatted(*nodes: int) -> VoterHistory:
    """Of directories that were formatted with these voters."""
    history = VoterHistory()
    history.replace_by(0, [KRaftVersionRecord(0, 1), voters(*nodes).to_record()])
    return history


def logged(*nodes: int) -> LogIndex:
    """A log of epoch 1 whose three records end with these voters."""
    history = VoterHistory()
    for offset, each in enumerate((KRaftVersionRecord(0, 1), voters(*nodes).to_record()), 1):
        history.append(offset, each)
    return LogIndex(epochs=[(1, 0)], end_offset=3, history=history)


def dynamic(node: int = 1, *, log: LogIndex, auto_join: bool = False, directory: int = 0, **options: Any) -> Replica:
    """A replica whose settings name no voters."""
    own = voter(node, directory)
    identity = Identity(CLUSTER, node, frozenset(), own.key.directory_id, own.endpoints)
    return Replica(log=log, identity=identity, auto_join=auto_join, **options)


def first_leader() -> Replica:
    """Replica 1, formatted as the only voter, with its first records committed."""
    replica = dynamic(log=LogIndex(history=formatted(1)))
    replica.sync()
    assert replica.role == "Leader"
    return replica


def leader_of(*nodes: int) -> Replica:
    """Replica 1 as the leader of epoch 2 of these voters; 2 has fetched its first record, which is committed."""
    replica = dynamic(log=logged(*nodes), state=QuorumStateData(leader_epoch=1))
    replica.wait(1001)
    for each in nodes[1 : len(nodes) // 2 + 1]:
        replica.answer(VoteRequest, GRANTED._replace(epoch=1), each)
    for each in nodes[1 : len(nodes) // 2 + 1]:
        replica.answer(VoteRequest, GRANTED._replace(epoch=2), each)
    assert replica.role == "Leader"
    replica.sync()
    for each in nodes[1:]:
        fetch(replica, each)
    return replica


def fetch(replica: Replica, node: int, directory: int = 0, end: LogEnd | None = None) -> None:
    """Let a node fetch from the leader, at the end of its log by default."""
    quorum = replica.machine.quorum
    at = end or quorum.log.end
    request = FetchRequest(CLUSTER, node, quorum.epoch, at, 0, 0.0, key(node, directory).directory_id)
    replica.step(Received(request, f"fetch of {node}"))


def change(replica: Replica, request: Any) -> VoterChangeAnswer | None:
    """The answer to a change, if it leaves at once."""
    replies = replica.step(Received(request, "change")).replies
    found = [each.answer for each in replies if isinstance(each.answer, VoterChangeAnswer)]
    return found[0] if found else None


def answered(replica: Replica) -> list[ErrorCode]:
    """The errors of changes that the last step answered."""
    return [each.answer.error for each in replica.last.replies if isinstance(each.answer, VoterChangeAnswer)]


def add(node: int, directory: int = 0) -> AddVoterRequest:
    return AddVoterRequest(CLUSTER, -1, voter(node, directory))


def remove(node: int, directory: int = 0) -> RemoveVoterRequest:
    return RemoveVoterRequest(CLUSTER, -1, key(node, directory))


def current(replica: Replica) -> VoterSet:
    return replica.machine.quorum.voters


# --- the first leader ---


def test_first_leader_writes_the_voters_of_its_directory() -> None:
    replica = dynamic(log=LogIndex(history=formatted(1)))
    (batch,) = replica.last.log
    assert isinstance(batch, Batch)
    assert [type(each) for each in batch.controls] == [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]
    assert replica.machine.quorum.log.history.voters_offset == 2
    assert replica.sync().high_watermark == 3


def test_later_leaders_do_not_write_the_voters_again() -> None:
    assert leader_of(1, 2, 3).machine.quorum.log.end_offset == 4


def test_leader_of_static_voters_writes_no_voters() -> None:
    replica = Replica(voters=(1,))
    (batch,) = replica.last.log
    assert isinstance(batch, Batch)
    assert [type(each) for each in batch.controls] == [LeaderChangeMessage]


def test_follower_takes_the_voters_of_fetched_records_at_once() -> None:
    replica = dynamic(2, log=LogIndex(), state=QuorumStateData(leader_epoch=1, leader_id=1))
    controls = (None, KRaftVersionRecord(0, 1), voters(1, 2).to_record())
    batch = Batch(0, 1, 3, b"", controls)
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 1, 1, 0, batches=(batch,)), 1)
    assert current(replica) == voters(1, 2)
    assert replica.machine.quorum.is_voter
    assert replica.machine.quorum.high_watermark == 0


def test_follower_returns_to_earlier_voters_when_it_truncates() -> None:
    log = logged(1, 2)
    log.append(1, 1)
    log.history.append(3, voters(1, 2, 3).to_record())
    log.mark_synced(log.end)
    replica = dynamic(2, log=log, state=QuorumStateData(leader_epoch=2, leader_id=1))
    assert current(replica) == voters(1, 2, 3)
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 1, 2, diverging=LogEnd(3, 1)), 1)
    assert current(replica) == voters(1, 2)


def test_follower_takes_the_voters_of_a_snapshot() -> None:
    replica = dynamic(2, log=LogIndex(), state=QuorumStateData(leader_epoch=1, leader_id=1))
    snapshot = CheckpointId(9, 1)
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 1, 1, snapshot=snapshot), 1)
    replica.answer(SnapshotRequest, SnapshotAnswer(ErrorCode.NONE, 1, 1, snapshot, 3, 0, b"abc"), 1)
    assert InstallSnapshot(snapshot) in replica.last.log
    replica.step(SnapshotInstalled(snapshot, (KRaftVersionRecord(0, 1), voters(1, 2).to_record())))
    assert current(replica) == voters(1, 2)
    assert replica.machine.quorum.log.history.voters_offset == 8


def test_replica_without_voters_asks_the_bootstrap_servers() -> None:
    own = voter(4)
    identity = Identity(CLUSTER, 4, frozenset(), own.key.directory_id, own.endpoints, bootstrap_servers=2)
    replica = Replica(identity=identity)
    assert [each.to for each in replica.last.sends] == [BOOTSTRAP_NODE]
    replica.step(Answered(replica.last.sends[0].request_id, None))
    assert [each.to for each in replica.last.sends] == [BOOTSTRAP_NODE - 1]
    replica.step(Answered(replica.last.sends[0].request_id, FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 1, 3)))
    assert replica.role == "Follower"


# --- adding ---


def test_added_voter_counts_from_the_append_on() -> None:
    replica = first_leader()
    fetch(replica, 2)
    assert change(replica, add(2)) is None
    assert current(replica) == voters(1, 2)
    replica.sync()
    assert replica.machine.quorum.high_watermark == 3, "the new voter has not acknowledged its own record"
    fetch(replica, 2)
    assert answered(replica) == [ErrorCode.NONE]
    assert replica.machine.quorum.high_watermark == 4


def test_addition_is_answered_at_once_when_asked_so() -> None:
    replica = first_leader()
    fetch(replica, 2)
    answer = change(replica, add(2)._replace(ack_when_committed=False))
    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert current(replica) == voters(1, 2)


def test_addition_of_a_lagging_replica_times_out() -> None:
    replica = first_leader()
    fetch(replica, 2, end=LogEnd(0, 0))
    answer = change(replica, add(2))
    assert answer is not None
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert current(replica) == voters(1)


def test_addition_of_a_replica_that_has_stopped_times_out() -> None:
    replica = first_leader()
    fetch(replica, 2)
    replica.wait(5000)
    answer = change(replica, add(2))
    assert answer is not None
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT


def test_addition_of_another_directory_of_a_voter_is_a_duplicate() -> None:
    replica = leader_of(1, 2, 3)
    fetch(replica, 3, 99)
    answer = change(replica, add(3, 99))
    assert answer is not None
    assert answer.error is ErrorCode.DUPLICATE_VOTER


def test_addition_without_a_directory_is_invalid() -> None:
    answer = change(first_leader(), AddVoterRequest(CLUSTER, -1, Voter(ReplicaKey(2))))
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST


def test_addition_without_a_listener_is_invalid() -> None:
    replica = first_leader()
    fetch(replica, 2)
    answer = change(replica, AddVoterRequest(CLUSTER, -1, Voter(key(2))))
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST


def test_addition_of_a_replica_without_kraft_version_1_is_invalid() -> None:
    replica = first_leader()
    fetch(replica, 2)
    answer = change(replica, AddVoterRequest(CLUSTER, -1, voter(2)._replace(max_kraft_version=0)))
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("request_", [add(4), remove(2)])
def test_change_of_another_cluster_is_rejected(request_: Any) -> None:
    answer = change(leader_of(1, 2, 3), request_._replace(cluster_id="other"))
    assert answer is not None
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("request_", [add(4), remove(2)])
def test_change_at_a_follower_is_rejected(request_: Any) -> None:
    replica = dynamic(log=logged(1, 2, 3), state=QuorumStateData(leader_epoch=1, leader_id=2))
    answer = change(replica, request_)
    assert answer is not None
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


@pytest.mark.parametrize("request_", [add(4), remove(2)])
def test_change_with_static_voters_is_unsupported(request_: Any) -> None:
    replica = Replica(voters=(1,))
    replica.sync()
    answer = change(replica, request_)
    assert answer is not None
    assert answer.error is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("request_", [add(4), remove(2)])
def test_change_waits_for_a_record_of_the_epoch(request_: Any) -> None:
    replica = dynamic(log=logged(1, 2, 3), state=QuorumStateData(leader_epoch=1))
    replica.wait(1001)
    replica.answer(VoteRequest, GRANTED._replace(epoch=1), 2)
    replica.answer(VoteRequest, GRANTED._replace(epoch=2), 2)
    fetch(replica, 4)
    answer = change(replica, request_)
    assert answer is not None
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert current(replica) == voters(1, 2, 3)


@pytest.mark.parametrize("request_", [add(4), remove(3)])
def test_change_waits_for_the_one_before(request_: Any) -> None:
    replica = leader_of(1, 2, 3)
    fetch(replica, 4)
    assert change(replica, remove(2)) is None
    replica.sync()
    answer = change(replica, request_)
    assert answer is not None
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert current(replica) == voters(1, 3)


def test_change_that_is_not_committed_times_out() -> None:
    replica = leader_of(1, 2, 3)
    assert change(replica, remove(3)) is None
    replica.sync()
    replica.wait(2001)
    assert answered(replica) == [ErrorCode.REQUEST_TIMED_OUT]


def test_change_fails_when_the_leader_loses_its_epoch() -> None:
    replica = leader_of(1, 2, 3)
    assert change(replica, remove(3)) is None
    replica.step(Received(BeginEpochRequest(CLUSTER, 1, 9, 2), "begin"))
    assert answered(replica) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_changes_follow_records_whose_offsets_are_fixed() -> None:
    replica = leader_of(1, 2, 3)
    replica.machine.quorum.role.pending.append((2, "records"))  # type: ignore[union-attr]
    change(replica, remove(3))
    assert [(each.base_offset, each.record_count) for each in replica.last.log if isinstance(each, Batch)] == [
        (4, 2),
        (6, 1),
    ]


# --- removing ---


def test_removed_voter_no_longer_counts() -> None:
    replica = leader_of(1, 2, 3)
    assert change(replica, remove(3)) is None
    assert current(replica) == voters(1, 2)
    replica.sync()
    fetch(replica, 3)
    assert answered(replica) == []
    fetch(replica, 2)
    assert answered(replica) == [ErrorCode.NONE]


@pytest.mark.parametrize("request_", [remove(4), remove(2, 99)])
def test_removal_of_a_replica_that_does_not_vote_fails(request_: Any) -> None:
    answer = change(leader_of(1, 2, 3), request_)
    assert answer is not None
    assert answer.error is ErrorCode.VOTER_NOT_FOUND


def test_last_voter_is_not_removed() -> None:
    answer = change(first_leader(), remove(1))
    assert answer is not None
    assert answer.error is ErrorCode.VOTER_NOT_FOUND


def test_removed_leader_commits_without_itself_and_resigns() -> None:
    replica = leader_of(1, 2, 3)
    assert change(replica, remove(1)) is None
    replica.sync()
    fetch(replica, 2)
    assert (replica.role, answered(replica)) == ("Leader", [])
    fetch(replica, 3)
    assert (replica.role, answered(replica)) == ("Resigned", [ErrorCode.NONE])
    assert {each.to for each in replica.last.sends} == {2, 3}
    assert {each.successors for each in replica.sent(EndEpochRequest)} == {(key(2), key(3))}


def test_removed_leader_becomes_an_observer_that_looks_for_the_leader() -> None:
    replica = leader_of(1, 2, 3)
    change(replica, remove(1))
    replica.sync()
    fetch(replica, 2)
    fetch(replica, 3)
    assert replica.last.deadline_ms < replica.now_ms + 2001
    replica.wait(2001)
    assert replica.role == "Unattached"
    assert len(replica.sent(FetchRequest)) == 1
    replica.wait(60_000)
    assert replica.sent(VoteRequest) == []


def test_removed_voter_stands_until_its_removal_is_committed() -> None:
    log = logged(1, 2)
    log.append(1, 1)
    log.history.append(3, voters(2).to_record())
    log.mark_synced(log.end)
    replica = dynamic(log=log, state=QuorumStateData(leader_epoch=1))
    replica.wait(1001)
    assert replica.role == "Ballot"
    replica.answer(VoteRequest, GRANTED._replace(epoch=1), 2)
    replica.answer(VoteRequest, GRANTED._replace(epoch=2), 2)
    assert replica.role == "Leader"
    replica.sync()
    fetch(replica, 2)
    assert replica.role == "Resigned"


# --- updating ---


def moved(node: int, directory: int = 0) -> Voter:
    """A voter with another listener."""
    return Voter(key(node, directory), (Endpoint("CONTROLLER", "elsewhere", 1),))


def test_update_changes_the_listeners_of_a_voter() -> None:
    replica = leader_of(1, 2, 3)
    answer = change(replica, UpdateVoterRequest(CLUSTER, 2, moved(3)))
    assert answer is not None
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NONE, 1, 2)
    assert current(replica).find(3) == moved(3)


def test_update_without_a_difference_writes_nothing() -> None:
    replica = leader_of(1, 2, 3)
    answer = change(replica, UpdateVoterRequest(CLUSTER, 2, voter(3)))
    assert answer is not None
    assert (answer.error, replica.last.log) == (ErrorCode.NONE, ())


@pytest.mark.parametrize(
    ("epoch", "updated", "error"),
    [
        (1, moved(3), ErrorCode.FENCED_LEADER_EPOCH),
        (3, moved(3), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, moved(4), ErrorCode.VOTER_NOT_FOUND),
        (2, moved(3, 99), ErrorCode.VOTER_NOT_FOUND),
        (2, moved(3)._replace(max_kraft_version=0), ErrorCode.INVALID_REQUEST),
        (2, moved(3)._replace(endpoints=()), ErrorCode.INVALID_REQUEST),
    ],
)
def test_update_is_rejected(epoch: int, updated: Voter, error: ErrorCode) -> None:
    answer = change(leader_of(1, 2, 3), UpdateVoterRequest(CLUSTER, epoch, updated))
    assert answer is not None
    assert answer.error is error


def follower(node: int, *nodes: int, own: Voter | None = None, auto_join: bool = False) -> Replica:
    """A node that has fetched from leader 1 of epoch 1."""
    identity_of = own or voter(node)
    identity = Identity(CLUSTER, node, frozenset(), identity_of.key.directory_id, identity_of.endpoints)
    state = QuorumStateData(leader_epoch=1, leader_id=1)
    replica = Replica(log=logged(*nodes), state=state, identity=identity, auto_join=auto_join)
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 1, 1, 3), 1)
    return replica


def test_follower_reports_that_its_listeners_changed() -> None:
    replica = follower(2, 1, 2, 3, own=moved(2))
    assert replica.sent(UpdateVoterRequest) == [UpdateVoterRequest(CLUSTER, 1, moved(2))]
    assert follower(2, 1, 2, 3).sent(UpdateVoterRequest) == []


def test_leader_changes_its_own_listeners() -> None:
    own = moved(1)
    identity = Identity(CLUSTER, 1, frozenset(), own.key.directory_id, own.endpoints)
    replica = Replica(log=LogIndex(history=formatted(1)), identity=identity)
    replica.sync()
    assert current(replica).find(1) == moved(1)
    replica.sync()
    assert replica.last.log == (), "the update is written once"


def test_answer_to_an_update_may_name_another_leader() -> None:
    replica = follower(2, 1, 2, 3, own=moved(2))
    answer = VoterChangeAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 3, 5)
    replica.answer(UpdateVoterRequest, answer, 1)
    assert (replica.machine.quorum.leader_id, replica.machine.quorum.epoch) == (3, 5)


# --- joining ---


def test_observer_asks_to_join_with_auto_join() -> None:
    replica = follower(4, 1, 2, 3, auto_join=True)
    assert replica.sent(AddVoterRequest) == [AddVoterRequest(CLUSTER, 1, voter(4), ack_when_committed=False)]
    assert follower(4, 1, 2, 3).sent(AddVoterRequest) == []


def test_observer_asks_again_only_after_a_pause() -> None:
    replica = follower(4, 1, 2, 3, auto_join=True)
    fetched = next(each for each in replica.last.sends if isinstance(each.request, FetchRequest))
    replica.answer(AddVoterRequest, VoterChangeAnswer(ErrorCode.REQUEST_TIMED_OUT, "lagging", -1, -1), 1)
    replica.wait(1999)
    assert replica.sent(AddVoterRequest) == []
    replica.step(Answered(fetched.request_id, FetchAnswer(ErrorCode.NONE, 1, 1, 3)))
    replica.wait(1)
    assert len(replica.sent(AddVoterRequest)) == 1


def test_replaced_disk_first_removes_the_former_entry() -> None:
    replica = follower(3, 1, 2, 3, own=voter(3, 99), auto_join=True)
    assert replica.sent(RemoveVoterRequest) == [RemoveVoterRequest(CLUSTER, 1, key(3))]
    assert replica.sent(AddVoterRequest) == []


# --- directories ---


def vote(replica: Replica, directory: int, *, candidate: ReplicaKey | None = None, epoch: int = 5) -> VoteAnswer:
    """The answer to a request for a vote of the replica in this directory."""
    asked, asking = key(replica.machine.quorum.identity.node_id, directory), candidate or key(2)
    end = replica.machine.quorum.log.end
    request = VoteRequest(CLUSTER, asked.node_id, epoch, asking.node_id, end, False, asked[1], asking.directory_id)
    answer = replica.ask(request)
    assert isinstance(answer, VoteAnswer)
    return answer


def test_vote_meant_for_another_directory_is_refused() -> None:
    answer = vote(dynamic(3, log=logged(1, 2, 3), directory=99), 13)
    assert (answer.error, answer.is_granted) == (ErrorCode.INVALID_VOTER_KEY, False)


def test_observer_votes_when_it_is_asked() -> None:
    assert vote(dynamic(4, log=logged(1, 2, 3)), 14).is_granted


def test_vote_is_for_one_directory_of_a_candidate() -> None:
    replica = dynamic(3, log=logged(1, 2, 3))
    assert vote(replica, 13, candidate=key(2)).is_granted
    assert replica.last.state is not None
    assert replica.last.state.voted_directory_id == key(2).directory_id
    assert not vote(replica, 13, candidate=key(2, 99)).is_granted
    assert vote(replica, 13, candidate=key(2)).is_granted


def test_replica_with_another_directory_of_a_voter_starts_no_election() -> None:
    replica = dynamic(3, log=logged(1, 2, 3), directory=99)
    assert replica.role == "Unattached"
    replica.wait(60_000)
    assert replica.sent(VoteRequest) == []


def test_fetch_of_another_directory_does_not_commit() -> None:
    replica = leader_of(1, 2, 3)
    assert change(replica, remove(2)) is None
    replica.sync()
    fetch(replica, 3, 99)
    assert answered(replica) == []
    fetch(replica, 3)
    assert answered(replica) == [ErrorCode.NONE]


def test_candidate_names_the_directories_of_those_it_asks() -> None:
    replica = dynamic(log=logged(1, 2, 3), state=QuorumStateData(leader_epoch=1))
    replica.wait(1001)
    assert {(each.voter, each.candidate) for each in replica.sent(VoteRequest)} == {
        (key(2), key(1)),
        (key(3), key(1)),
    }


def test_leader_announces_itself_to_an_added_voter() -> None:
    replica = leader_of(1, 2, 3)
    fetch(replica, 4)
    assert change(replica, add(4)) is None
    replica.wait(1001)
    assert [each.voter for each in replica.sent(BeginEpochRequest)] == [key(4)]


def test_leader_resigns_for_the_successors_of_the_log() -> None:
    replica = leader_of(1, 2, 3)
    replica.step(Resign())
    assert {each.successors for each in replica.sent(EndEpochRequest)} == {(key(2), key(3))}


# --- kraft.version 0 to 1 ---


def static_leader() -> Replica:
    """Replica 1 as the leader of static voters 1, 2, 3, with a committed record; it knows its own directory."""
    own = voter(1)
    identity = Identity(CLUSTER, 1, frozenset((1, 2, 3)), own.key.directory_id, own.endpoints)
    replica = Replica(identity=identity)
    replica.wait(1001)
    replica.answer(VoteRequest, GRANTED, 2)
    replica.answer(VoteRequest, GRANTED._replace(epoch=1), 2)
    replica.sync()
    for each in (2, 3):
        fetch(replica, each)
    assert replica.machine.quorum.version == 0
    return replica


def report(replica: Replica, reported: Voter) -> VoterChangeAnswer | None:
    return change(replica, UpdateVoterRequest(CLUSTER, replica.machine.quorum.epoch, reported))


def upgrade(replica: Replica, level: int = 1, *, validate_only: bool = False) -> VoterChangeAnswer | None:
    return change(replica, UpgradeVersionRequest(CLUSTER, replica.machine.quorum.epoch, level, validate_only))


def test_upgrade_moves_the_reported_voters_into_the_log() -> None:
    replica = static_leader()
    for each in (2, 3):
        answer = report(replica, voter(each))
        assert answer is not None
        assert answer.error is ErrorCode.NONE
    assert not replica.last.log, "a report of a static voter is in no log"
    assert upgrade(replica) is None, "the answer waits for the commit"
    (batch,) = replica.last.log
    assert isinstance(batch, Batch)
    assert [type(each) for each in batch.controls] == [KRaftVersionRecord, VotersRecord]
    assert (replica.machine.quorum.version, current(replica)) == (1, voters(1, 2, 3))
    replica.sync()
    fetch(replica, 2)
    assert answered(replica) == [ErrorCode.NONE]


def test_leader_of_upgraded_voters_keeps_its_majority() -> None:
    """Its followers are the same replicas, and have fetched a moment ago."""
    replica = static_leader()
    replica.wait(2900)
    for each in (2, 3):
        fetch(replica, each)
        report(replica, voter(each))
    upgrade(replica)
    replica.wait(500)
    assert replica.role == "Leader"


def test_upgrade_is_rejected_while_a_voter_has_not_reported() -> None:
    replica = static_leader()
    report(replica, voter(2))
    answer = upgrade(replica)
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_UPDATE_VERSION
    assert answer.message is not None
    assert "voters [3]" in answer.message
    assert replica.machine.quorum.version == 0


def test_upgrade_is_rejected_when_a_voter_does_not_support_it() -> None:
    replica = static_leader()
    report(replica, voter(2)._replace(max_kraft_version=0))
    report(replica, voter(3))
    answer = upgrade(replica)
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_UPDATE_VERSION


def test_upgrade_that_is_only_validated_changes_nothing() -> None:
    replica = static_leader()
    for each in (2, 3):
        report(replica, voter(each))
    answer = upgrade(replica, validate_only=True)
    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert not replica.last.log
    assert replica.machine.quorum.version == 0


def test_downgrade_is_rejected_and_the_same_version_accepted() -> None:
    replica = leader_of(1, 2, 3)
    same, lower = upgrade(replica), upgrade(replica, 0)
    assert same is not None
    assert same.error is ErrorCode.NONE
    assert lower is not None
    assert lower.error is ErrorCode.INVALID_UPDATE_VERSION


def test_static_voter_reports_itself_once_to_each_leader() -> None:
    own = voter(1)
    identity = Identity(CLUSTER, 1, frozenset((1, 2, 3)), own.key.directory_id, own.endpoints)
    replica = Replica(identity=identity, state=QuorumStateData(leader_epoch=5, leader_id=2))
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 5), 2)
    assert replica.sent(UpdateVoterRequest) == [UpdateVoterRequest(CLUSTER, 5, own)]
    replica.answer(UpdateVoterRequest, VoterChangeAnswer(ErrorCode.NONE, None, 2, 5), 2)
    replica.wait(1900)
    assert replica.sent(UpdateVoterRequest) == []
    replica.wait(200)
    assert replica.sent(UpdateVoterRequest) == []
    replica.ask(BeginEpochRequest(CLUSTER, 1, 6, 3))
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 3, 6), 3)
    assert [each.epoch for each in replica.sent(UpdateVoterRequest)] == [6]


def test_upgrade_that_is_truncated_leaves_the_voters_static() -> None:
    replica = static_leader()
    for each in (2, 3):
        report(replica, voter(each))
    end = replica.machine.quorum.log.end
    upgrade(replica)
    replica.ask(BeginEpochRequest(CLUSTER, 1, 9, 3))
    replica.sync()
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 3, 9, diverging=end), 3)
    quorum = replica.machine.quorum
    assert (quorum.version, quorum.voters.keys) == (0, {ReplicaKey(each) for each in (1, 2, 3)})
