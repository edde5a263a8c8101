"""Situations of Kafka's KafkaRaftClientTest and KafkaRaftClientSnapshotTest that no other file here has.

Two of theirs have no counterpart: requests carry their own answers, so the API versions of another node cannot be
mistaken for a voter's, and records need no buffer of a pool whose allocation could fail.
"""

from __future__ import annotations

import pytest

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import Answered, Propose, Received, Resign, WriteSnapshot
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import (
    Batch,
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
SNAPSHOT = CheckpointId(10, 3)


def vote(epoch: int, candidate: int = 2, end: LogEnd = EMPTY) -> VoteRequest:
    return VoteRequest(CLUSTER, 1, epoch, candidate, end, False)


def candidate() -> Replica:
    """Replica 1, which has asked 2 and 3 for their votes in epoch 1."""
    replica = Replica()
    replica.wait(1001)
    ids = {each.to: each.request_id for each in replica.last.sends}
    replica.step(Answered(ids[3], VoteAnswer(ErrorCode.NONE, -1, 0, False)))
    replica.step(Answered(ids[2], VoteAnswer(ErrorCode.NONE, -1, 0, True)))
    assert [(each.voter_id, each.is_pre_vote) for each in replica.sent(VoteRequest)] == [(2, False), (3, False)]
    return replica


def leader(*, linger_ms: float = 0.0) -> Replica:
    """Replica 1 as the leader of epoch 1, which the others know, with its first record on the disk."""
    replica = candidate()
    replica.machine.quorum.settings = replica.machine.quorum.settings._replace(append_linger_ms=linger_ms)
    announced = replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 1, True), 2).sends
    for each in announced:
        replica.step(Answered(each.request_id, EpochAnswer(ErrorCode.NONE, 1, 1)))
    replica.sync()
    assert replica.role == "Leader"
    return replica


def follower() -> Replica:
    """Replica 1 as a follower of replica 2 in epoch 5."""
    return Replica(state=QuorumStateData(leader_epoch=5, leader_id=2))


def where(replica: Replica) -> tuple[str, int, int]:
    """Role, epoch and leader."""
    quorum = replica.machine.quorum
    return replica.role, quorum.epoch, quorum.leader_id


# --- resignation ---


def test_begin_of_the_next_epoch_is_followed_after_a_users_resign() -> None:
    replica = leader()
    replica.step(Resign())
    answer = replica.ask(BeginEpochRequest(CLUSTER, 1, 2, 3))
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NONE, 3, 2)
    assert where(replica) == ("Follower", 2, 3)


def test_election_timeout_after_a_users_resign_begins_another_epoch() -> None:
    replica = leader()
    replica.step(Resign())
    assert where(replica) == ("Resigned", 1, 1)
    replica.wait(2001)
    assert where(replica) == ("Unattached", 2, -1)
    replica.wait(2001)
    assert {each.is_pre_vote for each in replica.sent(VoteRequest)} == {True}


@pytest.mark.parametrize(
    "replica", [follower(), candidate(), Replica(node=9)], ids=["follower", "candidate", "observer"]
)
def test_resign_has_no_effect_on_a_replica_that_does_not_lead(replica: Replica) -> None:
    before = where(replica)
    effects = replica.step(Resign())
    assert where(replica) == before
    assert not replica.sent(EndEpochRequest)
    assert effects.state is None


def test_second_resign_has_no_effect() -> None:
    replica = leader()
    replica.step(Resign())
    assert replica.sent(EndEpochRequest)
    replica.step(Resign())
    assert not replica.sent(EndEpochRequest)
    assert where(replica) == ("Resigned", 1, 1)


def test_records_are_not_appended_after_a_users_resign() -> None:
    replica = leader()
    replica.step(Resign())
    assert not replica.step(Propose(1, 1, "late")).log


def test_vote_that_truncates_the_resigned_leaders_records_is_rejected() -> None:
    """Its log has a record that the candidate lacks: whether it is committed is not known yet."""
    replica = leader()
    replica.step(Resign())
    answer = replica.ask(vote(2, end=EMPTY))
    assert (answer.error, answer.is_granted) == (ErrorCode.NONE, False)
    assert replica.machine.quorum.epoch == 2
    assert replica.ask(vote(3, candidate=3, end=LogEnd(1, 1))).is_granted


# --- starts ---


def test_candidate_that_restarts_votes_for_no_other_one_of_its_epoch() -> None:
    replica = Replica(state=QuorumStateData(leader_epoch=3, voted_id=1))
    assert not replica.ask(vote(3, end=LogEnd(9, 2))).is_granted
    assert replica.ask(vote(4, end=LogEnd(9, 2))).is_granted


def test_only_voter_that_followed_another_elects_itself() -> None:
    """The other one was removed while this one was down."""
    replica = Replica(voters=(1,), state=QuorumStateData(leader_epoch=5, leader_id=2))
    replica.wait(2001)
    assert where(replica) == ("Leader", 6, 1)


def test_follower_with_records_fetches_from_their_end() -> None:
    replica = Replica(log=LogIndex(epochs=[(3, 0)], end_offset=10), state=QuorumStateData(leader_epoch=5, leader_id=2))
    (fetch,) = replica.sent(FetchRequest)
    assert (fetch.epoch, fetch.log_end) == (5, LogEnd(10, 3))


# --- elections ---


def test_last_successor_waits_before_it_stands() -> None:
    replica = follower()
    replica.ask(EndEpochRequest(CLUSTER, 5, 2, (ReplicaKey(3), ReplicaKey(1))))
    assert replica.role == "Follower"
    replica.wait(499)
    assert replica.role == "Follower"
    replica.wait(2)
    assert replica.role == "Ballot"


def test_failed_vote_is_asked_again_after_the_backoff() -> None:
    replica = candidate()
    sent = next(each for each in replica.last.sends if each.to == 3)
    replica.step(Answered(sent.request_id, None))
    assert not replica.sent(VoteRequest)
    replica.wait(20)
    assert [each.voter_id for each in replica.sent(VoteRequest)] == [3]


def test_candidate_whose_election_times_out_asks_for_pre_votes() -> None:
    """Its epoch does not grow, however often it tries, while it is cut off (KIP-996)."""
    replica = candidate()
    replica.wait(1001)
    assert where(replica) == ("Ballot", 1, -1)
    assert {(each.epoch, each.is_pre_vote) for each in replica.sent(VoteRequest)} <= {(1, True)}
    for _ in range(5):
        replica.wait(2001)
    assert replica.machine.quorum.epoch == 1


def test_candidate_that_cannot_win_waits_for_another_election() -> None:
    replica = candidate()
    rejected = VoteAnswer(ErrorCode.NONE, -1, 1, False)
    third = next(each for each in replica.last.sends if each.to == 3)
    replica.answer(VoteRequest, rejected, 2)
    replica.step(Answered(third.request_id, rejected))
    assert where(replica) == ("Unattached", 1, -1)
    assert not replica.sent(VoteRequest)
    replica.wait(2001)
    assert replica.role == "Ballot"


def test_vote_of_a_replica_outside_the_voters_is_granted() -> None:
    """It may vote already by records that this leader does not have."""
    replica = leader()
    assert replica.ask(vote(2, candidate=9, end=LogEnd(1, 1))).is_granted
    assert where(replica) == ("Unattached", 2, -1)


def test_leader_of_a_higher_epoch_in_an_answer_is_followed() -> None:
    replica = leader()
    replica.wait(1001)
    replica.answer(BeginEpochRequest, EpochAnswer(ErrorCode.FENCED_LEADER_EPOCH, 3, 9), 2)
    assert where(replica) == ("Follower", 9, 3)


# --- the leader and its voters ---


def test_leader_repeats_its_announcement_to_silent_voters() -> None:
    replica = leader()
    assert not replica.sent(BeginEpochRequest)
    replica.wait(1001)
    assert sorted(each.voter_id for each in replica.sent(BeginEpochRequest)) == [2, 3]


def test_fetch_of_a_voter_counts_as_its_acknowledgement() -> None:
    replica = leader()
    replica.wait(900)
    replica.ask(FetchRequest(CLUSTER, 3, 1, EMPTY, 0, 0))
    replica.wait(200)
    assert [each.voter_id for each in replica.sent(BeginEpochRequest)] == [2]


# --- records that wait ---


def test_records_are_appended_together_when_the_linger_ends() -> None:
    replica = leader(linger_ms=25.0)
    assert not replica.step(Propose(1, 2, "first")).log
    replica.wait(10)
    assert not replica.step(Propose(1, 1, "second")).log
    assert replica.last.deadline_ms == replica.now_ms + 15
    effects = replica.wait(15)
    assert effects.log == (Batch(1, 1, 2, "first"), Batch(3, 1, 1, "second"))


@pytest.mark.parametrize(
    "event",
    [Received(BeginEpochRequest(CLUSTER, 1, 2, 3), "t"), Received(vote(2, end=LogEnd(9, 1)), "t"), Resign()],
    ids=["follower", "voted", "resigned"],
)
def test_waiting_records_are_dropped_when_the_leader_changes(event: Received | Resign) -> None:
    """Their proposer learns that they are not in this epoch."""
    replica = leader(linger_ms=25.0)
    replica.step(Propose(1, 1, "waits"))
    assert not replica.step(event).log
    assert not replica.wait(25).log
    assert replica.machine.quorum.log.end_offset == 1


# --- snapshots ---


def snapshot_leader() -> Replica:
    """The leader of epoch 9, whose log begins at a snapshot of epoch 3 and has records of epoch 5."""
    log = LogIndex(start=LogEnd(*SNAPSHOT), epochs=[(5, 10)], end_offset=20)
    replica = Replica(log=log, state=QuorumStateData(leader_epoch=8))
    replica.wait(1001)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 8, True), 2)
    replica.answer(VoteRequest, VoteAnswer(ErrorCode.NONE, -1, 9, True), 2)
    replica.sync()
    return replica


@pytest.mark.parametrize(
    ("end", "read_from", "snapshot", "diverging"),
    [
        (LogEnd(10, 3), 10, None, None),
        (LogEnd(10, 2), -1, SNAPSHOT, None),
        (LogEnd(12, 2), -1, SNAPSHOT, None),
        (LogEnd(9, 3), -1, SNAPSHOT, None),
        (LogEnd(15, 7), -1, None, LogEnd(20, 5)),
        (LogEnd(25, 5), -1, None, LogEnd(20, 5)),
        (LogEnd(15, 4), -1, None, LogEnd(10, 3)),
    ],
    ids=[
        "start", "start of an older epoch", "older than the snapshot", "below the start",
        "newer epoch", "past the end", "unknown epoch",
    ],
)  # fmt: skip
def test_fetch_from_a_log_that_begins_at_a_snapshot(
    end: LogEnd, read_from: int, snapshot: CheckpointId | None, diverging: LogEnd | None
) -> None:
    answer = snapshot_leader().ask(FetchRequest(CLUSTER, 2, 9, end, 0, 0))
    assert answer.error is ErrorCode.NONE
    assert (answer.read_from, answer.snapshot, answer.diverging) == (read_from, snapshot, diverging)


def test_snapshot_is_fetched_part_by_part() -> None:
    replica = follower()
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 5, snapshot=SNAPSHOT), 2)
    (asked,) = replica.sent(SnapshotRequest)
    assert (asked.snapshot, asked.position) == (SNAPSHOT, 0)
    part = SnapshotAnswer(ErrorCode.NONE, 2, 5, SNAPSHOT, size=6, position=0, data=b"abcd")
    effects = replica.answer(SnapshotRequest, part, 2)
    assert effects.log == (WriteSnapshot(SNAPSHOT, 0, b"abcd"),)
    (asked,) = replica.sent(SnapshotRequest)
    assert asked.position == 4
    effects = replica.answer(SnapshotRequest, part._replace(position=4, data=b"ef"), 2)
    assert effects.log[0] == WriteSnapshot(SNAPSHOT, 4, b"ef")
    assert replica.machine.quorum.log.end_offset == 10


@pytest.mark.parametrize(
    "answer",
    [
        SnapshotAnswer(ErrorCode.NONE, 2, 5, CheckpointId(11, 3), size=6, position=0, data=b"abcd"),
        SnapshotAnswer(ErrorCode.NONE, 2, 5, SNAPSHOT, size=6, position=2, data=b"abcd"),
        SnapshotAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2, 5),
    ],
    ids=["another snapshot", "another position", "an error"],
)
def test_part_of_a_snapshot_that_was_not_asked_for_is_dropped(answer: SnapshotAnswer) -> None:
    replica = follower()
    replica.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 5, snapshot=SNAPSHOT), 2)
    effects = replica.answer(SnapshotRequest, answer, 2)
    assert not effects.log
    assert [*effects.sends, *replica.wait(20).sends], "it asks for nothing"
    assert replica.machine.quorum.log.end_offset == 0
