"""A broker's lease of leadership in a KRaft cluster: what the answer to a heartbeat proves.

The controller fences a broker no earlier than a session after it has received a heartbeat. So an answer that comes
while the lease before it lasts renews that lease. A later one says that the broker is unfenced, not that it always was:
a controller unfences a fenced broker with the first heartbeat that comes, whether or not the broker knows the leaders
that were elected meanwhile (Kafka's `BrokerHeartbeatManager.calculateNextBrokerState`: it asks for the registration
only). Such an answer begins a lease once the broker has applied all that was committed before it.
See docs/decisions/0011-leaders-hold-leases.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from odradek.api.requests.context import Configuration
from odradek.broker.task_failures import logs_failure
from odradek.replication.leadership import NEVER, Leadership
from odradek.replication.partition import Partition, release_clients

logger = logging.getLogger("odradek.broker.kraft")
_log_failure = logs_failure(logger, "catching up for a lease of leadership failed")

_LATE_SECONDS: Final = 0.001
"""The end of a lease is looked for so much later, as the loop's clock and the lease's round differently."""


def lease_ms(config: Configuration) -> float:
    """How long a broker may lead after it sent a heartbeat that found it unfenced.

    A controller answers a heartbeat only once a majority of the voters is known to have followed it half a fetch
    timeout before the heartbeat came, or later (`broker.quorum.followed_leader`). A successor fences this broker no
    earlier than a session after its own election, which that majority did not grant before.
    """
    session, margin = config.number("broker.session.timeout.ms"), config.number("odradek.self.fence.margin.ms")
    return session - margin - config.number("controller.quorum.fetch.timeout.ms") / 2


class HeartbeatLease:
    """`begin` before the first heartbeat that may unfence this broker, `unfenced` with answers; `close` ends it."""

    __slots__ = (
        "_catch_up",
        "_catching_up",
        "_config",
        "_end",
        "_is_current",
        "_leadership",
        "_now",
        "_opened",
        "_until",
    )

    def __init__(
        self,
        config: Configuration,
        leadership: Leadership,
        now: Callable[[], float],
        catch_up: Callable[[], Awaitable[None]],
        opened: Callable[[], Iterable[Partition]],
    ) -> None:
        """`now` has the seconds of the monotonic clock.

        `catch_up` returns once all has been applied that the active controller had committed when it was called.
        `opened` has the replicas of this broker that are open; clients that wait there are answered when a lease ends.
        """
        self._config = config
        self._leadership = leadership
        self._now = now
        self._catch_up = catch_up
        self._opened = opened
        self._end: asyncio.TimerHandle | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._until = NEVER
        """Until then no controller fences this broker."""
        self._is_current = False
        """Whether this broker has applied each fencing before `_until`."""

    def begin(self) -> None:
        """This broker asks to be unfenced from now on: so far it was fenced, and it has applied its registration."""
        self._until = self._now() + lease_ms(self._config) / 1000
        self._is_current = True

    def unfenced(self, asked_at: float) -> None:
        """A heartbeat of that time (seconds, monotonic) has found this broker unfenced."""
        now, seconds = self._now(), lease_ms(self._config) / 1000
        if now >= self._until:
            self._is_current = False
            self._stop_catching_up()
        self._until = max(self._until, asked_at + seconds)
        if self._is_current:
            self._extend(asked_at, seconds)
        elif self._catching_up is None and now < self._until:
            self._catching_up = asyncio.get_running_loop().create_task(self._begin_again())
            self._catching_up.add_done_callback(self._caught_up)

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        _log_failure(task)
        if self._catching_up is task:  # after a failure the next answer tries again
            self._catching_up = None

    async def _begin_again(self) -> None:
        await self._catch_up()
        if self._now() < self._until:
            self._is_current = True
            self._extend(self._until, 0.0)

    def _extend(self, asked_at: float, seconds: float) -> None:
        self._leadership.extend(asked_at, seconds)
        if self._end is None:
            self._watch_end()

    def _watch_end(self) -> None:
        """Look at the lease when it ends; it may be renewed until then."""
        left = self._leadership.lease_until - self._now()
        if left > 0.0:
            self._end = asyncio.get_running_loop().call_later(left + _LATE_SECONDS, self._watch_end)
        else:
            self._end = None
            release_clients(self._opened())

    def _stop_catching_up(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None

    def close(self) -> None:
        """Lead no longer."""
        self._until, self._is_current = NEVER, False
        self._stop_catching_up()
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._leadership.surrender()
