"""`eventually`."""

from __future__ import annotations

import asyncio

import pytest

from odradek.testing import eventually


def test_eventually_returns_the_first_true_result() -> None:
    results = iter([0, [], "found"])
    assert asyncio.run(eventually(lambda: next(results), every_s=0)) == "found"


def test_eventually_awaits_a_coroutine_function() -> None:
    calls: list[int] = []

    async def third_time() -> bool:
        calls.append(1)
        return len(calls) == 3

    assert asyncio.run(eventually(third_time, every_s=0))
    assert len(calls) == 3


def test_eventually_raises_the_last_assertion_after_the_timeout() -> None:
    def never() -> bool:
        raise AssertionError("no orders yet")

    with pytest.raises(AssertionError, match="no orders yet"):
        asyncio.run(eventually(never, timeout_s=0))


def test_eventually_names_the_last_result_after_the_timeout() -> None:
    with pytest.raises(AssertionError, match="not true within 0 s; the last result was 0"):
        asyncio.run(eventually(lambda: 0, timeout_s=0))


def test_eventually_ends_at_once_with_another_exception() -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(eventually(broken))
