"""Answers that are mostly there at once: no task is made for those that are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def when(answer: asyncio.Future[T], respond: Callable[[T], R]) -> R | Awaitable[R]:
    """`respond` to the answer, now if it is there. Raises what the answer failed with."""
    return respond(answer.result()) if answer.done() else _later(answer, respond)


async def _later(answer: asyncio.Future[T], respond: Callable[[T], R]) -> R:
    return respond(await answer)
