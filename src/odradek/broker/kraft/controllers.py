"""Connections to the controllers of a KRaft quorum, and which of them is active."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from odradek.broker.cluster.cluster_secret import Prove
from odradek.broker.cluster.peers import PeerLimits, Purpose, proven
from odradek.broker.cluster.remote_controller import ControllerAway
from odradek.client.errors import Disconnected, RequestTimedOut, TransportError, UnsupportedByBroker
from odradek.client.network.connection import Connection, open_connection
from odradek.client.network.connections import retrieve_failure
from odradek.kraft.metadata_observer import Server
from odradek.metadata.image import NO_BROKER
from odradek.ports.network import Network, Secure
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.message import ApiMessage

Response = TypeVar("Response", bound=ApiMessage)

_METADATA: Final = None
"""In the place of a purpose: fetches of the metadata log, which wait at the controller."""


class Controllers:
    """One connection for each controller and purpose, made when it is first needed and again after it broke."""

    __slots__ = (
        "_active",
        "_asking",
        "_client_id",
        "_connections",
        "_limits",
        "_locks",
        "_network",
        "_prove",
        "_secure",
    )

    def __init__(self, network: Network, node_id: int, secure: Secure | None, prove: Prove, limits: PeerLimits) -> None:
        """`secure` is given where the controllers' listener has TLS; `prove` logs in where it has SASL."""
        self._network = network
        self._client_id = f"broker-{node_id}"
        self._secure = secure
        self._prove = prove
        self._limits = limits
        self._connections: dict[tuple[Server, Purpose | None], Connection] = {}
        self._locks: dict[tuple[Server, Purpose | None], asyncio.Lock] = {}
        self._active: Server | None = None
        self._asking: dict[asyncio.Task[Any], Server] = {}
        """Requests to the active controller that wait for their answers."""

    def note_active(self, server: Server | None) -> None:
        """Send the broker's own requests to this leader of the quorum from now on; None while none is known.

        Requests to another one fail: it may stand still, and its answer come after many seconds or never.
        """
        self._active = server
        if server is not None:
            for task in [each for each, asked in self._asking.items() if asked != server]:
                task.cancel()

    async def fetch(self, server: Server, request: ApiMessage, kind: type[Response], timeout_ms: float) -> Response:
        """A controller's answer about the metadata log. Raises TransportError, KafkaError UNSUPPORTED_VERSION."""
        return await self.request(server, _METADATA, request, kind, timeout_ms)

    async def ask(self, request: ApiMessage, kind: type[Response], timeout_ms: float, purpose: Purpose) -> Response:
        """The active controller's answer. Implements `AskController`."""
        server = self._active
        if server is None:
            raise ControllerAway("The quorum has no leader that this broker knows.")
        task = asyncio.get_running_loop().create_task(self.request(server, purpose, request, kind, timeout_ms))
        task.add_done_callback(retrieve_failure)
        self._asking[task] = server
        try:
            await asyncio.wait({task})
        finally:
            del self._asking[task]
            task.cancel()  # where this request is given up
        if task.cancelled():
            raise ControllerAway("Another controller is active.")
        try:
            return task.result()
        except TransportError as error:
            raise ControllerAway(f"The controller cannot be reached: {error}") from error

    async def request(
        self, server: Server, purpose: Purpose | None, request: ApiMessage, kind: type[Response], timeout_ms: float
    ) -> Response:
        """This controller's answer. Raises TransportError, KafkaError UNSUPPORTED_VERSION."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await self._connection(server, purpose)
        except TimeoutError as error:
            raise RequestTimedOut(f"no connection to {server.host}:{server.port} within {timeout_ms:g} ms") from error
        try:
            version = connection.version_of(type(request))
        except UnsupportedByBroker as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{server.host}:{server.port}: {error}") from error
        return await connection.request(request, kind, version, timeout_ms)

    async def _connection(self, server: Server, purpose: Purpose | None) -> Connection:
        key = (server, purpose)
        found = self._connections.get(key)
        if found is not None and purpose is _METADATA and found.in_flight:
            # The fetch before was given up. A leader takes a second one on a connection for the proof that its answer
            # to the first one has come (`broker.quorum.followed_leader`).
            found.close()
        if found is not None and found.closed is None:
            return found
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._connections.get(key)
            if found is None or found.closed is not None:
                try:
                    found = await open_connection(
                        self._network,
                        server.host,
                        server.port,
                        client_id=self._client_id,
                        setup_timeout_ms=self._limits.setup_ms,
                        request_timeout_ms=self._limits.setup_ms,
                        secure=self._secure,
                        silence_ms=self._limits.silence_ms,
                    )
                except UnsupportedByBroker as error:
                    # It may be another one soon; the caller retries.
                    raise Disconnected(str(error)) from error
                self._connections[key] = await proven(found, self._prove, NO_BROKER, self._limits.setup_ms)
            return found

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
