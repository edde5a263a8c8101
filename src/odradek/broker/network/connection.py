"""One client's connection: frames in, answers out in the order of their requests.

Record bytes are never copied here: requests are served out of the receive buffer, and answers are lists of parts of
which file ranges leave through sendfile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from odradek.api.requests.session import Session
from odradek.broker.network.turns import WATCHED_SECONDS, Turns
from odradek.ports.disk import Bytes, FileRange
from odradek.ports.network import WOULD_BLOCK, Part, Stream
from odradek.wire.frames import FrameError, FrameReader

JOIN_BYTES = 16384
"""Small neighbouring parts are joined up to this size: one system call is dearer than the copy."""


COPIED_BYTES = 8192
"""A file range up to this size behind small parts is read and joined to them: sendfile would take a system call for it
and end the join."""


MOST_SENDS = 32
"""System calls in which a connection sends at once. The rest of a long answer waits until others have been served."""


MANY_PARTS = 256
"""So many parts of answers gather before they are sent, while requests of the same read are still to be served."""


END_STEP_SECONDS = 0.01
END_STEPS = 500
"""Steps in which a peer must receive the last answer before its connection is closed."""


class Timing(Protocol):
    """The times of a request that waits."""

    @property
    def api(self) -> str:
        """The API's name, as metrics have it."""
        ...

    def answered(self) -> None:
        """The answer is ready."""
        ...


class Pending:
    """The place in the queue of an answer that is not there yet."""

    __slots__ = ("_connection", "abandon", "overtaking", "parts", "queued", "ready", "timing")

    def __init__(
        self, connection: InboundConnection, overtaking: bool, abandon: Callable[[], object] | None = None
    ) -> None:
        self._connection = connection
        self.overtaking = overtaking
        self.abandon = abandon
        """Stops waiting once the connection is gone; None for a request that has to run to its end."""
        self.parts: list[Part] | None = None
        self.ready = False
        self.queued = False
        self.timing: Timing | None = None
        """The object that counts how long the answer was waited for."""

    def answer(self, parts: list[Part] | None) -> None:
        """The answer has come; None where the protocol wants none."""
        self.parts = parts
        self.ready = True
        if self.timing is not None:
            self.timing.answered()
        if self.queued:
            self._connection.answered(self)


class Dispatch(Protocol):
    """Serves the requests of connections."""

    def __call__(self, frame: memoryview, connection: InboundConnection) -> list[Part] | Pending | None:
        """Serve one request. Raises Disconnect where Kafka closes the connection without an answer."""
        ...


_NO_ORDER: Final[deque[Pending]] = deque()
_NO_BACKLOG: Final[deque[bytearray]] = deque()
"""Of connections that have needed none yet; they stay empty. A deque takes 760 bytes, and most connections are idle."""


class Disconnect(Exception):
    """The request cannot be answered (unknown key, garbage): the connection is closed, with this reason in the log."""


class Shared(NamedTuple):
    """What all connections of a broker have in common."""

    dispatch: Dispatch
    """Serves their requests."""
    closed: Callable[[InboundConnection, str], None]
    """Is called when one has ended, with the reason."""
    turns: Turns
    """Which of them are served when many can be."""


class InboundConnection:
    """Reads frames, hands them to the dispatcher one after the other, writes the answers in request order.

    A request that waits (`Pending`) holds up the following ones unless its endpoint is overtaking. Reading stops while
    the peer does not take its answers or has `max_in_flight` requests open: that is the backpressure.
    """

    __slots__ = (
        "_backlog",
        "_closed_callback",
        "_dispatch",
        "_expects",
        "_flushing",
        "_frames",
        "_held",
        "_max_in_flight",
        "_mutes",
        "_order",
        "_out",
        "_reading",
        "_serving",
        "_starved",
        "_stream",
        "_turns",
        "_waits_for_turn",
        "_writing",
        "closed",
        "identifier",
        "requests_received",
        "sends_resumed",
        "session",
    )

    def __init__(
        self,
        stream: Stream,
        shared: Shared,
        identifier: int,
        session: Session,
        frames: FrameReader,
        max_in_flight: int,
    ) -> None:
        self._stream = stream
        self._dispatch, self._closed_callback, self._turns = shared
        self._frames = frames
        self._max_in_flight = max_in_flight
        self._out: list[Part] = []
        self._order = _NO_ORDER
        self._backlog = _NO_BACKLOG
        self._held: Pending | None = None
        self._mutes = 0
        self._starved = False
        self._flushing = False
        self._writing = False
        self._reading = True
        self._serving = False
        self._expects = False
        self._waits_for_turn = False
        self.closed = False
        self.identifier = identifier
        self.session = session
        self.requests_received = 0
        self.sends_resumed = 0
        """How often the peer has made room for an answer that its socket did not take."""
        stream.watch_reads(self._readable)

    # --- in ---

    def _readable(self) -> None:
        turns = self._turns
        if turns.worked > WATCHED_SECONDS and not self._waits_for_turn and turns.is_over():
            self._waits_for_turn = True
            self._adjust_reading()
            turns.wait(self)
            return
        try:
            space = self._frames.space()
            if not space:
                self._starve()
                return
            received = self._stream.receive_into(space)
            if received == WOULD_BLOCK:
                return
            if not received:
                self.close("closed by the peer")
                return
            for frame in self._frames.received(received):
                if (  # `_may_serve` written out: the call would be a twentieth of a Produce request
                    self._backlog
                    or self._held is not None
                    or self._mutes
                    or self._writing
                    or len(self._order) >= self._max_in_flight
                ):
                    # A request that must not be overtaken is open, or the client has to pause or to take its answers;
                    # frames live in the receive buffer only until the next read.
                    if self._backlog is _NO_BACKLOG:
                        self._backlog = deque()
                    self._backlog.append(bytearray(frame))
                    self._frames.buffers.charge(len(frame))
                else:
                    self._serve(frame)
                if self.closed:
                    return
            if self._frames.missing or self._expects:
                self._expects = self._frames.missing > 0
                self._stream.expect(self._frames.missing)
        except FrameError as error:
            self.close(str(error))
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if self._out and not self._writing:
            self._flush()
        self._adjust_reading()

    def take_turn(self) -> None:
        """Read, which has waited for this turn of the loop."""
        if self.closed:
            return
        self._readable()
        self._waits_for_turn = False
        self._adjust_reading()

    def _may_serve(self) -> bool:
        return self._held is None and not self._mutes and not self._writing and len(self._order) < self._max_in_flight

    def _serve(self, frame: memoryview) -> None:
        self.requests_received += 1
        try:
            answer = self._dispatch(frame, self)
        except Disconnect as reason:
            self.close(str(reason))
            return
        if answer is None:
            return
        if isinstance(answer, Pending):
            if self._order is _NO_ORDER:
                self._order = deque()
            self._order.append(answer)
            answer.queued = True
            if answer.ready:
                self._release()
            elif not answer.overtaking:
                self._held = answer
        elif self._order:
            pending = Pending(self, True)
            pending.parts, pending.ready = answer, True
            self._order.append(pending)
        else:
            self._out.extend(answer)
            if len(self._out) > MANY_PARTS or len(answer[-1]) > JOIN_BYTES:
                # A buffer full of small requests may ask for a thousand large answers.
                self._flush()

    def later(self) -> Pending:
        """The place of an answer that comes later and holds up nothing."""
        return Pending(self, True)

    def answered(self, pending: Pending) -> None:
        """An answer that was waited for has come."""
        if self.closed:
            return
        if self._order and self._order[0] is pending:
            self._release()
        if self._held is pending:
            self._held = None
        if self._backlog:
            self._serve_backlog()
        if self._flushing:
            return
        if self._out and not self._writing:
            if not self._order or self._held is not None:
                self._flush()
            elif not self._flushing:
                # More answers may come in this turn of the loop: what is committed together goes out together.
                self._flushing = True
                asyncio.get_running_loop().call_soon(self._flush_gathered)
        self._adjust_reading()

    def _flush_gathered(self) -> None:
        self._flushing = False
        if self._out and not self._writing:
            self._flush()
        self._adjust_reading()

    def _serve_backlog(self) -> None:
        if self._serving:
            return  # what is being served answered an earlier request: its own answer has to come before the next one's
        self._serving = True
        try:
            while self._backlog and self._may_serve():
                frame = self._backlog.popleft()
                self._frames.buffers.release(len(frame))
                self._serve(memoryview(frame))
        finally:
            self._serving = False

    def _release(self) -> None:
        order = self._order
        while order and order[0].ready:
            parts = order.popleft().parts
            if parts:
                self._out.extend(parts)

    def _starve(self) -> None:
        """Read no more until others have given up some of what all requests together may occupy."""
        self._starved = True
        self._adjust_reading()
        self._frames.buffers.when_free(self._fed)

    def _fed(self) -> None:
        self._starved = False
        self._adjust_reading()

    def throttle(self, milliseconds: int) -> None:
        """Serve nothing more that comes here for that long; what is answered already goes out (KIP-219)."""
        self._mutes += 1
        asyncio.get_running_loop().call_later(milliseconds / 1000, self._unmute)

    def _unmute(self) -> None:
        self._mutes -= 1
        if self._mutes or self.closed:
            return
        self._serve_backlog()
        if self._out and not self._writing:
            self._flush()
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        if self.closed:
            return
        wanted = (
            not self._writing
            and not self._backlog
            and not self._mutes
            and not self._starved
            and not self._waits_for_turn
            and len(self._order) < self._max_in_flight
        )
        if wanted != self._reading:
            self._reading = wanted
            self._stream.watch_reads(self._readable if wanted else None)

    # --- out ---

    def _flush(self) -> None:
        """Write until everything is out or the socket takes no more; of many parts as much as one turn may."""
        out, at = self._out, 0
        stream = self._stream
        left = MOST_SENDS
        try:
            while at < len(out) and left:
                left -= 1
                part = out[at]
                if isinstance(part, FileRange):
                    sent = stream.send_file(part)
                    if sent == WOULD_BLOCK:
                        break
                    if sent < part.size:
                        out[at] = FileRange(part.file, part.position + sent, part.size - sent)
                        continue
                else:
                    is_last = at + 1 == len(out)
                    data = part if is_last or len(part) >= JOIN_BYTES else self._join(at)
                    sent = stream.send(data, at + 1 < len(out))
                    if sent == WOULD_BLOCK:
                        break
                    if sent < len(data):
                        out[at] = memoryview(data)[sent:]
                        continue
                at += 1
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        del out[:at]
        blocked = bool(out)
        if blocked != self._writing:
            self._writing = blocked
            stream.watch_writes(self._writable if blocked else None)

    def _join(self, first: int) -> Bytes:
        """Make one part of that one, of bytes, and the small parts behind it. Raises OSError."""
        out = self._out
        small: list[Bytes] = []
        size = 0
        for part in out[first : first + MANY_PARTS]:
            if isinstance(part, FileRange):
                if part.size > COPIED_BYTES or size + part.size > JOIN_BYTES:
                    break
                data = _content(part)
            elif small and size + len(part) > JOIN_BYTES:
                break
            else:
                data = part
            size += len(data)
            small.append(data)
        if len(small) == 1:
            return small[0]
        joined = b"".join(small)
        out[first : first + len(small)] = (joined,)
        return joined

    def _writable(self) -> None:
        self.sends_resumed += 1
        self._flush()
        self._serve_backlog()
        if self._out and not self._writing:
            self._flush()
        self._adjust_reading()

    # --- end ---

    def end(self, reason: str) -> None:
        """Serve no further request, and close once the answers so far are sent; after 5 s in any case."""
        self._mutes += 1
        self._adjust_reading()
        asyncio.get_running_loop().call_soon(self._end, reason, END_STEPS)

    def _end(self, reason: str, steps: int) -> None:
        if self.closed:
            return
        if (self._order or self._out) and steps:
            asyncio.get_running_loop().call_later(END_STEP_SECONDS, self._end, reason, steps - 1)
        else:
            self.close(reason)

    @property
    def idle(self) -> bool:
        """Whether nothing is being served or sent."""
        return not self._order and not self._out and not self._backlog and not self._mutes

    @property
    def is_blocked(self) -> bool:
        """Whether the peer does not take its answers."""
        return self._writing

    @property
    def queued_requests(self) -> int:
        """Requests that were received and wait: for the answer to an earlier one, or for the end of a pause."""
        return len(self._backlog)

    @property
    def open_requests(self) -> Sequence[Pending]:
        """Requests that wait for their answer, and those whose answer waits for an earlier one's; oldest first."""
        return self._order

    @property
    def is_admitted(self) -> bool:
        """Whether the peer has authenticated or, where it need not, has sent a complete request."""
        return self.requests_received > 0 and self.session.is_admitted

    @property
    def awaits_peer(self) -> bool:
        """Whether only the peer can continue: this side has no request to serve and room for the next one."""
        return self.idle and not self._starved and not self._waits_for_turn

    @property
    def large_request_bytes(self) -> int | None:
        """Bytes of an unfinished request that has a buffer of its own, with those in the socket; None without one."""
        received = self._frames.large_bytes
        return None if received is None else received + self._stream.gathered_bytes()

    def close(self, reason: str) -> None:
        """Drop the connection; answers that still wait are discarded when they come."""
        if self.closed:
            return
        self.closed = True
        self._out.clear()
        for pending in self._order:
            if not pending.ready and pending.abandon is not None:
                pending.abandon()
        self._order.clear()
        self._frames.close()
        self._frames.buffers.release(sum(map(len, self._backlog)))
        self._backlog.clear()
        self._held = None
        self._stream.close()
        self._closed_callback(self, reason)


def _content(part: FileRange) -> Bytes:
    """The bytes of a range. Raises OSError where the file is shorter, as `send_file` does."""
    data = part.file.read(part.position, part.size)
    if len(data) < part.size:
        raise OSError(f"{part.file.path}: ends before byte {part.position + part.size}")
    return data
