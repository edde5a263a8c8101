"""Which replicas are throttled, and when."""

from __future__ import annotations

from odradek.quotas.replication_quotas import FOLLOWER_REPLICAS, LEADER_REPLICAS, ReplicationQuota


def test_only_named_replicas_of_this_broker_are_covered() -> None:
    quota = ReplicationQuota(LEADER_REPLICAS, 1, 11, 1000)
    quota.set_topic("t", {LEADER_REPLICAS: "0:1,1:2, 2:1", FOLLOWER_REPLICAS: "1:1"})
    quota.set_topic("all", {LEADER_REPLICAS: "*"})
    quota.set_topic("other", {FOLLOWER_REPLICAS: "*"})
    assert [quota.covers("t", index) for index in range(3)] == [True, False, True]
    assert quota.covers("all", 99)
    assert not quota.covers("other", 0)
    quota.set_topic("all", {})
    assert not quota.covers("all", 99)


def test_active_only_with_a_rate_and_a_replica() -> None:
    quota = ReplicationQuota(FOLLOWER_REPLICAS, 1, 11, 1000)
    assert not quota.is_active
    quota.set_rate(1000)
    assert not quota.is_active
    quota.set_topic("t", {FOLLOWER_REPLICAS: "0:1"})
    assert quota.is_active


def test_the_rate_is_measured_over_the_windows() -> None:
    quota = ReplicationQuota(LEADER_REPLICAS, 1, 3, 1000)
    quota.set_rate(1000)
    quota.record(1000, 0)
    assert not quota.is_exceeded(0)
    quota.record(500, 100)
    assert quota.is_exceeded(100), "1,500 bytes in one window"
    assert not quota.is_exceeded(1600)
    assert not quota.is_exceeded(10_000)
