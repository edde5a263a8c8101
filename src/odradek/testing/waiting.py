"""Wait for a condition, never for a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def eventually(condition: Callable[[], Awaitable[T]], timeout_s: float = ..., every_s: float = ...) -> T: ...
@overload
async def eventually(condition: Callable[[], T], timeout_s: float = ..., every_s: float = ...) -> T: ...
async def eventually(condition: Callable[[], Any], timeout_s: float = 10.0, every_s: float = 0.02) -> Any:
    """The first true result of `condition`, which is called again until then; it may be a coroutine function.

    An AssertionError that it raises counts as "not yet". After `timeout_s` seconds the last one is raised again, or an
    AssertionError with the last result. Any other exception ends the wait at once. Time is the event
    loop's, virtual in a simulation.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        failure: AssertionError | None = None
        found: object = None
        try:
            result = condition()
            found = await result if inspect.isawaitable(result) else result
            if found:
                return found
        except AssertionError as error:
            failure = error
        if loop.time() >= deadline:
            if failure is not None:
                raise failure
            raise AssertionError(f"not true within {timeout_s:g} s; the last result was {found!r}")
        await asyncio.sleep(every_s)
