"""Notices broker processes that have ended, long before their sessions do.

A broker sends its heartbeats over one connection. Where that breaks, and for each broker when a controller becomes
active, the controller connects to the broker's listeners. If all of them refuse connections, twice, the process has
ended: the broker is fenced, and its next process may register at once. A heartbeat ends the search. One listener that
refuses connections proves nothing: a leader that lives answers clients for as long as its lease (a session), and they
would see offsets go back where another one leads meanwhile. No record is lost by that: the next heartbeat releases it.

Kafka waits for the session. See `broker.cluster.controller_channel` for clusters on a store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Final

from odradek.api.services.controller_service import NotTheController
from odradek.broker.quorum.quorum_controller import QuorumController
from odradek.broker.task_failures import logs_failure
from odradek.metadata.image import Broker, Endpoint
from odradek.ports.clock import Clock
from odradek.ports.network import Network
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "looking for a broker's process failed")

_SIGNS_OF_DEATH: Final = 2
_CONNECT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.01
_MAX_PAUSE_SECONDS: Final = 0.5


class BrokerWatch:
    """`note_heartbeat` and `connection_closed` while the controller is active; `close` ends all searches."""

    __slots__ = ("_clock", "_connections", "_controller", "_network", "_searches")

    def __init__(self, network: Network, controller: QuorumController, clock: Clock) -> None:
        self._network = network
        self._controller = controller
        self._clock = clock
        self._connections: dict[int, int] = {}
        """By broker, the connection of its last registration or heartbeat, while that is open."""
        self._searches: dict[int, asyncio.Task[None]] = {}
        controller.on_reign(self._begin, self.close)

    def is_connected(self, broker_id: int) -> bool:
        """Whether the connection of the broker's last heartbeat to this active controller is open."""
        return broker_id in self._connections

    def note_heartbeat(self, broker_id: int, connection: int) -> None:
        """A registration or heartbeat that the controller accepts has come over this connection."""
        self._connections[broker_id] = connection
        search = self._searches.pop(broker_id, None)
        if search is not None:
            search.cancel()

    def connection_closed(self, connection: int) -> None:
        """A connection to this controller has ended, of a broker or not."""
        for broker_id in [i for i, known in self._connections.items() if known == connection]:
            del self._connections[broker_id]
            broker = self._controller.image.brokers.get(broker_id)
            if broker is not None:
                self._search(broker)

    def close(self) -> None:
        """Seek no broker, as this controller is not active."""
        self._connections.clear()
        for search in self._searches.values():
            search.cancel()
        self._searches.clear()

    def _begin(self) -> None:
        """The brokers' heartbeats went to the former controller, in whose process one of them may have been."""
        for broker in self._controller.image.brokers.values():
            self._search(broker)

    def _search(self, broker: Broker) -> None:
        if broker.id not in self._searches:
            search = self._searches[broker.id] = asyncio.get_running_loop().create_task(self._seek(broker))
            search.add_done_callback(partial(self._sought, broker.id))
            search.add_done_callback(_log_failure)

    def _sought(self, broker_id: int, search: asyncio.Task[None]) -> None:
        if self._searches.get(broker_id) is search:
            del self._searches[broker_id]

    async def _seek(self, broker: Broker) -> None:
        """Connect until the broker is found to have ended, or its session has."""
        signs, pause = 0, _PAUSE_SECONDS
        while self._controller.sessions.is_valid(broker, self._clock.monotonic()):
            signs = signs + 1 if await self._is_refused(broker.endpoints.values()) else 0
            if signs == _SIGNS_OF_DEATH:
                try:
                    await self._controller.broker_ended(broker)
                except NotTheController:
                    return
                except KafkaError as error:
                    logger.warning("cannot fence broker %d: %s; retrying", broker.id, error)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def _is_refused(self, endpoints: Collection[Endpoint]) -> bool:
        """Whether nothing listens at any of these addresses; an address that cannot be reached proves nothing."""
        for each in endpoints:
            try:
                stream = await self._network.connect(each.host, each.port, _CONNECT_SECONDS)
            except ConnectionRefusedError:
                continue
            except OSError:
                return False
            stream.close()
            return False
        return bool(endpoints)
