"""Requests that are served in slices: one slice in each turn of the loop, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.long_work import AT_ONCE, LongWork, Slices


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Context:
    """What a slice notes of the event loop's time."""

    def __init__(self, *, has_time_quota: bool = False) -> None:
        self.services = SimpleNamespace(quotas=SimpleNamespace(request=SimpleNamespace(active=has_time_quota)))
        self.noted: list[tuple[str, float]] = []

    def begins(self, now_ms: float) -> None:
        self.noted.append(("begins", now_ms))

    def waits(self, now_ms: float) -> None:
        self.noted.append(("waits", now_ms))


def slices_of(work: LongWork, context: Any = None) -> Slices:
    return work.begin(context or Context())


@pytest.mark.parametrize(
    ("slice_ms", "partitions", "is_long"), [(4, AT_ONCE, False), (4, AT_ONCE + 1, True), (0, 2, True)]
)
def test_request_is_long_by_its_partitions(slice_ms: int, partitions: int, is_long: bool) -> None:
    assert LongWork(Clock(), slice_ms).is_long(partitions) == is_long


def test_slice_is_over_after_its_time() -> None:
    clock = Clock()
    slices = slices_of(LongWork(clock, 4))
    clock.now = 0.0039
    assert not slices.is_over
    clock.now = 0.004
    assert slices.is_over


def test_first_slice_is_over_while_others_wait() -> None:
    async def play() -> tuple[bool, bool]:
        work = LongWork(Clock(), 4)
        first = slices_of(work)
        waiting = asyncio.ensure_future(first.next())
        await asyncio.sleep(0)
        meanwhile = slices_of(work).is_over
        await waiting
        return meanwhile, slices_of(work).is_over

    assert asyncio.run(play()) == (True, False)


def test_requests_take_turns_of_one_slice() -> None:
    """Others of the loop run between any two slices."""
    order: list[str] = []

    async def serve(name: str, slices: Slices) -> None:
        for _ in range(3):
            await slices.next()
            order.append(name)

    async def play() -> None:
        work = LongWork(Clock(), 0)
        tasks = [asyncio.ensure_future(serve(name, slices_of(work))) for name in "ab"]
        while not all(task.done() for task in tasks):
            order.append("-")
            await asyncio.sleep(0)

    asyncio.run(play())
    served = "".join(order)
    assert served.replace("-", "") == "ababab"
    assert "ab" not in served
    assert "ba" not in served


def test_cancelled_request_gives_its_turn_to_the_next() -> None:
    async def play() -> None:
        work = LongWork(Clock(), 0)
        first, second = (asyncio.ensure_future(slices_of(work).next()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait_for(second, 30)

    asyncio.run(play())


def test_time_between_slices_is_not_charged_to_the_client() -> None:
    clock, context = Clock(), Context(has_time_quota=True)

    async def play() -> None:
        slices = slices_of(LongWork(clock, 4), context)
        clock.now = 0.25
        await slices.next()
        clock.now = 0.5
        slices.end()

    asyncio.run(play())
    assert context.noted == [("begins", 250.0), ("waits", 500.0)]


def test_steps_are_done_at_once_when_they_take_less_than_a_slice() -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(3):
            yield
            done.append(number)

    work, answer = LongWork(Clock(), 4), object()
    assert work.serve(Context(), steps(), answer) is answer
    assert done == [0, 1, 2]


def test_steps_beyond_a_slice_let_others_be_served() -> None:
    clock = Clock()
    done: list[object] = []

    def steps(name: str) -> Iterator[None]:
        for number in range(4):
            yield
            clock.now += 0.003
            done.append((name, number))

    async def play() -> list[str]:
        work = LongWork(clock, 4)
        first: Any = work.serve(Context(), steps("a"), "first")
        assert done == [("a", 0), ("a", 1)]
        second: Any = work.serve(Context(), steps("b"), "second")
        return await asyncio.gather(first, second)

    assert asyncio.run(play()) == ["first", "second"]
    assert done.index(("b", 0)) < len(done) - 1
    assert sorted(done, key=str) == [(name, number) for name in "ab" for number in range(4)]
