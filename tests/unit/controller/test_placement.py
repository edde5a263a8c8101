from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.placement import TooFewBrokers, place
from odradek.metadata.image import Broker
from odradek.ports.randomness import SeededRandom


def brokers(racks: list[str | None]) -> list[Broker]:
    return [Broker(i + 1, 0, rack, {}) for i, rack in enumerate(racks)]


def replicas_of(cluster: list[Broker], partitions: int, copies: int, random: SeededRandom) -> list[tuple[int, ...]]:
    return list(place(cluster, partitions, copies, random))


RACKS = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)


@given(RACKS, st.integers(1, 40), st.integers(1, 9), st.integers())
def test_replicas_are_distinct_and_spread_over_racks(
    racks: list[str | None], partitions: int, copies: int, seed: int
) -> None:
    copies = min(copies, len(racks))
    rack_of = {broker.id: broker.rack for broker in brokers(racks)}
    placed = replicas_of(brokers(racks), partitions, copies, SeededRandom(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == copies
        assert set(replicas) <= rack_of.keys()
        assert len({rack_of[broker] for broker in replicas}) == min(copies, len(set(racks)))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 9), st.integers())
def test_machine_gets_a_further_copy_only_when_the_others_are_full(sizes: list[int], copies: int, seed: int) -> None:
    """Machines are the racks of brokers that `serve --brokers N` starts; they may have different numbers of them."""
    cluster = brokers([f"machine-{number}" for number, size in enumerate(sizes) for _ in range(size)])
    copies = min(copies, len(cluster))
    room = Counter(broker.rack for broker in cluster)
    for replicas in replicas_of(cluster, 30, copies, SeededRandom(seed)):
        there = Counter(cluster[broker - 1].rack for broker in replicas)
        free = [there[machine] for machine in room if there[machine] < room[machine]]
        assert max(there.values()) <= min(free, default=copies) + 1


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4), st.integers())
def test_equal_racks_get_equal_shares(racks: int, each: int, rounds: int, copies: int, seed: int) -> None:
    cluster = brokers([str(i % racks) for i in range(racks * each)])
    copies = min(copies, len(cluster))
    placed = replicas_of(cluster, rounds * len(cluster), copies, SeededRandom(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert all(leaders[broker.id] == rounds for broker in cluster)
    by_rack = Counter(cluster[broker - 1].rack for replicas in placed for broker in replicas)
    if copies % racks == 0:
        assert len(set(by_rack.values())) == 1
    if racks == 1:
        shares = Counter(broker for replicas in placed for broker in replicas)
        assert set(shares.values()) == {rounds * copies}


def test_one_seed_one_placement() -> None:
    cluster = brokers(["a", "b", None, "a"])
    assert replicas_of(cluster, 9, 2, SeededRandom(3)) == replicas_of(cluster, 9, 2, SeededRandom(3))
    assert len({tuple(replicas_of(cluster, 9, 2, SeededRandom(seed))) for seed in range(20)}) > 1


def test_fenced_brokers_get_nothing() -> None:
    cluster = [broker._replace(fenced=broker.id == 2) for broker in brokers([None] * 3)]
    placed = replicas_of(cluster, 20, 2, SeededRandom(1))
    assert {broker for replicas in placed for broker in replicas} == {1, 3}
    with pytest.raises(TooFewBrokers, match="only 2 broker"):
        replicas_of(cluster, 1, 3, SeededRandom(1))
    with pytest.raises(TooFewBrokers, match="All brokers are currently fenced"):
        replicas_of([broker._replace(fenced=True) for broker in cluster], 1, 1, SeededRandom(1))
    with pytest.raises(TooFewBrokers, match="only 0 broker"):
        replicas_of([], 1, 1, SeededRandom(1))
