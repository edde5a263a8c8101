"""Assignment strategies: Kafka's documented examples, and what must hold for any group."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.errors import ConfigError
from odradek.client.group.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    decode_sticky_data,
    encode_sticky_data,
    find_assignors,
    withhold_moving,
)
from odradek.client.group.racks import PartitionRacks
from odradek.client.group.sticky import assign_sticky
from odradek.client.group.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.records.topic_partition import TopicPartition

TOPICS = ["a", "b", "c"]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
wishes = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(7)]), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
names = st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"])


def parts(text: str) -> list[TopicPartition]:
    return [TopicPartition(each[:-1], int(each[-1])) for each in text.split()]


def check_complete(assignment: Assignment, counts: dict[str, int], members: dict[str, set[str]]) -> None:
    """Every partition that somebody wants is with exactly one member that wants it."""
    given_out = [each for partitions in assignment.values() for each in partitions]
    wanted = {t for topics in members.values() for t in topics}
    expected = [TopicPartition(t, n) for t, count in counts.items() if t in wanted for n in range(count)]
    assert sorted(given_out) == sorted(expected)
    assert all(each.topic in members[m] for m, partitions in assignment.items() for each in partitions)


def check_balanced(assignment: Assignment, members: dict[str, set[str]]) -> None:
    """No partition could go to a member with at least two fewer."""
    for partitions in assignment.values():
        for each in partitions:
            for other, topics in members.items():
                assert each.topic not in topics or len(assignment[other]) + 1 >= len(partitions)


@given(names, counts, wishes)
def test_each_partition_goes_to_one_subscriber(name: str, counts: dict[str, int], members: dict[str, set[str]]) -> None:
    assignor = find_assignors([name])[name]
    subscriptions = {m: MemberSubscription(sorted(topics)) for m, topics in members.items()}
    assignment = assignor.assign(counts, subscriptions)
    assert set(assignment) == set(members)
    check_complete(assignment, counts, members)
    if "sticky" in name:
        check_balanced(assignment, members)


@given(counts, wishes, wishes, st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12)))
def test_sticky_keeps_all_it_can(
    counts: dict[str, int], before: dict[str, set[str]], after: dict[str, set[str]], grown: dict[str, int]
) -> None:
    first = assign_sticky(counts, {m: sorted(t) for m, t in before.items()}, {})
    again = assign_sticky(counts, {m: sorted(t) for m, t in before.items()}, {m: (p, 1) for m, p in first.items()})
    assert again == first
    now = {t: max(n, grown.get(t, 0)) for t, n in counts.items()}
    claims = {m: (first.get(m, []), 1) for m in after}
    second = assign_sticky(now, {m: sorted(t) for m, t in after.items()}, claims)
    check_complete(second, now, after)
    check_balanced(second, after)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))
def test_sticky_moves_no_more_than_it_must(partitions: int, before: int, after: int) -> None:
    """With equal subscriptions, what a member keeps is its share or all that it had."""
    old = assign_sticky({"t": partitions}, {f"m{n}": ["t"] for n in range(before)}, {})
    members = {f"m{n}": ["t"] for n in range(after)}
    new = assign_sticky({"t": partitions}, members, {m: (old.get(m, []), 1) for m in members})
    for member_id in members:
        kept = len(set(new[member_id]) & set(old.get(member_id, [])))
        assert kept == min(len(new[member_id]), len(old.get(member_id, [])))


@given(counts, wishes, wishes)
def test_cooperative_rebalances_converge_without_overlap(
    counts: dict[str, int], before: dict[str, set[str]], after: dict[str, set[str]]
) -> None:
    """A partition is never given to a member while another still owns it, and two rounds suffice."""
    assignor = CooperativeStickyAssignor()
    owned: Assignment = assignor.assign(counts, {m: MemberSubscription(sorted(t)) for m, t in before.items()})
    generation = 1
    for _ in range(3):
        subscriptions = {
            m: MemberSubscription(sorted(t), [p for p in owned.get(m, []) if p.topic in t], generation)
            for m, t in after.items()
        }
        assigned = assignor.assign(counts, subscriptions)
        for member_id, partitions in assigned.items():
            for other, each in subscriptions.items():
                assert other == member_id or not set(partitions) & set(each.owned)
        owned, generation = assigned, generation + 1
    check_complete(owned, counts, after)
    check_balanced(owned, after)


def test_range_is_kafkas() -> None:
    members = {m: MemberSubscription(["t0", "t1"]) for m in ("C0", "C1")}
    assert RangeAssignor().assign({"t0": 3, "t1": 3}, members) == {
        "C0": parts("t00 t01 t10 t11"),
        "C1": parts("t02 t12"),
    }


def test_roundrobin_is_kafkas() -> None:
    members = {
        "C0": MemberSubscription(["t0"]),
        "C1": MemberSubscription(["t0", "t1"]),
        "C2": MemberSubscription(["t0", "t1", "t2"]),
    }
    assert RoundRobinAssignor().assign({"t0": 1, "t1": 2, "t2": 3}, members) == {
        "C0": parts("t00"),
        "C1": parts("t10"),
        "C2": parts("t11 t20 t21 t22"),
    }


def test_sticky_is_better_than_kafkas_round_robin_example() -> None:
    """KIP-54, example 2: with C0 gone, the others keep what they had."""
    members = {
        "C0": MemberSubscription(["t0"]),
        "C1": MemberSubscription(["t0", "t1"]),
        "C2": MemberSubscription(["t0", "t1", "t2"]),
    }
    counts = {"t0": 1, "t1": 2, "t2": 3}
    first = StickyAssignor().assign(counts, members)
    assert first == {"C0": parts("t00"), "C1": parts("t10 t11"), "C2": parts("t20 t21 t22")}
    left = {m: each._replace(user_data=encode_sticky_data(first[m], 1)) for m, each in members.items() if m != "C0"}
    assert StickyAssignor().assign(counts, left) == {"C1": parts("t00 t10 t11"), "C2": parts("t20 t21 t22")}


def test_static_members_come_first_by_instance_id() -> None:
    members = {
        "a": MemberSubscription(["t"]),
        "z": MemberSubscription(["t"], group_instance_id="i1"),
        "y": MemberSubscription(["t"], group_instance_id="i2"),
    }
    assigned = RangeAssignor().assign({"t": 3}, members)
    assert assigned == {"z": parts("t0"), "y": parts("t1"), "a": parts("t2")}


def test_claims_of_older_generations_lose_and_equal_ones_cancel() -> None:
    topics = {"a": ["t"], "b": ["t"]}
    newer = assign_sticky({"t": 2}, topics, {"a": (parts("t0"), 4), "b": (parts("t0 t1"), 5)})
    assert newer["b"] == parts("t0") or newer["b"] == parts("t1")
    cancelled = assign_sticky({"t": 1}, topics, {"a": (parts("t0"), 5), "b": (parts("t0"), 5)})
    assert sorted(len(each) for each in cancelled.values()) == [0, 1]


def test_moving_partitions_are_withheld() -> None:
    wanted = {"a": parts("t0 t1"), "b": parts("t2")}
    assert withhold_moving(wanted, {"b": (parts("t1 t2"), 1)}) == {"a": parts("t0"), "b": parts("t2")}


@pytest.mark.parametrize("returning", ["a", "z"])
def test_claim_of_an_older_generation_is_no_ownership(returning: str) -> None:
    """A member that was removed from the group claims what it owned before. The owner gives it up first."""
    members = {
        "m": MemberSubscription(["t"], parts("t0 t1 t2 t3"), 5),
        returning: MemberSubscription(["t"], parts("t3"), 4),
    }
    assigned = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert assigned == {"m": parts("t0 t1"), returning: []}


def test_partition_that_two_members_claim_is_given_up_by_both() -> None:
    wanted = {"a": parts("t0"), "b": parts("t1")}
    assert withhold_moving(wanted, {"a": (parts("t0"), 3), "b": (parts("t0 t1"), 3)}) == {"a": [], "b": parts("t1")}


def test_user_data_and_protocol_bytes() -> None:
    owned = parts("t0 t3 u1")
    data = encode_sticky_data(owned, 7)
    assert decode_sticky_data(data) == (owned, 7)
    assert decode_sticky_data(data[:-4]) == (owned, -1)
    assert decode_sticky_data(data[:9]) == ([], -1)
    assert decode_sticky_data(None) == ([], -1)
    # A name of -10 bytes: the partitions before it would be read again, as often as there are topics.
    assert decode_sticky_data(b"\0\0\0\2" + b"\0\1t" + b"\0\0\0\1" + bytes(4) + b"\xff\xf6") == ([], -1)
    assert decode_sticky_data(b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff" + bytes(4)) == ([], -1)
    # As Java writes it: version 1, one topic, no user data.
    java = bytes.fromhex("000100000001000174ffffffff00000000")
    assert decode_subscription(java).topics == ["t"]
    encoded = encode_subscription(["t", "u"], b"x", owned, 3, "r")
    decoded = decode_subscription(encoded, "i")
    assert decoded == MemberSubscription(["t", "u"], owned, 3, b"x", "i", "r")
    assert decode_assignment(encode_assignment(owned)) == owned
    assert decode_assignment(b"") == []
    assert decode_subscription(b"\x7f\xff" + encoded[2:]).owned == owned


def test_names_of_java_are_understood() -> None:
    found = find_assignors(["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range"])
    assert list(found) == ["cooperative-sticky", "range"]
    with pytest.raises(ConfigError):
        find_assignors(["random"])
    assert all(left != right for left, right in pairwise(found))


def in_racks(*racks: str) -> dict[str, MemberSubscription]:
    """Members C0, C1, ... of t, each in a rack."""
    return {f"C{i}": MemberSubscription(["t"], rack_id=rack) for i, rack in enumerate(racks)}


EACH_ELSEWHERE: PartitionRacks = {"t": [frozenset({rack}) for rack in "cab"]}
"""Three partitions of one replica each."""


@pytest.mark.parametrize("assignor", [RangeAssignor(), StickyAssignor(), CooperativeStickyAssignor()])
def test_members_get_partitions_of_their_racks(assignor: Assignor) -> None:
    assigned = assignor.assign({"t": 3}, in_racks("a", "b", "c"), EACH_ELSEWHERE)
    assert assigned == {"C0": parts("t1"), "C1": parts("t2"), "C2": parts("t0")}


@pytest.mark.parametrize("assignor", [RangeAssignor(), StickyAssignor(), CooperativeStickyAssignor()])
def test_racks_leave_the_assignment_balanced(assignor: Assignor) -> None:
    all_in_a: PartitionRacks = {"t": [frozenset("a")] * 3 + [frozenset("b")]}
    assigned = assignor.assign({"t": 4}, in_racks("a", "b"), all_in_a)
    assert [len(each) for each in assigned.values()] == [2, 2]
    assert TopicPartition("t", 3) in assigned["C1"]


def test_racks_do_not_matter_where_all_partitions_are_in_all_of_them() -> None:
    everywhere: PartitionRacks = {"t": [frozenset("abc")] * 3}
    assigned = RangeAssignor().assign({"t": 3}, in_racks("c", "b", "a"), everywhere)
    assert assigned == {"C0": parts("t0"), "C1": parts("t1"), "C2": parts("t2")}


def test_racks_of_no_member_do_not_matter() -> None:
    assigned = RangeAssignor().assign({"t": 3}, in_racks("x", "", "y"), EACH_ELSEWHERE)
    assert assigned == {"C0": parts("t0"), "C1": parts("t1"), "C2": parts("t2")}


def test_extra_partition_is_counted_once() -> None:
    """A member that has one more, by its rack, leaves the others their share."""
    racks: PartitionRacks = {"t": [frozenset(each) for each in "aabbb"]}
    assigned = RangeAssignor().assign({"t": 5}, in_racks("a", "c", "c"), racks)
    assert assigned == {"C0": parts("t0 t1"), "C1": parts("t2 t3"), "C2": parts("t4")}


def test_topics_of_the_same_shape_are_assigned_alike_within_racks() -> None:
    members = {f"C{i}": MemberSubscription(["t", "u"], rack_id=rack) for i, rack in enumerate("abc")}
    racks: PartitionRacks = {
        "t": [frozenset(each) for each in ("bc", "ac", "ab")],
        "u": [frozenset(each) for each in ("c", "a", "b")],
    }
    assigned = RangeAssignor().assign({"t": 3, "u": 3}, members, racks)
    assert assigned == {"C0": parts("t1 u1"), "C1": parts("t2 u2"), "C2": parts("t0 u0")}


def test_owned_partitions_move_to_members_of_their_racks() -> None:
    owned = {"C0": parts("t0"), "C1": parts("t1")}
    members = {m: each._replace(owned=owned[m], generation=1) for m, each in in_racks("a", "c").items()}
    assert StickyAssignor().assign({"t": 2}, members, EACH_ELSEWHERE) == {"C0": parts("t1"), "C1": parts("t0")}


def test_members_keep_partitions_that_no_other_member_is_near() -> None:
    owned = {"C0": parts("t0 t1"), "C1": parts("t2 t3")}
    members = {m: each._replace(owned=owned[m], generation=1) for m, each in in_racks("a", "b").items()}
    racks: PartitionRacks = {"t": [frozenset(each) for each in "xyaz"]}
    assigned = StickyAssignor().assign({"t": 4}, members, racks)
    assert assigned == {"C0": parts("t0 t2"), "C1": parts("t1 t3")}, "t2 is near C0, and one had to make room for it"


@given(
    counts,
    wishes,
    st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
    st.lists(st.sampled_from("abcx"), min_size=7, max_size=7),
    names,
)
def test_assignments_with_racks_are_complete_and_balanced(
    counts: dict[str, int], topics: dict[str, set[str]], of_partitions: list[str], of_members: list[str], name: str
) -> None:
    racks: PartitionRacks = {topic: [frozenset(each) for each in of_partitions] for topic in TOPICS}
    members = {m: MemberSubscription(sorted(t), rack_id=of_members[int(m[1:])]) for m, t in topics.items()}
    assigned = find_assignors([name])[name].assign(counts, members, racks)
    check_complete(assigned, counts, topics)
    if "sticky" in name:
        check_balanced(assigned, topics)
    again = {m: each._replace(owned=assigned[m], generation=1) for m, each in members.items()}
    if name == "cooperative-sticky":
        assert find_assignors([name])[name].assign(counts, again, racks) == assigned, "nothing moves to and fro"
