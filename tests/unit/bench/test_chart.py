"""The README's chart shows the figures that docs/performance/broker.md states."""

from __future__ import annotations

import re

import pytest

from bench.chart import PAGE, PICTURE, SHOWN, figures, picture


def test_chart_equals_the_table_of_the_performance_page() -> None:
    assert PICTURE.read_text() == picture(figures(PAGE.read_text())), "run ./dev run python -m bench.chart"


def test_bars_are_as_long_as_their_figures() -> None:
    rows = figures(PAGE.read_text())
    widths = [
        float(text)
        for text in re.findall(r'<rect class="[ok]" x="290" y="\d+" width="([\d.]+)" height="16"', picture(rows))
    ]
    assert len(widths) == 2 * len(SHOWN)
    for row, (ours, theirs) in zip(rows, zip(widths[::2], widths[1::2], strict=True), strict=True):
        expected = float(row.ours.replace(",", "")) / float(row.theirs.replace(",", ""))
        assert ours / theirs == pytest.approx(expected, rel=0.05)


def test_chart_fails_when_the_page_lacks_a_row() -> None:
    with pytest.raises(LookupError, match="memory idle"):
        figures(PAGE.read_text().replace("| memory idle |", "| memory at rest |"))
