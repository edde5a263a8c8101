"""Histograms: buckets, quantiles, and what was observed lately."""

from __future__ import annotations

import pytest

from odradek.metrics.histogram import WINDOW_SECONDS, Histogram, RecentCounts, quantile

BOUNDS = (1.0, 2.0, 4.0)


def test_histogram_counts_an_observation_up_to_its_bound() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.5, 1.0, 3.0, 9.0):
        histogram.observe(value)
    assert histogram.counts == [2, 0, 1, 1]
    assert (histogram.count, histogram.total) == (4, 13.5)


def test_histogram_samples_are_cumulative() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.5, 3.0, 9.0):
        histogram.observe(value)
    buckets = [value for suffix, _, value in histogram.samples("") if suffix == "_bucket"]
    assert buckets == [1, 1, 2, 3]


@pytest.mark.parametrize(("wanted", "value"), [(0.5, 1.0), (0.75, 3.0), (1.0, 4.0)])
def test_quantile_is_interpolated_in_its_bucket(wanted: float, value: float) -> None:
    assert quantile(BOUNDS, [2, 0, 2, 0], wanted) == value


def test_quantile_of_nothing_is_zero() -> None:
    assert quantile(BOUNDS, [0, 0, 0, 0], 0.99) == 0.0


def test_quantile_above_all_bounds_is_the_last_bound() -> None:
    assert quantile(BOUNDS, [0, 0, 0, 5], 0.99) == 4.0


def test_recent_counts_are_all_before_the_first_window_ends() -> None:
    recent = RecentCounts()
    recent.since([3, 0], 0.0)
    assert recent.since([5, 1], WINDOW_SECONDS / 2) == [5, 1]


def test_recent_counts_leave_out_older_observations() -> None:
    recent = RecentCounts()
    recent.since([3, 0], 0.0)
    assert recent.since([5, 1], WINDOW_SECONDS) == [2, 1]


def test_recent_counts_keep_few_looks_when_they_come_quickly() -> None:
    recent = RecentCounts()
    for step in range(10_000):
        recent.since([step], step * 0.1)
    # The base is at least a window old, and no older than two.
    assert WINDOW_SECONDS * 10 <= recent.since([10_000], 1000.0)[0] <= WINDOW_SECONDS * 20
