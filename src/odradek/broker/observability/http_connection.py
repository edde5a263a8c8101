"""One HTTP/1.1 connection over the stream port: h11 parses and frames, this module moves bytes and keeps the time.

h11 has no I/O of its own and no dependencies, and it is strict: it runs in the simulator's loop as on sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import h11

from odradek.broker.observability.http_messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    parsed_target,
    text_response,
)
from odradek.ports.network import WOULD_BLOCK, Stream

logger = logging.getLogger("odradek.http")

IDLE_SECONDS: Final = 30.0
"""A connection without a whole request, or whose peer does not read its answer, is closed after this time."""
ANSWER_SECONDS: Final = 30.0
"""How long an answer may take to be made."""
HEADER_BYTES: Final = 16 * 1024
"""Most bytes of a request's line and headers."""
_RECEIVE_BYTES: Final = 16 * 1024
_TURN_BYTES: Final = 256 * 1024
"""Bytes of an answer that are sent in one turn of the event loop."""
_MOST_DROPPED: Final = 64
"""Reads of a rejected request's rest."""


class HttpConnection:
    """Serves the requests of one peer, one after the other. A request with a body is rejected."""

    __slots__ = (
        "_body",
        "_buffer",
        "_closed_callback",
        "_http",
        "_loop",
        "_out",
        "_routes",
        "_stream",
        "_task",
        "_then_close",
        "_timer",
        "_writing",
        "is_closed",
    )

    def __init__(self, stream: Stream, routes: Mapping[str, Answer], closed: Callable[[HttpConnection], None]) -> None:
        self._stream = stream
        self._routes = routes
        self._closed_callback = closed
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._body: deque[bytes] = deque()
        self._out: deque[bytes | memoryview] = deque()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._then_close = False
        self.is_closed = False
        """Whether the connection has ended."""
        stream.watch_reads(self._readable)
        self._restart_timer()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(IDLE_SECONDS, self.close)

    # --- in ---

    def _readable(self) -> None:
        try:
            received = self._stream.receive_into(memoryview(self._buffer))
        except OSError:
            self.close()
            return
        if received == WOULD_BLOCK:
            return
        if not received:
            self.close()
            return
        try:
            self._http.receive_data(bytes(self._buffer[:received]))
            self._next_event()
        except h11.RemoteProtocolError as error:
            self._reject(error.error_status_hint, str(error))

    def _next_event(self) -> None:
        """Act on the next complete request, if there is one. Raises RemoteProtocolError."""
        while not self.is_closed and self._task is None:
            event = self._http.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.ConnectionClosed):
                self.close()

    def _begin(self, request: h11.Request) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        following = self._http.next_event()
        if not isinstance(following, h11.EndOfMessage):
            self._reject(413, "a request with a body is not accepted")
            return
        if request.method not in (b"GET", b"HEAD"):
            self._reject(405, "only GET and HEAD are served", (("Allow", "GET, HEAD"),))
            return
        try:
            parsed = parsed_target(request.target.decode("ascii"), headers, self._stream.peer_host)
        except ValueError:
            self._reject(400, "the request's target cannot be parsed")
            return
        # Nothing more is read until the answer is out: a peer cannot queue requests.
        self._stream.watch_reads(None)
        self._task = self._loop.create_task(self._serve(parsed, is_head=request.method == b"HEAD"))

    async def _serve(self, request: HttpRequest, *, is_head: bool) -> None:
        answer = self._routes.get(request.path)
        try:
            if answer is None:
                response = text_response(404, "not found; there are " + ", ".join(sorted(self._routes)))
            else:
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await answer(request)
        except TimeoutError:
            response = text_response(503, "the answer took too long")
        except Exception:
            logger.exception("%s could not be answered", request.path)
            response = text_response(500, "the request could not be served")
        if not self.is_closed:
            self._send(response, is_head=is_head)

    def _reject(self, status: int, reason: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self._then_close = True
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(text_response(status, reason), is_head=False, headers=headers)
        else:
            self.close()

    # --- out ---

    def _send(self, response: HttpResponse, *, is_head: bool, headers: tuple[tuple[str, str], ...] = ()) -> None:
        fields: list[tuple[str, str]] = [
            ("Server", "odradek"),
            ("Content-Type", response.content_type),
            ("Content-Length", str(sum(map(len, response.body)))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *headers,
        ]
        if self._then_close:
            fields.append(("Connection", "close"))
        self._put(self._http.send(h11.Response(status_code=response.status, headers=fields)))
        self._body.extend(() if is_head else response.body)
        self._restart_timer()
        self._flush()

    def _put(self, data: bytes | None) -> None:
        if data:
            self._out.append(data)

    def _next_part(self) -> bool:
        """Frame the next part of the answer; False if there is none."""
        if self._body:
            self._put(self._http.send(h11.Data(data=self._body.popleft())))
        elif self._http.our_state is h11.SEND_BODY:
            self._put(self._http.send(h11.EndOfMessage()))
        else:
            return False
        return True

    def _flush(self) -> None:
        if self.is_closed:
            return
        out = self._out
        left = _TURN_BYTES
        try:
            while out or self._next_part():
                if not out:
                    continue
                if left <= 0:
                    # A large answer to a fast peer must not hold up the clients of the broker.
                    self._loop.call_soon(self._flush)
                    return
                part = out[0]
                sent = self._stream.send(part, len(out) > 1)
                if sent == WOULD_BLOCK:
                    if not self._writing:
                        self._writing = True
                        self._stream.watch_writes(self._writable)
                    return
                left -= sent
                if sent < len(part):
                    out[0] = memoryview(part)[sent:]
                else:
                    out.popleft()
        except OSError:
            self.close()
            return
        if self._writing:
            self._writing = False
            self._stream.watch_writes(None)
        self._sent()

    def _writable(self) -> None:
        self._restart_timer()
        self._flush()

    def _sent(self) -> None:
        """The answer is out: serve the next request, or end."""
        self._task = None
        if self._then_close:
            self._drop_input()
        if self._then_close or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self.close()
            return
        self._http.start_next_cycle()
        self._stream.watch_reads(self._readable)
        try:
            self._next_event()
        except h11.RemoteProtocolError as error:
            self._reject(error.error_status_hint, str(error))

    def _drop_input(self) -> None:
        """Read what has come: with unread bytes the end of the connection would be a reset, and the answer lost."""
        for _ in range(_MOST_DROPPED):
            try:
                if self._stream.receive_into(memoryview(self._buffer)) <= 0:
                    return
            except OSError:
                return

    def close(self) -> None:
        """End the connection and whatever it waits for."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task(self._loop):
            self._task.cancel()
        self._out.clear()
        self._body.clear()
        self._stream.close()
        self._closed_callback(self)
