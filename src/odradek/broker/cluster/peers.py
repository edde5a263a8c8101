"""The other brokers as this one reaches them: connections over the listener that brokers use among themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from odradek.api.requests.context import Configuration
from odradek.broker.cluster.cluster_secret import Prove
from odradek.client.errors import Disconnected, RequestTimedOut, UnsupportedByBroker
from odradek.client.network.connection import Connection, open_connection
from odradek.client.network.connections import retrieve_failure
from odradek.metadata.image import ClusterImage
from odradek.ports.network import Network, Secure
from odradek.wire.message import ApiMessage

Response = TypeVar("Response", bound=ApiMessage)


class Purpose(Enum):
    """What requests are for. A broker serves those of a connection one after the other: none waits for other kinds."""

    FORWARDED = "clients' requests for the controller"
    OWN = "this broker's requests to the controller"
    MARKERS = "ends of transactions"
    METRICS = "ends of partitions that metrics of groups need"
    VERIFICATION = "whether transactions are open"
    LEASES = "leases of leadership"
    PROMISES = "promises not to begin to lead"
    FORMER_LEADERS = "whether former leaders know of their successors"
    AUDIT = "events of the audit topic"
    TELEMETRY = "metrics that clients have pushed"


_OF_TRANSACTIONS: Final = (Purpose.MARKERS, Purpose.VERIFICATION)
"""What the successor of a broker is asked as well: the new leader of a partition, or the new coordinator."""

_Key = tuple[int, Purpose]


class PeerLimits(NamedTuple):
    """Limits of connections between brokers, in milliseconds."""

    setup_ms: float = 2_000
    """`odradek.peer.setup.timeout.ms`: for the connection, and for each exchange before the first request."""
    silence_ms: float = 3_000
    """`odradek.peer.silence.timeout.ms`: a connection breaks whose other end has acknowledged nothing for that long."""

    @classmethod
    def of(cls, config: Configuration) -> PeerLimits:
        """The limits that a broker's configuration sets."""
        return cls(
            config.number("odradek.peer.setup.timeout.ms"),
            config.number("odradek.peer.silence.timeout.ms"),
        )


_DEFAULT_LIMITS: Final = PeerLimits()


async def proven(connection: Connection, prove: Prove, broker_id: int, timeout_ms: float) -> Connection:
    """The connection once this broker has proven itself on it; it is closed if that fails. Raises TransportError."""
    try:
        await prove(connection, broker_id, timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection


class Peers:
    """Connections to brokers by id.

    `request` shares one connection per broker and purpose, which is made when it is first needed and again after it
    broke; `connect` gives one to the caller alone.
    """

    __slots__ = (
        "_client_id",
        "_connections",
        "_image",
        "_limits",
        "_listener",
        "_network",
        "_opening",
        "_prove",
        "_secure",
        "node_id",
    )

    def __init__(
        self,
        network: Network,
        image: Callable[[], ClusterImage],
        listener: str,
        node_id: int,
        prove: Prove,
        secure: Secure | None = None,
        limits: PeerLimits = _DEFAULT_LIMITS,
    ) -> None:
        """`listener` is the one that brokers use among themselves; `secure` is given where that has TLS."""
        self._network = network
        self._image = image
        self._listener = listener
        self._prove = prove
        self._secure = secure
        self._limits = limits
        self.node_id = node_id
        self._client_id = f"broker-{node_id}"
        self._connections: dict[_Key, tuple[int, Connection]] = {}
        self._opening: dict[_Key, asyncio.Task[Connection]] = {}

    async def connect(self, broker_id: int, client_id: str = "") -> Connection:
        """A new connection, `broker-N` unless it is given a name. Raises TransportError, also for a broker that the
        image has not.
        """
        broker = self._image().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if endpoint is None:
            raise Disconnected(f"broker {broker_id} is not there")
        try:
            connection = await open_connection(
                self._network,
                endpoint.host,
                endpoint.port,
                client_id=client_id or self._client_id,
                setup_timeout_ms=self._limits.setup_ms,
                request_timeout_ms=self._limits.setup_ms,
                secure=self._secure,
                silence_ms=self._limits.silence_ms,
            )
        except UnsupportedByBroker as error:
            # It may be another one soon; the caller retries.
            raise Disconnected(str(error)) from error
        return await proven(connection, self._prove, broker_id, self._limits.setup_ms)

    async def request(
        self,
        purpose: Purpose,
        broker_id: int,
        request: ApiMessage,
        response_type: type[Response],
        version: int,
        timeout_ms: float,
    ) -> Response:
        """The broker's answer, where a connection is open or opens within the timeout, within that time again.

        Raises TransportError; the request may have taken effect nevertheless.
        """
        key = (broker_id, purpose)
        connection = self._shared(key)
        if connection is None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    connection = await self._wait_for(self._open(key), broker_id)
            except TimeoutError as error:
                raise RequestTimedOut(f"no connection to broker {broker_id} within {timeout_ms:g} ms") from error
        return await connection.request(request, response_type, version, timeout_ms)

    def _shared(self, key: _Key) -> Connection | None:
        found = self._connections.get(key)
        if found is None:
            return None
        epoch, connection = found
        broker = self._image().brokers.get(key[0])
        if connection.closed is None and broker is not None and broker.epoch == epoch:
            return connection
        del self._connections[key]
        connection.close()
        return None

    def _open(self, key: _Key) -> asyncio.Task[Connection]:
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.get_running_loop().create_task(self._opened(key))
            # Its caller may have given up when it fails.
            task.add_done_callback(retrieve_failure)
            # Not in the coroutine: a task that is cancelled before its first step runs none of its code.
            task.add_done_callback(partial(self._end_opening, key))
        return task

    def _end_opening(self, key: _Key, task: asyncio.Task[Connection]) -> None:
        if self._opening.get(key) is task:
            del self._opening[key]

    async def _opened(self, key: _Key) -> Connection:
        broker = self._image().brokers.get(key[0])
        connection = await self.connect(key[0])
        if broker is not None:
            self._connections[key] = (broker.epoch, connection)
        return connection

    @staticmethod
    async def _wait_for(opening: asyncio.Task[Connection], broker_id: int) -> Connection:
        """The connection. Raises TransportError, also when `abandon` or `close` has ended the attempt."""
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not opening.cancelled() or (current is not None and current.cancelling()):
                raise
            # The caller is not cancelled: it would end without a word, and with what it was to do undone.
            raise Disconnected(f"the connection to broker {broker_id} is no longer wanted") from None

    def abandon(self, broker_id: int, purposes: Iterable[Purpose]) -> None:
        """Let requests to a broker fail now, and connect again for the next one of these purposes."""
        for purpose in purposes:
            opening = self._opening.pop((broker_id, purpose), None)
            if opening is not None:
                opening.cancel()
            found = self._connections.pop((broker_id, purpose), None)
            if found is not None:
                found[1].close()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Let requests of transactions to brokers that are gone or fenced fail: others have taken their place.

        A process that stands still keeps its connections, and answers no request within the timeout.
        """
        if new.brokers is old.brokers:
            return
        for broker_id, broker in old.brokers.items():
            found = new.brokers.get(broker_id)
            if not broker.fenced and (found is None or found.fenced):
                self.abandon(broker_id, _OF_TRANSACTIONS)

    def close(self) -> None:
        """Close all connections."""
        for task in self._opening.values():
            task.cancel()
        for _, connection in self._connections.values():
            connection.close()
        self._connections.clear()
