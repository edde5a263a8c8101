"""What a task awaits until a batch has its outcome: a future that can continue its task without a turn of the loop."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, current_task
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class OutcomeWait:
    """For one task. It ends once, by `end` or by the cancellation of the task.

    It has what asyncio's tasks ask of a future that they wait for. A future's task continues in the next turn of the
    loop, which for a record that is sent alone costs as much as to read its answer.
    """

    __slots__ = ("_asyncio_future_blocking", "_cancelled_with", "_context", "_continue", "_loop", "_over")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        """By which a task knows that this was yielded by `__await__`, and not by mistake."""
        self._loop = loop
        self._over = False
        self._cancelled_with: tuple[Any, ...] | None = None
        self._continue: Callable[[OutcomeWait], object] | None = None
        self._context: Context | None = None

    def end(self, *, at_once: bool) -> None:
        """The wait is over. `at_once`: the task continues within this call, unless it is called by a task itself."""
        if self._over:
            return
        self._over = True
        if self._continue is None or self._context is None:  # the task has not stopped yet
            return
        if at_once and current_task(self._loop) is None:
            # asyncio copies a context for each reader: the task's own cannot be the one that this runs in.
            self._context.run(self._continue, self)
        else:
            self._loop.call_soon(self._continue, self, context=self._context)

    # --- for the task ---

    def __await__(self) -> Generator[OutcomeWait, None, None]:
        if not self._over:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    def get_loop(self) -> AbstractEventLoop:
        """The loop of the task."""
        return self._loop

    def add_done_callback(self, callback: Callable[[OutcomeWait], object], *, context: Context) -> None:
        """Remember how the task continues."""
        self._continue = callback
        self._context = context
        if self._over:
            self._loop.call_soon(callback, self, context=context)

    def result(self) -> None:
        """Raises CancelledError if the task was cancelled."""
        if self._cancelled_with is not None:
            raise asyncio.CancelledError(*self._cancelled_with)

    def cancel(self, msg: object = None) -> bool:
        """The task was cancelled; False if the wait was over before."""
        if self._over:
            return False
        self._cancelled_with = () if msg is None else (msg,)
        self.end(at_once=False)
        return True
