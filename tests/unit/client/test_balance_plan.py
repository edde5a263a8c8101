from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.reports.balance_plan import Proposal, Replica, applied, loads, propose
from odradek.records.topic_partition import TopicPartition


def partitions(*entries: tuple[tuple[int, ...], int]) -> dict[TopicPartition, Replica]:
    return {TopicPartition("t", index): Replica(brokers, size) for index, (brokers, size) in enumerate(entries)}


def moves(proposals: list[Proposal]) -> dict[int, tuple[int, ...]]:
    return {each.place.partition: each.after for each in proposals}


def test_a_balanced_cluster_is_left_alone() -> None:
    known = partitions(((1, 2), 10), ((2, 3), 10), ((3, 1), 10))
    assert propose(known, dict.fromkeys((1, 2, 3))) == []


def test_the_fullest_gives_to_the_emptiest() -> None:
    known = partitions(*[((1,), 100)] * 4)
    proposals = propose(known, dict.fromkeys((1, 2)))
    assert {broker: load[0] for broker, load in loads(applied(known, proposals), (1, 2)).items()} == {1: 200, 2: 200}
    assert all(each.moved_bytes == 100 for each in proposals)


def test_leadership_moves_without_data() -> None:
    known = partitions(*[((1, 2), 10)] * 4)
    proposals = propose(known, dict.fromkeys((1, 2)))
    assert {each.moved_bytes for each in proposals} == {0}
    assert Counter(replicas.replicas[0] for replicas in applied(known, proposals).values()) == {1: 2, 2: 2}


def test_racks_stay_spread() -> None:
    known = partitions(*[((1, 3), 100)] * 6)
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for each in applied(known, propose(known, racks)).values():
        assert {racks[broker] for broker in each.replicas} == {"a", "b"}


def test_a_broker_is_emptied() -> None:
    known = partitions(((1, 2), 10), ((2, 3), 20), ((3, 1), 30))
    after = applied(known, propose(known, dict.fromkeys((1, 2, 3)), leaving=(2,)))
    assert all(2 not in each.replicas and len(set(each.replicas)) == 2 for each in after.values())
    with pytest.raises(ValueError, match="t-2 has no broker to go to from 1"):
        propose(known, dict.fromkeys((1, 2, 3)), leaving=(1, 2))


@given(
    st.lists(st.tuples(st.permutations((1, 2, 3, 4, 5)), st.integers(1, 4), st.integers(0, 10**6)), max_size=30),
    st.sets(st.integers(1, 5), max_size=1),
)
def test_any_plan_keeps_copies_apart_and_evens_out(
    entries: list[tuple[list[int], int, int]], leaving: set[int]
) -> None:
    known = partitions(*((tuple(brokers[:copies]), size) for brokers, copies, size in entries))
    racks = dict.fromkeys((1, 2, 3, 4, 5))
    after = applied(known, propose(known, racks, leaving=leaving))
    for place, each in known.items():
        now = after[place].replicas
        assert len(set(now)) == len(each.replicas)
        assert not leaving.intersection(now)
    if not leaving:
        before_spread, after_spread = (max(load[0] for load in loads(each, racks).values()) for each in (known, after))
        assert after_spread <= before_spread
