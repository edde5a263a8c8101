"""Elections of the quorum's state machine, in the situations that Kafka's KafkaRaftClientTest has."""

from __future__ import annotations

import pytest

from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import Resign
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchAnswer,
    FetchRequest,
    VoteAnswer,
    VoteRequest,
)
from odradek.kraft.raft.voters import ReplicaKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.kraft.raft.raft_bench import CLUSTER, Replica

EMPTY = LogEnd(0, 0)


def _vote(epoch: int, *, pre_vote: bool = False, candidate: int = 2, end: LogEnd = EMPTY) -> VoteRequest:
    return VoteRequest(CLUSTER, 1, epoch, candidate, end, pre_vote)


def _elect() -> Replica:
    """Replica 1 as the leader of epoch 1, with its first record on the disk."""
    replica = Replica()
    replica.wait(1001)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 0, True), 2)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 1, True), 2)
    assert replica.role == "Leader"
    return replica


def test_single_voter_elects_itself_in_its_first_step() -> None:
    replica = Replica(voters=(1,))
    effects = replica.last
    assert replica.role == "Leader"
    assert effects.state is not None
    assert (effects.state.leader_id, effects.state.leader_epoch, effects.state.voted_id) == (1, 1, 1)
    assert len(effects.log) == 1
    assert replica.sync().high_watermark == 1


def test_voter_asks_for_pre_votes_after_the_election_timeout() -> None:
    replica = Replica()
    effects = replica.wait(1001)
    assert [(each.epoch, each.is_pre_vote) for each in replica.sent(VoteRequest)] == [(0, True), (0, True)]
    assert effects.state is None, "a pre-vote changes nothing that must be durable"


def test_candidate_persists_its_vote_before_it_asks_for_votes() -> None:
    replica = Replica()
    replica.wait(1001)
    effects = replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 0, True), 2)
    assert effects.state is not None
    assert (effects.state.leader_epoch, effects.state.voted_id) == (1, 1)
    assert {each.is_pre_vote for each in replica.sent(VoteRequest)} == {False}


def test_leader_appends_its_leader_change_and_announces_itself() -> None:
    replica = _elect()
    assert len(replica.last.log) == 1
    assert len(replica.sent(BeginEpochRequest)) == 2


def test_voter_grants_one_vote_per_epoch() -> None:
    replica = Replica()
    assert replica.ask(_vote(5)).is_granted
    assert replica.last.state is not None
    assert replica.last.state.voted_id == 2
    assert replica.ask(_vote(5)).is_granted
    assert not replica.ask(_vote(5, candidate=3)).is_granted


def test_restarted_voter_keeps_its_vote() -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=5, voted_id=2))
    assert not replica.ask(_vote(5, candidate=3)).is_granted
    assert replica.ask(_vote(5)).is_granted


def test_vote_is_rejected_when_the_candidate_lacks_records() -> None:
    replica = Replica(log=LogIndex(epochs=[(3, 0)], end_offset=10))
    assert not replica.ask(_vote(5, end=LogEnd(20, 2))).is_granted
    assert not replica.ask(_vote(5, end=LogEnd(9, 3))).is_granted
    assert replica.ask(_vote(5, end=LogEnd(10, 3))).is_granted


def test_pre_vote_adopts_a_higher_epoch_and_gives_no_vote() -> None:
    replica = Replica()
    answer = replica.ask(_vote(5, pre_vote=True))
    assert (answer.is_granted, answer.epoch) == (True, 5)
    assert replica.ask(_vote(5, candidate=3)).is_granted


def test_pre_vote_is_rejected_while_the_leader_answers() -> None:
    replica = Replica()
    replica.ask(BeginEpochRequest(CLUSTER, 1, 5, 3))
    assert Replica().ask(_vote(0, pre_vote=True)).is_granted
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 3, 5), 3)
    assert not replica.ask(_vote(5, pre_vote=True)).is_granted


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (_vote(1)._replace(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (_vote(4), ErrorCode.FENCED_LEADER_EPOCH),
        (_vote(9)._replace(voter_id=3), ErrorCode.INVALID_VOTER_KEY),
        (_vote(9, end=LogEnd(-1, 0)), ErrorCode.INVALID_REQUEST),
        (_vote(9, end=LogEnd(4, 9)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_vote_has_kafkas_error_when_it_is_invalid(request_: VoteRequest, error: ErrorCode) -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=5))
    answer = replica.ask(request_)
    assert (answer.error, answer.is_granted, answer.epoch) == (error, False, 5)


def test_begin_epoch_has_kafkas_errors() -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=5, leader_id=2))
    assert replica.ask(BeginEpochRequest(CLUSTER, 1, 4, 2)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.ask(BeginEpochRequest(CLUSTER, 1, 6, 9)).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert replica.ask(BeginEpochRequest(CLUSTER, 1, 5, 3)).error is ErrorCode.INVALID_REQUEST
    assert replica.ask(BeginEpochRequest(CLUSTER, 2, 6, 3)).error is ErrorCode.INVALID_VOTER_KEY
    assert replica.ask(BeginEpochRequest(CLUSTER, 1, 6, 3)).error is ErrorCode.NONE
    assert replica.role == "Follower"


def test_restarted_leader_is_resigned_in_its_epoch() -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=5, leader_id=1, voted_id=1))
    assert replica.role == "Resigned"
    replica.wait(1001)
    assert (replica.role, replica.machine.quorum.epoch) == ("Unattached", 6)


def test_leader_resigns_when_no_majority_fetches() -> None:
    replica = _elect()
    replica.wait(3001)
    assert replica.role == "Resigned"
    assert len(replica.sent(EndEpochRequest)) == 2


def test_leader_names_the_longest_log_as_first_successor() -> None:
    replica = _elect()
    replica.ask(FetchRequest(CLUSTER, 3, 1, LogEnd(0, 0), 0, 0))
    replica.step(Resign())
    assert {each.successors for each in replica.sent(EndEpochRequest)} == {(ReplicaKey(3), ReplicaKey(2))}


def test_first_successor_starts_an_election_at_once() -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=5, leader_id=2))
    replica.ask(EndEpochRequest(CLUSTER, 5, 2, (ReplicaKey(1), ReplicaKey(3))))
    assert replica.role == "Ballot"
    assert [each.epoch for each in replica.sent(VoteRequest)] == [5, 5]


def test_prospective_follows_its_leader_again_when_rejected() -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=5, leader_id=2))
    replica.wait(2001)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, 2, 5, False), 3)
    assert replica.role == "Ballot"
    replica.wait(1001)
    assert (replica.role, replica.machine.quorum.leader_id) == ("Follower", 2)


def test_observer_never_starts_an_election() -> None:
    replica = Replica(node=9)
    for _ in range(5):
        replica.wait(5000)
        assert replica.role == "Unattached"
    assert replica.last.state is None


def test_rejected_pre_vote_is_asked_again_within_its_ballot() -> None:
    """Replica 3 may reject it because it has not missed the leader yet."""
    replica = Replica(state=QuorumStateData(leader_epoch=5, leader_id=2))
    replica.wait(2001)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, 2, 5, False), 3)
    assert replica.sent(VoteRequest) == []
    replica.wait(50)
    assert replica.sent(VoteRequest) == []
    replica.wait(replica.last.deadline_ms - replica.now_ms)
    assert [(each.voter_id, each.is_pre_vote) for each in replica.sent(VoteRequest)] == [(3, True)]
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 5, True), 3)
    assert {each.is_pre_vote for each in replica.sent(VoteRequest)} == {False}


def test_rejected_vote_is_not_asked_again() -> None:
    replica = Replica()
    replica.wait(1001)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 0, True), 2)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 1, False), 2)
    assert replica.role == "Ballot"
    replica.wait(500)
    assert replica.sent(VoteRequest) == []
