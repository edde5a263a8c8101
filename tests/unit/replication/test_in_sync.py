"""Which followers are in sync, to the millisecond and the offset, and how far records are committed."""

from __future__ import annotations

import pytest

from odradek.replication.in_sync import FollowerProgress, IsrProposal, committed_offset, lagging

LAG_MS = 100


def follower(broker_id: int = 2, *, caught_up_ms: int = 0, end_offset: int = -1) -> FollowerProgress:
    progress = FollowerProgress(broker_id, caught_up_ms)
    progress.end_offset = end_offset
    return progress


def committed(followers: list[FollowerProgress], counted: set[int], *, now_ms: int = 0, eligible: bool = True) -> int:
    by_id = {each.broker_id: each for each in followers}
    return committed_offset(10, by_id, counted, LAG_MS, now_ms, lambda _id, _epoch: eligible)


def test_follower_begins_without_offsets_and_is_not_rejected() -> None:
    progress = FollowerProgress(2, 7)
    assert (progress.broker_epoch, progress.end_offset, progress.log_start_offset) == (-1, -1, -1)
    assert (progress.caught_up_ms, progress.leader_end_offset, progress.rejected) == (7, -1, False)
    assert progress.fetched_ms < -(10**15), "earlier than any time"


def test_proposal_begins_without_the_controllers_refusal() -> None:
    assert IsrProposal((1, 2), 3).refused is False


@pytest.mark.parametrize(
    ("offset", "caught_up_ms"),
    [
        (20, 2000),  # it has all that there is
        (19, 1000),  # it has more than there was at its previous fetch
        (10, 1000),  # it has just what there was at its previous fetch
        (9, 500),  # it lags
    ],
)
def test_follower_was_caught_up_at_the_fetch_that_shows_it(offset: int, caught_up_ms: int) -> None:
    progress = follower(caught_up_ms=500)
    progress.fetched(5, 0, 1, 10, 1000)
    assert progress.caught_up_ms == 500
    progress.fetched(offset, 0, 1, 20, 2000)
    assert progress.caught_up_ms == caught_up_ms
    assert (progress.end_offset, progress.leader_end_offset, progress.fetched_ms) == (offset, 20, 2000)


def test_time_of_catching_up_never_goes_back() -> None:
    """It was caught up in between without a fetch of its own, as its session noted."""
    progress = follower()
    progress.fetched(5, 0, 1, 10, 1000)
    progress.caught_up_ms = 1500
    progress.fetched(10, 0, 1, 20, 2000)
    assert progress.caught_up_ms == 1500


def test_new_registration_of_a_follower_ends_its_rejection() -> None:
    progress = follower()
    progress.rejected = True
    progress.fetched(0, 3, -1, 0, 0)
    assert (progress.rejected, progress.log_start_offset) == (True, 3)
    progress.fetched(0, 3, 8, 0, 0)
    assert (progress.rejected, progress.broker_epoch) == (False, 8)


@pytest.mark.parametrize(("now_ms", "expected"), [(LAG_MS - 1, True), (LAG_MS, True), (LAG_MS + 1, False)])
def test_follower_is_caught_up_within_the_allowed_lag(now_ms: int, expected: bool) -> None:
    assert follower(end_offset=9).is_caught_up(10, now_ms, LAG_MS) is expected
    assert follower(end_offset=10).is_caught_up(10, now_ms, LAG_MS)


def test_isr_member_without_a_fetch_commits_nothing() -> None:
    assert committed([follower(end_offset=7), follower(3)], {1, 2, 3}) == -1


def test_slowest_counted_replica_decides_what_is_committed() -> None:
    assert committed([follower(2, end_offset=7), follower(3, end_offset=4)], {1, 2, 3}, now_ms=1000) == 4
    assert committed([follower(2, end_offset=10)], {1, 2}) == 10
    assert committed([], {1}) == 10


@pytest.mark.parametrize(
    ("now_ms", "eligible", "expected"),
    [(LAG_MS, True, 4), (LAG_MS + 1, True, 10), (LAG_MS, False, 10)],
)
def test_replica_outside_the_isr_counts_while_it_keeps_up(now_ms: int, eligible: bool, expected: int) -> None:
    assert committed([follower(end_offset=4)], {1}, now_ms=now_ms, eligible=eligible) == expected


def test_lagging_members_are_those_of_the_isr_that_keep_up_no_longer() -> None:
    followers = {2: follower(2, end_offset=4), 3: follower(3, caught_up_ms=50, end_offset=4), 5: follower(5)}
    assert lagging(followers, (1, 2, 3, 4), 1, 10, LAG_MS + 1, LAG_MS) == [2, 4]
    assert lagging(followers, (1, 2, 3), 1, 10, LAG_MS, LAG_MS) == []
