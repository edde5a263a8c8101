"""TLS over the sockets of `TcpStream`: a stream that encrypts, and the handshake before it.

`ssl.SSLSocket` works on the descriptor itself, without buffers of its own between the socket and OpenSSL.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import ssl
import struct
import termios
from collections.abc import Callable
from enum import Enum
from typing import Final

from odradek.ports.disk import Bytes, FileRange
from odradek.ports.network import WOULD_BLOCK, Stream, TcpStream, TlsError

FILE_CHUNK: Final = 131_072
"""Bytes that are read from a file for one call of `send_file`."""
_DRAIN_BYTES: Final = 65_536
_INT: Final = struct.Struct("@i")

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


class TlsStream:
    """A TLS connection on the running event loop. `handshake` until it is complete, then as any stream."""

    __slots__ = (
        "_fd",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_on_read",
        "_on_write",
        "_read_wants_write",
        "_socket",
        "_write_wants_read",
        "peer_host",
        "peer_port",
    )

    def __init__(
        self, stream: Stream, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None
    ) -> None:
        """Take the socket of a stream. Raises OSError where the peer is gone; the stream is closed then."""
        if not isinstance(stream, TcpStream):
            raise TypeError(f"TLS needs a TCP stream, not {type(stream).__name__}")
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self._loop = asyncio.get_running_loop()
        plain = stream.detach()
        try:
            self._socket = context.wrap_socket(
                plain, server_side=is_server, do_handshake_on_connect=False, server_hostname=server_name
            )
        except BaseException:
            plain.close()
            raise
        self._fd = self._socket.fileno()
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None
        self._is_reading = self._is_writing = False
        self._read_wants_write = self._write_wants_read = False

    # --- handshake ---

    def handshake(self) -> Handshake:
        """One step. Raises TlsError."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return Handshake.WANTS_READ
        except ssl.SSLWantWriteError:
            return Handshake.WANTS_WRITE
        except OSError as error:
            raise tls_error(error) from error
        return Handshake.COMPLETE

    @property
    def unread_bytes(self) -> int:
        """Bytes of the peer that wait in the socket, still encrypted."""
        waiting = bytearray(_INT.size)
        fcntl.ioctl(self._fd, termios.FIONREAD, waiting)
        return int(_INT.unpack(waiting)[0])

    @property
    def is_negotiated(self) -> bool:
        """Whether the peer's first message has been read, so that version and cipher suite are chosen."""
        return self._socket.shared_ciphers() is not None

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, verified; None where it has sent none."""
        return self._socket.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The TLS version, as `TLSv1.3`."""
        return self._socket.version() or ""

    def abort(self) -> None:
        """Close after a failed handshake: an alert that was sent reaches the peer, who may have sent more."""
        with contextlib.suppress(OSError):
            self._socket.setblocking(False)
            # Unread bytes would turn the close into a reset, which discards the alert.
            socket.socket.recv(self._socket, _DRAIN_BYTES)
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_WR)
        self._unwatch()
        self._socket.close()

    # --- stream ---

    def receive_into(self, buffer: memoryview) -> int:
        """As `Stream.receive_into`: as many records as there are, OpenSSL hands out one at a time."""
        size, received = len(buffer), 0
        try:
            while received < size:
                count = self._socket.read(size - received, buffer[received:])
                if not count:
                    break
                received += int(count)
        except ssl.SSLWantReadError:
            return received or WOULD_BLOCK
        except ssl.SSLWantWriteError:
            self._read_wants_write = True
            self._watch()
            return received or WOULD_BLOCK
        except OSError as error:
            if not received:
                raise tls_error(error) from error
        # Decrypted bytes, and an end that was found behind the first ones, make no socket readable.
        if received and (received < size or self._socket.pending()) and self._on_read is not None:
            self._loop.call_soon(self._read_pending)
        return received

    def send(self, part: Bytes, more: bool) -> int:
        """As `Stream.send`. After WOULD_BLOCK the next bytes must begin with the same ones, as OpenSSL demands."""
        del more  # OpenSSL writes each record by itself
        size, sent = len(part), 0
        try:
            while sent < size:
                sent += self._socket.send(memoryview(part)[sent:] if sent else part)
        except ssl.SSLWantWriteError:
            return sent or WOULD_BLOCK
        except ssl.SSLWantReadError:
            self._write_wants_read = True
            return sent or WOULD_BLOCK
        except OSError as error:
            raise tls_error(error) from error
        return sent

    def send_file(self, part: FileRange) -> int:
        """As `Stream.send_file`, but the bytes pass through the process, which encrypts them."""
        data = os.pread(part.file.fileno(), min(FILE_CHUNK, part.size), part.position)
        if not data:
            raise OSError(f"{part.file.path}: ends before byte {part.position + part.size}")
        return self.send(data, False)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """As `Stream.watch_reads`."""
        self._on_read = callback
        self._watch()
        if callback is not None and self._socket.pending():
            self._loop.call_soon(self._read_pending)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """As `Stream.watch_writes`."""
        self._on_write = callback
        self._watch()

    def close(self) -> None:
        """Send close_notify as far as the socket takes it, and close."""
        if self._socket.fileno() < 0:
            return
        self._unwatch()
        with contextlib.suppress(OSError, ValueError):
            self._socket.unwrap()  # does not wait: the answer of the peer is of no use
        self._socket.close()

    # --- readiness ---

    def _read_pending(self) -> None:
        if self._on_read is not None:
            self._on_read()

    def _readable(self) -> None:
        if self._write_wants_read:
            self._write_wants_read = False
            self._watch()
            if self._on_write is not None:
                self._on_write()
        if self._on_read is not None:
            self._on_read()

    def _writable(self) -> None:
        if self._read_wants_write:
            self._read_wants_write = False
            self._watch()
            if self._on_read is not None:
                self._on_read()
        if self._on_write is not None and not self._write_wants_read:
            self._on_write()

    def _watch(self) -> None:
        reads = self._on_read is not None or (self._write_wants_read and self._on_write is not None)
        if reads != self._is_reading:
            self._is_reading = reads
            if reads:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        writes = (self._on_write is not None and not self._write_wants_read) or (
            self._read_wants_write and self._on_read is not None
        )
        if writes != self._is_writing:
            self._is_writing = writes
            if writes:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _unwatch(self) -> None:
        self._on_read = self._on_write = None
        self._watch()


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
