"""Requests that kept the event loop from serving others: counted, the worst of them logged.

A hold is the time from the first byte of a request to the end of its handler, which is measured anyway, or one step of
a handler that is a coroutine. How late timers run, whatever held the loop, is `LoopMonitor`'s.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType, FrameType
from typing import Any

from odradek.api.requests.context import RequestContext
from odradek.wire.apis import APIS

logger = logging.getLogger("odradek.loop")

WINDOW_SECONDS = 60.0
"""In this time a hold is logged only if it is longer than those before it."""


class LoopHolds:
    """Holds of `odradek.slow.loop.ms` or longer."""

    __slots__ = ("_now", "_window_ends", "_worst_s", "count", "longest_s", "threshold_s", "total_s")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is the monotonic clock in seconds."""
        self._now = now
        self._window_ends = 0.0
        self._worst_s = 0.0
        self.threshold_s = math.inf
        """Seconds from which on a hold counts; infinity for none."""
        self.count = 0
        """Holds since the start."""
        self.total_s = 0.0
        """Their seconds together."""
        self.longest_s = 0.0
        """The longest one."""

    def configure(self, threshold_ms: int) -> None:
        """Apply the setting: -1 for none."""
        self.threshold_s = math.inf if threshold_ms < 0 else threshold_ms / 1000

    def ended(self, context: RequestContext[object], key: int, held_s: float) -> None:
        """Note that a request held the loop for that time, if it is long enough."""
        if held_s >= self.threshold_s:
            self.observe(context, key, held_s)

    def observe(self, context: RequestContext[object], key: int, held_s: float) -> None:
        """Count the hold, which is not shorter than the threshold, and log it if it is the worst for a while."""
        self.count += 1
        self.total_s += held_s
        self.longest_s = max(self.longest_s, held_s)
        now = self._now()
        if now >= self._window_ends:
            self._window_ends = now + WINDOW_SECONDS
            self._worst_s = 0.0
        if held_s <= self._worst_s:
            return
        self._worst_s = held_s
        session = context.session
        fields = {
            "api": APIS[key].name,
            "version": context.version,
            "client_id": context.client_id,
            "client": session.peer_host,
            "principal": str(session.principal),
            "listener": session.listener_name,
            "request_bytes": context.size,
            "held_ms": round(held_s * 1000, 3),
        }
        logger.info(
            "the event loop served only one request for %.1f ms: %s v%d of %d bytes from %s (client id %s, %s, "
            "listener %s); the longest in %d s",
            fields["held_ms"],
            fields["api"],
            context.version,
            context.size,
            session.peer_host,
            context.client_id,
            fields["principal"],
            session.listener_name,
            WINDOW_SECONDS,
            extra={"fields": fields},
        )


class TimedSteps(Coroutine[Any, Any, Any]):
    """A handler's coroutine, of which each step that holds the event loop for too long is noted."""

    __slots__ = ("_context", "_coroutine", "_holds", "_key", "_now")

    def __init__(
        self,
        coroutine: CoroutineType[Any, Any, Any],
        holds: LoopHolds,
        now: Callable[[], float],
        context: RequestContext[Any],
        key: int,
    ) -> None:
        self._coroutine = coroutine
        self._holds = holds
        self._now = now
        self._context = context
        self._key = key

    def send(self, value: Any) -> Any:
        """Take the next step."""
        started = self._now()
        try:
            return self._coroutine.send(value)
        finally:
            self._note(started)

    def throw(self, *error: Any) -> Any:
        """Take the next step with an exception, as of a cancellation."""
        started = self._now()
        try:
            return self._coroutine.throw(*error)
        finally:
            self._note(started)

    def _note(self, started: float) -> None:
        self._holds.ended(self._context, self._key, self._now() - started)

    def close(self) -> None:
        """End the coroutine where it waits."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """As the coroutine itself: whoever awaits it takes its steps."""
        return self._coroutine.__await__()

    @property
    def cr_frame(self) -> FrameType | None:
        """The coroutine's frame, as stacks of tasks show it."""
        return self._coroutine.cr_frame

    @property
    def cr_await(self) -> Any:
        """What the coroutine awaits."""
        return self._coroutine.cr_await

    def __repr__(self) -> str:
        return repr(self._coroutine)
