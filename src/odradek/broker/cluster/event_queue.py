"""Events of the controller: one at a time, in the order in which they were asked for, and timers for later ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.client.network.connections import retrieve_failure

T = TypeVar("T")


class EventQueue:
    """Runs an event after all earlier ones have ended."""

    __slots__ = ("_last", "_timers")

    def __init__(self) -> None:
        self._last: asyncio.Task[object] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def run(self, event: Callable[[], Awaitable[T]]) -> T:
        """Run an event in its turn. It runs to its end even if its caller is cancelled."""
        previous = self._last

        async def turn() -> T:
            if previous is not None and not previous.done():
                await asyncio.wait({previous})
            return await event()

        task = self._last = asyncio.get_running_loop().create_task(turn())
        task.add_done_callback(retrieve_failure)
        return await asyncio.shield(task)

    async def wait_until_idle(self) -> None:
        """Wait for the events under way."""
        last = self._last
        if last is not None and not last.done():
            await asyncio.wait({last})

    def later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after that time. A second timer of the same name is not set meanwhile."""
        if name in self._timers:
            return

        def fire() -> None:
            del self._timers[name]
            then()

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, fire)

    def cancel_timers(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
