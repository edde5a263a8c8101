"""Heartbeats of brokers in a KRaft cluster: which session is valid, and what each broker may do next. Pure.

Times are seconds of the active controller's monotonic clock. Source: KIP-631; Kafka's `BrokerHeartbeatManager`,
`BrokerControlState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from odradek.metadata.image import Broker


class Heartbeat(NamedTuple):
    """What a broker reports of itself."""

    broker_id: int
    metadata_offset: int
    """The last record of the metadata log of which the effects are in place."""
    wants_fence: bool
    wants_shutdown: bool


class NextState(Enum):
    """What a heartbeat leads to."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "its leaderships move away"
    SHUTDOWN_NOW = "it may end"


class BrokerSessions:
    """The sessions of registered brokers while this controller is active."""

    __slots__ = ("_offsets", "_seen", "_session")

    def __init__(self, session_seconds: float) -> None:
        """`session_seconds` is `broker.session.timeout.ms`."""
        self._session = session_seconds
        self._seen: dict[int, tuple[int, float]] = {}
        self._offsets: dict[int, int] = {}

    def begin(self, brokers: Iterable[Broker], now: float) -> None:
        """Give each broker a session from now on: its heartbeats went to the former controller."""
        self._seen = {broker.id: (broker.epoch, now) for broker in brokers}
        self._offsets = {}

    def touch(self, broker_id: int, epoch: int, metadata_offset: int, now: float) -> None:
        """A broker has registered, or sent a heartbeat, under this epoch."""
        self._seen[broker_id] = (epoch, now)
        self._offsets[broker_id] = metadata_offset

    def remove(self, broker_id: int) -> None:
        """The broker is unregistered."""
        self._seen.pop(broker_id, None)
        self._offsets.pop(broker_id, None)

    def is_valid(self, broker: Broker, now: float) -> bool:
        """Whether the session of this registration has not expired."""
        epoch, seen = self._seen.get(broker.id, (-1, 0.0))
        return epoch == broker.epoch and now - seen < self._session

    def expired(self, brokers: Mapping[int, Broker], now: float) -> list[int]:
        """The unfenced brokers whose session has expired."""
        return [i for i, broker in brokers.items() if not broker.fenced and not self.is_valid(broker, now)]

    def lowest_offset(self, brokers: Mapping[int, Broker]) -> int:
        """The metadata offset that all unfenced brokers have reached; as high as can be without any."""
        offsets = [self._offsets.get(i, -1) for i, broker in brokers.items() if not broker.fenced]
        return min(offsets, default=1 << 62)


def next_state(broker: Broker, heartbeat: Heartbeat, *, has_leaderships: bool, moved: bool) -> NextState:
    """What the controller does with a broker after its heartbeat.

    `moved`: all unfenced brokers, this one too, know of the leaders that its controlled shutdown has elected. Kafka's
    controllers do not wait for this one itself. But its successors wait for it no longer once it is fenced, and it acts
    as the leader until it receives the answer, or until its lease ends.
    """
    if broker.fenced:
        if heartbeat.wants_shutdown:
            return NextState.SHUTDOWN_NOW
        is_ready = not heartbeat.wants_fence and heartbeat.metadata_offset >= broker.epoch
        return NextState.UNFENCED if is_ready else NextState.FENCED
    if heartbeat.wants_fence:
        return NextState.SHUTDOWN_NOW if heartbeat.wants_shutdown else NextState.FENCED
    if not heartbeat.wants_shutdown:
        return NextState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else NextState.UNFENCED
    is_done = not has_leaderships and moved
    return NextState.SHUTDOWN_NOW if is_done else NextState.CONTROLLED_SHUTDOWN
