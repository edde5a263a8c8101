"""A network without sockets: the frames of a connection are given by the program itself, on the broker's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.ports.network import SYSTEM_BUFFERS, WOULD_BLOCK, BufferSizes


class MemoryStream:
    """The broker's end of a connection whose peer is this program."""

    peer_host = "127.0.0.1"
    peer_port = 1

    def __init__(self) -> None:
        self._frames: bytes | bytearray | memoryview = b""
        self.sent = 0
        """Bytes of answers so far."""
        self.kept: bytearray | None = None
        """The answers' bytes, while somebody wants to read them."""
        self.readable: Callable[[], None] | None = None

    def give(self, frames: bytes | bytearray | memoryview) -> None:
        """Let the broker read these frames."""
        self._frames = frames
        assert self.readable is not None, "the broker reads from the connection"
        while self._frames and self.readable is not None:
            self.readable()

    def receive_into(self, buffer: memoryview) -> int:
        frames, size = self._frames, len(self._frames)
        if not size:
            return WOULD_BLOCK
        if size > len(buffer):
            size = len(buffer)
            buffer[:] = frames[:size]
            self._frames = memoryview(frames)[size:]
            return size
        buffer[:size] = frames
        self._frames = b""
        return size

    def send(self, part: Any, more: bool) -> int:  # noqa: ARG002 - of the protocol
        size = len(part)
        self.sent += size
        if self.kept is not None:
            self.kept += part
        return size

    def send_file(self, part: Any) -> int:
        size: int = part.size
        self.sent += size
        return size

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self.readable = callback
        if callback is not None and self._frames:
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._frames and self.readable is not None:
            self.give(self._frames)

    def expect(self, size: int) -> None:
        pass

    def gathered_bytes(self) -> int:
        return 0

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        pass

    def close(self) -> None:
        self.readable = None


class MemoryNetwork:
    """A network on which only `connect_to` connects."""

    host = "127.0.0.1"
    port = 9092

    def __init__(self) -> None:
        self._accept: Callable[[Any], None] | None = None

    def listen(self, host: str, port: int, accept: Callable[[Any], None]) -> MemoryNetwork:  # noqa: ARG002
        self._accept = accept
        return self

    def connect_to(self) -> MemoryStream:
        """A connection to the broker."""
        assert self._accept is not None, "the broker listens"
        stream = MemoryStream()
        self._accept(stream)
        return stream

    async def connect(
        self,
        host: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
        timeout: float,  # noqa: ARG002
        silence: float = 0.0,  # noqa: ARG002
        buffers: BufferSizes = SYSTEM_BUFFERS,  # noqa: ARG002
    ) -> MemoryStream:
        raise OSError("nothing else is reachable")

    def own_host(self) -> str:
        return self.host

    def close(self) -> None:
        pass
