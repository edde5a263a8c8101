"""Signals that end `odradek consume`, at whatever moment they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from odradek.cli.terminal.signals import end_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_a_step_is_not_mistaken_for_a_timeout(number: int) -> None:
    """As asyncio's own handler of SIGINT is: the signal had no effect, and the command continued."""
    heard: list[list[int]] = []

    async def body() -> None:
        heard.append(end_on_signals())
        os.kill(os.getpid(), number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        await asyncio.sleep(60)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(body())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert heard == [[number]]


def test_a_signal_that_is_ignored_stays_so() -> None:
    async def body() -> list[int]:
        ended = end_on_signals()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
        return ended

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        assert asyncio.run(body()) == []
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminate)
