"""Plots of lag and rates: where a curve runs, and when there is none."""

from __future__ import annotations

import re

from odradek.console.plots import HEIGHT, WIDTH, curve_of


def test_plot_needs_two_points_of_different_times() -> None:
    assert curve_of([]) is None
    assert curve_of([(100.0, 5.0)]) is None
    assert curve_of([(100.0, 5.0), (100.0, 6.0)]) is None


def test_curve_of_lag_runs_from_the_first_sample_to_the_newest() -> None:
    plot = curve_of([(0.0, 0.0), (60.0, 50.0), (120.0, 100.0)])
    assert plot is not None
    places = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", plot.curve)]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert places[-1][0] == WIDTH
    heights = [y for _, y in places]
    assert heights == sorted(heights, reverse=True), "more lag is higher"
    assert all(0 <= y <= HEIGHT for y in heights)
    assert [text for _, text in plot.levels] == ["100", "50", "0"]
    assert [text for _, text in plot.times] == ["2 min ago", "now"]


def test_lag_of_zero_is_a_curve_on_the_floor() -> None:
    plot = curve_of([(0.0, 0.0), (10.0, 0.0)])
    assert plot is not None
    assert {y for y, _ in plot.levels[-1:]} == {HEIGHT - 20}
    assert plot.curve.count(f" {HEIGHT - 20}.0") + plot.curve.count(f" {HEIGHT - 20}") >= 2
