"""Details of groups that a client or an operator notices: first values, deadlines after failures, what stays put."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.classic.group import restore
from odradek.groups.classic.records import ClassicGroupRecord
from odradek.groups.consumer.assignors import MemberSpec, assign_uniform
from odradek.groups.consumer.membership import hash_of_topics
from odradek.groups.consumer.migration import by_id
from odradek.groups.consumer.records import MemberState, RegexRecord
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import (
    NOTHING,
    CommitRequest,
    ConsumerGroupDescription,
    Downgraded,
    FetchedOffset,
    GroupDescription,
    GroupStored,
    JoinRequest,
    JoinResult,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from odradek.groups.offsets.records import OffsetRecord, OffsetValue
from odradek.groups.settings import GroupSettings
from odradek.groups.subscriptions import read_assignment, read_subscription
from odradek.groups.timers import Timers
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode as E
from odradek.wire.primitives import DecodeError
from tests.unit.groups.consumer_member import ConsumerMember, rebalance
from tests.unit.groups.virtual_shard import RANGE, START_MS, VirtualShard

OTHER = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x05other\xff\xff\xff\xff"),)


@pytest.fixture
def shard() -> VirtualShard:
    made = VirtualShard()
    made.topic("a", 6)
    return made


# --- answers ---


def test_sync_is_answered_when_the_group_cannot_be_stored() -> None:
    """A rejected write is answered after a delay, in which a new group may complete its rebalance."""
    coordinator = GroupCoordinator(GroupSettings(initial_rebalance_delay_ms=0), SeededRandom(1))
    join = JoinRequest("g", "", None, "client", "/127.0.0.1", 10_000, 30_000, "consumer", RANGE)
    rejected = coordinator.join(START_MS, 1, join)
    assert isinstance(rejected.then, GroupStored)
    (_, first), *_ = rejected.now
    coordinator.join(START_MS, 2, join._replace(member_id=first.member_id))
    ((token, joined),) = coordinator.expire(START_MS).now
    assert (token, joined.error, joined.generation_id) == (2, E.NONE, 1)
    assignments = {joined.member_id: b"all"}
    coordinator.sync(START_MS, 3, SyncRequest("g", joined.member_id, None, 1, None, None, assignments))
    outcome = coordinator.stored(rejected.then, E.NOT_ENOUGH_REPLICAS, START_MS + 100)
    assert outcome.now == [(3, SyncResult(E.COORDINATOR_NOT_AVAILABLE))]


def test_unknown_groups_are_described_with_empty_values(shard: VirtualShard) -> None:
    found = shard.coordinator.describe_consumer_group("nowhere")
    assert found == ConsumerGroupDescription(E.GROUP_ID_NOT_FOUND, "nowhere", "", 0, 0, "", (), found.message)
    (described,) = shard.coordinator.describe_groups(["nowhere"])
    assert described == GroupDescription(described.error, "nowhere", "Dead", "", "", (), False)
    shard.stable_group(1)
    assert shard.coordinator.describe_groups(["g"])[0].is_other is False


def test_join_without_a_member_id_is_answered_with_the_id_only(shard: VirtualShard) -> None:
    answer = shard.answers[shard.join()]
    assert answer == JoinResult(E.MEMBER_ID_REQUIRED, answer.member_id, -1, None, None, "", False, ())


def test_offset_that_is_not_committed_has_no_offset_and_no_epoch(shard: VirtualShard) -> None:
    assert shard.coordinator.fetch_offsets("nowhere", [("a", [3])]) == [("a", [FetchedOffset(3, -1, -1, "")])]


def test_commit_with_the_first_generation_of_an_unknown_group_is_rejected(shard: VirtualShard) -> None:
    assert shard.commit("nowhere", "m", 0, ("a", 0, 1)) is E.ILLEGAL_GENERATION
    assert shard.commit("nowhere", "", -1, ("a", 0, 1)) == [E.NONE]


def test_member_of_a_classic_group_cannot_leave_by_consumer_heartbeat(shard: VirtualShard) -> None:
    (member,) = shard.stable_group(1)
    assert shard.beat("g", member, -1) is E.GROUP_ID_NOT_FOUND
    assert shard.beat("nowhere", member, -1) is E.GROUP_ID_NOT_FOUND
    assert shard.heartbeat("g", member, 1) is E.NONE


@pytest.mark.parametrize("version", [b"\x80\x01", b"\xff\xff"])
def test_negative_versions_of_subscriptions_are_malformed(version: bytes) -> None:
    """The rest could be read as the newest version."""
    with pytest.raises(DecodeError):
        read_subscription(version + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00" * 2 + b"\xff\xff")
    with pytest.raises(DecodeError):
        read_assignment(version + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff")


# --- what is stored ---


def test_group_whose_record_has_no_time_is_stored_without_one(shard: VirtualShard) -> None:
    shard.stable_group(1)
    value = shard.stored()._replace(state_timestamp_ms=-1)
    assert restore("g", value).record() == ClassicGroupRecord("g", value)


def test_offset_of_a_new_partition_has_no_epoch_and_no_expiry(shard: VirtualShard) -> None:
    topic_id = shard.topic("topic", 1)
    (member,) = shard.stable_group(1, protocols=RANGE)
    shard.commit("g", member, 1, ("topic", 0, 7))
    shard.topic("topic", 2)
    assert shard.records()[-1] == OffsetRecord("g", "topic", 1, OffsetValue(0, -1, "", shard.now_ms, -1, topic_id))


@pytest.mark.parametrize("fields", [{"protocols": OTHER}, {"protocol_type": "connect"}])
def test_new_partition_gets_no_offset_for_classic_members_of_other_topics(
    shard: VirtualShard, fields: dict[str, Any]
) -> None:
    shard.topic("topic", 1)
    (member,) = shard.stable_group(1, **fields)
    shard.commit("g", member, 1, ("topic", 0, 7))
    shard.topic("topic", 2)
    assert [shard.committed("g", "topic", partition) for partition in range(2)] == [7, -1]


def test_group_has_offsets_that_are_committed_or_pending(shard: VirtualShard) -> None:
    shard.commit("g", "", -1, ("a", 0, 1))
    request = CommitRequest("h", "", None, -1, [OffsetToCommit("a", 0, 1)])
    outcome = shard.coordinator.commit_offsets(shard.now_ms, shard.token(), request, transactional=True)
    shard.append_transactional(outcome, 100)
    offsets = shard.coordinator.offsets
    assert [offsets.has_group(group_id) for group_id in ("g", "h", "nowhere")] == [True, True, False]


def test_topics_that_do_not_exist_have_the_hash_0(shard: VirtualShard) -> None:
    assert hash_of_topics(shard.image, ["nowhere"]) == 0
    assert hash_of_topics(shard.image, ["a", "nowhere"]) == hash_of_topics(shard.image, ["a"]) != 0


def test_partitions_by_id_leave_out_unknown_topics_and_empty_ones(shard: VirtualShard) -> None:
    partitions = {"a": frozenset[int](), "nowhere": frozenset({1})}
    assert by_id(partitions, shard.image) == {}


# --- deadlines ---


def test_first_look_for_expired_offsets_comes_after_the_interval() -> None:
    shard = VirtualShard(offsets_retention_check_interval_ms=5_000)
    assert shard.coordinator.next_deadline_ms() == START_MS + 5_000


def test_sessions_of_classic_groups_that_end_together_are_one_decision() -> None:
    shard = VirtualShard(initial_rebalance_delay_ms=0)
    for group_id in ("g", "h"):
        shard.stable_group(1, group_id)
    shard.now_ms += 10_000
    outcome = shard.coordinator.expire(shard.now_ms)
    assert sorted(record.group_id for record in outcome.records) == ["g", "h"]


def test_sessions_of_consumer_groups_end_one_at_a_time(shard: VirtualShard) -> None:
    """The next one is made when the records of the one before are replayed."""
    for group_id in ("g", "h"):
        ConsumerMember(shard, "m", "a", group_id=group_id).join()
    shard.now_ms += shard.settings.consumer_session_timeout_ms
    for group_id in ("g", "h"):
        outcome = shard.coordinator.expire(shard.now_ms)
        assert {record.group_id for record in outcome.records} == {group_id}
        shard.obey(outcome)


def test_late_heartbeat_is_served_before_an_overdue_session_ends(shard: VirtualShard) -> None:
    """The process stood still for two sessions, and reads the request first."""
    member = ConsumerMember(shard, "m", "a").join()
    shard.now_ms += 2 * shard.settings.consumer_session_timeout_ms
    member.beat()
    shard.sleep(shard.settings.consumer_session_timeout_ms - 1)
    assert list(shard.coordinator.consumer.by_id["g"].members) == ["m"]
    shard.sleep(1)
    assert not shard.coordinator.consumer.by_id["g"].members


def test_session_begins_again_with_the_answer_to_sync_group() -> None:
    shard = VirtualShard(initial_rebalance_delay_ms=0)
    leader, follower = shard.stable_group(2)
    for member in (leader, follower):
        shard.join("g", member)
    waiting = shard.sync("g", follower, 2)
    shard.sleep(8_000)
    shard.sync("g", leader, 2, {follower: b"all"})
    assert shard.answers[waiting].assignment == b"all"
    shard.sleep(8_000)
    assert set(shard.coordinator.classic.by_id["g"].members) == {leader, follower}
    shard.sleep(2_000)
    assert not shard.coordinator.classic.by_id["g"].members


def test_session_of_a_static_member_stands_when_its_new_id_is_not_stored() -> None:
    shard = VirtualShard()
    first = shard.join(instance="one")
    shard.run_until("CompletingRebalance")
    old_id = shard.answers[first].member_id
    shard.sync("g", old_id, 1, instance="one")
    shard.refuse = E.NOT_ENOUGH_REPLICAS
    shard.join(instance="one")
    shard.refuse = None
    shard.check()
    assert list(shard.coordinator.classic.by_id["g"].members) == [old_id]
    shard.sleep(10_000)
    assert shard.state() == "Empty"


def test_time_for_a_revocation_begins_again_when_a_group_is_loaded(shard: VirtualShard) -> None:
    ConsumerMember(shard, "m1", "a").join()
    shard.sleep(1_000)
    ConsumerMember(shard, "m2", "a").join()
    shard.beat("g", "m1", 2)
    assert shard.coordinator.consumer.by_id["g"].members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    shard.sleep(40_000)
    shard.restart()
    assert shard.coordinator._timers.deadline_of(("revocation", "g", "m1")) == shard.now_ms + 60_000


def test_changed_settings_hold_for_the_next_heartbeat(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    shard.coordinator.configure(GroupSettings(consumer_session_timeout_ms=60_000))
    member.beat()
    assert shard.coordinator._timers.deadline_of(("member", "g", "m")) == shard.now_ms + 60_000


def test_heap_of_deadlines_is_rebuilt_when_few_of_many_stand() -> None:
    timers = Timers()
    for number in range(65):
        assert len(timers._heap) == number
        timers.schedule(("moved",), 1_000 - number)
    assert len(timers._heap) == 1
    timers = Timers()
    for number in range(100):
        timers.schedule((str(number),), number)
    for number in range(75):
        timers.cancel((str(number),))
    assert len(timers._heap) == 100
    timers.cancel(("75",))
    assert len(timers._heap) == 24


# --- rebalances ---


def test_no_leader_is_elected_while_no_member_has_joined(shard: VirtualShard) -> None:
    leader, _ = shard.stable_group(2)
    group = shard.coordinator.classic.by_id["g"]
    assert (group.elect_joined_leader(), group.leader) == (False, leader)


def test_downgrade_of_a_group_that_is_gone_or_rebalances_changes_nothing(shard: VirtualShard) -> None:
    (member,) = shard.stable_group(1)
    shard.joined_with_id()
    group = shard.coordinator.classic.by_id["g"]
    before = dict(group.supported)
    for group_id in ("g", "nowhere"):
        then = Downgraded(group_id, {member: (("sticky", b""),)}, rebalance=True)
        assert shard.coordinator.classic.rebalances.downgraded(shard.now_ms, then) == NOTHING
    assert (shard.state(), group.supported) == ("PreparingRebalance", before)


# --- assignors ---


@pytest.mark.parametrize(
    ("kept", "expected"),
    [({0}, {"a": {0, 2}, "b": {1, 3}}), ({0, 1}, {"a": {0, 1}, "b": {2, 3}}), ({3}, {"a": {1, 3}, "b": {0, 2}})],
)
def test_free_partitions_go_to_the_smallest_and_others_stay(kept: set[int], expected: dict[str, set[int]]) -> None:
    shared, other = b"s" * 16, b"o" * 16
    members = [
        MemberSpec("a", None, frozenset({shared}), {shared: frozenset(kept)}),
        MemberSpec("b", None, frozenset({shared}), {}),
        MemberSpec("c", None, frozenset({other}), {}),
    ]
    found = assign_uniform(members, {shared: 4, other: 1})
    assert {name: found[name][shared] for name in ("a", "b")} == expected


def test_partitions_that_are_gone_do_not_count_as_kept() -> None:
    """The member with more of what still exists keeps one more."""
    topic = b"t" * 16
    members = [
        MemberSpec("a", None, frozenset({topic}), {topic: frozenset({0, 3})}),
        MemberSpec("b", None, frozenset({topic}), {topic: frozenset({1, 2})}),
    ]
    assert assign_uniform(members, {topic: 3}) == {"a": {topic: {0}}, "b": {topic: {1, 2}}}


# --- patterns ---


def patterns_of(shard: VirtualShard) -> list[RegexRecord]:
    return [record for record in shard.records() if isinstance(record, RegexRecord)]


def joined_by_pattern_and_name(shard: VirtualShard) -> tuple[ConsumerMember, ConsumerMember]:
    by_pattern = ConsumerMember(shard, "m1", regex="a.*").join()
    by_name = ConsumerMember(shard, "m2", "a", "ab").join()
    rebalance(by_pattern, by_name)
    return by_pattern, by_name


def test_topic_reaches_a_pattern_after_an_epoch_of_another_member(shard: VirtualShard) -> None:
    """The other member has the topic by name, and its heartbeat matches no patterns."""
    by_pattern, by_name = joined_by_pattern_and_name(shard)
    shard.topic("ab", 2)
    by_name.beat(may_see=None)
    epoch = shard.coordinator.consumer.by_id["g"].epoch
    by_pattern.beat()
    group = shard.coordinator.consumer.by_id["g"]
    assert (group.topics_of(group.members["m1"]), group.epoch) == ({"a", "ab"}, epoch + 1)
    by_name.leave()
    rebalance(by_pattern)
    assert by_pattern.has("ab") == [0, 1]


def test_topic_reaches_a_pattern_after_another_member_left(shard: VirtualShard) -> None:
    """A departure begins an epoch without a look at patterns."""
    by_pattern, by_name = joined_by_pattern_and_name(shard)
    shard.topic("ab", 2)
    by_name.leave()
    rebalance(by_pattern)
    assert by_pattern.has("ab") == [0, 1]
    assert "g" not in shard.coordinator.consumer._members.stale


def test_no_group_is_looked_at_again_when_its_last_pattern_is_gone(shard: VirtualShard) -> None:
    by_pattern, by_name = joined_by_pattern_and_name(shard)
    shard.topic("ab", 2)
    by_name.leave()
    assert "g" in shard.coordinator.consumer._members.stale
    by_pattern.leave()
    assert "g" not in shard.coordinator.consumer._members.stale


def test_pattern_is_matched_once_after_a_change_of_topics(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", regex="a.*").join()
    memberships = shard.coordinator.consumer._members
    stored = len(patterns_of(shard))
    shard.topic("other", 1)
    assert "g" in memberships.stale
    member.beat(may_see=None)
    assert "g" in memberships.stale
    member.beat()
    assert "g" not in memberships.stale
    assert len(patterns_of(shard)) == stored == 1


def test_group_without_patterns_looks_at_its_topics_once(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "a").join()
    shard.restart()
    assert "g" in shard.coordinator.consumer._members.stale
    member.beat(may_see=None)
    assert "g" not in shard.coordinator.consumer._members.stale
