"""One connection to one broker: requests go out pipelined, answers are matched by correlation id.

Any failure (end of stream, an undecodable answer, a request without an answer in time) fails every request in flight
with TransportError and closes the connection; `Connections` opens another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from odradek.client.errors import ClientError, ConnectionRefused, Disconnected, RequestTimedOut, UnsupportedByBroker
from odradek.client.metrics.counts import NodeTraffic
from odradek.ports.network import SYSTEM_BUFFERS, WOULD_BLOCK, BufferSizes, Network, Secure, Stream, TlsError
from odradek.version import __version__
from odradek.wire.frames import FrameError, FrameReader
from odradek.wire.message import ApiMessage
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.primitives import DecodeError, skip_tags, write_nullable_string

API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_REFUSED: Final = _UNSUPPORTED_VERSION.to_bytes(2, "big")
_MAX_FRAME_BYTES: Final = 0x7FFFFFFF
_FETCH: Final = 1
_LOGIN: Final = (17, 36)
"""SaslHandshake and SaslAuthenticate."""
_READS_PER_WAKE: Final = 16
_pack_head = Struct(">ihhi").pack
"""Size, API, version and correlation id: how every request begins."""
_pack_size = Struct(">i").pack_into

Response = TypeVar("Response", bound=ApiMessage)
Done = Callable[[Any], None]
"""Called once with the decoded response, or with the ClientError that came instead."""


Request = ApiMessage


class Outgoing(Protocol):
    """What can be sent: a request of the schema, or one that is encoded by hand."""

    API_KEY: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    def encode(self, out: bytearray, version: int) -> None:
        """Append to `out`. Raises EncodeError."""
        ...


class VersionRange(NamedTuple):
    """Versions of an API that the broker offers."""

    min_version: int
    max_version: int


class _Pending:
    __slots__ = ("deadline", "done", "flexible", "response_type", "sent_at", "version")

    def __init__(
        self, response_type: type[Any], version: int, flexible: bool, sent_at: float, deadline: float, done: Done
    ) -> None:
        self.response_type = response_type
        self.version = version
        self.flexible = flexible
        self.sent_at = sent_at
        self.deadline = deadline
        self.done = done


class Connection:
    """An open connection; make one with `open_connection`."""

    __slots__ = (
        "_client_name", "_close_listener", "_correlation_id", "_expects", "_held", "_loop", "_out", "_pending",
        "_reader", "_stream", "_timer", "_timer_due", "_writing", "closed", "features", "host", "throttled_until",
        "traffic", "used_at", "versions",
    )  # fmt: skip

    def __init__(
        self, stream: Stream, client_id: str, loop: asyncio.AbstractEventLoop, traffic: NodeTraffic | None = None
    ) -> None:
        self.traffic = traffic or NodeTraffic()
        """What this connection, and others that share the object, have sent and received."""
        self._stream = stream
        self._client_name = _nullable_string(client_id)
        self._loop = loop
        self._reader = FrameReader(_MAX_FRAME_BYTES, is_trusting=True)
        self._out: deque[bytes | bytearray | memoryview] = deque()
        self._held: list[bytearray] | None = None
        self._writing = False
        self._expects = False
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self.used_at = loop.time()
        """The loop's time of the last answer, or request without one."""
        self.versions: dict[int, VersionRange] = {}
        self.host = ""
        """The broker's host as the client was given it, by which a Kerberos service is named."""
        self.features: dict[str, int] = {}
        """Finalized features (KIP-584) by name, for instance transaction.version."""
        self.throttled_until = 0.0
        """The loop's time until which the broker accepts no requests (KIP-219)."""
        self.closed: ClientError | None = None
        self._close_listener: Callable[[Connection], None] | None = None
        stream.watch_reads(self._readable)

    def watch_close(self, listener: Callable[[Connection], None] | None) -> None:
        """Call the listener, instead of an earlier one, when the connection is closed; None for no listener."""
        self._close_listener = listener

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    @property
    def waits_since(self) -> float | None:
        """When the oldest request without an answer was sent, by the event loop's clock; None without one."""
        oldest = next(iter(self._pending.values()), None)
        return None if oldest is None else oldest.sent_at

    def version_of(self, request: type[Request], at_most: int = _MAX_FRAME_BYTES) -> int:
        """The highest version of an API that both sides know. Raises UnsupportedByBroker without one."""
        offered = self.versions.get(request.API_KEY)
        if offered is None:
            raise UnsupportedByBroker(f"the broker does not offer {_api_name(request)}")
        version = min(offered.max_version, int(request.MAX_VERSION), at_most)
        if version < offered.min_version or version < request.MIN_VERSION:
            raise UnsupportedByBroker(
                f"the broker offers {_api_name(request)} {offered.min_version} to {offered.max_version}, "
                f"this client needs {request.MIN_VERSION} to {min(int(request.MAX_VERSION), at_most)}"
            )
        return version

    def send(
        self, request: Outgoing, response_type: type[Any] | None, version: int, timeout_ms: float, done: Done
    ) -> None:
        """Send a request; `done` gets the response or the error later, never within this call.

        Without a response type none is expected (Produce with acks=0) and `done` is not called. Raises TransportError
        when the connection is closed, EncodeError when the version cannot carry the request.
        """
        closed = self.closed
        if closed is not None:
            raise closed
        flexible = version >= request.FLEXIBLE_FROM
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = bytearray(_pack_head(0, request.API_KEY, version, correlation_id))
        frame += self._client_name
        if flexible:
            frame.append(0)
        request.encode(frame, version)
        size = len(frame)
        _pack_size(frame, 0, size - 4)
        if self._held is not None and request.API_KEY not in _LOGIN:
            self._held.append(frame)
        else:
            self._out.append(frame)
            if not self._writing:
                self._flush()
        # The rest after the request is on its way: the broker works meanwhile.
        now = self._loop.time()
        if response_type is None:
            self.used_at = now
        elif self.closed is not None:  # by the attempt to write
            self._loop.call_soon(done, self.closed)
        else:
            deadline = now + timeout_ms / 1000
            # The answer to ApiVersions keeps the old header: its reader does not know the broker's versions yet.
            flexible = flexible and request.API_KEY != API_VERSIONS
            self._pending[correlation_id] = _Pending(response_type, version, flexible, now, deadline, done)
            # A uvloop handle that is already due does not report its time.
            if self._timer is None or deadline < self._timer_due:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer_due = deadline
                self._timer = self._loop.call_at(deadline, self._check_deadlines)
        traffic = self.traffic
        traffic.requests += 1
        traffic.request_bytes += size
        if size > traffic.largest_request:
            traffic.largest_request = size

    def hold_requests(self) -> None:
        """Send nothing but requests of a login until `release_requests`."""
        if self._held is None:
            self._held = []

    def release_requests(self) -> None:
        """Send the requests that were held, and later ones at once."""
        held, self._held = self._held, None
        self._out.extend(held or ())
        if self.closed is None and not self._writing:
            self._flush()

    def request(
        self, request: Request, response_type: type[Response], version: int, timeout_ms: float
    ) -> asyncio.Future[Response]:
        """The response as a future; it fails with a ClientError. Raises as `send` does."""
        future: asyncio.Future[Response] = self._loop.create_future()

        def done(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, ClientError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.send(request, response_type, version, timeout_ms, done)
        return future

    def close(self, reason: ClientError | None = None) -> None:
        """Close, and fail requests in flight with `reason`."""
        if self.closed is not None:
            return
        self.closed = reason or Disconnected("the connection was closed")
        self._stream.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        self._out.clear()
        for each in pending.values():
            self._loop.call_soon(each.done, self.closed)
        if self._close_listener is not None:
            self._close_listener(self)

    # --- writing ---

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                part = out[0]
                sent = self._stream.send(part, len(out) > 1)
                if sent == WOULD_BLOCK:
                    if not self._writing:
                        self._writing = True
                        self._stream.watch_writes(self._flush)
                    return
                if sent < len(part):
                    out[0] = memoryview(part)[sent:]
                else:
                    out.popleft()
        except OSError as error:
            self._lost(error)
            return
        if self._writing:
            self._writing = False
            self._stream.watch_writes(None)

    def _lost(self, error: OSError | None) -> None:
        peer = f"{self._stream.peer_host}:{self._stream.peer_port}"
        if self._reader.begins_with_tls:
            self.close(Disconnected(f"{peer} expects TLS: security_protocol is to be SSL"))
        else:
            self.close(Disconnected(f"{peer} closed the connection" if error is None else f"{peer}: {error}"))

    # --- reading ---

    def _readable(self) -> None:
        try:
            for _ in range(_READS_PER_WAKE):
                if not self._receive():
                    return
        except OSError as error:
            self._lost(error)
        except (DecodeError, FrameError) as error:
            self.close(Disconnected(f"{self._stream.peer_host}:{self._stream.peer_port}: {error}"))

    def _receive(self) -> bool:
        """Read once; whether there may be more."""
        space = self._reader.space()
        received = self._stream.receive_into(space)
        if received == WOULD_BLOCK:
            return False
        if received == 0:
            self._lost(None)
            return False
        for frame in self._reader.received(received):
            self._answered(frame)
            if self.closed is not None:
                return False
        if self._reader.missing or self._expects:
            self._expects = self._reader.missing > 0
            self._stream.expect(self._reader.missing)
        return received == len(space)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            raise DecodeError(f"an answer has correlation id {correlation_id}, which no request has")
        version, position = pending.version, 4
        traffic = self.traffic
        traffic.responses += 1
        traffic.response_bytes += len(frame) + 4
        self.used_at = now = self._loop.time()
        latency = now - pending.sent_at
        traffic.latency += latency
        if latency > traffic.longest_latency:
            traffic.longest_latency = latency
        if pending.response_type.API_KEY == _FETCH and getattr(pending.response_type, "COPIES_FRAME", True):
            # Record batches are handed on as slices; the receive buffer is used again at once. A follower's fetch has
            # appended them by then.
            frame = self._reader.keep(frame)
        try:
            if pending.flexible:
                position = skip_tags(frame, position)
            elif pending.response_type.API_KEY == API_VERSIONS and frame[4:6] == _REFUSED:
                version = 0
            response, _ = pending.response_type.decode(frame, position, version)
        except (DecodeError, IndexError) as error:
            self._pending[correlation_id] = pending
            raise DecodeError(str(error)) from error
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until = self._loop.time() + throttle_ms / 1000
        pending.done(response)

    def _check_deadlines(self) -> None:
        self._timer = None
        if not self._pending:
            return
        earliest = min(each.deadline for each in self._pending.values())
        if earliest > self._loop.time():
            self._timer_due = earliest
            self._timer = self._loop.call_at(earliest, self._check_deadlines)
            return
        peer = f"{self._stream.peer_host}:{self._stream.peer_port}"
        # Later answers could be matched, but clients should leave a stuck broker for another, as in Java.
        self.close(RequestTimedOut(f"{peer} did not answer in time"))


def _api_name(request: type[Request]) -> str:
    return request.__name__.removesuffix("Request")


def _nullable_string(text: str) -> bytes:
    out = bytearray()
    write_nullable_string(out, text)
    return bytes(out)


async def open_connection(
    network: Network,
    host: str,
    port: int,
    *,
    client_id: str,
    setup_timeout_ms: float,
    request_timeout_ms: float,
    secure: Secure | None = None,
    silence_ms: float = 0.0,
    traffic: NodeTraffic | None = None,
    buffers: BufferSizes = SYSTEM_BUFFERS,
) -> Connection:
    """Connect and negotiate versions (KIP-35, KIP-511: down to version 0 if the broker knows no newer ApiVersions).

    `secure` puts TLS on the connection before; for `silence_ms` and `buffers` see `Network.connect`; `traffic` counts
    for several connections.

    Raises Disconnected, RequestTimedOut, UnsupportedByBroker.
    """
    try:
        stream = await network.connect(host, port, setup_timeout_ms / 1000, silence_ms / 1000, buffers)
        if secure is not None:
            stream = await secure(stream, host, setup_timeout_ms / 1000)
    except TlsError as error:
        raise Disconnected(f"{host}:{port}: TLS handshake failed: {error}") from error
    except OSError as error:
        if isinstance(error, ConnectionRefusedError):
            raise ConnectionRefused(f"{host}:{port}: connection refused") from error
        raise Disconnected(f"{host}:{port}: {str(error) or type(error).__name__}") from error
    connection = Connection(stream, client_id, asyncio.get_running_loop(), traffic)
    connection.host = host
    try:
        version = int(ApiVersionsRequest.MAX_VERSION)
        request = ApiVersionsRequest("odradek", __version__)
        response = await connection.request(request, ApiVersionsResponse, version, request_timeout_ms)
        if response.error_code == _UNSUPPORTED_VERSION:
            known = [each.max_version for each in response.api_keys if each.api_key == API_VERSIONS]
            version = min(version, max(known, default=0))
            response = await connection.request(request, ApiVersionsResponse, version, request_timeout_ms)
        if response.error_code:
            raise UnsupportedByBroker(f"{host}:{port}: ApiVersions answered with error {response.error_code}")
    except BaseException:
        connection.close()
        raise
    connection.versions = {e.api_key: VersionRange(e.min_version, e.max_version) for e in response.api_keys}
    connection.features = {each.name: each.max_version_level for each in response.finalized_features}
    return connection
