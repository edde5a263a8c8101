"""The log of slow requests."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.context import RequestContext
from odradek.api.requests.session import Session
from odradek.broker.network.loop_holds import LoopHolds
from odradek.broker.network.slow_requests import RequestTiming, SlowRequestLog
from odradek.metrics.requests import BOUNDS, RequestCounters
from odradek.wire.apis import ApiKey


def slow_log() -> SlowRequestLog:
    return SlowRequestLog(LoopHolds(lambda: 0.0))


def context_of(counters: RequestCounters) -> RequestContext:
    connection: Any = SimpleNamespace(session=Session("PLAINTEXT", "10.0.0.9"))
    services: Any = SimpleNamespace()
    context = RequestContext(services, 9, 1, "app\nforged", connection, 123)
    context.counters = counters
    return context


def answered(slow: SlowRequestLog, counters: RequestCounters, key: int, *, local_s: float, waited_s: float) -> None:
    RequestTiming(context_of(counters), key, slow, lambda: waited_s, 0.0, local_s).answered()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek.requests.slow")
    return caplog


def test_slow_request_is_logged_with_its_times(lines: pytest.LogCaptureFixture) -> None:
    slow = slow_log()
    slow.configure(100, -1)
    answered(slow, RequestCounters("Produce"), ApiKey.PRODUCE, local_s=0.00212345, waited_s=0.20045678)
    (record,) = lines.records
    fields = record.__dict__["fields"]
    assert (fields["api"], fields["total_ms"], fields["local_ms"], fields["remote_ms"]) == (
        "Produce",
        202.58,
        2.123,
        200.457,
    )


@pytest.mark.parametrize(("threshold_ms", "logged"), [(-1, 0), (0, 1), (1000, 0)])
def test_slow_request_threshold(lines: pytest.LogCaptureFixture, threshold_ms: int, logged: int) -> None:
    slow = slow_log()
    slow.configure(threshold_ms, -1)
    answered(slow, RequestCounters("Produce"), ApiKey.PRODUCE, local_s=0.002, waited_s=0.2)
    assert len(lines.records) == logged


def test_long_poll_is_not_slow(lines: pytest.LogCaptureFixture) -> None:
    slow = slow_log()
    slow.configure(100, -1)
    counters = RequestCounters("FetchConsumer", waits_by_design=True)
    answered(slow, counters, ApiKey.FETCH, local_s=0.002, waited_s=0.5)
    assert not lines.records


def test_waiting_request_is_counted_by_its_parts() -> None:
    counters = RequestCounters("Produce")
    answered(slow_log(), counters, ApiKey.PRODUCE, local_s=0.002, waited_s=0.2)
    assert counters.requests == 1
    assert counters.total_s == pytest.approx(0.202)
    assert sum(counters.local_counts) == sum(counters.remote_counts) == sum(counters.total_counts) == 1


@pytest.mark.parametrize("local_s", [0.0, 1e-5, 1.1e-5, 0.3, 60.0])
@pytest.mark.parametrize("waited_s", [0.0, 1e-5, 2.4e-5, 49.9, 60.0])
def test_waiting_request_is_counted_in_the_buckets_of_its_times(local_s: float, waited_s: float) -> None:
    counters = RequestCounters("Produce")
    answered(slow_log(), counters, ApiKey.PRODUCE, local_s=local_s, waited_s=waited_s)
    times = ((local_s, counters.waited_local), (waited_s, counters.waited), (local_s + waited_s, counters.waited_total))
    for seconds, counts in times:
        assert counts.index(1) == sum(bound < seconds for bound in BOUNDS)


@pytest.mark.parametrize(("loop_ms", "held", "logged"), [(20, 1, 0), (-1, 0, 0), (60, 0, 0)])
def test_request_counts_as_hold_from_its_threshold_on(
    lines: pytest.LogCaptureFixture, loop_ms: int, held: int, logged: int
) -> None:
    slow = slow_log()
    slow.configure(100, loop_ms)
    if slow.least_s <= 0.05:
        slow.took(context_of(RequestCounters("Produce")), ApiKey.PRODUCE, 0.05)
    assert (slow.holds.count, len([each for each in lines.records if each.name == "odradek.requests.slow"])) == (
        held,
        logged,
    )
