"""TLS over the sockets of `TcpStream`: a stream that encrypts, and the handshake before it.

OpenSSL reads and writes memory here, not the socket: a peer that writes small TLS records would cost two system calls
for each of them. All connections of an event loop share the memory (`_Records`), because a buffer of OpenSSL's memory
BIO never shrinks. What one connection leaves in it would be read by the next one, so each call empties it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from enum import Enum
from typing import Final
from weakref import WeakKeyDictionary

from odradek.ports.disk import Bytes, FileRange
from odradek.ports.network import MORE, WOULD_BLOCK, Stream, TcpStream, TlsError, bytes_to_wait_for, gathered_bytes

RECEIVE_BYTES: Final = 131_072
"""Encrypted bytes of one read of the socket."""
SEND_BYTES: Final = 32_768
"""Bytes that are encrypted for one write to the socket. What it does not take of them waits in memory."""
HANDSHAKE_BYTES: Final = 16_384
"""Encrypted bytes of one read of the socket before the handshake is complete."""
MOST_RECORD_BYTES: Final = 5 + 16_384 + 256
"""Encrypted bytes of the largest TLS record."""
MOST_UNSENT_BYTES: Final = 65_536
"""Encrypted bytes that may wait for a peer which does not read, besides those of `send`: answers to key updates."""

_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "HTTP_REQUEST": "the peer sent an HTTP request in plain text",
    "HTTPS_PROXY_REQUEST": "the peer sent an HTTP request in plain text",
    "PACKET_LENGTH_TOO_LONG": "the peer does not speak TLS",
    "RECORD_LAYER_FAILURE": "the peer does not speak TLS",
    "UNEXPECTED_MESSAGE": "the peer does not speak TLS as expected",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer has no certificate, and ssl.client.auth=required",
    "NO_SHARED_CIPHER": "both sides have no cipher suite in common",
    "UNSUPPORTED_PROTOCOL": "both sides have no TLS version in common",
    "TLSV1_ALERT_PROTOCOL_VERSION": "both sides have no TLS version in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the authority of this side's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer rejects this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this side's certificate has expired, the peer says",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer rejects this side's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer accepts neither version, cipher suite nor certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate, and this side has sent none",
    "UNEXPECTED_EOF_WHILE_READING": "the peer closed the connection",
}
"""OpenSSL's names of failures, in words."""


def tls_error(error: OSError) -> TlsError:
    """The failure in words."""
    if isinstance(error, TlsError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"the peer's certificate is not valid: {error.verify_message.rstrip('.')}", error.reason or "")
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        return TlsError("the peer closed the connection", "EOF")
    reason = (isinstance(error, ssl.SSLError) and error.reason) or ""
    text = _REASONS.get(reason) or reason.lower().replace("_", " ") or error.strerror or str(error)
    return TlsError(f"{text} ({reason})" if reason in _REASONS else text, reason)


class Handshake(Enum):
    """What a handshake waits for."""

    COMPLETE = "complete"
    WANTS_READ = "bytes of the peer"
    WANTS_WRITE = "room for bytes to the peer"


class _Records:
    """The memory between OpenSSL and the sockets of an event loop. It holds encrypted bytes within one call only."""

    __slots__ = ("file", "incoming", "outgoing", "received")

    def __init__(self) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.received = memoryview(bytearray(RECEIVE_BYTES))
        self.file = memoryview(bytearray(SEND_BYTES))


_RECORDS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Records]] = WeakKeyDictionary()


class TlsStream:
    """A TLS connection on the running event loop. `handshake` until it is complete, then as any stream."""

    __slots__ = (
        "_expected",
        "_failure",
        "_fd",
        "_has_ended",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_on_read",
        "_on_write",
        "_records",
        "_socket",
        "_taken",
        "_tls",
        "_undecrypted",
        "_unsent",
        "has_answered",
        "peer_host",
        "peer_port",
        "received_bytes",
    )

    def __init__(
        self, stream: Stream, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None
    ) -> None:
        """Take the socket of a stream."""
        if not isinstance(stream, TcpStream):
            raise TypeError(f"TLS needs a TCP stream, not {type(stream).__name__}")
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self.received_bytes = 0
        """Encrypted bytes that were received in the handshake."""
        self.has_answered = False
        """Whether this end has sent something; a server does when it has read the peer's first message."""
        self._loop = asyncio.get_running_loop()
        records = _RECORDS.get(self._loop)
        if records is None:
            records = _RECORDS[self._loop] = _Records()
        self._records = records
        self._tls = context.wrap_bio(
            records.incoming, records.outgoing, server_side=is_server, server_hostname=server_name
        )
        self._socket = stream.detach()
        self._fd = self._socket.fileno()
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None
        self._is_reading = self._is_writing = False
        self._undecrypted = b""  # received, but there was no room for its contents
        self._unsent: Bytes = b""  # encrypted, but the socket did not take it
        self._expected = 1
        self._taken = 0  # plain bytes of which `_unsent` is the end; `send` reports them when it is sent
        self._failure: TlsError | None = None  # what the next `receive_into` raises
        self._has_ended = False  # the peer has sent its close_notify

    # --- handshake ---

    def handshake(self) -> Handshake:
        """One step. Raises TlsError."""
        try:
            if self._unsent and not self._send_rest():
                return Handshake.WANTS_WRITE
            if self._shake():
                return Handshake.WANTS_WRITE if self._unsent else Handshake.COMPLETE
            if self._unsent:
                return Handshake.WANTS_WRITE
            count = self._receive(HANDSHAKE_BYTES)
            if count == WOULD_BLOCK:
                return Handshake.WANTS_READ
            if not count:
                raise TlsError("the peer closed the connection", "EOF")
            self.received_bytes += count
            self._undecrypted += self._records.received[:count]
            is_complete = self._shake()
        except OSError as error:
            raise tls_error(error) from error
        if self._unsent:
            return Handshake.WANTS_WRITE
        return Handshake.COMPLETE if is_complete else Handshake.WANTS_READ

    def _shake(self) -> bool:
        """Have OpenSSL read and write what it can; whether the handshake is complete."""
        records = self._records
        if self._undecrypted:
            records.incoming.write(self._undecrypted)
            self._undecrypted = b""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._undecrypted = records.incoming.read()  # the first request may come with the end of the handshake
            self.has_answered = self.has_answered or records.outgoing.pending > 0
            self._send_records()
        return True

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, verified; None where it has sent none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The TLS version, as `TLSv1.3`."""
        return self._tls.version() or ""

    def abort(self) -> None:
        """Close after a failed handshake: an alert that was sent reaches the peer, who may have sent more."""
        with contextlib.suppress(OSError):
            # Unread bytes would turn the close into a reset, which discards the alert.
            self._socket.recv_into(self._records.received)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._unwatch()
        self._socket.close()

    # --- stream ---

    def receive_into(self, buffer: memoryview) -> int:
        """As `Stream.receive_into`: as many records as one read of the socket brings."""
        if self._failure is not None or self._has_ended:
            return self._nothing()
        if not self._undecrypted and not self._tls.pending():
            count = self._receive(RECEIVE_BYTES)
            if count <= 0:
                return count
            self._records.incoming.write(self._records.received[:count])
        received = self._decrypt(buffer)
        if not received:
            return self._nothing()
        # Decrypted bytes, and an end that was found behind the first ones, make no socket readable.
        if self._on_read is not None and self._has_more():
            self._loop.call_soon(self._read_pending)
        return received

    def _nothing(self) -> int:
        """What `receive_into` reports in the place of bytes."""
        if self._failure is not None:
            raise self._failure
        return 0 if self._has_ended else WOULD_BLOCK

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt what was received, as far as the buffer reaches; its bytes."""
        size, received = len(buffer), 0
        tls, incoming = self._tls, self._records.incoming
        if self._undecrypted:
            incoming.write(self._undecrypted)
            self._undecrypted = b""
        try:
            while received < size:
                count = tls.read(size - received, buffer[received:])
                if not count:
                    self._has_ended = True
                    break
                received += int(count)
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            self._failure = tls_error(error)
        finally:
            if incoming.pending:
                self._undecrypted = incoming.read()
            if self._records.outgoing.pending:
                self._answer()
        return received

    def send(self, part: Bytes, more: bool) -> int:
        """As `Stream.send`. After WOULD_BLOCK the next bytes must begin with the same ones: they are encrypted."""
        if self._unsent and not self._send_rest():
            return WOULD_BLOCK
        sent, self._taken = self._taken, 0
        if sent:
            return sent
        size = len(part)
        while sent < size:
            piece = memoryview(part)[sent : sent + SEND_BYTES] if size > SEND_BYTES else part
            try:
                try:
                    self._tls.write(piece)
                finally:
                    self._send_records(more)
            except OSError as error:
                raise tls_error(error) from error
            if self._unsent:
                self._taken = len(piece)
                return sent or WOULD_BLOCK
            sent += len(piece)
        return sent

    def send_file(self, part: FileRange) -> int:
        """As `Stream.send_file`, but the bytes pass through the process, which encrypts them."""
        if self._unsent or self._taken:
            return self.send(b"", False)
        descriptor, size, sent = part.file.fileno(), part.size, 0
        while sent < size:
            space = self._records.file[: size - sent]
            count = os.preadv(descriptor, [space], part.position + sent)
            if not count:
                raise OSError(f"{part.file.path}: ends before byte {part.position + size}")
            if self.send(space[:count], False) == WOULD_BLOCK:
                return sent or WOULD_BLOCK
            sent += count
        return sent

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """As `Stream.watch_reads`."""
        self._on_read = callback
        if callback is not None:
            self._loop.add_reader(self._fd, callback)
            self._is_reading = True
            if self._has_more():
                self._loop.call_soon(self._read_pending)
        elif self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False

    def expect(self, size: int) -> None:
        """As `Stream.expect`. The beginning of a record may be in OpenSSL's memory already: it does not count."""
        wanted = bytes_to_wait_for(size - MOST_RECORD_BYTES)
        if wanted != self._expected:
            self._expected = wanted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def gathered_bytes(self) -> int:
        """As `Stream.gathered_bytes`."""
        return gathered_bytes(self._fd)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """As `Stream.watch_writes`."""
        self._on_write = callback
        self._watch_writes()

    def close(self) -> None:
        """Send close_notify as far as the socket takes it, and close."""
        if self._socket.fileno() < 0:
            return
        self._unwatch()
        with contextlib.suppress(OSError):
            if not self._unsent:
                try:
                    self._tls.unwrap()  # does not wait: the answer of the peer is of no use
                finally:
                    self._send_records()
        self._socket.close()

    # --- the socket ---

    def _receive(self, most: int) -> int:
        """Bytes read from the socket into the loop's memory, 0 at the end, or WOULD_BLOCK. Raises TlsError."""
        try:
            return self._socket.recv_into(self._records.received, most)
        except BlockingIOError:
            return WOULD_BLOCK
        except OSError as error:
            raise tls_error(error) from error

    def _answer(self) -> None:
        """Send what OpenSSL has written while it read: an alert, or new keys that the peer asks for."""
        try:
            self._send_records()
        except OSError as error:
            self._failure = self._failure or tls_error(error)

    def _send_records(self, more: bool = False) -> None:
        """Send what OpenSSL has written, or keep it in `_unsent`. Raises OSError."""
        data = self._records.outgoing.read()
        if not data:
            return
        if self._unsent:
            if len(self._unsent) + len(data) > SEND_BYTES + MOST_UNSENT_BYTES:
                raise TlsError("the peer asks for new keys and does not read the answers")
            self._unsent = bytes(self._unsent) + data
            return
        try:
            sent = self._socket.send(data, MORE if more else 0)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._watch_writes()

    def _send_rest(self) -> bool:
        """Send what the socket did not take before; whether all of it is sent now. Raises TlsError."""
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return False
        except OSError as error:
            raise tls_error(error) from error
        self._unsent = memoryview(self._unsent)[sent:]
        if self._unsent:
            return False
        self._unsent = b""
        self._watch_writes()
        return True

    # --- readiness ---

    def _has_more(self) -> bool:
        return bool(self._undecrypted or self._has_ended or self._failure is not None or self._tls.pending())

    def _read_pending(self) -> None:
        if self._on_read is not None:
            self._on_read()

    def _writable(self) -> None:
        if self._on_write is not None:
            self._on_write()
            return
        try:
            self._send_rest()  # an answer to a key update
        except TlsError as error:
            self._failure = error
            self._unsent = b""
            self._watch_writes()
            self._read_pending()

    def _watch_writes(self) -> None:
        is_wanted = self._on_write is not None or bool(self._unsent)
        if is_wanted != self._is_writing:
            self._is_writing = is_wanted
            if is_wanted:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _unwatch(self) -> None:
        self.watch_reads(None)
        self._on_write = None
        if self._is_writing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False


async def connect_tls(stream: Stream, context: ssl.SSLContext, host: str, timeout: float) -> TlsStream:
    """The client's side of a handshake, complete within that many seconds. Raises TlsError, TimeoutError."""
    secured = TlsStream(stream, context, is_server=False, server_name=host)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            while (wanted := secured.handshake()) is not Handshake.COMPLETE:
                ready: asyncio.Future[None] = loop.create_future()

                def wake(ready: asyncio.Future[None] = ready) -> None:
                    if not ready.done():
                        ready.set_result(None)

                watch = secured.watch_reads if wanted is Handshake.WANTS_READ else secured.watch_writes
                watch(wake)
                await ready
                watch(None)
    except BaseException:
        secured.abort()
        raise
    return secured
