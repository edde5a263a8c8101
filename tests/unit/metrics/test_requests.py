"""What is counted of requests."""

from __future__ import annotations

from odradek.metrics.requests import RequestCounters


def test_throttle_times_include_requests_without_a_pause() -> None:
    counters = RequestCounters("Produce")
    counters.immediate[3] += 5
    counters.note_throttle(20)
    counters.note_throttle(20)
    assert sum(counters.throttle_counts) == 5
    assert counters.throttle_counts[0] == 3
    assert (counters.throttled, counters.throttled_ms) == (2, 40)


def test_throttle_times_are_never_negative_before_the_answer() -> None:
    """A request that waits is throttled before it is counted as answered."""
    counters = RequestCounters("Produce")
    counters.note_throttle(20)
    assert counters.throttle_counts[0] == 0
    assert sum(counters.throttle_counts) == 1
