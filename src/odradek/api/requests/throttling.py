"""Quotas as handlers apply them: what a request costs its client, and the pause that follows the answer (KIP-219)."""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.controller.outcome import Failure
from odradek.quotas.mutation_quota import TokenBucket
from odradek.wire.errors import ErrorCode


class Uses(HasClock, HasQuotas, Protocol):
    """What these handlers take of the broker."""


def time_quota_ms(context: RequestContext[Uses]) -> int:
    """Count the time that the request has taken; milliseconds that the client has to pause for it."""
    now_ms = context.services.clock.monotonic() * 1000
    percents = context.busy_ms(now_ms) / 10
    return context.services.quotas.request.record(*context.quota_entity, percents, now_ms)


def pause(context: RequestContext[Uses], throttle_ms: int = 0) -> int:
    """Let the connection pause for the longer of `throttle_ms` and what the time quota asks; the answer says it too.

    A broker's own requests are under no client's quota.
    """
    if context.session.is_broker:
        return 0
    if context.services.quotas.request.active:
        throttle_ms = max(throttle_ms, time_quota_ms(context))
    if throttle_ms:
        context.throttle(throttle_ms)
    return throttle_ms


class Mutations:
    """Partitions that one request creates or deletes, counted against the client's quota (KIP-599).

    A `strict` request, of a version that knows THROTTLING_QUOTA_EXCEEDED, gets nothing more while the quota is
    overdrawn; an older one gets everything. Either way the client pauses afterwards.
    """

    __slots__ = ("_bucket", "_context", "_strict")

    def __init__(self, context: RequestContext[Uses], *, strict: bool) -> None:
        self._context = context
        self._strict = strict
        self._bucket: TokenBucket | None = None
        quota = context.services.quotas.mutations
        if quota.active and not context.session.is_broker:
            self._bucket = quota.bucket(*context.quota_entity, self._now_ms())

    def _now_ms(self) -> float:
        return self._context.services.clock.monotonic() * 1000

    def take(self, partitions: int) -> Failure | None:
        """Why this many may not be changed now; None when they may."""
        if self._bucket is None:
            return None
        now_ms = self._now_ms()
        if self._strict and self._bucket.lacking_ms(now_ms):
            return Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED.message)
        self._bucket.take(partitions, now_ms)
        return None

    def give_back(self, partitions: int) -> None:
        """Return the tokens of partitions that were rejected for another reason."""
        if self._bucket is not None:
            self._bucket.take(-partitions, self._now_ms())

    def throttle_ms(self) -> int:
        """How long the client has to pause after the answer."""
        return 0 if self._bucket is None else self._bucket.lacking_ms(self._now_ms())
