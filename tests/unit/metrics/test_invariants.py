"""Counts of violated invariants."""

from __future__ import annotations

import pytest

from odradek.metrics.invariants import Invariant, InvariantCounters


def test_violations_are_counted_and_the_first_ones_logged(caplog: pytest.LogCaptureFixture) -> None:
    counters = InvariantCounters()
    for number in range(15):
        counters.violated(Invariant.HIGH_WATERMARK_MONOTONIC, "orders-3", f"{number} after 20")
    counters.violated(Invariant.ISR_WITHIN_REPLICAS, "orders-4", "ISR (1,), replicas (2,)")
    assert counters.counts[Invariant.HIGH_WATERMARK_MONOTONIC] == 15
    assert sum(counters.counts.values()) == 16
    assert len(caplog.messages) == 11
    first = "the invariant high_watermark_monotonic is violated: orders-3: 0 after 20"
    assert caplog.messages[0].startswith(first)
    assert caplog.messages[9].endswith("(further ones are counted only)")
    assert "isr_within_replicas" in caplog.messages[10]
