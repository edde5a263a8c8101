"""Times by which peers must have done something: be admitted, complete a large request, send the next request.

Timers look at connections from time to time, so a request costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network.connection import InboundConnection
from odradek.ports.clock import Clock
from odradek.wire.frames import ReceiveBuffers

STALL_SECONDS: Final = 60.0
"""Pause between two looks at unfinished requests that occupy a buffer."""
STALL_BYTES: Final = 65_536
"""Bytes that such a request must gain between two looks. With `connections.max.idle.ms` alone, peers that trickle could
occupy all of `queued.max.request.bytes` for ten minutes."""
_LOOKS: Final = 10
"""Looks at connections that are not admitted, in the time that they have."""

NOT_ADMITTED: Final = "no complete request, or no complete authentication, in odradek.unauthenticated.timeout.ms"
STALLED: Final = f"its unfinished request gained less than {STALL_BYTES} bytes in {STALL_SECONDS:g} s"
IDLE: Final = "idle for connections.max.idle.ms"


class Deadlines:
    """Closes connections whose peers are too slow.

    A peer is admitted when it is authenticated or, where the listener asks for no proof, when its first request is
    complete. Bytes that trickle in do not extend `odradek.unauthenticated.timeout.ms`; time that the broker itself
    needs does. An admitted peer has `connections.max.idle.ms`, also to take a part of its answers.
    """

    __slots__ = (
        "_buffers",
        "_clock",
        "_config",
        "_connections",
        "_idle_timer",
        "_late",
        "_newcomer_timer",
        "_newcomers",
        "_stall_timer",
    )

    def __init__(
        self, config: BrokerConfig, clock: Clock, connections: Mapping[int, InboundConnection], buffers: ReceiveBuffers
    ) -> None:
        """`connections` are all of the broker, by their numbers."""
        self._config = config
        self._clock = clock
        self._connections = connections
        self._buffers = buffers
        self._newcomers: dict[InboundConnection, float] = {}
        self._late: set[InboundConnection] = set()
        self._newcomer_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def begin(self, connection: InboundConnection) -> None:
        """Watch a connection that has just been accepted, after its TLS handshake."""
        self._newcomers[connection] = self._clock.monotonic()
        if self._newcomer_timer is None:
            self._schedule_newcomers()
        if self._idle_timer is None:
            self._schedule_idle({})
        if self._stall_timer is None:
            self._schedule_stalled({})

    def end(self, connection: InboundConnection) -> None:
        """Forget a connection that is closed: peers may open thousands until the next look."""
        self._newcomers.pop(connection, None)
        self._late.discard(connection)

    def close(self) -> None:
        """Stop all timers."""
        for timer in (self._newcomer_timer, self._idle_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._newcomer_timer = self._idle_timer = self._stall_timer = None
        self._newcomers.clear()
        self._late.clear()

    # --- peers that are not admitted ---

    def _schedule_newcomers(self) -> None:
        seconds = self._config.number("odradek.unauthenticated.timeout.ms") / 1000
        self._newcomer_timer = asyncio.get_running_loop().call_later(seconds / _LOOKS, self._close_newcomers)

    def _close_newcomers(self) -> None:
        """Close those that were late at the previous look, too: after a pause of this process, bytes may wait."""
        since = self._clock.monotonic() - self._config.number("odradek.unauthenticated.timeout.ms") / 1000
        late: set[InboundConnection] = set()
        for connection, began in list(self._newcomers.items()):
            if connection.is_admitted:
                del self._newcomers[connection]
            elif began > since or not (connection.awaits_peer or connection.is_blocked):
                continue
            elif connection in self._late:
                del self._newcomers[connection]
                connection.close(NOT_ADMITTED)
            else:
                late.add(connection)
        self._late = late
        if self._newcomers:
            self._schedule_newcomers()
        else:
            self._newcomer_timer = None

    # --- requests that stand still ---

    def _schedule_stalled(self, seen: dict[int, tuple[int, int]]) -> None:
        self._stall_timer = asyncio.get_running_loop().call_later(STALL_SECONDS, self._close_stalled, seen)

    def _close_stalled(self, seen: dict[int, tuple[int, int]]) -> None:
        current: dict[int, tuple[int, int]] = {}
        if self._buffers.in_use:
            for number, connection in list(self._connections.items()):
                received = connection.large_request_bytes
                if received is None or not connection.awaits_peer:
                    continue
                requests, before = seen.get(number, (-1, 0))
                if requests == connection.requests_received and received - before < STALL_BYTES:
                    connection.close(STALLED)
                else:
                    current[number] = (connection.requests_received, received)
        self._buffers.trim()
        if self._connections:
            self._schedule_stalled(current)
        else:
            self._buffers.trim()  # no look follows: free what the first call has only marked
            self._stall_timer = None

    # --- idle peers ---

    def _schedule_idle(self, seen: dict[int, tuple[int, float]]) -> None:
        idle_ms = self._config.number("connections.max.idle.ms")
        if idle_ms > 0:
            delay = max(1.0, idle_ms / 2000)
            self._idle_timer = asyncio.get_running_loop().call_later(delay, self._close_idle, seen)

    def _close_idle(self, seen: dict[int, tuple[int, float]]) -> None:
        """Twice in an idle period, close those that have neither sent a request nor taken an answer since."""
        now = self._clock.monotonic()
        limit = self._config.number("connections.max.idle.ms") / 1000
        current: dict[int, tuple[int, float]] = {}
        for connection in list(self._connections.values()):
            count, since = seen.get(connection.identifier, (-1, now))
            activity = connection.requests_received + connection.sends_resumed
            if activity != count or not (connection.idle or connection.is_blocked):
                since = now
            elif now - since >= limit:
                connection.close(IDLE)
                continue
            current[connection.identifier] = (activity, since)
        self._idle_timer = None
        if current:
            self._schedule_idle(current)
