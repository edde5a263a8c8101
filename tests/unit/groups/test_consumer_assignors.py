"""The server's assignors: everything is assigned once, evenly, and little moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.consumer.assignors import ASSIGNORS, Assignments, MemberSpec, assign_range, assign_uniform

TOPICS = [bytes([n]) * 16 for n in range(1, 6)]
Partitions = dict[bytes, int]


def spec(name: str, topics: frozenset[bytes], instance: str | None = None, target: object = None) -> MemberSpec:
    return MemberSpec(name, instance, topics, target or {})  # type: ignore[arg-type]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None) -> tuple[list[MemberSpec], Partitions]:
    partitions = {topic: draw(st.integers(1, 12)) for topic in TOPICS}
    count = draw(st.integers(1, 9))
    same = draw(st.booleans()) if alike is None else alike
    subset = st.frozensets(st.sampled_from(TOPICS))
    shared = draw(subset)
    members = [
        spec(f"m{n}", shared if same else draw(subset), draw(st.sampled_from([None, f"i{n}"]))) for n in range(count)
    ]
    return members, partitions


def counts(found: Assignments) -> dict[str, int]:
    return {name: sum(map(len, mine.values())) for name, mine in found.items()}


def check_complete(members: list[MemberSpec], partitions: Partitions, found: Assignments) -> None:
    assert found.keys() == {member.member_id for member in members}
    by_id = {member.member_id: member for member in members}
    seen: set[tuple[bytes, int]] = set()
    for name, mine in found.items():
        for topic_id, wanted in mine.items():
            assert wanted
            assert topic_id in by_id[name].topics
            for partition in wanted:
                assert 0 <= partition < partitions[topic_id]
                assert (topic_id, partition) not in seen
                seen.add((topic_id, partition))
    subscribed = frozenset[bytes]().union(*(member.topics for member in members))
    assert seen == {(t, p) for t in subscribed for p in range(partitions[t])}


def check_even(members: list[MemberSpec], found: Assignments) -> None:
    """No member has two more than another that could take one of them."""
    sizes = counts(found)
    for giver in members:
        for taker in members:
            if sizes[giver.member_id] - sizes[taker.member_id] >= 2:
                assert not found[giver.member_id].keys() & taker.topics


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_everything_is_assigned_once(name: str, group: tuple[list[MemberSpec], Partitions]) -> None:
    members, partitions = group
    found = ASSIGNORS[name](members, partitions)
    check_complete(members, partitions, found)
    assert ASSIGNORS[name](list(reversed(members)), partitions) == found


@given(groups())
def test_uniform_is_even(group: tuple[list[MemberSpec], Partitions]) -> None:
    members, partitions = group
    check_even(members, assign_uniform(members, partitions))


@given(groups(alike=True))
def test_alike_members_differ_by_one(group: tuple[list[MemberSpec], Partitions]) -> None:
    sizes = counts(assign_uniform(*group)).values()
    assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_a_balanced_target_stays(group: tuple[list[MemberSpec], Partitions]) -> None:
    members, partitions = group
    for assign in ASSIGNORS.values():
        found = assign(members, partitions)
        again = [member._replace(target=found[member.member_id]) for member in members]
        assert assign(again, partitions) == found


@given(groups(alike=True), st.integers(0, 8))
def test_only_partitions_of_a_leaving_member_move(group: tuple[list[MemberSpec], Partitions], nth: int) -> None:
    members, partitions = group
    if len(members) < 2:
        return
    found = assign_uniform(members, partitions)
    gone = members[nth % len(members)]
    rest = [m._replace(target=found[m.member_id]) for m in members if m is not gone]
    after = assign_uniform(rest, partitions)
    check_complete(rest, partitions, after)
    for member in rest:
        for topic_id, had in found[member.member_id].items():
            assert had <= after[member.member_id][topic_id]


@given(groups(alike=True))
def test_only_partitions_for_a_joining_member_move(group: tuple[list[MemberSpec], Partitions]) -> None:
    members, partitions = group
    found = assign_uniform(members, partitions)
    more = [m._replace(target=found[m.member_id]) for m in members] + [spec("new", members[0].topics)]
    after = assign_uniform(more, partitions)
    check_complete(more, partitions, after)
    lost = sum(len(had - after[n].get(t, frozenset())) for n, mine in found.items() for t, had in mine.items())
    assert lost == counts(after)["new"]


@given(groups())
def test_targets_of_a_wrong_past_do_no_harm(group: tuple[list[MemberSpec], Partitions]) -> None:
    """Two members may have been meant for the same partition, or for one that is gone."""
    members, partitions = group
    past = {topic: frozenset(range(20)) for topic in TOPICS}
    for assign in ASSIGNORS.values():
        confused = [member._replace(target=past) for member in members]
        found = assign(confused, partitions)
        check_complete(members, partitions, found)
    check_even(members, assign_uniform([m._replace(target=past) for m in members], partitions))


def test_range_gives_runs_and_static_members_come_first() -> None:
    topics = frozenset(TOPICS[:2])
    members = [spec("a", topics), spec("b", topics, "i2"), spec("c", topics, "i1")]
    found = assign_range(members, {TOPICS[0]: 5, TOPICS[1]: 2})
    assert found["c"] == {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({0})}
    assert found["b"] == {TOPICS[0]: frozenset({2, 3}), TOPICS[1]: frozenset({1})}
    assert found["a"] == {TOPICS[0]: frozenset({4})}


@given(groups())
def test_range_is_even_within_each_topic(group: tuple[list[MemberSpec], Partitions]) -> None:
    members, partitions = group
    found = assign_range(members, partitions)
    for topic in TOPICS:
        sizes = [len(found[m.member_id].get(topic, ())) for m in members if topic in m.topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_partitions_stay_where_they_were_when_subscriptions_differ() -> None:
    a, b, u = b"a" * 16, b"b" * 16, b"u" * 16
    members = [
        MemberSpec("m", None, frozenset({a, u}), {a: frozenset({0, 3})}),
        MemberSpec("n", None, frozenset({a}), {a: frozenset({1, 2}), b: frozenset({0})}),
    ]
    found = ASSIGNORS["uniform"](members, {a: 4, b: 1, u: 0})
    assert found == {"m": {a: {0, 3}}, "n": {a: {1, 2}}}
