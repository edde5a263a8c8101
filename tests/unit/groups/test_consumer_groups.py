"""KIP-848 groups under a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.consumer.records import MemberState, OldMetadataRecord
from odradek.groups.events import CommitRequest, ConsumerHeartbeatResult, GroupDecision, OffsetToCommit
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.groups.consumer_member import ConsumerMember, rebalance
from tests.unit.groups.virtual_shard import VirtualShard


@pytest.fixture
def shard() -> VirtualShard:
    made = VirtualShard()
    made.topic("a", 6)
    return made


def state(shard: VirtualShard, group_id: str = "g") -> str:
    return shard.coordinator.describe_consumer_group(group_id).state


def test_the_first_member_gets_everything_at_once(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    assert (member.epoch, member.has("a")) == (2, [0, 1, 2, 3, 4, 5])
    assert state(shard) == "Stable"
    group = shard.coordinator.describe_consumer_group("g")
    assert (group.epoch, group.assignment_epoch, group.assignor) == (2, 2, "uniform")
    assert [m.member_id for m in group.members] == ["m"]


def test_unchanged_heartbeat_returns_and_stores_no_assignment(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    before = len(shard.log)
    answer = shard.beat("g", "m", member.epoch)
    assert (answer.assignment, answer.member_epoch) == (None, 2)
    assert len(shard.log) == before
    whole = shard.beat("g", "m", 2, rebalance_timeout_ms=60_000, topics=("a",), owned=member.owned)
    assert whole.assignment == member.owned


@pytest.mark.parametrize(
    ("changes", "is_repeated"),
    [
        ({"rebalance_timeout_ms": 60_000, "topics": ("a",), "owned": {}}, True),
        ({"rebalance_timeout_ms": 1, "topics": ("a",), "owned": {}}, True),
        ({"rebalance_timeout_ms": 60_000, "regex": "a", "owned": {}}, True),
        ({"rebalance_timeout_ms": -1, "topics": ("a",), "owned": {}}, False),
        ({"rebalance_timeout_ms": 60_000, "owned": {}}, False),
        ({"rebalance_timeout_ms": 60_000, "topics": ("a",)}, False),
        ({"owned": {}}, False),
        ({}, False),
    ],
)
def test_assignment_is_repeated_to_a_member_that_says_everything(
    shard: VirtualShard, changes: dict[str, Any], is_repeated: bool
) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    rebalance(member)
    owned = {"owned": member.owned} if "owned" in changes else {}
    answer = shard.beat("g", "m", member.epoch, **(changes | owned))
    assert (answer.assignment is not None) is is_repeated


def test_a_partition_goes_over_only_when_it_has_been_given_back(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a").join()
    shard.sleep(1_000)
    second = ConsumerMember(shard, "m2", "a").join()
    assert (second.epoch, second.has("a")) == (3, [])
    current = shard.coordinator.consumer.by_id["g"].members["m2"].current
    assert current.state is MemberState.UNRELEASED_PARTITIONS
    assert state(shard) == "Reconciling"
    answer = shard.beat("g", "m1", 2)
    assert (answer.member_epoch, sum(map(len, answer.assignment.values()))) == (2, 3)
    second.beat()
    assert second.has("a") == []
    # Without word of what it owns nothing moves on.
    assert shard.beat("g", "m1", 2).member_epoch == 2
    first.owned = dict(answer.assignment)
    first.beat()
    assert first.epoch == 3
    second.beat()
    assert sorted(first.has("a") + second.has("a")) == [0, 1, 2, 3, 4, 5]
    assert len(second.has("a")) == 3
    assert state(shard) == "Stable"


def test_targets_are_not_made_more_often_than_the_interval(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a").join()
    second = ConsumerMember(shard, "m2", "a").join()
    assert (second.epoch, second.has("a")) == (2, [])
    assert state(shard) == "Assigning"
    shard.sleep(999)
    assert second.beat().epoch == 2
    shard.sleep(1)
    assert second.beat().epoch == 3
    rebalance(first, second, rounds=2)
    assert state(shard) == "Stable"


def test_group_setting_overrides_the_assignment_interval(shard: VirtualShard) -> None:
    configs = {
        "consumer.assignment.interval.ms": "0",
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.session.timeout.ms": "50000",
    }
    shard.image = shard.image.with_group_configs("g", configs)
    ConsumerMember(shard, "m1", "a").join()
    second = ConsumerMember(shard, "m2", "a").join()
    assert second.epoch == 3
    shard.sleep(6_000)
    assert shard.beat("g", "m1", 2, owned={}).member_epoch == 3
    shard.sleep(6_000)
    assert second.beat().interval_ms == 7_000
    shard.sleep(49_999)
    assert set(shard.coordinator.consumer.by_id["g"].members) == {"m2"}
    shard.sleep(1)
    assert state(shard) == "Empty"


def test_members_report_often_while_the_group_is_on_the_move(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    assert member.interval_ms == 500
    shard.sleep(5_000)
    assert member.beat().interval_ms == 5_000
    ConsumerMember(shard, "m2", "a").join()
    assert member.beat().interval_ms == 500
    calm = VirtualShard(unsettled_heartbeat_interval_ms=0)
    calm.topic("a", 1)
    assert ConsumerMember(calm, "m", "a").join().interval_ms == 5_000


def test_silent_member_is_fenced_after_its_session(shard: VirtualShard) -> None:
    first, second = ConsumerMember(shard, "m1", "a").join(), ConsumerMember(shard, "m2", "a").join()
    rebalance(first, second)
    shard.sleep(20_000)
    first.beat()
    shard.sleep(24_999)
    assert len(shard.coordinator.consumer.by_id["g"].members) == 2
    shard.sleep(1)
    assert list(shard.coordinator.consumer.by_id["g"].members) == ["m1"]
    assert first.beat().has("a") == [0, 1, 2, 3, 4, 5]
    assert second.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_fencing_is_retried_when_the_log_rejects_it(shard: VirtualShard) -> None:
    first, second = ConsumerMember(shard, "m1", "a").join(), ConsumerMember(shard, "m2", "a").join()
    rebalance(first, second)
    shard.sleep(20_000)
    first.beat()
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.sleep(26_000)
    assert len(shard.coordinator.consumer.by_id["g"].members) == 2
    shard.refuse = None
    shard.sleep(1_000)
    assert list(shard.coordinator.consumer.by_id["g"].members) == ["m1"]


def test_member_expires_when_its_leaving_is_rejected_by_the_log(shard: VirtualShard) -> None:
    first, second = ConsumerMember(shard, "m1", "a").join(), ConsumerMember(shard, "m2", "a").join()
    rebalance(first, second)
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    second.leave()
    shard.refuse = None
    assert len(shard.coordinator.consumer.by_id["g"].members) == 2
    shard.sleep(30_000)
    first.beat()
    shard.sleep(16_000)
    assert list(shard.coordinator.consumer.by_id["g"].members) == ["m1"]


def test_member_is_fenced_when_it_does_not_revoke_in_time(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", rebalance_timeout_ms=10_000).join()
    shard.sleep(1_000)
    second = ConsumerMember(shard, "m2", "a").join()
    everything = first.owned
    for _ in range(9):
        shard.beat("g", "m1", 2, owned=everything)
        shard.sleep(1_000)
    assert "m1" in shard.coordinator.consumer.by_id["g"].members
    shard.beat("g", "m1", 2, owned=everything)
    shard.sleep(2_000)
    assert "m1" not in shard.coordinator.consumer.by_id["g"].members
    assert second.beat().has("a") == [0, 1, 2, 3, 4, 5]
    assert shard.beat("g", "m1", 2, owned=everything) is ErrorCode.UNKNOWN_MEMBER_ID


def test_deadline_of_a_revocation_stays_when_the_log_rejects_its_end(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", rebalance_timeout_ms=10_000).join()
    shard.sleep(1_000)
    ConsumerMember(shard, "m2", "a").join()
    everything = first.owned
    kept = shard.beat("g", "m1", 2, owned=everything).assignment
    shard.sleep(5_000)
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.beat("g", "m1", 2, owned=kept) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.refuse = None
    for _ in range(6):
        shard.sleep(1_000)
        shard.beat("g", "m1", 2, owned=everything)
    assert "m1" not in shard.coordinator.consumer.by_id["g"].members


def test_revocation_that_the_log_rejects_fences_no_member(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", rebalance_timeout_ms=10_000).join()
    shard.sleep(1_000)
    ConsumerMember(shard, "m2", "a").join()
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.beat("g", "m1", 2, owned=first.owned) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.refuse = None
    shard.sleep(11_000)
    assert "m1" in shard.coordinator.consumer.by_id["g"].members


def test_wrong_epochs_are_fenced(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    assert shard.beat("g", "m", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    shard.topic("a", 8)
    shard.sleep(1_000)
    member.beat()
    assert member.epoch == 3
    # Its answer may have got lost: the epoch before is good with what it had then, and only with that.
    old = {topic_id: frozenset(range(6)) for topic_id in member.owned}
    assert shard.beat("g", "m", 2, owned=old).member_epoch == 3
    assert shard.beat("g", "m", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert shard.beat("g", "m", 2, owned={b"x" * 16: frozenset({1})}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert shard.beat("g", "stranger", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.beat("nowhere", "m", 2) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_fenced_member_joins_again_under_its_id(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    assert member.beat(owned=member.owned).error is None
    member.join()
    assert (member.epoch, member.has("a")) == (2, [0, 1, 2, 3, 4, 5])


def test_partitions_of_a_leaving_member_go_to_the_others(shard: VirtualShard) -> None:
    first, second = ConsumerMember(shard, "m1", "a").join(), ConsumerMember(shard, "m2", "a").join()
    rebalance(first, second)
    second.leave()
    assert second.error is None
    shard.sleep(1_000)
    assert first.beat().has("a") == [0, 1, 2, 3, 4, 5]


def test_group_is_empty_after_its_last_member_left(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m1", "a").join()
    member.leave()
    assert state(shard) == "Empty"


def test_leaving_member_gets_its_epoch_back_and_no_interval(shard: VirtualShard) -> None:
    """As Kafka's coordinator: there is no next heartbeat."""
    ConsumerMember(shard, "m", "a").join()
    assert shard.beat("g", "m", -1) == ConsumerHeartbeatResult("m", -1, heartbeat_interval_ms=0, assignment=None)


def test_member_that_has_left_is_unknown(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m1", "a").join()
    member.leave()
    member.leave()
    assert member.error is ErrorCode.UNKNOWN_MEMBER_ID


# --- static members ---


def test_a_static_member_comes_back_to_its_place(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", instance="i").join()
    other = ConsumerMember(shard, "m2", "a").join()
    rebalance(first, other)
    mine, epoch = first.has("a"), shard.coordinator.consumer.by_id["g"].epoch
    first.leave(-2)
    shard.sleep(10_000)
    assert other.beat().has("a") != [0, 1, 2, 3, 4, 5]
    again = ConsumerMember(shard, "m3", "a", instance="i").join()
    assert again.has("a") == mine
    assert shard.coordinator.consumer.by_id["g"].epoch == epoch
    assert first.beat().error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", instance="i").join()
    other = ConsumerMember(shard, "m2", "a").join()
    rebalance(first, other)
    first.leave(-2)
    for _ in range(50):
        shard.sleep(1_000)
        other.beat()
    assert other.has("a") == [0, 1, 2, 3, 4, 5]


def test_an_instance_id_has_one_owner(shard: VirtualShard) -> None:
    ConsumerMember(shard, "m1", "a", instance="i").join()
    assert ConsumerMember(shard, "m2", "a", instance="i").join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert shard.beat("g", "m1", 2, instance="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.beat("g", "m2", -1, instance="i") is ErrorCode.FENCED_INSTANCE_ID


# --- subscriptions and topics ---


def test_changed_subscription_changes_the_assignment(shard: VirtualShard) -> None:
    shard.topic("b", 2)
    member = ConsumerMember(shard, "m", "a").join()
    shard.sleep(1_000)
    member.subscribe("b")
    rebalance(member, rounds=2)
    assert (member.has("a"), member.has("b")) == ([], [0, 1])
    member.subscribe("b", "not-there-yet")
    rebalance(member, rounds=2)
    shard.topic("not-there-yet", 1)
    rebalance(member, rounds=2)
    assert member.has("not-there-yet") == [0]


def test_unsubscribed_partitions_are_revoked_before_the_next_target(shard: VirtualShard) -> None:
    shard.topic("b", 2)
    member = ConsumerMember(shard, "m", "a", "b").join()
    member.subscribe("b")
    assert member.has("a") == []


def test_assignment_follows_a_topic_that_grows_or_is_deleted(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    rebalance(member, rounds=1)
    shard.topic("a", 7)
    rebalance(member, rounds=1)
    assert member.has("a") == [0, 1, 2, 3, 4, 5, 6]
    shard.delete_topic("a")
    rebalance(member, rounds=2)
    assert (member.owned, state(shard)) == ({}, "Stable")


def test_unsubscribed_topic_does_not_bump_the_epoch(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    shard.topic("other", 3)
    rebalance(member, rounds=2)
    assert shard.coordinator.consumer.by_id["g"].epoch == 2


@pytest.fixture
def matching(shard: VirtualShard) -> ConsumerMember:
    """A member that subscribes to `a.+`, which matches `alpha`."""
    shard.topic("alpha", 1)
    return ConsumerMember(shard, "m", regex="a.+").join()


def test_pattern_matches_complete_topic_names(matching: ConsumerMember) -> None:
    assert (matching.has("alpha"), matching.has("a")) == ([0], [])


def test_pattern_matches_a_topic_that_is_created_later(shard: VirtualShard, matching: ConsumerMember) -> None:
    shard.topic("abc", 2)
    rebalance(matching, rounds=2)
    assert matching.has("abc") == [0, 1]


def test_pattern_does_not_match_a_deleted_topic(shard: VirtualShard, matching: ConsumerMember) -> None:
    shard.delete_topic("alpha")
    rebalance(matching, rounds=2)
    assert matching.has("alpha") == []


def _all_but_secrets(name: str) -> bool:
    return name != "asecret"


def test_pattern_hides_topics_that_the_member_may_not_describe(shard: VirtualShard) -> None:
    shard.topic("alpha", 1)
    shard.topic("asecret", 1)
    member = ConsumerMember(shard, "m", regex="a.+", may_see=_all_but_secrets).join()
    assert (member.has("alpha"), member.has("asecret")) == ([0], [])


def test_pattern_hides_a_denied_topic_that_is_created_later(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", regex="a.+", may_see=_all_but_secrets).join()
    shard.topic("asecret", 1)
    rebalance(member, rounds=3)
    assert member.has("asecret") == []


def test_pattern_shows_a_denied_topic_to_no_member_when_another_leaves(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m", regex="a.+", may_see=_all_but_secrets).join()
    second = ConsumerMember(shard, "n", regex="a.+", may_see=_all_but_secrets).join()
    shard.topic("asecret", 1)
    second.leave()
    rebalance(first, rounds=3)
    assert first.has("asecret") == []


def test_pattern_is_matched_again_after_ten_minutes_when_rights_change(shard: VirtualShard) -> None:
    shard.topic("alpha", 1)
    shard.topic("asecret", 1)
    member = ConsumerMember(shard, "m", regex="a.+").join()
    assert member.has("asecret") == [0]
    member.fields["may_see"] = _all_but_secrets
    for _ in range(30):
        shard.sleep(30_000)
        member.beat()
    rebalance(member, rounds=2)
    assert (member.has("alpha"), member.has("asecret")) == ([0], [])


def test_pattern_is_replaced_by_topic_names(shard: VirtualShard, matching: ConsumerMember) -> None:
    matching.beat(regex="", topics=("a",))
    rebalance(matching, rounds=2)
    assert (matching.has("alpha"), matching.has("a")) == ([], [0, 1, 2, 3, 4, 5])
    assert shard.coordinator.consumer.by_id["g"].regexes == {}


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "[z-a]", r"(a)\1"])
def test_pattern_is_rejected_when_re2_cannot_compile_it(shard: VirtualShard, pattern: str) -> None:
    answer = ConsumerMember(shard, "m", regex=pattern).join()
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "g" not in shard.coordinator.consumer.by_id


def test_pattern_with_nested_repetition_is_matched_in_linear_time(shard: VirtualShard) -> None:
    shard.topic("a" * 200, 1)
    assert ConsumerMember(shard, "m", regex="(a*)*b").join().owned == {}


# --- limits and choices ---


def test_join_is_rejected_when_the_consumer_group_is_full() -> None:
    shard = VirtualShard(consumer_max_size=2)
    shard.topic("a", 2)
    first = ConsumerMember(shard, "m1", "a").join()
    ConsumerMember(shard, "m2", "a").join()
    assert ConsumerMember(shard, "m3", "a").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.beat().error is None
    first.leave()
    assert ConsumerMember(shard, "m3", "a").join().error is None


def test_assignor_is_the_one_that_most_members_ask_for(shard: VirtualShard) -> None:
    shard.topic("b", 6)
    first = ConsumerMember(shard, "m1", "a", "b", assignor="range").join()
    second = ConsumerMember(shard, "m2", "a", "b", assignor="range").join()
    rebalance(first, second)
    assert [first.has("a"), first.has("b")] == [[0, 1, 2], [0, 1, 2]]
    assert [second.has("a"), second.has("b")] == [[3, 4, 5], [3, 4, 5]]
    assert shard.coordinator.describe_consumer_group("g").assignor == "range"
    assert ConsumerMember(shard, "m3", "a", assignor="mine").join().error is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_failed_append_changes_nothing(shard: VirtualShard) -> None:
    shard.refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ConsumerMember(shard, "m", "a").join().error is ErrorCode.NOT_COORDINATOR
    assert shard.coordinator.consumer.by_id == {}
    shard.refuse = None
    member = ConsumerMember(shard, "m", "a").join()
    shard.topic("a", 7)
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert member.beat().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.refuse = None
    rebalance(member, rounds=2)
    assert member.has("a") == [0, 1, 2, 3, 4, 5, 6]


def test_a_restarted_coordinator_knows_everything(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", instance="i").join()
    second = ConsumerMember(shard, "m2", "a", regex="b.*").join()
    rebalance(first, second)
    before = first.owned, second.owned
    shard.restart()
    rebalance(first, second)
    assert (first.owned, second.owned) == before
    shard.restart()
    shard.topic("bb", 2)
    rebalance(first, second)
    assert (len(first.has("a")), len(second.has("a")), second.has("bb")) == (4, 2, [0, 1])
    shard.restart()
    shard.sleep(45_000)
    assert state(shard) == "Empty"


@pytest.mark.parametrize("interval", ["0", "1000"])
def test_a_clock_that_was_set_back_does_not_hold_up_the_next_target(shard: VirtualShard, interval: str) -> None:
    shard.image = shard.image.with_group_configs("g", {"consumer.assignment.interval.ms": interval})
    first = ConsumerMember(shard, "m1", "a").join()
    shard.now_ms -= 30 * 60_000
    shard.restart()
    assert first.beat().interval_ms == 5_000, "the group is stable"
    second = ConsumerMember(shard, "m2", "a").join()
    rebalance(first, second)
    assert (first.epoch, second.epoch) == (3, 3)
    assert sorted(first.has("a") + second.has("a")) == [0, 1, 2, 3, 4, 5]


def test_a_member_that_was_to_give_back_still_is_after_a_restart(shard: VirtualShard) -> None:
    first = ConsumerMember(shard, "m1", "a", rebalance_timeout_ms=10_000).join()
    shard.sleep(1_000)
    ConsumerMember(shard, "m2", "a").join()
    shard.beat("g", "m1", 2, owned=first.owned)
    shard.restart()
    for _ in range(5):
        shard.beat("g", "m1", 2, owned=first.owned)
        shard.sleep(2_000)
    assert list(shard.coordinator.consumer.by_id["g"].members) == ["m2"]


# --- offsets ---


def test_commit_is_rejected_when_the_member_epoch_is_stale(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    assert shard.commit("g", "m", 2, ("a", 0, 5)) == [ErrorCode.NONE]
    assert shard.commit("g", "m", 3, ("a", 0, 5)) is ErrorCode.STALE_MEMBER_EPOCH
    assert shard.commit("g", "x", 2, ("a", 0, 5)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.commit("g", "", -1, ("a", 0, 5)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.commit("g", "m", 2, ("a", 0, 5), api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert shard.committed("g", "a", 0) == 5
    member.leave()
    assert shard.commit("g", "", -1, ("a", 0, 6)) == [ErrorCode.NONE]


def test_commit_of_an_earlier_epoch_is_accepted_for_kept_partitions(shard: VirtualShard) -> None:
    """KIP-1251: a rebalance that does not touch a partition does not lose its commits either."""
    topic_id = shard.image.topics["a"].id
    first = ConsumerMember(shard, "m1", "a").join()
    shard.sleep(1_000)
    second = ConsumerMember(shard, "m2", "a").join()
    rebalance(first, second)
    assert (first.epoch, second.epoch) == (3, 3)
    kept, given = first.has("a")[0], second.has("a")[0]
    offset: Any = lambda partition: _offset("a", partition, 9, topic_id)  # noqa: E731
    assert shard.commit("g", "m1", 2, offset(kept)) == [ErrorCode.NONE]
    assert shard.commit("g", "m1", 2, offset(given)) is ErrorCode.STALE_MEMBER_EPOCH
    assert shard.commit("g", "m2", 2, offset(given)) is ErrorCode.STALE_MEMBER_EPOCH


def _offset(topic: str, partition: int, offset: int, topic_id: bytes) -> Any:
    return OffsetToCommit(topic, partition, offset, topic_id=topic_id)


def test_offset_fetch_is_rejected_when_the_member_epoch_is_stale(shard: VirtualShard) -> None:
    ConsumerMember(shard, "m", "a").join()
    check = shard.coordinator.check_fetch
    check("g", "m", 2)
    check("g", None, -1)
    check("nowhere", "m", 7)
    for member, epoch, code in [
        ("m", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(KafkaError) as refused:
            check("g", member, epoch)
        assert refused.value.code is code


def test_deleting_groups_and_offsets(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    shard.commit("g", "m", 2, ("a", 0, 5), ("gone", 0, 5))
    assert _delete(shard, "g") is ErrorCode.NON_EMPTY_GROUP
    token = shard.token()
    shard.obey(shard.coordinator.delete_offsets(token, "g", [("a", 0), ("gone", 0)]))
    assert shard.answers[token] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    member.leave()
    assert _delete(shard, "g") is ErrorCode.NONE
    assert shard.coordinator.consumer.by_id == {}
    assert shard.committed("g", "a", 0) == -1
    assert _delete(shard, "g") is ErrorCode.GROUP_ID_NOT_FOUND


def _delete(shard: VirtualShard, group_id: str) -> Any:
    token = shard.token()
    shard.obey(shard.coordinator.delete_groups(token, [group_id]))
    return shard.answers[token][0]


@pytest.fixture
def mixed(shard: VirtualShard) -> VirtualShard:
    """A consumer group `g` and a simple group."""
    ConsumerMember(shard, "m", "a").join()
    shard.commit("simple", "", -1, ("a", 0, 1))
    return shard


def test_listing_has_state_type_and_protocol_type(mixed: VirtualShard) -> None:
    listed = {x.group_id: x for x in mixed.coordinator.list_groups()}
    assert (listed["g"].state, listed["g"].group_type, listed["g"].protocol_type) == ("Stable", "consumer", "consumer")
    assert listed["simple"].group_type == "classic"


def test_listing_is_filtered_by_type_and_state(mixed: VirtualShard) -> None:
    assert [x.group_id for x in mixed.coordinator.list_groups(types=["Consumer"])] == ["g"]
    assert [x.group_id for x in mixed.coordinator.list_groups(["stable"], ["classic"])] == []


def test_group_is_not_described_as_another_kind(mixed: VirtualShard) -> None:
    assert mixed.coordinator.describe_groups(["g"])[0].error is ErrorCode.GROUP_ID_NOT_FOUND
    assert mixed.coordinator.describe_consumer_group("simple").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_expire_topic_by_topic_and_then_the_group() -> None:
    shard = VirtualShard(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    shard.topic("a", 1)
    member = ConsumerMember(shard, "m", "a").join()
    shard.commit("g", "m", 2, ("a", 0, 5), ("old", 0, 5))
    for _ in range(7):
        shard.sleep(10_000)
        member.beat()
    assert (shard.committed("g", "a"), shard.committed("g", "old")) == (5, -1)
    member.leave()
    shard.sleep(10_000)
    assert "g" not in shard.coordinator.consumer.by_id
    assert shard.committed("g", "a") == -1


def test_expiry_looks_at_some_groups_at_a_time() -> None:
    shard = VirtualShard(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    coordinator = shard.coordinator
    token = 0
    for n in range(1_200):
        token -= 1
        outcome = coordinator.commit_offsets(
            shard.now_ms, token, CommitRequest(f"g{n}", "", None, -1, [OffsetToCommit("a", 0, 1)])
        )
        for record in outcome.records:
            shard.log.append((record, -1))
            coordinator.replay(record, len(shard.log) - 1)
    shard.now_ms += 70_000
    most = 0
    while (deadline := coordinator.next_deadline_ms()) is not None and deadline <= shard.now_ms + 10:
        outcome = coordinator.expire(max(deadline, shard.now_ms))
        most = max(most, len(outcome.records))
        shard.obey(outcome)
        shard.now_ms += 1
    assert most == 1_000  # an offset and its group
    assert coordinator.classic.by_id == {}


def test_old_clients_are_given_an_id(shard: VirtualShard) -> None:
    answer = shard.beat("g", "", 0, topics=("a",))
    assert len(answer.member_id) == 22
    assert answer.member_epoch == 2


def test_metadata_records_of_kafka_4_0_are_removed(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    shard.obey(GroupDecision([OldMetadataRecord("g", exists=True)]))
    shard.restart()
    assert shard.coordinator.consumer.by_id["g"].has_old_metadata
    shard.topic("a", 7)
    rebalance(member, rounds=1)
    assert not shard.coordinator.consumer.by_id["g"].has_old_metadata
    assert OldMetadataRecord("g", exists=False) in shard.records()


def test_member_keeps_its_partitions_when_its_subscription_is_newer(shard: VirtualShard) -> None:
    """Compaction removes the subscription before the assignment: the assignment comes first then."""
    member = ConsumerMember(shard, "m", "a").join()
    shard.sleep(1_000)
    member.beat(rebalance_timeout_ms=77_000)
    held = shard.coordinator.consumer.by_id["g"].members["m"].current
    assert held.assigned
    fresh = shard.replayed(shard.compacted())
    group = fresh.consumer.by_id["g"]
    assert group.members["m"].current == held
    assert group.members["m"].subscription.rebalance_timeout_ms == 77_000
    assert set(group.owners.values()) == {"m"}
