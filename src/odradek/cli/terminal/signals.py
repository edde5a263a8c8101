"""Signals that end a command in order: what it has begun is completed first."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

OF_A_SIGNAL: Final = 128
"""Plus the number of a signal: the exit status of what the signal ended."""


def end_on_signals(stop: asyncio.Event | None = None) -> list[int]:
    """Cancel the current task on SIGTERM and SIGINT; the list receives the signal's number.

    The first signal sets `stop`, if that is given, and only the next one cancels.

    asyncio's own handler of SIGINT cancels the task in the middle of a step. A timeout that the task enters next and
    that expires at once mistakes this cancellation for its own and swallows it. A handler that the loop calls cancels
    between two steps. A shell starts its background jobs with SIGINT ignored; it stays ignored.
    """
    ended: list[int] = []
    task = asyncio.current_task()

    def end(number: int) -> None:
        ended.append(number)
        if stop is not None and not stop.is_set():
            stop.set()
        elif task is not None:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    return ended


@contextlib.contextmanager
def handled(handler: Callable[[int, Any], object], *signals: signal.Signals) -> Iterator[None]:
    """Let a handler have these signals meanwhile. In the main thread only, as `signal.signal`."""
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, former in before.items():
            signal.signal(each, former)


@contextlib.contextmanager
def cleaned_up_after_sigterm() -> Iterator[None]:
    """Let SIGTERM meanwhile raise SystemExit in the main thread, so that its `finally` clauses run as after SIGINT."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(OF_A_SIGNAL + number)

    with handled(end, signal.SIGTERM):
        yield
