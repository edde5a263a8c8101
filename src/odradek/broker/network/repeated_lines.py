"""Log lines that peers can cause at will: a bounded number of them a second, and how many were left out."""

from __future__ import annotations

import logging
from typing import Final

from odradek.ports.clock import Clock

LINES_PER_SECOND: Final = 10


class RepeatedLines:
    """Writes lines about peers to a log."""

    __slots__ = ("_clock", "_count", "_logger", "_since")

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._since = float("-inf")
        self._count = 0

    def log(self, level: int, text: str, *values: object) -> None:
        """Log a line, unless this second has had enough; the first line after that says how many are missing."""
        now = self._clock.monotonic()
        if now - self._since >= 1:
            missing = self._count - LINES_PER_SECOND
            if missing > 0:
                self._logger.log(level, "%d more lines of this kind are not shown", missing)
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= LINES_PER_SECOND:
            self._logger.log(level, text, *values)
