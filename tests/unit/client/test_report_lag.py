"""Lag in time and its trend, as `odradek groups --describe --watch` and `odradek top` report them."""

from __future__ import annotations

import pytest

from odradek.client.reports.lag_trend import LagTrend, trend_text
from odradek.client.reports.record_age import first_timestamp
from odradek.records.builder import BatchFields, encode_batch


def batch(base_offset: int, timestamps_ms: list[int]) -> memoryview:
    """A record batch with one record for each timestamp."""
    rows = [(timestamp_ms, None, b"value", ()) for timestamp_ms in timestamps_ms]
    return memoryview(encode_batch(rows, BatchFields(base_offset)))


def test_timestamp_is_that_of_the_first_record_from_the_offset() -> None:
    view = batch(10, [1_000, 3_000, 2_000])
    assert [first_timestamp(view, each) for each in (9, 10, 11, 12, 13)] == [1_000, 1_000, 3_000, 2_000, None]


def test_timestamp_is_unknown_when_the_record_has_none() -> None:
    assert first_timestamp(batch(0, [-1]), 0) is None


def test_trend_is_unknown_before_the_second_look() -> None:
    trend = LagTrend()
    trend.observe(0.0, {"a": 5})
    assert trend.per_second("a") is None


def test_trend_counts_from_the_first_look_in_the_window() -> None:
    trend = LagTrend()
    for second in range(0, 101, 10):
        trend.observe(float(second), {"a": 1_000 if second < 70 else second})
    assert trend.per_second("a") == pytest.approx((100 - 70) / 30)


def test_trend_ends_when_the_partition_is_gone() -> None:
    trend = LagTrend()
    trend.observe(0.0, {"a": 5})
    trend.observe(1.0, {"a": 6})
    trend.observe(2.0, {})
    assert trend.per_second("a") is None


@pytest.mark.parametrize(
    ("per_second", "text"), [(None, None), (0.0, "steady"), (-0.01, "steady"), (2.0, "+2.0/s"), (-3.5, "-3.5/s")]
)
def test_trend_is_shown_with_its_sign(per_second: float | None, text: str | None) -> None:
    assert trend_text(per_second) == text
