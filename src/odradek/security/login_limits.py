"""How many logins of one address may fail: a bucket per address that empties with time."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

MAX_ADDRESSES: Final = 10_000
"""Addresses that are remembered; the one whose last failure is oldest is forgotten first."""


class LoginLimits:
    """Failed logins by address. Times are milliseconds of a monotonic clock."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def failed(self, address: str, limit: int, window_ms: float, now_ms: float) -> int:
        """Count one failure; the number of recent failures, the new one included."""
        recent = self.recent(address, limit, window_ms, now_ms) + 1
        self._failures[address] = (recent, now_ms)
        self._failures.move_to_end(address)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return math.ceil(recent)

    def recent(self, address: str, limit: int, window_ms: float, now_ms: float) -> float:
        """Failures of an address that still count: `limit` of them are forgotten in one window."""
        found = self._failures.get(address)
        if found is None:
            return 0.0
        count, since_ms = found
        return max(0.0, count - (now_ms - since_ms) * limit / window_ms)

    def is_blocked(self, address: str, limit: int, window_ms: float, now_ms: float) -> bool:
        """Whether an address has failed so often that its logins are rejected unseen. A limit of 0 blocks none."""
        return limit > 0 and self.recent(address, limit, window_ms, now_ms) > limit - 1
