"""The load curve: what counts as saturation and as latency, and that each figure has a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.cases import load_curve
from bench.metrics import METRICS

SECOND = 1_000_000_000


def test_saturation_counts_arrivals_after_the_warm_up() -> None:
    early = [(0, SECOND + number) for number in range(1000)]
    later = [(0, 3 * SECOND + number * SECOND // 100) for number in range(201)]
    assert load_curve.arrivals_per_second(early + later, 1.0) == pytest.approx(201 / 3, rel=0.01)
    assert load_curve.arrivals_per_second(later, 0.0) == pytest.approx(100)


def test_latencies_leave_out_records_that_are_due_in_the_warm_up() -> None:
    seen = [(0, 9_000_000), (SECOND - 1, 8_000_000), (SECOND, 5_000_000), (2 * SECOND, 2_000_000)]
    assert load_curve.latencies_ms(seen, 1.0) == [2.0, 5.0]


def test_shares_are_of_the_saturation_that_was_measured_before(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    def measure(_bootstrap: str, records: int, per_second: float) -> load_curve.Seen:
        rates.append(per_second)
        actual = min(per_second, 50_000)
        return [(int(number * SECOND / actual), 1_000_000) for number in range(records)]

    monkeypatch.setattr(load_curve, "measure", measure)
    spent = iter(range(100))
    monkeypatch.setattr(load_curve, "cpu_seconds", lambda _pid: next(spent) * 0.02)
    monkeypatch.setattr(load_curve, "RATES", (20_000,))
    broker: Any = SimpleNamespace(bootstrap="", pid=1)
    figures = load_curve.run(broker, 0.1)
    assert figures["saturation"] == pytest.approx(50_000, rel=0.001)
    shares = [figures["saturation"] * share / 100 for share in load_curve.SHARES]
    assert rates == [load_curve.LATE_PER_SECOND] * 2 + shares + [20_000]
    assert figures["20,000/s CPU"] == pytest.approx(0.02 / (4 * 20_000) * 1e6), "of one look to the next one"
    assert figures["70 % load p50"] == figures["20,000/s p99"] == 1.0


def test_each_point_has_its_rows() -> None:
    for point in (*(f"{share} % load" for share in load_curve.SHARES), *(f"{rate:,}/s" for rate in load_curve.RATES)):
        for figure in ("p50", "p99", "p99.9", "CPU", "client CPU"):
            assert f"{point} {figure}" in METRICS
