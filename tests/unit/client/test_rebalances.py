"""Timelines of groups: who joined, who left, why, and how long it took."""

from typing import Any

from odradek.client.admin import GroupDescription, GroupState, MemberDescription
from odradek.client.reports.rebalances import HISTORY, MAX_NAMES, Rebalance, Timeline
from odradek.records.topic_partition import TopicPartition


def member(name: str, *partitions: int, instance: str | None = None) -> MemberDescription:
    """A member whose client id is the part of its name before a dash."""
    places = [TopicPartition("t", each) for each in partitions]
    return MemberDescription(name, instance, name.split("-")[0], "/10.0.0.1", places)


def group(*members: MemberDescription, state: GroupState = GroupState.STABLE, **others: Any) -> GroupDescription:
    """A group of the classic protocol."""
    return GroupDescription("g", state, "consumer", others.pop("assignor", "range"), 1, list(members), **others)


def seen(*descriptions: GroupDescription) -> list[Rebalance]:
    """Rebalances of descriptions that are ten seconds apart."""
    timeline = Timeline()
    for at, each in enumerate(descriptions):
        timeline.observe(at * 10.0, each)
    return list(timeline.rebalances)


def test_unchanged_group_has_no_rebalance() -> None:
    assert seen(group(member("a", 0)), group(member("a", 0))) == []


def test_joined_member_is_named_with_its_host() -> None:
    (found,) = seen(group(member("a", 0, 1)), group(member("a", 0), member("b", 1)))
    assert (found.joined, found.left, found.moved_partitions, found.members) == (("b at 10.0.0.1",), (), 1, 2)
    assert found.reason == "1 joined"


def test_member_that_left_is_named() -> None:
    (found,) = seen(group(member("a", 0), member("b", 1)), group(member("a", 0, 1)))
    assert (found.left, found.reason) == (("b at 10.0.0.1",), "1 left or timed out")


def test_static_member_with_another_id_has_restarted() -> None:
    (found,) = seen(group(member("a-1", 0, instance="i")), group(member("a-2", 0, instance="i")))
    assert (found.restarted, found.joined, found.left) == (("a at 10.0.0.1",), (), ())
    assert (found.moved_partitions, found.reason) == (0, "1 restarted (static)")


def test_rebalance_between_descriptions_took_at_most_that_long() -> None:
    (found,) = seen(group(member("a", 0)), group(member("b", 0)))
    assert (found.at_s, found.duration_s, found.is_upper_bound) == (10.0, 10.0, True)


def test_rebalance_runs_until_the_group_is_stable() -> None:
    rebalancing = group(member("a"), member("b"), state=GroupState.PREPARING_REBALANCE)
    (running,) = seen(group(member("a", 0)), rebalancing, rebalancing)
    assert (running.at_s, running.duration_s, running.reason) == (10.0, None, "1 joined")
    (ended,) = seen(group(member("a", 0)), rebalancing, rebalancing, group(member("a", 0), member("b", 1)))
    assert (ended.at_s, ended.duration_s, ended.is_upper_bound) == (10.0, 20.0, False)
    assert ended.moved_partitions == 1


def test_member_that_came_and_went_in_a_rebalance_is_named() -> None:
    passing = group(member("a"), member("b"), state=GroupState.PREPARING_REBALANCE)
    (found,) = seen(group(member("a", 0)), passing, group(member("a", 0)))
    assert (found.joined, found.left, found.members) == (("b at 10.0.0.1",), ("b at 10.0.0.1",), 1)


def test_changed_assignor_is_a_reason() -> None:
    (found,) = seen(group(member("a", 0)), group(member("a", 1), assignor="sticky"))
    assert found.reason == "assignor changed from range to sticky"


def test_new_epoch_is_a_rebalance_though_members_stay() -> None:
    (found,) = seen(group(member("a", 0), epoch=3), group(member("a", 0), epoch=4))
    assert found.epoch == 4
    assert "subscriptions or partitions" in found.reason


def test_empty_group_loses_all_members() -> None:
    (found,) = seen(group(member("a", 0)), group(state=GroupState.EMPTY, assignor=""))
    assert (found.left, found.members, found.moved_partitions) == (("a at 10.0.0.1",), 0, 1)


def test_timeline_is_bounded() -> None:
    turns = [group(member(f"m{at}", 0)) for at in range(HISTORY + 5)]
    assert len(seen(*turns)) == HISTORY
    many = group(*[member(f"n{at:02}", at) for at in range(MAX_NAMES + 3)])
    (found,) = seen(group(), many)
    assert len(found.joined) == MAX_NAMES + 1
    assert found.joined[-1] == "and 3 more"
