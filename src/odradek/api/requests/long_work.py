"""Requests that take long are served in slices, between which the event loop serves others.

A slice ends after `odradek.loop.slice.ms`. Of all requests that have more to do, one continues in each turn of the
loop, in the order in which their slices ended, so that many long requests hold the loop no longer than one does, and
each gets its share. A slice boundary is an `await`: whatever was looked up before it is looked up again after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Final, Protocol, TypeVar

from odradek.quotas.client_quotas import ClientQuotas

AT_ONCE: Final = 8
"""Partitions that a request may name to be served without a look at the time."""

_STEP: Final = 4

T = TypeVar("T")


class HasTimeQuota(Protocol):
    """A broker's services, of which the quota for the event loop's time is used."""

    @property
    def quotas(self) -> ClientQuotas:
        """Quotas of clients."""
        ...


class Sliced(Protocol):
    """The circumstances of a request that is served in slices; see `RequestContext`."""

    @property
    def services(self) -> HasTimeQuota:
        """The broker's services."""
        ...

    def begins(self, now_ms: float) -> None:
        """The event loop works for the request from here on."""
        ...

    def waits(self, now_ms: float) -> None:
        """It works for others now."""
        ...


class LongWork:
    """The turns of all requests that are served in slices, and of the controller's long decisions."""

    __slots__ = ("_at_once", "_is_armed", "_slice_s", "_waiting", "now", "step")

    def __init__(self, now: Callable[[], float], slice_ms: int) -> None:
        """`now` is the monotonic clock in seconds."""
        self.now = now
        """The monotonic clock in seconds."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_armed = False
        self._at_once = AT_ONCE
        self._slice_s = 0.0
        self.step = _STEP
        """Partitions between two looks at the time, where each look costs something."""
        self.configure(slice_ms)

    def configure(self, slice_ms: int) -> None:
        """Apply `odradek.loop.slice.ms`; with 0 a slice is the least that can be done."""
        self._slice_s = slice_ms / 1000
        self._at_once = AT_ONCE if slice_ms else 1
        self.step = _STEP if slice_ms else 1

    def is_long(self, partitions: int) -> bool:
        """Whether a request that names this number of partitions must look at the time."""
        return partitions > self._at_once

    def begin(self, context: Sliced) -> Slices:
        """The slices of a request; the first one is over at once if others wait for their turn."""
        return Slices(self, context, self.now())

    def slice_end(self, began: float, *, is_first: bool) -> float:
        """When the slice that began then is over."""
        return began if is_first and self._waiting else began + self._slice_s

    def turn(self) -> asyncio.Future[None]:
        """Done when the next slice may begin."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        if not self._is_armed:
            self._is_armed = True
            loop.call_soon(self._start_next)
        return future

    def serve(self, context: Sliced, steps: Iterator[None], answer: T) -> T | Awaitable[T]:
        """The answer, once it was completed by all steps: at once, if that takes no longer than a slice.

        A step ends where the generator yields; what is looked up in one is looked up again in the next.
        """
        slices = self.begin(context)
        for _ in steps:
            if slices.is_over:
                return _served(slices, steps, answer)
        return answer

    async def complete(self, steps: Generator[None, None, T]) -> T:
        """Return what the generator returns, after all its steps: for work that is no client's request."""
        ends = self.slice_end(self.now(), is_first=True)
        while True:
            try:
                next(steps)
            except StopIteration as over:
                result: T = over.value
                return result
            if self.now() >= ends:
                await self.turn()
                ends = self.slice_end(self.now(), is_first=False)

    def _start_next(self) -> None:
        waiting = self._waiting
        while waiting:
            future = waiting.popleft()
            if not future.done():  # its connection may have closed
                future.set_result(None)
                break
        self._is_armed = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_soon(self._start_next)


async def _served(slices: Slices, steps: Iterator[None], answer: T) -> T:
    """The answer, after the steps that the first slice has left."""
    await slices.next()
    for _ in steps:
        if slices.is_over:
            await slices.next()
    slices.end()
    return answer


class Slices:
    """The slices of one request."""

    __slots__ = ("_context", "_ends", "_has_begun", "_work")

    def __init__(self, work: LongWork, context: Sliced, now: float) -> None:
        self._work = work
        self._context = context
        self._has_begun = False
        """Whether a slice is under way; False before the first turn, as the dispatcher measures what precedes it."""
        self._ends = work.slice_end(now, is_first=True)

    @property
    def is_over(self) -> bool:
        """Whether the slice has taken its time: the request continues after `next`."""
        return self._work.now() >= self._ends

    def now(self) -> float:
        """The monotonic clock in seconds."""
        return self._work.now()

    async def next(self) -> None:
        """Let others be served. To be called first in a coroutine, whose beginning is no slice."""
        self.end()
        work, context = self._work, self._context
        await work.turn()
        began = work.now()
        self._has_begun = True
        self._ends = work.slice_end(began, is_first=False)
        if context.services.quotas.request.active:
            context.begins(began * 1000)

    def end(self) -> None:
        """The slice is over; none need follow."""
        has_begun, self._has_begun = self._has_begun, False
        if has_begun and self._context.services.quotas.request.active:
            self._context.waits(self._work.now() * 1000)
