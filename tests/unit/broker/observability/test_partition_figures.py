"""The figures of partitions, exactly: what this broker leads, follows and lacks, and each series of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability import partition_metrics as figures
from odradek.broker.observability.partition_metrics import PartitionMetrics
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metrics.definition import Metric
from odradek.metrics.invariants import InvariantCounters

NODE = 1
HEALTHY = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))


def replica(end_offset: int, *, start: int = 0, watermark: int | None = None, followers: Mapping[int, int]) -> Any:
    log = SimpleNamespace(
        end_offset=end_offset, log_start_offset=start, size_bytes=10 * end_offset, segments=[1, 2], is_offline=False
    )
    progress = {node: SimpleNamespace(end_offset=end) for node, end in followers.items()}
    return SimpleNamespace(
        high_watermark=end_offset if watermark is None else watermark,
        log=log,
        topic="t",
        index=0,
        is_leader=True,
        followers=SimpleNamespace(progress=progress),
    )


def collected(
    *states: PartitionState,
    replicas: Mapping[int, Any] = {},
    min_isr: int = 2,
    detail: str = "all",
    offline: tuple[int, ...] = (),
    stored: Mapping[int, int] = {},
) -> dict[Metric, dict[str, float]]:
    """The samples of the partitions of topic t; `stored` are the high watermarks that directories know."""
    image = ClusterImage().with_topics([Topic("t", bytes(16), states)])
    partitions: Any = SimpleNamespace(
        settings_of=lambda _name: SimpleNamespace(min_insync_replicas=min_isr),
        opened_partition=lambda _name, index: replicas.get(index),
        invariants=InvariantCounters(),
    )
    directories: Any = SimpleNamespace(
        is_offline=lambda _name, index: index in offline, high_watermark=lambda _name, index: stored.get(index)
    )
    metrics = PartitionMetrics(NODE, lambda: image, partitions, directories, lambda: detail, lambda: 10)
    families = [family for family in metrics.collect() if family is not None]
    assert {family.metric for family in families} == set(metrics.metrics)
    return {family.metric: {labels: value for _, labels, value in family.samples} for family in families}


def total(found: dict[Metric, dict[str, float]], metric: Metric) -> float:
    return found[metric][""]


@pytest.mark.parametrize(
    ("state", "lacks", "below", "at"),
    [
        (HEALTHY, 0, 0, 0),
        (HEALTHY._replace(isr=(1, 2)), 1, 0, 1),
        (HEALTHY._replace(isr=(1,)), 1, 1, 0),
        (PartitionState(1, 0, (1, 2), (1, 2)), 0, 0, 0),
        (PartitionState(1, 0, (1,), (1,)), 0, 0, 0),
        (PartitionState(1, 0, (1,), ()), 1, 1, 0),
    ],
)
def test_isr_of_a_led_partition_is_compared(state: PartitionState, lacks: int, below: int, at: int) -> None:
    found = collected(state)
    sums = [total(found, each) for each in (figures.UNDER_REPLICATED, figures.UNDER_MIN_ISR, figures.AT_MIN_ISR)]
    assert sums == [lacks, below, at]
    own = 'topic="t",partition="0"'
    series = (figures.PARTITION_LACKS, figures.EXPORTED_LACKS, figures.MIN_ISR_LACKS, figures.AT_MIN)
    assert [found[each][own] for each in series] == [lacks, lacks, below, at]
    assert found[figures.IN_SYNC] == {own: len(state.isr)}
    assert found[figures.REPLICAS] == found[figures.REPLICAS_COUNT] == {own: len(state.replicas)}


def test_least_isr_of_a_topic_without_settings_is_one() -> None:
    found = collected(HEALTHY._replace(isr=(1,)), min_isr=1)
    assert (total(found, figures.UNDER_MIN_ISR), total(found, figures.AT_MIN_ISR)) == (0, 1)


def test_figures_of_leaders_and_followers_are_counted_apart() -> None:
    led, followed = HEALTHY, PartitionState(2, 0, (2, 1), (2,))
    foreign = PartitionState(2, 0, (2, 3), (2,))
    moving = HEALTHY._replace(replicas=(2, 1, 3), adding_replicas=(3,))
    leaving = HEALTHY._replace(removing_replicas=(3,))
    found = collected(led, followed, foreign, moving, leaving, offline=(1, 2))
    assert total(found, figures.LEADER_COUNT) == 3
    assert total(found, figures.PARTITION_COUNT) == 4
    assert total(found, figures.REASSIGNING) == 2
    assert total(found, figures.OFFLINE_REPLICAS) == 1, "a partition without a replica here has none that is offline"
    assert total(found, figures.UNDER_REPLICATED) == 0, "its leader counts a partition that lacks replicas"
    assert found[figures.LEADER] == {f'topic="t",partition="{index}"': 1 for index in (0, 3, 4)}
    preferred = found[figures.PREFERRED]
    assert list(preferred.values()) == [1, 0, 1]


def test_lag_is_that_of_the_slowest_follower_of_any_partition() -> None:
    replicas = {
        0: replica(100, followers={2: 90, 3: 95}),
        1: replica(50, followers={2: -1, 3: 50}),
        2: replica(500, followers={}),
        3: replica(7, followers={2: 7}),
    }
    assert total(collected(*[HEALTHY] * 4, replicas=replicas), figures.REPLICA_LAG) == 50
    assert total(collected(HEALTHY, replicas={0: replica(100, followers={2: 90, 3: 95})}), figures.REPLICA_LAG) == 10
    assert total(collected(*[HEALTHY] * 4), figures.REPLICA_LAG) == 0


def test_open_logs_have_sizes_and_offsets() -> None:
    followed = PartitionState(2, 0, (2, 1), (2, 1))
    replicas = {
        0: replica(9, start=3, watermark=8, followers={}),
        1: replica(5, start=1, watermark=4, followers={}),
    }
    found = collected(HEALTHY, followed, HEALTHY, HEALTHY, replicas=replicas, stored={2: 6})
    first, second, third = (f'topic="t",partition="{index}"' for index in range(3))
    assert found[figures.LOG_SIZE] == {first: 90, second: 50}
    assert found[figures.LOG_START] == {first: 3, second: 1}
    assert found[figures.LOG_END] == {first: 9, second: 5}
    assert found[figures.LOG_SEGMENTS] == {first: 2, second: 2}
    assert found[figures.CURRENT_OFFSET] == {first: 8, third: 6}, "none where no high watermark is known"
    assert found[figures.OLDEST_OFFSET] == {first: 3}
    assert list(found[figures.IN_SYNC]) == [first, third, 'topic="t",partition="3"']


def test_high_watermark_zero_has_a_series() -> None:
    found = collected(HEALTHY, stored={0: 0})
    assert list(found[figures.CURRENT_OFFSET].values()) == [0]


def test_scrape_of_many_partitions_pauses_between_steps() -> None:
    image = ClusterImage().with_topics([Topic("t", bytes(16), (HEALTHY,) * 70)])
    partitions: Any = SimpleNamespace(
        settings_of=lambda _name: None, opened_partition=lambda *_: None, invariants=InvariantCounters()
    )
    directories: Any = SimpleNamespace(is_offline=lambda *_: False, high_watermark=lambda *_: None)
    metrics = PartitionMetrics(NODE, lambda: image, partitions, directories, lambda: "none", lambda: 0)
    assert sum(family is None for family in metrics.collect()) == 2
