"""A broker whose event loop is watched from outside: how long does it serve no other client?"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.peers.broker import BrokerProcess
from bench.servers import API_VERSIONS_V0
from odradek.wire.headers import encode_request_header, parse_response_header

PAUSE_SECONDS = 0.0005
"""Between two probes: they take a few percent of the broker's time."""
_TIMEOUT_SECONDS = 300


def framed(request: Any, version: int) -> bytes:
    """A request with its size and header."""
    out = bytearray(4)
    encode_request_header(out, request.API_KEY, version, 7, "holds")
    request.encode(out, version)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def decoded(answer: bytes, response: Any, version: int) -> Any:
    """The answer's body."""
    view = memoryview(answer)
    _, position = parse_response_header(view, response.API_KEY, version)
    return response.decode(view, position, version)[0]


class Connection:
    """A blocking connection that sends whole frames."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frames: bytes) -> None:
        """Send frames; their answers are to be received."""
        self._socket.sendall(frames)

    def receive(self) -> bytes:
        """The next answer without its size."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        received = bytearray(size)
        view = memoryview(received)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]
        return bytes(received)

    def ask(self, request: Any, response: Any, version: int) -> Any:
        """The decoded answer to a request."""
        self.send(framed(request, version))
        return decoded(self.receive(), response, version)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def loop_cpu_ms(pid: int) -> float:
    """Processor time of the process's first thread, which is that of the event loop, in ms."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


class Held:
    """What a trigger cost other clients."""

    def __init__(self) -> None:
        self.cpu_ms = 0.0
        """The largest processor time of the event loop's thread between a probe and its answer."""
        self.wall_ms = 0.0
        """The longest time until a probe was answered."""


class _Prober:
    """Asks for ApiVersions on a connection of its own, one after the other."""

    def __init__(self, port: int, pid: int) -> None:
        self.held = Held()
        self._pid = pid
        self._connection = Connection(port)
        self._is_over = False
        self._probes = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.wait_for_probes(20)

    def _run(self) -> None:
        while not self._is_over:
            before, began = loop_cpu_ms(self._pid), time.perf_counter()
            self._connection.send(API_VERSIONS_V0)
            self._connection.receive()
            took_ms = (time.perf_counter() - began) * 1000
            self.held.cpu_ms = max(self.held.cpu_ms, loop_cpu_ms(self._pid) - before)
            self.held.wall_ms = max(self.held.wall_ms, took_ms)
            self._probes += 1
            time.sleep(PAUSE_SECONDS)

    def wait_for_probes(self, count: int) -> None:
        """Return when this many probes more have been answered."""
        wanted = self._probes + count
        while self._probes < wanted:
            if not self._thread.is_alive():
                raise RuntimeError("a probe failed")
            time.sleep(PAUSE_SECONDS)

    def end(self) -> None:
        """Stop asking."""
        self._is_over = True
        self._thread.join()
        self._connection.close()


class WatchedBroker:
    """One broker on its own data, and a connection to it."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self._process = BrokerProcess(folder / "data", settings)
        self._start()

    def _start(self) -> None:
        self._process.start()
        self.connection = Connection(self._process.port)

    def restart(self, *, clean: bool) -> None:
        """Stop the broker, or kill it as a crash, and start it again on its data."""
        self.connection.close()
        if clean:
            self._process.stop(120)
        else:
            self._process.kill()
        self._start()

    def close(self) -> None:
        """End the broker."""
        self.connection.close()
        self._process.kill()

    def connect(self) -> Connection:
        """Another connection."""
        return Connection(self._process.port)

    @contextlib.contextmanager
    def watched(self, after: int = 20) -> Iterator[Held]:
        """Probe the broker in this context, and for `after` probes more: work may follow an answer."""
        prober = _Prober(self._process.port, self._process.pid)
        # What connecting and the first probes cost is no trigger's.
        prober.held.cpu_ms = prober.held.wall_ms = 0.0
        try:
            yield prober.held
            prober.wait_for_probes(after)
        finally:
            prober.end()
