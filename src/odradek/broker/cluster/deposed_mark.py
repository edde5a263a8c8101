"""Sets and clears the mark in the metadata store that brokers are deposed which may still act as leaders.

The controller sets the mark with the change that deposes them, so that its successor waits for them as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from odradek.broker.cluster.controller_store import ControllerStore
from odradek.broker.cluster.lease_grants import LeaseGrants
from odradek.metadata.image import ClusterImage
from odradek.ports.store import Operation

CLEAR_SECONDS: Final = 0.2
"""After which the mark is removed that brokers are deposed, if they have ended by then."""


class Events(Protocol):
    """The events of the controller."""

    def soon(self, event: Callable[[], Awaitable[object]]) -> None:
        """Run an event in its turn."""
        ...

    def later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` later, once for each name."""
        ...


class DeposedMark:
    """The mark of one controller, for as long as it reigns."""

    __slots__ = ("_events", "_leases", "_node_id", "_store")

    def __init__(self, node_id: int, store: ControllerStore, leases: LeaseGrants, events: Events) -> None:
        self._node_id = node_id
        self._store = store
        self._leases = leases
        self._events = events

    def operations(self, deposed: Mapping[int, int], image: ClusterImage) -> list[Operation]:
        """The operations that set the mark with a change of `image` that deposes brokers; none if it is set."""
        if deposed.keys() == {self._node_id} and len(image.brokers) <= 1:
            return []
        return self._store.mark_deposed()

    def clear_later(self) -> None:
        """Remove the mark once all former leaders have ended."""
        self._events.later("clear", CLEAR_SECONDS, lambda: self._events.soon(self._clear))

    async def _clear(self) -> None:
        if not self._store.is_deposed_marked:
            return
        if not self._leases.is_quiet:
            self.clear_later()
            return
        await self._store.clear_deposed()
