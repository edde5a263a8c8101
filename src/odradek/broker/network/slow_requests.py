"""Requests that took long, with where the time went; with a threshold of zero, a log of all requests."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

from odradek.api.requests.context import RequestContext
from odradek.broker.network.loop_holds import LoopHolds
from odradek.metrics.requests import BOUNDS, CEILINGS, FIRST_BOUND, SECOND_BOUND
from odradek.wire.apis import APIS

logger = logging.getLogger("odradek.requests.slow")


class SlowRequestLog:
    """Writes a line for each request that takes `odradek.slow.request.ms` or longer."""

    __slots__ = ("holds", "least_s", "threshold_s")

    def __init__(self, holds: LoopHolds) -> None:
        self.holds = holds
        """Requests that held the event loop, whose threshold is another one."""
        self.threshold_s = math.inf
        """Seconds from which on a request is slow; infinity for none, zero for all."""
        self.least_s = math.inf
        """The smaller one of both thresholds: shorter requests need one comparison."""

    def configure(self, threshold_ms: int, loop_threshold_ms: int) -> None:
        """Apply `odradek.slow.request.ms` and `odradek.slow.loop.ms`: -1 for no log, and for no holds."""
        self.threshold_s = math.inf if threshold_ms < 0 else threshold_ms / 1000
        self.holds.configure(loop_threshold_ms)
        self.least_s = min(self.threshold_s, self.holds.threshold_s)

    def took(self, context: RequestContext[object], key: int, local_s: float) -> None:
        """Note a request that was answered at once, after `least_s` or more."""
        if local_s >= self.holds.threshold_s:
            self.holds.observe(context, key, local_s)
        if local_s >= self.threshold_s:
            self.served(context, key, local_s, 0.0)

    def answered(self, context: RequestContext[object], key: int, local_s: float, waited_s: float) -> None:
        """Note a request that was answered later, after `least_s` or more with the time that it waited."""
        if local_s >= self.holds.threshold_s:
            self.holds.observe(context, key, local_s)
        waits_by_design = context.counters is not None and context.counters.waits_by_design
        if local_s >= self.threshold_s or (local_s + waited_s >= self.threshold_s and not waits_by_design):
            self.served(context, key, local_s, waited_s)

    def served(self, context: RequestContext[object], key: int, local_s: float, waited_s: float) -> None:
        """Log the request. Times are those on the event loop, and between the handler's return and the answer."""
        session = context.session
        fields = {
            "api": APIS[key].name,
            "version": context.version,
            "client_id": context.client_id,
            "client": session.peer_host,
            "principal": str(session.principal),
            "listener": session.listener_name,
            "request_bytes": context.size,
            "total_ms": round((local_s + waited_s) * 1000, 3),
            "local_ms": round(local_s * 1000, 3),
            "remote_ms": round(waited_s * 1000, 3),
        }
        logger.info(
            "%s v%d of %d bytes from %s (client id %s, %s, listener %s) took %.3f ms: %.3f on the event loop, "
            "%.3f waiting",
            fields["api"],
            context.version,
            context.size,
            session.peer_host,
            context.client_id,
            fields["principal"],
            session.listener_name,
            fields["total_ms"],
            fields["local_ms"],
            fields["remote_ms"],
            extra={"fields": fields},
        )


class RequestTiming(NamedTuple):
    """The times of one request whose answer comes later. A tuple: one is made for each such request."""

    context: RequestContext[object]
    key: int
    """The API."""
    slow: SlowRequestLog
    now: Callable[[], float]
    """Seconds of the monotonic clock."""
    returned: float
    """When the handler returned, by that clock."""
    local_s: float
    """Seconds that the request held the event loop until then."""

    @property
    def api(self) -> str:
        """The API's name, as metrics have it; empty if the request is not counted."""
        counters = self.context.counters
        return "" if counters is None else counters.api

    def answered(self) -> None:
        """Count the request: its answer is ready."""
        context, key, slow, now, returned, local_s = self
        counters = context.counters
        if counters is None:
            return
        waited_s = now() - returned
        bucket = 0 if waited_s <= FIRST_BOUND else 1 if waited_s <= SECOND_BOUND else bisect_left(BOUNDS, waited_s)
        counters.waited[bucket] += 1
        counters.waited_s += waited_s
        local = 0 if local_s <= FIRST_BOUND else 1 if local_s <= SECOND_BOUND else bisect_left(BOUNDS, local_s)
        counters.waited_local[local] += 1
        counters.waited_local_s += local_s
        total_s = waited_s + local_s
        counters.waited_total[bucket if total_s <= CEILINGS[bucket] else bisect_left(BOUNDS, total_s, bucket)] += 1
        if total_s >= slow.least_s:
            slow.answered(context, key, local_s, waited_s)


class Thresholds(Protocol):
    """The part of a node's configuration that is read here."""

    def number(self, name: str) -> int:
        """A numeric setting."""
        ...

    def on_change(self, names: Iterable[str], changed: Callable[[Collection[str]], None]) -> None:
        """Call after a change of one of the settings."""
        ...


def follow_thresholds(config: Thresholds, slow: SlowRequestLog) -> None:
    """Log what is slow, now and after a change of the settings."""
    names = ("odradek.slow.request.ms", "odradek.slow.loop.ms")

    def configure(_: object = None) -> None:
        slow.configure(*map(config.number, names))

    configure()
    config.on_change(names, configure)
