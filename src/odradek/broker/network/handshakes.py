"""TLS handshakes of accepted connections: bounded in number, in time, and in what they take of a turn of the loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.network.repeated_lines import RepeatedLines
from odradek.ports.clock import Clock
from odradek.ports.network import Stream, TlsError
from odradek.ports.tls import Handshake, TlsStream

logger = logging.getLogger("odradek.security")

MAX_HANDSHAKES: Final = 1024
MAX_HANDSHAKES_FROM: Final = 256
"""Open handshakes of one address."""
STALLED_SECONDS: Final = 1.0
"""A handshake that has waited so long for its peer makes room for a new one, where there are too many."""
HELLO_BYTES: Final = 65_536
"""Bytes of a peer's first message; OpenSSL alone would keep twice as many of it."""
SLICE_SECONDS: Final = 0.003
"""Steps of handshakes in one turn of the loop; a step with a private key takes up to some milliseconds."""

Done = Callable[[TlsStream], None]
Rejected = Callable[[str, str, str], None]
"""Address, listener and reason of a handshake that failed."""


class _Open:
    """One handshake."""

    __slots__ = ("done", "ended", "listener_name", "stream", "timer", "waits_since", "watch")

    def __init__(self, stream: TlsStream, listener_name: str, done: Done, ended: Callable[[], None]) -> None:
        self.stream = stream
        self.listener_name = listener_name
        self.done = done
        self.ended = ended
        self.timer: asyncio.TimerHandle | None = None
        self.watch: Callable[[Callable[[], None] | None], None] | None = None
        self.waits_since = 0.0


class Handshakes:
    """Brings accepted streams through their handshakes, in the order in which they are ready."""

    __slots__ = ("_clock", "_is_stepping", "_lines", "_open", "_per_host", "_ready", "_report", "_seconds")

    def __init__(self, clock: Clock, seconds: float, report: Rejected | None = None) -> None:
        """`seconds` are what one handshake may take; `report` is called for each peer that TLS rejects."""
        self._report = report
        self._clock = clock
        self._seconds = seconds
        self._open: dict[_Open, None] = {}  # in the order of their beginnings
        self._per_host: Counter[str] = Counter()
        self._ready: deque[_Open] = deque()
        self._is_stepping = False
        self._lines = RepeatedLines(logger, clock)

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self, stream: Stream, context: ssl.SSLContext, listener_name: str, done: Done, failed: Callable[[], None]
    ) -> None:
        """Call `done` with the secured stream, or `failed`: the stream is closed then, and a line logged."""
        host = stream.peer_host
        if not self._has_room(host):
            stream.close()
            self._lines.log(
                logging.WARNING,
                "connection from %s on listener %s rejected: %d TLS handshakes are open, %d of that address",
                host, listener_name, len(self._open), self._per_host[host],
            )  # fmt: skip
            failed()
            return
        try:
            secured = TlsStream(stream, context, is_server=True)
        except OSError as error:
            self._lines.log(logging.INFO, "TLS handshake of %s on listener %s failed: %s", host, listener_name, error)
            failed()
            return
        each = _Open(secured, listener_name, done, failed)
        self._open[each] = None
        self._per_host[host] += 1
        each.timer = asyncio.get_running_loop().call_later(
            self._seconds, self._fail, each, f"not complete after {self._seconds:g} s"
        )
        self._wait(each, secured.watch_reads)

    def _has_room(self, host: str) -> bool:
        """Whether one more may begin; the oldest whose peer is silent gives way to it."""
        of_host = self._per_host.get(host, 0) >= MAX_HANDSHAKES_FROM
        if not of_host and len(self._open) < MAX_HANDSHAKES:
            return True
        until = self._clock.monotonic() - STALLED_SECONDS
        for each in self._open:
            is_stalled = each.watch is not None and each.waits_since <= until
            if is_stalled and (not of_host or each.stream.peer_host == host):
                self._fail(each, "gave way to a newer connection, because too many handshakes are open")
                return True
        return False

    def close(self) -> None:
        """Drop all that are open."""
        for each in list(self._open):
            self._remove(each)
            each.stream.abort()
        self._ready.clear()

    def _wait(self, each: _Open, watch: Callable[[Callable[[], None] | None], None]) -> None:
        each.watch = watch
        each.waits_since = self._clock.monotonic()
        watch(partial(self._is_ready, each))

    def _is_ready(self, each: _Open) -> None:
        if each.watch is not None:
            each.watch(None)
            each.watch = None
        self._ready.append(each)
        if not self._is_stepping:
            self._is_stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        """Steps for a slice of time; the rest comes in the next turn, after what else the loop has to do."""
        until = self._clock.monotonic() + SLICE_SECONDS
        try:
            while self._ready:
                each = self._ready.popleft()
                if each in self._open:
                    self._advance(each)
                if self._clock.monotonic() >= until:
                    break
        finally:
            if self._ready:
                asyncio.get_running_loop().call_soon(self._step)
            else:
                self._is_stepping = False

    def _advance(self, each: _Open) -> None:
        stream = each.stream
        try:
            wanted = stream.handshake()
        except TlsError as error:
            self._fail(each, str(error))
            if self._report is not None:
                self._report(stream.peer_host, each.listener_name, str(error))
            return
        if stream.received_bytes > HELLO_BYTES and not stream.has_answered:
            self._fail(each, f"the first message of the peer is larger than {HELLO_BYTES} bytes")
        elif wanted is Handshake.COMPLETE:
            self._remove(each)
            each.done(stream)
        else:
            self._wait(each, stream.watch_reads if wanted is Handshake.WANTS_READ else stream.watch_writes)

    def _fail(self, each: _Open, reason: str) -> None:
        self._remove(each)
        each.stream.abort()
        self._lines.log(
            logging.INFO,
            "TLS handshake of %s on listener %s failed: %s",
            each.stream.peer_host,
            each.listener_name,
            reason,
        )
        each.ended()

    def _remove(self, each: _Open) -> None:
        self._open.pop(each, None)
        host = each.stream.peer_host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        if each.timer is not None:
            each.timer.cancel()
