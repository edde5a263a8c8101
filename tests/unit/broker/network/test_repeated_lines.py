"""Lines that peers cause: enough to see, not enough to fill a disk."""

from __future__ import annotations

import logging

import pytest

from odradek.broker.network.repeated_lines import LINES_PER_SECOND, RepeatedLines


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 0


def test_lines_of_a_second_are_limited_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    lines = RepeatedLines(logging.getLogger("odradek.test"), clock)
    with caplog.at_level(logging.INFO):
        for number in range(100):
            lines.log(logging.INFO, "line %d", number)
        clock.seconds = 1.5
        lines.log(logging.INFO, "line %d", 100)
    assert caplog.messages == [
        *(f"line {number}" for number in range(LINES_PER_SECOND)),
        f"{100 - LINES_PER_SECOND} more lines of this kind are not shown",
        "line 100",
    ]
