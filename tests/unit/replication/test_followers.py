"""The followers of a leader: whom it proposes, whom it waits for, and what an answer of the controller changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.replication.followers import Followers
from odradek.replication.in_sync import NEVER_MS, IsrProposal
from odradek.replication.leadership import Leadership
from odradek.replication.readers import PartitionReaders
from odradek.wire.errors import ErrorCode, KafkaError

LAG_MS = 100


class Led:
    """A partition that broker 1 leads; it counts what its followers ask of it."""

    def __init__(self, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        self.topic = "t"
        self.index = 0
        self.local_id = 1
        self.log = SimpleNamespace(log_start_offset=0, end_offset=10)
        self.isr = isr
        self.replicas = replicas
        self.partition_epoch = 5
        self.leader_epoch_start_offset = 0
        self.high_watermark = 4
        self.readers = PartitionReaders()
        self.deletion = SimpleNamespace(waiters=[], release=lambda: self.calls.append("release"))
        self.calls: list[str] = []
        self.applied: list[PartitionState] = []

    def advance_high_watermark(self, appended_bytes: int) -> None:
        assert appended_bytes == 0, "no record was appended"
        self.calls.append("advance")

    def propose(self) -> None:
        self.calls.append("propose")

    def apply_state(self, state: PartitionState) -> None:
        self.applied.append(state)
        self.isr = state.isr


class Leader:
    """The followers under test, with what surrounds them."""

    def __init__(self, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        self.now_ms = 1000
        self.eligible = True
        self.partition = Led(isr, replicas)
        self.leadership = Leadership(1, lambda: 0.0)
        around = SimpleNamespace(
            now_ms=lambda: self.now_ms,
            max_lag_ms=LAG_MS,
            is_eligible=lambda _id, _epoch: self.eligible,
            leadership=self.leadership,
        )
        self.followers = Followers(self.partition, around)  # type: ignore[arg-type]
        self.followers.begin(isr, continues=False)
        self.partition.calls.clear()

    def wait(self) -> None:
        """The broker has newly got the partition, and waits for the leaders before."""
        image = ClusterImage("c")
        topic = Topic("t", bytes(16), (PartitionState(1, 4, (1, 2, 3), (1, 2)),))
        self.leadership.follow(image, image.with_topics([topic]))

    def fetch(self, broker_id: int, offset: int, epoch: int = 7) -> None:
        self.followers.fetched(broker_id, epoch, offset, 0, self.now_ms)

    @property
    def proposed(self) -> tuple[int, ...] | None:
        proposal = self.followers.proposal
        return None if proposal is None else proposal.isr

    @property
    def calls(self) -> list[str]:
        """What the followers asked of the partition since the last look."""
        found = list(self.partition.calls)
        self.partition.calls.clear()
        return found


@pytest.fixture
def leader() -> Leader:
    return Leader()


def refused(call: Any, *args: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call(*args)
    return raised.value.code


def test_leader_begins_with_isr_members_as_caught_up(leader: Leader) -> None:
    progress = leader.followers.progress
    assert {broker_id: each.caught_up_ms for broker_id, each in progress.items()} == {2: 1000, 3: NEVER_MS}
    assert leader.followers.counted == {1, 2}


def test_leader_that_continues_keeps_the_progress_of_members_only(leader: Leader) -> None:
    leader.fetch(2, 8)
    leader.fetch(3, 3)
    leader.partition.isr = (1, 3)
    leader.followers.begin((1, 2), continues=True)
    progress = leader.followers.progress
    assert (progress[2].end_offset, progress[2].caught_up_ms, progress[2].fetched_ms) == (8, NEVER_MS, NEVER_MS)
    assert (progress[3].end_offset, progress[3].fetched_ms) == (3, 1000)
    leader.followers.begin((1, 3), continues=False)
    assert leader.followers.progress[3].end_offset == -1


def test_member_that_stays_in_the_isr_keeps_its_time(leader: Leader) -> None:
    leader.fetch(2, 8)
    leader.followers.begin((1, 2), continues=True)
    assert leader.followers.progress[2].fetched_ms == 1000


@pytest.mark.parametrize(("offset", "is_accepted"), [(1, False), (2, True), (10, True), (11, False)])
def test_fetch_outside_the_log_is_rejected(leader: Leader, offset: int, is_accepted: bool) -> None:
    leader.partition.log.log_start_offset = 2
    if is_accepted:
        leader.fetch(2, offset)
    else:
        assert refused(leader.fetch, 2, offset) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_of_a_stranger_or_an_earlier_life_is_rejected(leader: Leader) -> None:
    assert refused(leader.fetch, 9, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    leader.fetch(2, 5, 7)
    leader.fetch(2, 6, 7)
    assert refused(leader.fetch, 2, 9, 6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.followers.progress[2].end_offset == 6


def test_high_watermark_is_computed_only_after_progress(leader: Leader) -> None:
    leader.fetch(2, 5)
    assert leader.calls == ["advance"]
    leader.fetch(2, 5)
    assert leader.calls == []
    leader.partition.deletion.waiters.append("a request")
    leader.fetch(2, 5)
    assert leader.calls == ["release"]


@pytest.mark.parametrize(
    ("offset", "high_watermark", "epoch_start", "is_proposed"),
    [(4, 4, 0, True), (3, 4, 0, False), (6, 4, 6, True), (5, 4, 6, False)],
)
def test_follower_is_proposed_when_it_has_all_that_is_committed(
    leader: Leader, offset: int, high_watermark: int, epoch_start: int, is_proposed: bool
) -> None:
    leader.partition.high_watermark = high_watermark
    leader.partition.leader_epoch_start_offset = epoch_start
    leader.fetch(3, offset)
    assert leader.proposed == ((1, 2, 3) if is_proposed else None)
    assert leader.calls == (["propose", "advance"] if is_proposed else ["advance"])
    if is_proposed:
        assert leader.followers.proposal is not None
        assert leader.followers.proposal.partition_epoch == 5
        assert leader.followers.counted == {1, 2, 3}, "the high watermark waits for it from here on"


def test_member_of_the_isr_is_not_proposed_again(leader: Leader) -> None:
    leader.fetch(2, 10)
    assert leader.proposed is None


def test_follower_that_may_not_join_is_not_proposed(leader: Leader) -> None:
    leader.eligible = False
    leader.fetch(3, 10)
    assert leader.proposed is None
    leader.eligible = True
    assert leader.followers.apply_offline((3,))
    assert not leader.followers.apply_offline((3,))
    leader.fetch(3, 10)
    assert leader.proposed is None
    leader.followers.apply_offline(())
    leader.fetch(3, 10)
    assert leader.proposed == (1, 2, 3)


def test_follower_is_not_proposed_before_its_leader_has_begun(leader: Leader) -> None:
    """A leader before may act by promises, of which the follower has given none: it must not be elected meanwhile."""
    leader.wait()
    leader.fetch(3, 10)
    leader.followers.reconsider()
    leader.followers.take_in()
    assert leader.proposed is None
    leader.leadership.begin(leader.leadership.sequence)
    leader.followers.take_in()
    assert leader.proposed == (1, 2, 3)


def test_member_that_lags_is_removed_before_the_leader_has_begun(leader: Leader) -> None:
    leader.wait()
    leader.now_ms += LAG_MS + 1
    leader.followers.shrink_isr()
    assert leader.proposed == (1,)


def test_reconsidering_proposes_those_that_may_join_now(leader: Leader) -> None:
    leader.eligible = False
    leader.fetch(3, 10)
    leader.fetch(2, 10)
    leader.eligible = True
    leader.partition.calls.clear()
    leader.followers.reconsider()
    assert leader.proposed == (1, 2, 3)
    assert leader.calls == ["propose", "advance", "release"]


@pytest.mark.parametrize(("waited_ms", "is_proposed"), [(LAG_MS, True), (LAG_MS + 1, False)])
def test_silent_follower_is_proposed_while_its_last_fetch_is_recent(
    leader: Leader, waited_ms: int, is_proposed: bool
) -> None:
    leader.eligible = False
    leader.fetch(3, 10)
    leader.eligible = True
    leader.now_ms += waited_ms
    leader.followers.take_in()
    assert leader.proposed == ((1, 2, 3) if is_proposed else None)


def test_sessions_are_asked_only_if_a_replica_is_missing() -> None:
    for isr, proposal, expected in (
        ((1, 2), None, 1),
        ((1, 2, 3), None, 0),
        ((1, 2), IsrProposal((1,), 5), 0),
    ):
        leader = Leader(isr)
        asked: list[int] = []
        leader.partition.readers.sessions.append(SimpleNamespace(refresh=lambda asked=asked: asked.append(1)))  # type: ignore[arg-type]
        leader.followers.proposal = proposal
        leader.followers.take_in()
        assert len(asked) == expected


@pytest.mark.parametrize(("waited_ms", "isr"), [(LAG_MS, None), (LAG_MS + 1, (1, 3))])
def test_leader_proposes_to_remove_a_member_that_lags(waited_ms: int, isr: tuple[int, ...] | None) -> None:
    leader = Leader((1, 2, 3))
    leader.fetch(3, 10)
    leader.fetch(2, 9)
    leader.now_ms += waited_ms
    leader.partition.calls.clear()
    leader.followers.shrink_isr()
    assert leader.proposed == isr
    assert leader.calls == ([] if isr is None else ["propose"]) + ["advance"]
    assert leader.followers.counted == {1, 2, 3}, "the high watermark waits until the controller has decided"


def test_leader_without_followers_or_with_a_proposal_shrinks_nothing(leader: Leader) -> None:
    leader.now_ms += 10 * LAG_MS
    leader.followers.proposal = proposal = IsrProposal((1, 2, 3), 5)
    leader.followers.shrink_isr()
    assert leader.followers.proposal is proposal
    alone = Leader((1,), (1,))
    alone.followers.shrink_isr()
    assert (leader.calls, alone.calls) == ([], [])


def test_proposal_carries_the_epochs_of_those_that_fetched() -> None:
    leader = Leader((1, 2, 3), (1, 2, 3))
    leader.fetch(2, 5, 7)
    proposal = IsrProposal((1, 2, 3, 9), 5)
    assert leader.followers.isr_with_epochs(proposal, 4) == ((1, 4), (2, 7), (3, -1))


@pytest.mark.parametrize(
    ("partition_epoch", "new_epoch", "stays"), [(5, False, True), (6, False, False), (5, True, False), (4, False, True)]
)
def test_newer_state_ends_a_proposal(leader: Leader, partition_epoch: int, new_epoch: bool, stays: bool) -> None:
    leader.fetch(3, 10)
    leader.followers.drop_outdated_proposal(partition_epoch, new_epoch=new_epoch)
    assert (leader.followers.proposal is not None) is stays


def test_rejected_proposal_is_made_again_by_a_later_fetch(leader: Leader) -> None:
    leader.fetch(3, 10)
    assert leader.followers.proposal is not None
    leader.partition.calls.clear()
    leader.followers.proposal_answered(leader.followers.proposal, ErrorCode.OPERATION_NOT_ATTEMPTED, None)
    assert (leader.proposed, leader.followers.counted) == (None, {1, 2})
    assert leader.calls == ["advance"], "it waits no longer for the follower"
    assert leader.followers.progress[3].fetched_ms == 1000
    leader.fetch(3, 10)
    assert leader.proposed == (1, 2, 3)


def test_ineligible_follower_is_waited_for_no_longer(leader: Leader) -> None:
    leader.fetch(3, 10)
    leader.fetch(2, 10)
    assert leader.followers.proposal is not None
    leader.followers.proposal_answered(leader.followers.proposal, ErrorCode.INELIGIBLE_REPLICA, None)
    progress = leader.followers.progress
    assert (progress[3].rejected, progress[3].caught_up_ms) == (True, NEVER_MS)
    assert (progress[2].rejected, progress[2].caught_up_ms) == (False, 1000)
    leader.fetch(3, 10)
    assert leader.proposed is None


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ErrorCode.INVALID_UPDATE_VERSION, None),
        (ErrorCode.NONE, None),
        (ErrorCode.FENCED_LEADER_EPOCH, PartitionState(1, 0, (1, 2, 3), (1, 2, 3))),
    ],
)
def test_conflicting_proposal_waits_for_the_newer_state(
    leader: Leader, error: ErrorCode, state: PartitionState | None
) -> None:
    leader.fetch(3, 10)
    proposal = leader.followers.proposal
    assert proposal is not None
    leader.followers.proposal_answered(proposal, error, state)
    assert leader.followers.proposal is proposal
    assert proposal.refused
    assert (leader.followers.counted, leader.partition.applied) == ({1, 2, 3}, [])


def test_accepted_proposal_is_the_isr(leader: Leader) -> None:
    leader.fetch(3, 10)
    state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
    assert leader.followers.proposal is not None
    leader.partition.calls.clear()
    leader.followers.proposal_answered(leader.followers.proposal, ErrorCode.NONE, state)
    assert (leader.proposed, leader.partition.applied) == (None, [state])
    assert leader.calls == ["advance"]


def test_answer_to_an_earlier_proposal_changes_nothing(leader: Leader) -> None:
    leader.fetch(3, 10)
    proposal = leader.followers.proposal
    leader.followers.proposal_answered(IsrProposal((1, 2, 3), 5), ErrorCode.OPERATION_NOT_ATTEMPTED, None)
    assert leader.followers.proposal is proposal


def test_counting_releases_deletions_that_wait(leader: Leader) -> None:
    leader.followers.count()
    assert leader.calls == []
    leader.partition.deletion.waiters.append("a request")
    leader.followers.count()
    assert leader.calls == ["release"]


def test_broker_that_no_longer_leads_forgets_its_followers(leader: Leader) -> None:
    leader.fetch(3, 10)
    leader.followers.end()
    assert (leader.followers.progress, leader.proposed, leader.followers.counted) == ({}, None, frozenset())
