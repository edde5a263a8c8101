"""Byte streams between processes, as handed to broker and client: raw non-blocking sockets here, simulated ones
elsewhere.

A stream is driven by readiness callbacks and never blocks. File ranges leave through sendfile.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

from odradek.ports.disk import Bytes, FileRange

Part = Bytes | FileRange
"""A piece of an answer: bytes, or a range of a file that is sent without being read into the process."""

WOULD_BLOCK = -1


class Stream(Protocol):
    """A connected, ordered byte stream."""

    peer_host: str
    peer_port: int

    def receive_into(self, buffer: memoryview) -> int:
        """Bytes read, 0 at the end of the stream, WOULD_BLOCK when there is nothing now. OSError when broken."""
        ...

    def send(self, part: Bytes, more: bool) -> int:
        """Bytes taken (maybe fewer), or WOULD_BLOCK. `more` announces that another part follows at once."""
        ...

    def send_file(self, part: FileRange) -> int:
        """Bytes taken (maybe fewer), or WOULD_BLOCK; OSError if the file is shorter than the range says."""
        ...

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever bytes can be received; None stops it (backpressure)."""
        ...

    def expect(self, size: int) -> None:
        """Say that the next `size` bytes of the peer are of use only together; 0 takes it back.

        Reads may then be called back when many of them have come, or the stream has ended, in place of for each packet.
        """
        ...

    def gathered_bytes(self) -> int:
        """The number of bytes that have come and were not received yet; encrypted ones with TLS."""
        ...

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever bytes can be sent; None stops it."""
        ...

    def close(self) -> None:
        """Close the connection; nothing is called back after."""
        ...


Secure = Callable[[Stream, str, float], Awaitable[Stream]]
"""Put TLS on a connected stream to the named host within some seconds. Raises OSError."""


class TlsError(OSError):
    """A TLS failure, in words; `reason` is OpenSSL's name of it, empty where it has none."""

    def __init__(self, text: str, reason: str = "") -> None:
        self.reason = reason
        super().__init__(None, text)

    def __str__(self) -> str:
        return self.strerror or ""


class Listener(Protocol):
    """A socket that accepts connections; `port` is the bound one, never 0."""

    host: str
    port: int

    def close(self) -> None:
        """Accept no further connection; accepted streams stay open."""
        ...


class BufferSizes(NamedTuple):
    """Bytes of a socket's buffers in the kernel; -1 leaves a size to the system, which adapts it."""

    send: int = -1
    receive: int = -1


SYSTEM_BUFFERS: Final = BufferSizes()


class Network(Protocol):
    """Listening and connecting. Host names and port numbers as in `listeners`; port 0 picks a free port."""

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        """Bind and call `accept` for each connection. Raises OSError."""
        ...

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> Stream:
        """An open stream; raises OSError, or TimeoutError after timeout seconds. All addresses of a host are tried.

        The stream breaks when the peer's kernel has acknowledged nothing for `silence` seconds; 0.0 leaves that to the
        system, which takes minutes to hours.
        """
        ...

    def own_host(self) -> str:
        """A name or address under which other machines reach this one, for listeners bound to all interfaces."""
        ...


_HAS_MSG_MORE = hasattr(socket, "MSG_MORE")
MORE = socket.MSG_MORE if _HAS_MSG_MORE else 0
"""The flag of send(2) that announces another part."""
_ACCEPTS_PER_WAKE = 64
_PROBES_IN_SILENCE = 3
"""How often an idle connection is probed within the time after which a silent peer counts as gone."""
_ELSEWHERE = ("192.0.2.1", 9)
"""An address of the documentation's network; a datagram socket that connects to it sends nothing."""


GATHERED_BYTES: Final = 65_536
"""So many bytes of a large frame gather in the socket before it is read: a read for each packet costs more than they
do."""
_MOST_GATHERED_BYTES: Final = 1 << 20
"""The same where the kernel lets a socket's buffer grow with the mark."""
_GROWING_BUFFERS: Final = (4, 18)
"""The version of Linux since which it does, limits the mark to half of the largest buffer, and wakes the reader of a
full buffer in any case. Elsewhere a mark above the buffer's size could keep the reader asleep for good."""
_FEW_BYTES: Final = 4096


def bytes_to_wait_for(expected: int, most: int = GATHERED_BYTES) -> int:
    """The bytes that make a socket readable (SO_RCVLOWAT) of whose peer the next `expected` bytes belong together."""
    if expected >= most:
        return most
    return expected if expected > _FEW_BYTES else 1


def most_gathered_bytes(system: str, release: str) -> int:
    """How much of a frame may gather in a plain socket, by the kernel's name and release as of `os.uname`."""
    major, minor = (*release.split("."), "")[:2]
    grows = system == "Linux" and major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= _GROWING_BUFFERS
    return _MOST_GATHERED_BYTES if grows else GATHERED_BYTES


_PLAIN_GATHERED_BYTES: Final = most_gathered_bytes(os.uname().sysname, os.uname().release)


def gathered_bytes(descriptor: int) -> int:
    """The bytes that wait in a socket to be received."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


class TcpStream:
    """A TCP socket on the running event loop."""

    __slots__ = ("_expected", "_fd", "_loop", "_reading", "_socket", "_writing", "peer_host", "peer_port")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # As Kafka does: a peer that is gone without a word, while it is waited for, is noticed some time.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._reading = self._writing = False
        self._expected = 1
        peer = sock.getpeername()
        self.peer_host: str = peer[0]
        self.peer_port: int = peer[1]

    def receive_into(self, buffer: memoryview) -> int:
        """Implements Stream."""
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return WOULD_BLOCK

    def send(self, part: Bytes, more: bool) -> int:
        """Implements Stream."""
        try:
            return self._socket.send(part, MORE if more else 0)
        except BlockingIOError:
            return WOULD_BLOCK

    def send_file(self, part: FileRange) -> int:
        """Implements Stream, by sendfile(2)."""
        try:
            sent = os.sendfile(self._fd, part.file.fileno(), part.position, part.size)
        except BlockingIOError:
            return WOULD_BLOCK
        if not sent:
            raise OSError(f"{part.file.path}: ends before byte {part.position + part.size}")
        return sent

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Implements Stream."""
        if callback is not None:
            self._loop.add_reader(self._fd, callback)
            self._reading = True
        elif self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def expect(self, size: int) -> None:
        """Implements Stream."""
        wanted = bytes_to_wait_for(size, _PLAIN_GATHERED_BYTES)
        if wanted != self._expected:
            self._expected = wanted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def gathered_bytes(self) -> int:
        """Implements Stream."""
        return gathered_bytes(self._fd)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Implements Stream."""
        if callback is not None:
            self._loop.add_writer(self._fd, callback)
            self._writing = True
        elif self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False

    def detach(self) -> socket.socket:
        """The socket, which this stream gives up."""
        self.watch_reads(None)
        self.watch_writes(None)
        return self._socket

    def close(self) -> None:
        """Implements Stream."""
        self.watch_reads(None)
        self.watch_writes(None)
        self._socket.close()


class TcpListener:
    """A listening TCP socket that hands out accepted streams."""

    __slots__ = ("_accept", "_loop", "_socket", "host", "port")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, accept: Callable[[Stream], None]) -> None:
        self._socket = sock
        self._loop = loop
        self._accept = accept
        self.host: str = sock.getsockname()[0]
        self.port: int = sock.getsockname()[1]
        loop.add_reader(sock.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors, or the peer has gone again. Try later: the listening socket stays readable.
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(0.1, self._again)
                return
            try:
                stream = TcpStream(accepted, self._loop)
            except OSError:
                accepted.close()
                continue
            self._accept(stream)

    def _again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._acceptable)

    def close(self) -> None:
        """Implements Listener."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the address, which does not block. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def inherited_listener(descriptor: int, accept: Callable[[Stream], None]) -> TcpListener:
    """A listener on a socket that another process opened; whichever process is ready first accepts a connection."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return TcpListener(sock, asyncio.get_running_loop(), accept)


def limit_silence(sock: socket.socket, seconds: float) -> None:
    """Have the kernel probe an idle peer, and break the connection after that many seconds without an answer."""
    pause = max(1, round(seconds / _PROBES_IN_SILENCE))
    # By name, as systems differ. Without the user timeout (Linux) data on their way are repeated for many minutes.
    for name, value in (
        ("TCP_KEEPIDLE", pause),
        ("TCP_KEEPALIVE", pause),
        ("TCP_KEEPINTVL", pause),
        ("TCP_KEEPCNT", _PROBES_IN_SILENCE),
        ("TCP_USER_TIMEOUT", int(seconds * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _size_buffers(sock: socket.socket, sizes: BufferSizes) -> None:
    """Before the socket connects: the size of the receive buffer limits the window that the peer is offered."""
    for option, size in ((socket.SO_SNDBUF, sizes.send), (socket.SO_RCVBUF, sizes.receive)):
        if size >= 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)


async def canonical_names(host: str, port: int) -> list[str]:
    """The name of each address of a host; where an address has no name, the address. Raises OSError."""
    loop = asyncio.get_running_loop()
    names: dict[str, None] = {}
    for *_, address in await _addresses(loop, host, port):
        name, _ = await loop.getnameinfo(address, socket.NI_NUMERICSERV)
        names[name] = None
    return list(names)


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
    """The addresses of a host, as of `socket.getaddrinfo`; raises OSError.

    Numbers need no thread that asks a name service. A str would load the codec of international names (4 ms).
    """
    name = host.encode() if host.isascii() else host
    try:
        return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)


class TcpNetwork:
    """TCP over the machine's network, on the running event loop."""

    __slots__ = ()

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> TcpListener:
        """Implements Network."""
        return TcpListener(listening_socket(host, port), asyncio.get_running_loop(), accept)

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> TcpStream:
        """Implements Network."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            found = await _addresses(loop, host, port)
            failure: OSError = OSError(f"{host}:{port}: no address")
            for family, kind, protocol, _, address in found:
                sock = socket.socket(family, kind, protocol)
                try:
                    sock.setblocking(False)
                    if silence:
                        limit_silence(sock, silence)
                    _size_buffers(sock, buffers)
                    await loop.sock_connect(sock, address)
                    return TcpStream(sock, loop)
                except OSError as error:
                    sock.close()
                    failure = error
                except asyncio.CancelledError:
                    sock.close()
                    raise
            raise failure

    def own_host(self) -> str:
        """The canonical name, as Kafka's; where that is `localhost`, the address that routes to other machines."""
        name = socket.getfqdn()
        if name.partition(".")[0] != "localhost":
            return name
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(_ELSEWHERE)
            except OSError:
                return name
            address: str = probe.getsockname()[0]
            return address
