"""Requests, and slices of long ones, that kept the event loop from serving others: counted, the worst of them logged.

Only what is timed anyway is looked at, so that it costs nothing: requests from the first byte to the end of their
handlers, and slices of `LongWork`. How late timers run, whatever held the loop, is `LoopMonitor`'s.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

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

    def slice_ended(self, context: RequestContext[object], key: int, held_s: float) -> None:
        """Note a slice of a long request."""
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
