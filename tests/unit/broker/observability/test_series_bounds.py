"""The settings that bound the series of a scrape, and what the bounds leave whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability.group_metrics import GROUPS, LAG, MEMBERS, GroupMetrics
from odradek.broker.observability.partition_metrics import (
    CURRENT_OFFSET,
    INVARIANTS,
    LEADER_COUNT,
    LOG_END,
    PARTITION_COUNT,
    PartitionMetrics,
)
from odradek.broker.observability.topic_metrics import BY_SLOT, TopicMetrics
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metrics.definition import Collector, Metric
from odradek.metrics.invariants import Invariant, InvariantCounters
from odradek.metrics.traffic import BrokerTraffic

NODE, OTHER = 1, 2


def scraped(collector: Collector) -> dict[Metric, list[tuple[str, float]]]:
    """(labels, value) of every family."""
    found = (family for family in collector.collect() if family is not None)
    return {family.metric: [(labels, value) for _, labels, value in family.samples] for family in found}


def replica(end_offset: int) -> Any:
    log = SimpleNamespace(end_offset=end_offset, log_start_offset=0, size_bytes=1, segments=[1], is_offline=False)
    return SimpleNamespace(
        high_watermark=end_offset,
        log=log,
        topic="t",
        index=0,
        is_leader=True,
        followers=SimpleNamespace(progress={}),
    )


def partition_metrics(detail: str, most_topics: int = 1000) -> PartitionMetrics:
    """Of topics a, b and c, whose partition 0 this broker leads and whose partition 1 it follows."""
    states = (PartitionState(NODE, 0, (NODE, OTHER), (NODE, OTHER)), PartitionState(OTHER, 0, (NODE, OTHER), (NODE,)))
    image = ClusterImage().with_topics([Topic(name, name.encode() * 16, states) for name in "abc"])
    replicas: Any = SimpleNamespace(
        settings_of=lambda _name: None,
        opened_partition=lambda _name, index: replica(7 + index),
        invariants=InvariantCounters(),
    )
    directories: Any = SimpleNamespace(is_offline=lambda *_: False, high_watermark=lambda *_: None)
    return PartitionMetrics(NODE, lambda: image, replicas, directories, lambda: detail, lambda: most_topics)


@pytest.mark.parametrize(("detail", "logs", "led"), [("none", 0, 0), ("leaders", 3, 3), ("all", 6, 3)])
def test_partitions_have_series_as_the_setting_says(detail: str, logs: int, led: int) -> None:
    found = scraped(partition_metrics(detail))
    assert (len(found[LOG_END]), len(found[CURRENT_OFFSET])) == (logs, led)
    assert (found[LEADER_COUNT], found[PARTITION_COUNT]) == ([("", 3)], [("", 6)]), "sums count everything"


def test_partitions_of_further_topics_have_no_series() -> None:
    found = scraped(partition_metrics("leaders", most_topics=2))
    assert [labels for labels, _ in found[LOG_END]] == ['topic="a",partition="0"', 'topic="b",partition="0"']
    assert found[LEADER_COUNT] == [("", 3)]


def test_scrape_finds_a_high_watermark_outside_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, leader = partition_metrics("none"), replica(5)
    assert not sum(value for _, value in scraped(metrics)[INVARIANTS])
    leader.high_watermark = 6
    monkeypatch.setattr(metrics._partitions, "opened_partition", lambda _name, _index: leader)
    found = dict(scraped(metrics)[INVARIANTS])
    assert found[f'invariant="{Invariant.HIGH_WATERMARK_WITHIN_LOG.value}"'] == 6
    assert len(found) == len(Invariant)


def test_topics_with_the_most_bytes_have_series() -> None:
    traffic = BrokerTraffic()
    for name, size in (("small", 10), ("large", 1_000), ("read", 5)):
        traffic.of(name).bytes_in = size
    traffic.of("read").bytes_out = 500
    found = scraped(TopicMetrics(traffic, lambda: 2))
    assert found[BY_SLOT["bytes_in"]] == [("", 1_015), ('topic="large"', 1_000), ('topic="read"', 5)]


def test_first_groups_by_name_have_series() -> None:
    def survey() -> Iterator[Any]:
        for name in ("zebra", "apple", "mango"):
            stored = SimpleNamespace(value=SimpleNamespace(offset=3))
            listing = SimpleNamespace(group_id=name, state="Stable")
            yield SimpleNamespace(listing=listing, member_count=2, offsets={("orders", 0): stored})

    asked: list[list[tuple[str, int]]] = []

    class Ends:
        """The partition ends at 10; its records have no timestamps."""

        async def refresh(self, keys: Iterator[tuple[str, int]]) -> None:
            asked.append(list(keys))

        def find(self, _key: tuple[str, int]) -> Any:
            return SimpleNamespace(high_watermark=10)

        def age_ms(self, *_: object) -> None:
            return None

    ends: Any = Ends()
    metrics = GroupMetrics(survey, ends, lambda: 2)
    found = scraped(metrics)
    assert found[GROUPS] == [("", 3)]
    assert found[MEMBERS] == [('consumergroup="apple"', 2), ('consumergroup="mango"', 2)]
    assert [value for _, value in found[LAG]] == [7, 7]
    asyncio.run(metrics.refresh())
    assert asked == [[("orders", 0)] * 2], "no question for a group without series"
