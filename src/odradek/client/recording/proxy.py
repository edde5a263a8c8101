"""A proxy between any client and a cluster, on 127.0.0.1, that passes each request and its answer to a sink.

Each broker gets a port of the proxy's; answers name these ports instead of the brokers' own. Connections are plain text
on both sides.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from odradek.client.recording.addresses import Address, replace_addresses, withdraw_bare_sasl
from odradek.client.recording.documents import SECRET_APIS, Document, document_of
from odradek.client.recording.exchanges import Exchange, Sink
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.headers import encode_response_header, parse_request_header, parse_response_header
from odradek.wire.primitives import DecodeError, EncodeError

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
_UNSUPPORTED_VERSION: Final = (35).to_bytes(2, "big")
_MAX_FRAME_BYTES: Final = 256 * 1024 * 1024


class _Front:
    """The proxy's port for one broker."""

    def __init__(self, upstream: Sequence[Address], node_id: int | None, port: int = 0) -> None:
        self.upstream = upstream
        self.node_id = node_id
        self.socket = socket.create_server((HOST, port))
        self.server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])


class _Pending(NamedTuple):
    number: int
    sent_s: float
    key: int
    version: int
    client_id: str | None
    document: Document | None
    body: bytes | None


class RecordingProxy:
    """Runs between `start` and `close`, on the event loop that started it."""

    __slots__ = ("_began", "_connections", "_fronts", "_loop", "_port", "_requests", "_sink", "_tasks", "_upstream")

    def __init__(self, upstream: Iterable[tuple[str, int]], sink: Sink, *, port: int = 0) -> None:
        """`upstream` are the cluster's bootstrap servers; port 0 picks a free one."""
        self._upstream = [Address(*each) for each in upstream]
        self._sink = sink
        self._port = port
        self._fronts: dict[Address | None, _Front] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._requests = 0
        self._began = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients."""
        return f"{HOST}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        front = self._fronts[None] = _Front(self._upstream, None, self._port)
        self._port = front.port
        await self._serve(front)

    async def close(self) -> None:
        """Close all connections; requests without an answer are recorded as such."""
        for front in self._fronts.values():
            if front.server is not None:
                front.server.close()
            front.socket.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _now(self) -> float:
        assert self._loop is not None
        return round(self._loop.time() - self._began, 6)

    async def _serve(self, front: _Front) -> None:
        assert self._loop is not None
        loop = self._loop

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections += 1
            self._keep(loop.create_task(_Relay(self, front, self._connections).run(reader, writer)))

        front.server = await asyncio.start_server(accepted, sock=front.socket)

    def _front_of(self, address: Address, node_id: int) -> Address:
        """The proxy's address for a broker's; the port listens at once, its server is started soon."""
        front = self._fronts.get(address)
        if front is None:
            front = self._fronts[address] = _Front([address], node_id)
            assert self._loop is not None
            self._keep(self._loop.create_task(self._serve(front)))
        front.node_id = node_id
        return Address(HOST, front.port)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _number(self) -> int:
        self._requests += 1
        return self._requests


class _Relay:
    """One connection of a client, and the one to the broker."""

    def __init__(self, proxy: RecordingProxy, front: _Front, number: int) -> None:
        self._proxy = proxy
        self._front = front
        self._number = number
        self._pending: dict[int, _Pending] = {}

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await self._connect()
            if upstream is not None:
                await self._relay(reader, writer, *upstream)
        finally:
            writer.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        ways = [
            asyncio.create_task(self._requests(reader, to_broker)),
            asyncio.create_task(self._responses(from_broker, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for outcome in await asyncio.gather(*ways, return_exceptions=True):
                if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError):
                    logger.warning("recorded connection %d ends: %s", self._number, outcome)
            to_broker.close()
            for pending in self._pending.values():
                self._record(pending, None, None)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for host, port in self._front.upstream:
            try:
                return await asyncio.open_connection(host, port)
            except OSError as error:
                logger.warning("broker at %s:%d cannot be reached: %s", host, port, error)
        return None

    async def _requests(self, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter) -> None:
        while (frame := await _frame(reader)) is not None:
            key, version, correlation_id, client_id, position = parse_request_header(memoryview(frame))
            if key == ApiKey.SASL_HANDSHAKE and version == 0:
                raise DecodeError("SaslHandshake of version 0 cannot be recorded: use a client with version 1")
            message = _decode(request_class, key, frame, position, version)
            pending = _Pending(
                self._proxy._number(), self._proxy._now(), key, version, client_id,
                None if message is None else document_of(message), _body(key, frame, position),
            )  # fmt: skip
            if key == ApiKey.PRODUCE and message is not None and message.acks == 0:
                self._record(pending, None, None)
            else:
                self._pending[correlation_id] = pending
            to_broker.write(len(frame).to_bytes(4, "big") + frame)
            await to_broker.drain()

    async def _responses(self, from_broker: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await _frame(from_broker)) is not None:
            pending = self._pending.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if pending is None:
                raise DecodeError("the broker answers a request that was not sent")
            key, version = pending.key, pending.version
            document, body = None, None
            if key in APIS:
                if key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
                    version = 0
                correlation_id, position = parse_response_header(memoryview(frame), key, version)
                message = _decode(response_class, key, frame, position, version)
                body = _body(key, frame, position)
                if message is not None:
                    document = document_of(message)
                    if self._changes(key, message):
                        out = bytearray()
                        encode_response_header(out, key, version, correlation_id)
                        message.encode(out, version)
                        frame = bytes(out)
            self._record(pending, document, body)
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await writer.drain()

    def _changes(self, key: int, message: Any) -> bool:
        if key == ApiKey.API_VERSIONS:
            return withdraw_bare_sasl(message)
        return replace_addresses(key, message, self._proxy._front_of)

    def _record(self, pending: _Pending, response: Document | None, body: bytes | None) -> None:
        key = pending.key
        self._proxy._sink(
            Exchange(
                number=pending.number,
                connection=self._number,
                broker=self._front.node_id,
                sent_s=pending.sent_s,
                answered_s=None if body is None and response is None else self._proxy._now(),
                api=APIS[key].name if key in APIS else str(key),
                key=key,
                version=pending.version,
                client_id=pending.client_id,
                request=pending.document,
                response=response,
                request_bytes=pending.body,
                response_bytes=body,
            )
        )


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    try:
        size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 0 <= size <= _MAX_FRAME_BYTES:
            raise DecodeError(f"a frame of {size} bytes: not Kafka's protocol in plain text")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None


def _decode(kind: Any, key: int, frame: bytes, position: int, version: int) -> Any:
    """The message; None for an API or a version that this package does not know."""
    if key not in APIS:
        return None
    try:
        return kind(key).decode(memoryview(frame), position, version)[0]
    except (DecodeError, EncodeError) as error:
        logger.warning("%s of version %d is forwarded without being decoded: %s", APIS[key].name, version, error)
        return None


def _body(key: int, frame: bytes, position: int) -> bytes | None:
    return None if key in SECRET_APIS else frame[position:]
