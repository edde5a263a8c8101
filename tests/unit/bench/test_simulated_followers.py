"""A small cluster in virtual time: each broker learns of each change, after the network's latency."""

from __future__ import annotations

from bench.simulated_followers import simulate

PARTITIONS = 1_000


def test_brokers_learn_of_a_new_leader_and_of_a_fence() -> None:
    found = {figure.name: figure.value for figure in simulate(PARTITIONS, 3)}
    assert found["one new leader: records"] == 1
    assert found["a broker is fenced: records"] == 1 + PARTITIONS * 3 // 100
    for what in ("one new leader", "a broker is fenced"):
        first, last = found[f"{what}: the first broker knows after"], found[f"{what}: the last of 3 knows after"]
        assert 25 < first <= last, "controller.quorum.append.linger.ms and the latency are virtual time"
        assert found[f"{what}: processor of each broker"] > 0
