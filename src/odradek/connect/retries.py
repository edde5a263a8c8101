"""Pauses between attempts at a system that is away."""

from __future__ import annotations

import random
import time
from typing import Final

from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.errors import TargetAway

FIRST_PAUSE_S: Final = 0.3


class Retries:
    """Counts the attempts at one piece of work. Pauses double, and are up to a fifth shorter by chance.

    The time for attempts begins with the first failure: the work may have waited for records before.
    """

    __slots__ = ("_failed_at", "_failures", "_policy")

    def __init__(self, policy: ErrorPolicy) -> None:
        self._policy = policy
        self._failed_at: float | None = None
        self._failures = 0

    def pause_s(self, error: TargetAway) -> float:
        """The pause before the next attempt. Raises the error if the time for attempts is over."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        pause: float = min(FIRST_PAUSE_S * 2**self._failures, self._policy.longest_pause_s)
        if now - self._failed_at + pause > self._policy.retry_s:
            raise error
        # beyond this, the power of two would only grow
        self._failures = min(self._failures + 1, 30)
        return pause * random.uniform(0.8, 1.0)
