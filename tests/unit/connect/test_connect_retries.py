"""Pauses between attempts at a system that is away."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.connect import retries
from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.errors import TargetAway
from odradek.connect.retries import Retries

POLICY = ErrorPolicy(False, 60.0, 10.0, logs_records=False, dead_letters="", describes_failures=False)


def test_time_for_attempts_begins_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may have had no work for hours before it."""
    now_s = 1_000.0
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: now_s))
    attempts = Retries(POLICY)
    now_s += 3_600
    assert attempts.pause_s(TargetAway("no registry")) < 1
    now_s += 60
    with pytest.raises(TargetAway, match="no registry"):
        attempts.pause_s(TargetAway("no registry"))
