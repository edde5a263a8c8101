"""Requests that hold the event loop: counted, and the worst of a minute logged."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.context import RequestContext
from odradek.api.requests.session import Session
from odradek.broker.network.loop_holds import WINDOW_SECONDS, LoopHolds, TimedSteps
from odradek.wire.apis import ApiKey


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def context() -> RequestContext:
    connection: Any = SimpleNamespace(session=Session("PLAINTEXT", "10.0.0.9"))
    services: Any = SimpleNamespace()
    return RequestContext(services, 9, 1, "app", connection, 123)


def observe(holds: LoopHolds, *seconds: float) -> None:
    for each in seconds:
        holds.observe(context(), ApiKey.FETCH, each)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek.loop")
    return caplog


def held_ms(lines: pytest.LogCaptureFixture) -> list[float]:
    return [record.__dict__["fields"]["held_ms"] for record in lines.records]


def test_holds_are_counted_with_their_sum_and_the_longest() -> None:
    holds = LoopHolds(Clock())
    observe(holds, 0.05, 0.2, 0.1)
    assert (holds.count, holds.total_s, holds.longest_s) == (3, pytest.approx(0.35), 0.2)


def test_hold_is_logged_only_if_it_is_the_longest_of_the_window(lines: pytest.LogCaptureFixture) -> None:
    holds = LoopHolds(Clock())
    observe(holds, 0.05, 0.04, 0.2, 0.2)
    assert held_ms(lines) == [50.0, 200.0]


def test_hold_is_logged_with_its_request(lines: pytest.LogCaptureFixture) -> None:
    observe(LoopHolds(Clock()), 0.05)
    (record,) = lines.records
    fields = record.__dict__["fields"]
    assert (fields["api"], fields["client_id"], fields["client"], fields["request_bytes"]) == (
        "Fetch",
        "app",
        "10.0.0.9",
        123,
    )


def test_shorter_hold_is_logged_after_the_window(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    holds = LoopHolds(clock)
    observe(holds, 0.2)
    clock.now = WINDOW_SECONDS
    observe(holds, 0.05)
    assert held_ms(lines) == [200.0, 50.0]


def test_steps_of_a_coroutine_are_timed_one_by_one() -> None:
    clock = Clock()
    holds = LoopHolds(clock)
    holds.configure(100)

    async def handler() -> str:
        clock.now += 0.25
        await asyncio.sleep(0)
        clock.now += 0.05
        await asyncio.sleep(0)
        clock.now += 0.5
        return "answer"

    async def scenario() -> str:
        steps = TimedSteps(handler(), holds, clock, context(), ApiKey.DELETE_RECORDS)  # type: ignore[arg-type]
        task = asyncio.ensure_future(steps)
        await asyncio.sleep(0)
        assert [frame.f_code.co_name for frame in task.get_stack()] == ["handler"]
        clock.now += 10  # others are served
        return str(await task)

    assert asyncio.run(scenario()) == "answer"
    assert (holds.count, holds.longest_s) == (2, 0.5)


def test_cancelled_coroutine_runs_to_its_end() -> None:
    ended: list[str] = []

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def scenario() -> None:
        clock = Clock()
        task = asyncio.ensure_future(TimedSteps(handler(), LoopHolds(clock), clock, context(), ApiKey.FETCH))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert ended == ["ended"]
