"""What a network does to connections, on demand: a proxy process with a port of its own for each listener of a broker.

`python -m tests.faults.links NAME=TARGET_PORT[:PORT] ...` prints NAME=PORT of each, then obeys lines `NAME ACTION`:

    cut      every connection is reset now
    lose     every connection is reset when its next answer comes: the request took effect, the client does not know
    stall    nothing is passed on, nothing breaks, new connections are accepted (a partition without resets)
    deaf     only what goes to the broker is held back
    mute     only what the broker answers is held back
    refuse   cut, and new connections are refused (as if the process were dead, but it is not)
    flow     all of that ends; what was held back comes late

Where nothing listens at the target, the proxy's port refuses connections, too, until something listens there again. It
stays bound meanwhile: if another process could take it, clients would talk to that instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Self, cast

ACTIONS = ("cut", "lose", "stall", "deaf", "mute", "refuse", "flow")
_LOOK_SECONDS = 0.02
_RESET = struct.pack("ii", 1, 0)


class _Side(asyncio.Protocol):
    """One end of a proxied connection."""

    def __init__(self, link: _Link, *, of_client: bool) -> None:
        self.link = link
        self.of_client = of_client
        self.peer: _Side | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting: list[bytes] = []
        """Received while the other end is not connected, or while nothing of this one may be passed on."""
        self.doomed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.link.sides.add(self)
        self.link.hold(self)
        if self.of_client:
            self.link.connecting(self)

    def data_received(self, data: bytes) -> None:
        if self.doomed:
            self.reset()
        else:
            self.waiting.append(data)
            # uvloop reads from a new connection even where `connection_made` has paused it.
            self.link.hold(self)

    def pass_on(self) -> None:
        """Write what waits to the other end, once there is one."""
        if self.peer is not None and self.peer.transport is not None:
            for data in self.waiting:
                self.peer.transport.write(data)
            self.waiting.clear()

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.link.hold(self.peer)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.sides.discard(self)
        if not self.of_client:
            self.link.look()
        if self.peer is not None and self.peer.transport is not None:
            if exc is None:
                self.peer.transport.close()
            else:
                self.peer.reset()

    def reset(self) -> None:
        """Both ends see a reset, not an orderly end."""
        for side in (self, self.peer):
            if side is not None and side.transport is not None:
                sock = side.transport.get_extra_info("socket")
                with contextlib.suppress(OSError, AttributeError, ValueError):  # it has no socket when it is closed
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                side.transport.abort()


def _bound(port: int) -> socket.socket:
    """A socket with that port, or any that is free, which does not listen: a server that names the port still may."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", port))
    return reservation


class _Link:
    def __init__(self, name: str, target_port: int, port: int) -> None:
        self.name = name
        self.target_port = target_port
        self.sides: set[_Side] = set()
        self.held: frozenset[bool] = frozenset()
        """Of which ends nothing is read: the client's (True), the broker's (False)."""
        self.server: asyncio.Server | None = None
        self._reservation = _bound(port)
        self.port: int = self._reservation.getsockname()[1]
        self._is_refused = False
        """By order, not because nothing listens at the target."""
        self._looking: asyncio.Task[None] | None = None
        self._listening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        async with self._listening:
            if self.server is None:
                loop = asyncio.get_running_loop()
                self.server = await loop.create_server(
                    lambda: _Side(self, of_client=True), "127.0.0.1", self.port, reuse_address=True
                )

    def _shut(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None

    def look(self) -> None:
        """A connection to the target has ended or was refused: refuse others while nothing listens there."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._follow_target())

    async def _follow_target(self) -> None:
        try:
            while await self._is_target_dead():
                self._shut()
                await asyncio.sleep(_LOOK_SECONDS)
            if not self._is_refused:
                await self.listen()
        finally:
            self._looking = None

    async def _is_target_dead(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        writer.close()
        return False

    def hold(self, side: _Side) -> None:
        if side.transport is None or side.transport.is_closing():
            return
        if side.of_client in self.held:
            side.transport.pause_reading()
        else:
            side.pass_on()
            side.transport.resume_reading()

    def connecting(self, side: _Side) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(side))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, side: _Side) -> None:
        other = _Side(self, of_client=False)
        try:
            await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self.target_port)
        except OSError:
            side.reset()
            self.look()
            return
        other.peer, side.peer = side, other
        if side.transport is None or side.transport.is_closing() or side not in self.sides:
            other.reset()
        else:
            self.hold(side)

    async def obey(self, action: str) -> None:
        if action in ("cut", "refuse"):
            if action == "refuse":
                self._is_refused = True
                self._shut()
            for side in list(self.sides):
                side.reset()
        elif action == "lose":
            for side in self.sides:
                side.doomed = side.doomed or not side.of_client
        elif action in ("stall", "deaf", "mute", "flow"):
            self.held = {
                "stall": frozenset((True, False)), "deaf": frozenset((True,)), "mute": frozenset((False,)),
            }.get(action, frozenset())  # fmt: skip
            if action == "flow":
                self._is_refused = False
                if self._looking is None or not await self._is_target_dead():
                    await self.listen()
            for side in list(self.sides):
                self.hold(side)
        else:
            raise ValueError(action)


async def _serve(links: Mapping[str, _Link]) -> None:
    for link in links.values():
        await link.listen()
    print(*(f"{link.name}={link.port}" for link in links.values()), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, action = line.split()
        await links[name].obey(action)
        print("ok", flush=True)


class Links:
    """The proxy process. `Links({"client-1": 9092}).start()`; `ports["client-1"]` is where clients connect."""

    def __init__(self, targets: Mapping[str, int]) -> None:
        self.targets = dict(targets)
        self.ports: dict[str, int] = {}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> Self:
        command = [sys.executable, "-m", "tests.faults.links", *(f"{n}={p}" for n, p in self.targets.items())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = {name: int(port) for name, _, port in (w.partition("=") for w in self._line().split())}
        return self

    def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the proxy ended"
        return line

    def obey(self, name: str, action: str) -> None:
        """Done when this returns."""
        assert action in ACTIONS, action
        with self._lock:
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(f"{name} {action}\n")
            self._process.stdin.flush()
            assert self._line() == "ok\n"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> None:
    import uvloop

    links = {}
    for word in sys.argv[1:]:
        name, _, where = word.partition("=")
        target, _, port = where.partition(":")
        links[name] = _Link(name, int(target), int(port or 0))
    uvloop.run(_serve(links))


if __name__ == "__main__":
    main()
