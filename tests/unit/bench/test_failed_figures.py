"""A measurement of `./dev bench spark` that fails: its row says so, and the others are measured."""

from __future__ import annotations

import json
import math

import pytest

from bench.__main__ import number, shown, without_nan
from bench.cases.spark import Figures, cause
from bench.history import medians
from bench.metrics import summary


def fail() -> float:
    raise RuntimeError("the query did not get to 5 micro-batches")


def test_failed_measurement_does_not_end_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    figures.note("spark write, odradek", lambda: 3.0)
    figures.note("spark write, official", fail)
    figures.note("spark write, odradek", lambda: 2.0)
    figures.compare("spark write")
    assert figures.values["spark write, odradek"] == 3.0
    assert math.isnan(figures.values["spark write, official"])
    assert math.isnan(figures.values["spark write, ratio"])
    failed, turn = capsys.readouterr().err.splitlines()
    assert failed == "spark write, official failed: the query did not get to 5 micro-batches"
    assert turn == "spark write, turn 1: odradek 3, official nan, nan ×"


def test_measurement_that_failed_is_not_repeated() -> None:
    figures = Figures()
    figures.note("spark write, official", fail)
    figures.note("spark write, official", lambda: 5.0)
    assert math.isnan(figures.values["spark write, official"])


def test_the_better_of_several_measurements_counts() -> None:
    figures = Figures()
    for value in (2.0, 1.0, 3.0):
        figures.note("spark trigger, odradek", lambda: value, min)  # noqa: B023 - called at once
        figures.note("spark write, odradek", lambda: value)  # noqa: B023 - called at once
    assert figures.values == {"spark trigger, odradek": 1.0, "spark write, odradek": 3.0}


def test_figures_of_each_turn_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The best of them hides that a broker was cold at first, or that its disk was behind in the end."""
    figures = Figures()
    for ours, official in ((90_000.0, 180_000.0), (150_000.0, 100_000.0)):
        figures.note("spark wide write, odradek", lambda: ours)  # noqa: B023 - called at once
        figures.note("spark wide write, official", lambda: official)  # noqa: B023 - called at once
    figures.compare("spark wide write")
    assert capsys.readouterr().err.splitlines() == [
        "spark wide write, turn 1: odradek 9e+04, official 1.8e+05, 0.50 ×",
        "spark wide write, turn 2: odradek 1.5e+05, official 1e+05, 1.50 ×",
    ]


def test_cause_is_the_innermost_of_java() -> None:
    text = (
        "An error occurred\n: Job aborted\n\tat a\nCaused by: outer\n\tat b\nCaused by: Expiring 10 record(s)\n\tat c"
    )
    assert cause(RuntimeError(text)) == "Expiring 10 record(s)"
    assert cause(RuntimeError("\n first \nsecond")) == "first"
    assert cause(RuntimeError()) == "RuntimeError"


def test_failed_figure_is_a_row_that_misses_its_aim() -> None:
    measured = {
        "odradek": {"spark write, ratio": [math.nan], "produce": [4.0, math.nan, 2.0]},
        "kafka": {"spark write, ratio": [1.5], "produce": [math.nan]},
    }
    rows = {row.metric: row for row in summary(measured)}
    ratio, produce = rows["spark write, ratio"], rows["produce"]
    assert (number(ratio.odradek), number(ratio.kafka), ratio.ratio, ratio.met) == ("failed", "1.5", None, False)
    assert (produce.odradek, number(produce.kafka), produce.ratio, produce.met) == (3.0, "failed", None, None)
    assert medians(list(rows.values())) == {"odradek": {"produce": 3.0}, "kafka": {"spark write, ratio": 1.5}}
    assert shown({"produce": math.nan, "start": 1.0}) == "produce failed, start 1 s"
    assert json.loads(json.dumps(without_nan(measured)))["kafka"] == {"spark write, ratio": [1.5], "produce": [None]}
