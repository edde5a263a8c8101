"""Answers that are mostly there at once: no task is made for those that are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def when(answer: asyncio.Future[T], respond: Callable[[T], R]) -> R | Awaitable[R]:
    """`respond` to the answer, now if it is there. Raises what the answer failed with."""
    if answer.done():
        return respond(answer.result())
    # A broker that stops cancels the coroutine, perhaps before it waits: the failure must be read all the same.
    answer.add_done_callback(_read)
    return _later(answer, respond)


def _read(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


async def _later(answer: asyncio.Future[T], respond: Callable[[T], R]) -> R:
    return respond(await answer)
