"""The controller's figures of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.observability.cluster_metrics import (
    ACTIVE,
    BROKER_INFO,
    BROKERS,
    FENCED,
    IMBALANCE,
    OFFLINE,
    PARTITIONS,
    TOPIC_PARTITIONS,
    TOPICS,
    ClusterMetrics,
)
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic


def figures(*, is_active: bool) -> dict[str, float]:
    states = [PartitionState(leader, 5, (1, 2), (1, 2)) for leader in (1, 2, 2, NO_LEADER)]
    image = ClusterImage().with_brokers({1: Broker(1, 1, None, {}), 2: Broker(2, 1, None, {}, fenced=True)})
    image = image.with_topics([Topic("t", b"t" * 16, tuple(states))])
    elections = SimpleNamespace(unclean=0, elected=0)
    controller: Any = SimpleNamespace(is_active=is_active, image=image, elections=elections)
    families = [family for family in ClusterMetrics(controller, lambda: 1000).collect() if family is not None]
    return {family.metric.name: next(iter(family.samples))[2] for family in families if family.metric != BROKER_INFO}


def test_active_controller_counts_the_partitions_of_the_cluster() -> None:
    found = figures(is_active=True)
    expected = {ACTIVE: 1, TOPICS: 1, PARTITIONS: 4, OFFLINE: 1, IMBALANCE: 2, BROKERS: 1, FENCED: 1}
    assert {metric: found[metric.name] for metric in expected} == expected


def test_broker_that_is_not_the_controller_reports_zero() -> None:
    found = figures(is_active=False)
    assert [found[metric.name] for metric in (ACTIVE, TOPICS, PARTITIONS, OFFLINE, IMBALANCE, BROKERS)] == [0] * 6


def test_topics_have_series_up_to_the_limit() -> None:
    state = PartitionState(1, 5, (1,), (1,))
    image = ClusterImage().with_topics([Topic(name, name.encode() * 16, (state,)) for name in "abc"])
    controller: Any = SimpleNamespace(is_active=True, image=image, elections=SimpleNamespace(unclean=0, elected=0))
    families = [family for family in ClusterMetrics(controller, lambda: 2).collect() if family is not None]
    (series,) = (list(family.samples) for family in families if family.metric == TOPIC_PARTITIONS)
    assert len(series) == 2
    assert next(list(family.samples) for family in families if family.metric == TOPICS) == [("", "", 3)]
