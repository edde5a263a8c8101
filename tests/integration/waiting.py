"""Waiting for what a broker does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 60.0
"""Seconds; how long something may take on a machine that has much else to do."""


def until(true: Callable[[], bool], what: str, patience_s: float = PATIENCE) -> None:
    """Return when it is so; fail after a while, saying what was waited for."""
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(0.05)
