"""The log in the quorum's state machine, in the situations that Kafka's Raft tests have."""

from __future__ import annotations

import pytest

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import InstallSnapshot, Propose, Received, SnapshotWritten, Synced, Tick, TruncateTo
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import Batch, FetchAnswer, FetchRequest, SnapshotAnswer, SnapshotRequest, VoteAnswer
from odradek.kraft.raft.messages import VoteRequest as Vote
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.kraft.raft.raft_bench import CLUSTER, Replica


def _leader(log: LogIndex | None = None) -> Replica:
    """The leader of epoch 6."""
    replica = Replica(log=log, state=QuorumStateData(leader_epoch=5))
    replica.wait(1001)
    replica.answer(Vote, VoteAnswer(ErrorCode.NONE, -1, 5, True), 2)
    replica.answer(Vote, VoteAnswer(ErrorCode.NONE, -1, 6, True), 2)
    replica.sync()
    return replica


def _follower(log: LogIndex | None = None) -> Replica:
    """A follower of 2 in epoch 6, whose first fetch is under way."""
    return Replica(log=log, state=QuorumStateData(leader_epoch=6, leader_id=2))


def _fetch(end: LogEnd, *, replica: int = 2, epoch: int = 6, wait_ms: float = 0.0) -> FetchRequest:
    return FetchRequest(CLUSTER, replica, epoch, end, 0, wait_ms)


def test_leader_commits_when_a_majority_has_its_first_record() -> None:
    leader = _leader(LogIndex(epochs=[(3, 0)], end_offset=10))
    assert leader.machine.quorum.high_watermark == 0
    leader.ask(_fetch(LogEnd(10, 3)))
    assert leader.machine.quorum.high_watermark == 0, "records of older epochs are not committed by counting"
    leader.ask(_fetch(LogEnd(11, 6)))
    assert leader.machine.quorum.high_watermark == 11


def test_leader_does_not_count_what_it_has_not_synced() -> None:
    leader = _leader()
    leader.step(Propose(6, 1, b"x"))
    leader.ask(_fetch(LogEnd(2, 6)))
    assert leader.machine.quorum.high_watermark == 1
    leader.sync()
    assert leader.machine.quorum.high_watermark == 2


def test_observer_does_not_count_for_the_high_watermark() -> None:
    leader = _leader()
    leader.ask(_fetch(LogEnd(1, 6), replica=9))
    assert leader.machine.quorum.high_watermark == 0


def test_proposal_of_an_older_epoch_is_dropped() -> None:
    leader = _leader()
    assert leader.step(Propose(5, 1, b"x")).log == ()


def test_fetch_waits_for_records() -> None:
    leader = _leader()
    leader.ask(_fetch(LogEnd(1, 6), replica=3))
    waiting = leader.step(Received(_fetch(LogEnd(1, 6), wait_ms=500)._replace(high_watermark=1), "late"))
    assert waiting.replies == ()
    (reply,) = leader.step(Propose(6, 1, b"x")).replies
    assert isinstance(reply.answer, FetchAnswer)
    assert (reply.token, reply.answer.read_from) == ("late", 1)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (_fetch(LogEnd(0, 0), epoch=5), ErrorCode.FENCED_LEADER_EPOCH),
        (_fetch(LogEnd(0, 0), epoch=7), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (_fetch(LogEnd(-1, 0)), ErrorCode.INVALID_REQUEST),
        (_fetch(LogEnd(0, 0))._replace(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_fetch_has_kafkas_error_when_it_is_invalid(request_: FetchRequest, error: ErrorCode) -> None:
    assert _leader().ask(request_).error is error


def test_follower_names_the_leader_to_a_fetch() -> None:
    answer = _follower().ask(_fetch(LogEnd(0, 0), replica=3))
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 6)


def test_leader_answers_where_logs_diverge() -> None:
    leader = _leader(LogIndex(epochs=[(1, 0), (3, 5)], end_offset=10))
    assert leader.ask(_fetch(LogEnd(12, 3))).diverging == LogEnd(10, 3)
    assert leader.ask(_fetch(LogEnd(7, 2))).diverging == LogEnd(5, 1)


def test_follower_truncates_to_the_common_end() -> None:
    follower = _follower(LogIndex(epochs=[(1, 0), (2, 4)], end_offset=9))
    effects = follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, diverging=LogEnd(6, 1)), 2)
    assert effects.log == (TruncateTo(4),)


def test_follower_stops_when_the_leader_lacks_committed_records() -> None:
    follower = _follower(LogIndex(epochs=[(1, 0)], end_offset=9))
    follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, 9), 2)
    with pytest.raises(CorruptMetadata, match="lacks committed records"):
        follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, diverging=LogEnd(3, 1)), 2)


def test_follower_fetches_again_only_after_the_sync() -> None:
    follower = _follower()
    batch = Batch(0, 6, 2, b"x")
    effects = follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, 0, batches=(batch,)), 2)
    assert (effects.log, effects.sends) == ((batch,), ())
    follower.sync()
    assert [each.log_end for each in follower.sent(FetchRequest)] == [LogEnd(2, 6)]


def test_sync_of_truncated_records_is_ignored() -> None:
    follower = _follower(LogIndex(epochs=[(1, 0)], end_offset=4))
    follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, 0, batches=(Batch(4, 5, 2, b"x"),)), 2)
    follower.machine.quorum.log.truncate_to(4)
    follower.machine.quorum.log.append(6, 2)
    follower.step(Synced(LogEnd(6, 5)))
    assert follower.machine.quorum.log.synced_offset == 4


def test_high_watermark_of_a_follower_stays_below_its_end() -> None:
    follower = _follower(LogIndex(epochs=[(1, 0)], end_offset=4))
    assert follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, 100), 2).high_watermark == 4


def test_leader_offers_its_snapshot_for_deleted_records() -> None:
    leader = _leader(LogIndex(start=LogEnd(10, 3), epochs=[(3, 10)], end_offset=12, snapshot_size=5))
    assert leader.ask(_fetch(LogEnd(0, 0))).snapshot == CheckpointId(10, 3)
    assert leader.ask(_fetch(LogEnd(10, 3))).read_from == 10


def test_follower_installs_the_snapshot_of_its_leader() -> None:
    follower = _follower()
    wanted = CheckpointId(10, 3)
    follower.answer(FetchRequest, FetchAnswer(ErrorCode.NONE, 2, 6, snapshot=wanted), 2)
    follower.answer(SnapshotRequest, SnapshotAnswer(ErrorCode.NONE, 2, 6, wanted, 5, 0, b"abc"), 2)
    effects = follower.answer(SnapshotRequest, SnapshotAnswer(ErrorCode.NONE, 2, 6, wanted, 5, 3, b"de"), 2)
    assert effects.log[-1] == InstallSnapshot(wanted)
    assert effects.high_watermark == 10
    assert follower.sent(FetchRequest)[0].log_end == LogEnd(10, 3)


def test_snapshot_request_has_kafkas_errors() -> None:
    leader = _leader(LogIndex(start=LogEnd(10, 3), end_offset=10, snapshot_size=5))
    wanted = SnapshotRequest(CLUSTER, 2, 6, CheckpointId(10, 3), 0)
    assert leader.ask(wanted).error is ErrorCode.NONE
    assert leader.ask(wanted._replace(position=5)).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert leader.ask(wanted._replace(snapshot=CheckpointId(9, 3))).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert leader.ask(wanted._replace(epoch=5)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_snapshot_of_uncommitted_records_is_rejected() -> None:
    follower = _follower(LogIndex(epochs=[(1, 0)], end_offset=4))
    with pytest.raises(CorruptMetadata, match="above the high watermark"):
        follower.step(SnapshotWritten(CheckpointId(3, 1), 5))


def test_failed_request_is_repeated_after_the_backoff() -> None:
    follower = _follower()
    follower.answer(FetchRequest, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 6), 2)
    assert follower.sent(FetchRequest) == []
    follower.now_ms += 21
    follower.step(Tick())
    assert len(follower.sent(FetchRequest)) == 1
