"""The demo shows what has begun, from its first moment on, and nothing empty."""

import io

import pytest
from rich.console import Console

from odradek.cli.demo.flights import Totals
from odradek.cli.demo.view import Progress, View, screen


def drawn(at: Progress) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(screen(at))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_first_screen_shows_seconds_and_phase_and_no_table():
    text = drawn(Progress("starting the broker", 0.4, 30_000))
    assert "0.4 s" in text
    assert "starting the broker" in text
    assert "airport" not in text
    assert "micro-batch" not in text


def test_screen_shows_the_bars_once_flights_were_sent():
    text = drawn(Progress("starting the JVM", 5.0, 30_000, produced=5_000))
    assert "5,000 of 30,000" in text
    assert "mean delay" not in text


def test_screen_shows_the_table_once_there_are_totals():
    days = {("EWR", "2013-01-01"): Totals(305, 300, 17.5)}
    text = drawn(Progress("streaming", 9.0, 30_000, 5_000, 5_000, 1, 900.0, 18, 0, days))
    assert "mean delay" in text
    assert "17.50" in text
    assert "1 micro-batch " in text


def test_line_names_only_what_has_begun():
    assert Progress("starting the JVM", 3.14, 30_000).line() == "   3.1 s  starting the JVM"
    line = Progress("streaming", 9.0, 9_000, 8_000, 5_000, 1, 900.0, 18, None).line()
    assert line == (
        "   9.0 s  streaming; sent 8,000 of 9,000; Spark read 5,000 in 1 micro-batch at 900/s; 18 results, group lag -"
    )


def test_view_prints_the_first_moment_at_once_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    with View() as view:
        view.show(Progress("reading the flights", 0.0, 0))
        view.show(Progress("reading the flights", 0.1, 0))
        view.show(Progress("starting the broker", 0.2, 0))
    assert capsys.readouterr().out.splitlines() == ["   0.0 s  reading the flights", "   0.2 s  starting the broker"]
