"""How far the demo's producer may run ahead of Spark: little at first, so that the first results come early."""

from __future__ import annotations

from typing import Final

FIRST_RECORDS: Final = 5_000
MOST_RECORDS: Final = 60_000
GOOD_SECONDS: Final = 15.0
"""A micro-batch that takes longer does not let the next one grow."""


class Pace:
    """The producer may send `allowed` records; each micro-batch that Spark finishes allows more.

    A micro-batch holds what was sent meanwhile, so the window between both bounds its size. The window doubles after
    each fast micro-batch, up to MOST_RECORDS, and halves after one that took over four times GOOD_SECONDS.
    """

    def __init__(self) -> None:
        self._window = FIRST_RECORDS
        self.allowed = FIRST_RECORDS

    def finish_batch(self, processed: int, seconds: float) -> None:
        """`processed`: records of all micro-batches so far; `seconds`: how long the last one took."""
        if seconds <= GOOD_SECONDS:
            self._window = min(self._window * 2, MOST_RECORDS)
        elif seconds > 4 * GOOD_SECONDS:
            self._window = max(self._window // 2, FIRST_RECORDS)
        self.allowed = max(self.allowed, processed + self._window)
