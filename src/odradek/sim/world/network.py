"""A network in memory: ordered byte streams with delays, short reads, cuts, stalls and ends of every kind.

Bytes of one direction arrive in the order in which they were sent, whatever happens to the link, as TCP has it. A cut
link holds them until it heals; a reset loses those under way; a machine that loses power says nothing at all, and the
other side learns of it when it sends to the machine that came back.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import zlib
from collections import deque
from collections.abc import Callable

from odradek.ports.disk import Bytes, FileRange
from odradek.ports.network import SYSTEM_BUFFERS, WOULD_BLOCK, BufferSizes, Stream, bytes_to_wait_for
from odradek.sim.world.loop import Process, SimulatedLoop

WINDOW_BYTES = 64 * 1024
"""What a direction holds between sender and receiver before the sender has to wait."""

_WRITABLE_BYTES = WINDOW_BYTES * 2 // 3
"""Who waits is called when no more than this is left, as on Linux. Called for every byte that gets free, senders would
fill the window with ever smaller pieces, each of which travels by itself."""

_MOST_EXPECTED_BYTES = _WRITABLE_BYTES // 2
"""So many bytes are always readable, as kernels do it: the window must not be full while its reader waits for more."""


_PROBES_IN_SILENCE = 3
"""How often an idle connection is probed within the time after which it breaks."""


class Link:
    """The way from one host to another, one direction."""

    __slots__ = ("cut_until", "latency", "slow_until")

    def __init__(self, latency: tuple[float, float]) -> None:
        self.latency = latency
        self.cut_until = 0.0
        self.slow_until = 0.0


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_arrives", "_chunks", "_timer", "arrived", "broken", "ended", "in_flight", "link", "network", "reader",
        "stalled_until", "writer",
    )  # fmt: skip

    def __init__(self, network: SimulatedNetwork, link: Link) -> None:
        self.network = network
        self.link = link
        self.arrived = bytearray()
        self.in_flight = 0
        self.ended = False
        self.broken: OSError | None = None
        self.stalled_until = 0.0
        self.reader: SimulatedStream | None = None
        self.writer: SimulatedStream | None = None
        self._chunks: deque[bytes | OSError | None] = deque()
        self._arrives = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: bytes | OSError | None) -> None:
        """Bytes, the end of the stream (None) or a reset."""
        self._chunks.append(item)
        if isinstance(item, bytes):
            self.in_flight += len(item)
        if self._timer is None:
            self._schedule()

    def lose(self) -> None:
        """Drop what is under way; random, as the kernel had sent some of it or not."""
        keep = self.network.rng.randrange(len(self._chunks) + 1)
        while len(self._chunks) > keep:
            lost = self._chunks.pop()
            self.in_flight -= len(lost) if isinstance(lost, bytes) else 0

    def reset(self) -> None:
        """The reader gets some of what is under way, then a reset."""
        self.lose()
        self.put(_reset())

    def _schedule(self) -> None:
        network, link = self.network, self.link
        now = network.loop.time()
        delay = network.rng.uniform(*link.latency)
        if link.slow_until > now:
            delay += network.rng.uniform(0.01, 0.4)
        at = max(self._arrives, now + delay, link.cut_until, self.stalled_until)
        self._arrives = at
        self._timer = network.loop.call_at(at, self._arrive, context=network.context)

    def _arrive(self) -> None:
        self._timer = None
        network = self.network
        now = network.loop.time()
        if self.link.cut_until > now or self.stalled_until > now:
            self._schedule()
            return
        if not self._chunks:
            return
        item = self._chunks.popleft()
        if isinstance(item, bytes):
            size = len(item)
            if size > 1 and network.rng.random() < 0.15:
                size = network.rng.randrange(1, size)
                self._chunks.appendleft(item[size:])
                item = item[:size]
            self.in_flight -= size
            if self.ended or self.broken is not None:
                pass
            elif self.reader is None or self.reader.closed:
                # The receiving process is gone: the sender gets a reset, as by TCP.
                self._refuse()
            else:
                network.loop.trace.mix(b"net%d" % zlib.crc32(item))
                self.arrived += item
        elif item is None:
            self.ended = True
        else:
            self.broken = item
            self.arrived.clear()
        if self.reader is not None:
            self.reader.readable()
        if self.writer is not None:
            self.writer.writable()
        if self._chunks:
            self._schedule()

    def _refuse(self) -> None:
        self._chunks.clear()
        self.in_flight = 0
        back = self.writer.incoming if self.writer is not None else None
        if back is not None and back.broken is None:
            back.put(_reset())


def _reset() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")


class SimulatedStream:
    """One end of a connection, a `Stream`."""

    __slots__ = (
        "_expected", "_notify_read", "_notify_write", "_on_read", "_on_write", "_silent_since", "closed", "incoming",
        "outgoing", "peer_host", "peer_port", "process",
    )  # fmt: skip

    def __init__(self, process: Process, peer: tuple[str, int], incoming: Pipe, outgoing: Pipe) -> None:
        self.process = process
        self.peer_host, self.peer_port = peer
        self.incoming = incoming
        self.outgoing = outgoing
        self.closed = False
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None
        self._notify_read = self._notify_write = False
        self._expected = 1
        self._silent_since = 0.0
        incoming.reader = self
        outgoing.writer = self

    # --- the Stream port ---

    def receive_into(self, buffer: memoryview) -> int:
        """As `Stream.receive_into`."""
        self._ensure_open()
        pipe = self.incoming
        if pipe.broken is not None:
            raise pipe.broken
        arrived = pipe.arrived
        if not arrived:
            return 0 if pipe.ended else WOULD_BLOCK
        size = min(len(buffer), len(arrived))
        if size > 1 and pipe.network.rng.random() < 0.05:
            size = pipe.network.rng.randrange(1, size)
        buffer[:size] = arrived[:size]
        del arrived[:size]
        if pipe.writer is not None:
            pipe.writer.writable()
        return size

    def send(self, part: Bytes, more: bool) -> int:
        """As `Stream.send`."""
        return self._send(bytes(part[: self._room()]))

    def send_file(self, part: FileRange) -> int:
        """As `Stream.send_file`."""
        room = self._room()
        if not room:
            return self._send(b"")
        data = part.file.read(part.position, min(part.size, room))
        if not data:
            raise OSError(f"{part.file.path}: ends before byte {part.position + part.size}")
        return self._send(data)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """As `Stream.watch_reads`."""
        self._on_read = callback
        if callback is not None:
            self.readable()

    def expect(self, size: int) -> None:
        """As `Stream.expect`."""
        self._expected = min(bytes_to_wait_for(size), _MOST_EXPECTED_BYTES)

    def gathered_bytes(self) -> int:
        """As `Stream.gathered_bytes`."""
        return len(self.incoming.arrived)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """As `Stream.watch_writes`."""
        self._on_write = callback
        if callback is not None:
            self.writable()

    def close(self) -> None:
        """As `Stream.close`; the peer reads its end after the delay of the link."""
        if self.closed:
            return
        self._end()
        if self.incoming.arrived:
            # Unread data makes the kernel answer with a reset instead of an end.
            self.outgoing.put(_reset())
        else:
            self.outgoing.put(None)

    # --- the world's side ---

    def _end(self) -> None:
        self.closed = True
        self._on_read = self._on_write = None
        self.incoming.network.streams.pop(self, None)

    def process_died(self) -> None:
        """The kernel closes the sockets of a dead process: what was sent may arrive, then an end or a reset."""
        if self.closed:
            return
        self._end()
        if self.incoming.network.rng.random() < 0.5:
            self.outgoing.lose()
            self.outgoing.put(_reset())
        else:
            self.outgoing.put(None)

    def vanish(self) -> None:
        """Power loss: nothing is said, what was under way is lost in part."""
        if not self.closed:
            self._end()
            self.outgoing.lose()

    def reset(self) -> None:
        """A middlebox ends the connection: each side may get some of what was under way, then a reset."""
        for pipe in (self.incoming, self.outgoing):
            pipe.reset()

    def limit_silence(self, seconds: float) -> None:
        """Break when nothing has passed between the hosts for that long, as a kernel's probes find out."""
        loop = self.incoming.network.loop
        loop.call_later(seconds / _PROBES_IN_SILENCE, self._probe, seconds, context=self.process.context)

    def _probe(self, seconds: float) -> None:
        if self.closed or self.incoming.broken is not None:
            return
        now = self.incoming.network.loop.time()
        if max(self.incoming.link.cut_until, self.outgoing.link.cut_until) <= now:
            self._silent_since = 0.0
        elif not self._silent_since:
            self._silent_since = now
        elif now - self._silent_since >= seconds:
            self.incoming.broken = TimeoutError(errno.ETIMEDOUT, "connection timed out")
            self.incoming.arrived.clear()
            self.readable()
            self.writable()
            return
        self.limit_silence(seconds)

    def _ensure_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "the stream is closed")

    def _room(self) -> int:
        self._ensure_open()
        if self.incoming.broken is not None:
            raise self.incoming.broken
        pipe = self.outgoing
        return max(0, WINDOW_BYTES - pipe.in_flight - len(pipe.arrived))

    def _send(self, data: bytes) -> int:
        size = len(data)
        if not size:
            return WOULD_BLOCK
        if size > 1 and self.outgoing.network.rng.random() < 0.03:
            size = self.outgoing.network.rng.randrange(1, size)
            data = data[:size]
        self.outgoing.put(data)
        return size

    def readable(self) -> None:
        """Call the reader, again and again while there is something to read: level-triggered, as epoll is."""
        if self._on_read is None or self._notify_read:
            return
        pipe = self.incoming
        if len(pipe.arrived) >= self._expected or pipe.ended or pipe.broken is not None:
            self._notify_read = True
            pipe.network.loop.call_soon(self._call_reader, context=self.process.context)

    def _call_reader(self) -> None:
        self._notify_read = False
        if self._on_read is not None:
            self._on_read()
            self.readable()

    def writable(self) -> None:
        """Notify the watcher of writes once there is room."""
        if self._on_write is None or self._notify_write:
            return
        pipe = self.outgoing
        if self.incoming.broken is not None or pipe.in_flight + len(pipe.arrived) <= _WRITABLE_BYTES:
            self._notify_write = True
            pipe.network.loop.call_soon(self._call_writer, context=self.process.context)

    def _call_writer(self) -> None:
        self._notify_write = False
        if self._on_write is not None:
            self._on_write()
            self.writable()


class _Listener:
    __slots__ = ("_network", "accept", "backlog", "host", "port", "process")

    def __init__(
        self, network: SimulatedNetwork, process: Process, address: tuple[str, int], accept: Callable[[Stream], None]
    ) -> None:
        self._network = network
        self.process = process
        self.host, self.port = address
        self.accept = accept
        self.backlog: deque[SimulatedStream] = deque()
        """Connections that the process has not taken yet."""

    def close(self) -> None:
        for stream in self.backlog:
            stream.reset()
            stream.close()
        self.backlog.clear()
        listeners = self._network.listeners
        if listeners.get((self.process.host, self.port)) is self:
            del listeners[self.process.host, self.port]


class SimulatedNetwork:
    """All hosts, links and connections of a world."""

    __slots__ = (
        "_links", "_next_port", "context", "latency", "listeners", "loop", "no_descriptor", "powered_off", "rng",
        "streams",
    )  # fmt: skip

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.rng = random.Random(f"{loop.seed}:net")
        self.context = contextvars.Context()
        self.latency = (0.0001, 0.004)
        self.listeners: dict[tuple[str, int], _Listener] = {}
        self.streams: dict[SimulatedStream, None] = {}
        self.powered_off: set[str] = set()
        self.no_descriptor: dict[str, float] = {}
        """How often a process of that host gets no socket."""
        self._links: dict[tuple[str, str], Link] = {}
        self._next_port = 40000

    def port_of(self, process: Process) -> ProcessNetwork:
        """The Network port that a process is handed."""
        return ProcessNetwork(self, process)

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another, created with the first use."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self.latency)
        return found

    def between(self, host: str, other: str) -> list[SimulatedStream]:
        """The streams of one host that lead to the other."""
        return [s for s in self.streams if s.process.host == host and s.peer_host == other]

    def heal(self) -> None:
        """End cuts, delays, stalls and shortages of descriptors."""
        self.no_descriptor.clear()
        for link in self._links.values():
            link.cut_until = link.slow_until = 0.0
        for stream in self.streams:
            stream.incoming.stalled_until = stream.outgoing.stalled_until = 0.0

    def connect(self, process: Process, listener: _Listener, port: int) -> SimulatedStream:
        """Make both ends; the listener's process is notified when the SYN arrives."""
        self._next_port += 1
        host = listener.process.host
        up, down = Pipe(self, self.link(process.host, host)), Pipe(self, self.link(host, process.host))
        near = SimulatedStream(process, (host, port), down, up)
        far = SimulatedStream(listener.process, (process.host, self._next_port), up, down)
        for stream in (near, far):
            self.streams[stream] = None
            stream.process.doomed.append(stream.process_died)
        self.loop.call_soon(self._accept, listener, far, context=listener.process.context)
        return near

    def _accept(self, listener: _Listener, far: SimulatedStream) -> None:
        listener.backlog.append(far)
        if len(listener.backlog) == 1:
            self._accept_waiting(listener)

    def _accept_waiting(self, listener: _Listener) -> None:
        while listener.backlog:
            if self.lacks_descriptor(listener.process.host):
                # As `TcpListener` does.
                self.loop.call_later(0.1, self._accept_waiting, listener, context=listener.process.context)
                return
            listener.accept(listener.backlog.popleft())

    def lacks_descriptor(self, host: str) -> bool:
        """Whether a process there gets no socket now, as it may have no more open."""
        chance = self.no_descriptor.get(host, 0.0)
        return chance > 0.0 and self.rng.random() < chance


class ProcessNetwork:
    """The Network port of one process."""

    __slots__ = ("_network", "_process")

    def __init__(self, network: SimulatedNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> _Listener:
        """As `Network.listen`. Raises OSError if the address is in use."""
        key = (self._process.host, port)
        known = self._network.listeners.get(key)
        if known is not None and known.process.alive:
            raise OSError(errno.EADDRINUSE, "address in use")
        listener = self._network.listeners[key] = _Listener(self._network, self._process, (host, port), accept)
        self._process.doomed.append(listener.close)
        return listener

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> SimulatedStream:
        """As `Network.connect`; a simulated link has buffers of its own."""
        network, process = self._network, self._process
        loop = network.loop
        if network.lacks_descriptor(process.host):
            raise OSError(errno.EMFILE, "too many open files")
        async with asyncio.timeout(timeout):
            await asyncio.sleep(network.rng.uniform(*network.latency))
            there, back = network.link(process.host, host), network.link(host, process.host)
            while True:
                healed = max(there.cut_until, back.cut_until)
                if healed > loop.time():
                    # The SYN is sent again until it gets through.
                    await asyncio.sleep(healed - loop.time() + network.rng.uniform(0, 1))
                elif host in network.powered_off:
                    await asyncio.sleep(1.0)
                else:
                    break
            listener = network.listeners.get((host, port))
            if listener is None or not listener.process.alive:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
            stream = network.connect(process, listener, port)
            if silence:
                stream.limit_silence(silence)
            return stream

    def own_host(self) -> str:
        """The name of the host."""
        return self._process.host
