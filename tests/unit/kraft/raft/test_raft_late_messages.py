"""Late, repeated and foreign messages at each role, in situations of Kafka's KafkaRaftClientTest and its Snapshot."""

from __future__ import annotations

import pytest

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import Answered, Received, Resign
from odradek.kraft.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    SnapshotAnswer,
    SnapshotRequest,
    VoteAnswer,
    VoteRequest,
)
from odradek.kraft.raft.voters import ReplicaKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.kraft.raft.raft_bench import CLUSTER, Replica

EMPTY = LogEnd(0, 0)
GRANTED = VoteAnswer(ErrorCode.NONE, -1, 1, True)


def vote(epoch: int, candidate: int = 2, end: LogEnd = EMPTY) -> VoteRequest:
    return VoteRequest(CLUSTER, 1, epoch, candidate, end, False)


def candidate() -> Replica:
    """Replica 1 with votes asked for in epoch 1."""
    replica = Replica()
    replica.wait(1001)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 0, True), 2)
    assert replica.role == "Ballot"
    return replica


def leader() -> Replica:
    """Replica 1 as the leader of epoch 1."""
    replica = candidate()
    replica.answer(VoteRequest, GRANTED, 2)
    assert replica.role == "Leader"
    replica.sync()
    return replica


def follower() -> Replica:
    """Replica 1 as a follower of replica 2 in epoch 5."""
    replica = Replica(state=QuorumStateData(leader_epoch=5, leader_id=2))
    assert replica.role == "Follower"
    return replica


def sent_id(replica: Replica, kind: type) -> int:
    """The number of the request of this kind that the last step sent first."""
    return next(each.request_id for each in replica.last.sends if isinstance(each.request, kind))


def is_at(replica: Replica, role: str, epoch: int) -> bool:
    return (replica.role, replica.machine.quorum.epoch) == (role, epoch)


def test_resigned_leader_grants_no_vote_of_its_epoch() -> None:
    replica = leader()
    replica.step(Resign())
    assert not replica.ask(vote(1, end=LogEnd(9, 1))).is_granted
    assert replica.role == "Resigned"


def test_resigned_leader_grants_votes_of_higher_epochs() -> None:
    replica = leader()
    replica.step(Resign())
    assert replica.ask(vote(2, end=LogEnd(9, 1))).is_granted
    assert replica.machine.quorum.epoch == 2


def test_candidate_grants_no_other_vote_of_its_epoch() -> None:
    replica = candidate()
    assert not replica.ask(vote(1)).is_granted
    assert is_at(replica, "Ballot", 1)


def test_leader_ignores_votes_of_its_epoch() -> None:
    replica = leader()
    answer = replica.ask(vote(1, end=LogEnd(9, 1)))
    assert (answer.is_granted, answer.leader_id) == (False, 1)
    assert replica.role == "Leader"


def test_waiting_fetch_is_answered_when_the_leader_resigns() -> None:
    replica = leader()
    fetch = FetchRequest(CLUSTER, 3, 1, LogEnd(1, 1), 1, 500)
    replica.ask(fetch._replace(high_watermark=0, max_wait_ms=0))
    assert replica.step(Received(fetch, "waits")).replies == ()
    (reply,) = replica.step(Resign()).replies
    assert reply.token == "waits"
    assert reply.answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_waiting_fetch_is_answered_when_another_leader_begins() -> None:
    replica = leader()
    fetch = FetchRequest(CLUSTER, 3, 1, LogEnd(1, 1), 1, 500)
    replica.ask(fetch._replace(high_watermark=0, max_wait_ms=0))
    assert replica.step(Received(fetch, "waits")).replies == ()
    replies = replica.step(Received(BeginEpochRequest(CLUSTER, 1, 2, 3), "begins")).replies
    (waited,) = [each.answer for each in replies if each.token == "waits"]
    assert waited.error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def test_waiting_fetch_is_answered_after_its_time() -> None:
    replica = leader()
    fetch = FetchRequest(CLUSTER, 3, 1, LogEnd(1, 1), 1, 500)
    replica.ask(fetch._replace(high_watermark=0, max_wait_ms=0))
    assert replica.step(Received(fetch, "waits")).replies == ()
    assert replica.wait(499).replies == ()
    (reply,) = replica.wait(2).replies
    assert (reply.token, reply.answer) == ("waits", FetchAnswer(ErrorCode.NONE, 1, 1, 1, read_from=1))


def test_sole_voter_leads_on_without_fetches() -> None:
    replica = Replica(voters=(1,))
    replica.wait(100_000)
    assert replica.role == "Leader"


@pytest.mark.parametrize("replica", [candidate(), leader()], ids=["candidate", "leader"])
def test_end_of_an_older_epoch_is_ignored(replica: Replica) -> None:
    before = (replica.role, replica.machine.quorum.epoch)
    answer = replica.ask(EndEpochRequest(CLUSTER, 0, 2, (ReplicaKey(1),)))
    assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
    assert (replica.role, replica.machine.quorum.epoch) == before


def test_votes_that_arrive_after_another_leader_began_are_ignored() -> None:
    replica = candidate()
    number = sent_id(replica, VoteRequest)
    replica.ask(BeginEpochRequest(CLUSTER, 1, 1, 3))
    replica.step(Answered(number, GRANTED))
    assert is_at(replica, "Follower", 1)


def test_fetched_records_that_arrive_in_an_election_are_ignored() -> None:
    replica = follower()
    number = sent_id(replica, FetchRequest)
    replica.wait(2001)
    assert replica.role == "Ballot"
    effects = replica.step(Answered(number, FetchAnswer(ErrorCode.NONE, 2, 5, diverging=LogEnd(0, 0))))
    assert effects.log == ()
    assert replica.role == "Ballot"


def test_fetched_records_of_a_former_leader_are_ignored() -> None:
    replica = follower()
    number = sent_id(replica, FetchRequest)
    replica.ask(BeginEpochRequest(CLUSTER, 1, 6, 3))
    effects = replica.step(Answered(number, FetchAnswer(ErrorCode.NONE, 2, 5, 7)))
    assert (effects.log, effects.high_watermark) == ((), None)
    assert is_at(replica, "Follower", 6)


def snapshot_asked() -> Replica:
    """A follower that has asked for the first part of its leader's snapshot."""
    replica = follower()
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 5, snapshot=CheckpointId(10, 3)), 2)
    assert replica.sent(SnapshotRequest)
    return replica


def test_part_of_a_snapshot_of_a_former_leader_is_ignored() -> None:
    replica = snapshot_asked()
    number = sent_id(replica, SnapshotRequest)
    replica.ask(BeginEpochRequest(CLUSTER, 1, 6, 3))
    answer = SnapshotAnswer(ErrorCode.NONE, 2, 5, CheckpointId(10, 3), 3, 0, b"abc")
    assert replica.step(Answered(number, answer)).log == ()
    assert is_at(replica, "Follower", 6)


def test_snapshot_answer_of_a_newer_epoch_leads_to_its_leader() -> None:
    replica = snapshot_asked()
    answer = SnapshotAnswer(ErrorCode.FENCED_LEADER_EPOCH, 3, 6, CheckpointId(10, 3))
    replica.answer(SnapshotRequest, answer, 2)
    assert is_at(replica, "Follower", 6)
    assert [each.to for each in replica.last.sends if isinstance(each.request, FetchRequest)] == [3]


def test_missing_snapshot_is_looked_for_by_another_fetch() -> None:
    replica = snapshot_asked()
    replica.answer(SnapshotRequest, SnapshotAnswer(ErrorCode.SNAPSHOT_NOT_FOUND, 2, 5, CheckpointId(10, 3)), 2)
    assert replica.role == "Follower"
    assert [each.log_end for each in replica.sent(FetchRequest)] == [EMPTY]


def test_end_of_the_epoch_is_repeated_where_it_is_not_answered() -> None:
    replica = leader()
    replica.step(Resign())
    numbers = {each.to: each.request_id for each in replica.last.sends if isinstance(each.request, EndEpochRequest)}
    assert set(numbers) == {2, 3}
    replica.step(Answered(numbers[2], EpochAnswer(ErrorCode.NONE, 1, 1)))
    replica.step(Answered(numbers[3], None))
    repeated = [each.to for each in replica.wait(100).sends if isinstance(each.request, EndEpochRequest)]
    assert repeated == [3]
