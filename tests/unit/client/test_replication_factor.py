"""Plans that change the number of replicas of partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.reports.balance_plan import Replica
from odradek.client.reports.replication_factor import with_factor
from odradek.records.topic_partition import TopicPartition

PLACE = TopicPartition("t", 0)


def after(replicas: tuple[int, ...], racks: dict[int, str | None], factor: int, **others: int) -> tuple[int, ...]:
    """Replicas of a partition after the plan; `others` are bytes on broker N by the name `bN`."""
    partitions = {PLACE: Replica(replicas, 10)}
    for name, size in others.items():
        partitions[TopicPartition(name, 0)] = Replica((int(name[1:]),), size)
    found = with_factor(partitions, [PLACE], racks, factor)
    return found[0].after if found else replicas


def test_new_replica_goes_to_another_rack() -> None:
    assert after((1,), {1: "a", 2: "a", 3: "b"}, 2, b3=1000) == (1, 3)


def test_new_replica_goes_to_the_emptiest_broker() -> None:
    assert after((1,), {1: None, 2: None, 3: None}, 2, b2=1000) == (1, 3)


def test_replica_of_a_dead_broker_is_removed_first() -> None:
    assert after((9, 1, 2), {1: None, 2: None, 3: None}, 2) == (1, 2)


def test_replica_in_a_crowded_rack_is_removed_first() -> None:
    assert after((1, 2, 3), {1: "a", 2: "a", 3: "b"}, 2, b3=1000) == (1, 3)


def test_replica_of_the_fullest_broker_is_removed() -> None:
    assert after((1, 2, 3), {1: None, 2: None, 3: None}, 2, b1=9000, b2=1000) == (1, 3)


def test_partition_with_that_number_is_left() -> None:
    assert with_factor({PLACE: Replica((2, 1), 5)}, [PLACE], {1: None, 2: None}, 2) == []


def test_moved_bytes_are_those_of_new_replicas() -> None:
    (proposal,) = with_factor({PLACE: Replica((1,), 7)}, [PLACE], {1: None, 2: None, 3: None}, 3)
    assert proposal.moved_bytes == 14


@pytest.mark.parametrize("factor", [0, 3])
def test_number_that_brokers_cannot_hold_is_rejected(factor: int) -> None:
    with pytest.raises(ValueError, match="live brokers"):
        with_factor({PLACE: Replica((1,), 0)}, [PLACE], {1: None, 2: None}, factor)


@given(
    st.lists(st.tuples(st.permutations(range(6)), st.integers(1, 5), st.integers(0, 10**9)), min_size=1, max_size=20),
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=6, max_size=6),
    st.integers(1, 6),
)
def test_plan_has_distinct_live_brokers_and_keeps_leaders(
    given_partitions: list[tuple[list[int], int, int]], names: list[str | None], factor: int
) -> None:
    racks = dict(enumerate(names))
    partitions = {
        TopicPartition("t", i): Replica(tuple(brokers[:count]), size)
        for i, (brokers, count, size) in enumerate(given_partitions)
    }
    for each in with_factor(partitions, list(partitions), racks, factor):
        assert len(set(each.after)) == len(each.after) == factor
        assert each.after[0] == each.before[0]
        assert set(each.after) <= set(each.before) or set(each.before) <= set(each.after)
