"""Sizes and rates from two samples of a cluster."""

from __future__ import annotations

import pytest

from odradek.client.reports.activity import (
    GroupSample,
    PartitionSample,
    Sample,
    broker_rows,
    group_rows,
    rates_of,
    topic_group_rows,
    topic_rows,
)
from odradek.records.topic_partition import TopicPartition

PLACE = TopicPartition("t", 0)


def sample(at_s: float, end: int, size: int, committed: int = 0) -> Sample:
    """A topic of one partition, led by broker 1 and followed by broker 2."""
    partition = PartitionSample(1, 10, end, {1: size, 2: 7})
    return Sample(at_s, {1: "a:1", 2: "b:2"}, {PLACE: partition}, {"g": GroupSample("Stable", {PLACE: committed})})


def test_rates_are_differences_per_second() -> None:
    (row,) = topic_rows(sample(0.0, 20, 1_000), sample(2.0, 50, 1_500))
    assert (row["records_per_second"], row["bytes_per_second"]) == (15, 250)
    assert (row["records"], row["size_bytes"], row["total_bytes"]) == (40, 1_500, 1_507)


@pytest.mark.parametrize("before", [None, sample(2.0, 20, 1_000)])
def test_rates_are_unknown_without_an_earlier_sample(before: Sample | None) -> None:
    assert rates_of(before, sample(2.0, 50, 1_500), [PLACE]) == (None, None)


def test_bytes_per_second_are_unknown_when_the_log_shrank() -> None:
    assert rates_of(sample(0.0, 20, 1_000), sample(1.0, 50, 10), [PLACE]) == (30, None)


def test_rate_of_a_recreated_partition_is_not_negative() -> None:
    assert rates_of(sample(0.0, 20, 10), sample(1.0, 5, 10), [PLACE]) == (0, 0)


def test_broker_has_rates_of_its_leaders_and_bytes_of_its_replicas() -> None:
    leader, follower = broker_rows(sample(0.0, 20, 1_000), sample(1.0, 50, 1_500))
    assert (leader["leads"], leader["records_per_second"], leader["size_bytes"]) == (1, 30, 1_500)
    assert (follower["leads"], follower["records_per_second"], follower["size_bytes"]) == (0, 0, 7)


def test_group_has_lag_and_the_rates_of_reading_and_lagging() -> None:
    (row,) = group_rows(sample(0.0, 20, 0, committed=10), sample(2.0, 50, 0, committed=30))
    assert (row["lag"], row["records_per_second"], row["lag_per_second"]) == (20, 10, 5)


def test_groups_of_a_topic_have_their_lag_in_this_topic_alone() -> None:
    now = sample(2.0, 50, 0, committed=30)
    other = TopicPartition("other", 0)
    groups = {"g": GroupSample("Stable", {PLACE: 30, other: 1}), "elsewhere": GroupSample("Stable", {other: 1})}
    partitions = {**now.partitions, other: PartitionSample(1, 0, 9, {})}
    assert topic_group_rows(now._replace(groups=groups, partitions=partitions), "t") == [
        {"group": "g", "state": "Stable", "partitions": 1, "lag": 20}
    ]
