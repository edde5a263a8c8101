"""A broker that appends a batch and answers something else than success: a proxy that changes its Produce answers.

Connections pass through unchanged but for the error of the first partition in the first answers to Produce requests
of each connection's client that carry records. What the broker appended stays appended.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import AsyncIterator
from typing import Final, Self

_PRODUCE: Final = 0
_FLEXIBLE_FROM: Final = 9
_TOPIC_ID_FROM: Final = 13
_HEAD: Final = struct.Struct(">hhi")


def with_error(frame: bytes, version: int, code: int) -> bytes:
    """A Produce answer (without its size) whose first partition has failed with the code."""
    position = 4
    if version >= _FLEXIBLE_FROM:
        position += 1  # the header's tagged fields
        position = _skip_varint(frame, position)
        if version >= _TOPIC_ID_FROM:
            position += 16
        else:
            length, position = _varint(frame, position)
            position += length - 1
        position = _skip_varint(frame, position)
    else:
        position += 4
        position += 2 + int.from_bytes(frame[position : position + 2], "big")
        position += 4
    position += 4  # the partition's index
    return frame[:position] + code.to_bytes(2, "big") + frame[position + 2 :]


def _varint(frame: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _skip_varint(frame: bytes, position: int) -> int:
    return _varint(frame, position)[1]


class UnconfirmedDouble:
    """Listens on `port`; `produced` counts Produce requests. A context manager; the broker's port is set before use."""

    def __init__(self, code: int, times: int) -> None:
        self.target = 0
        self.port = 0
        self.produced = 0
        self.changed = 0
        self._code = code
        self._left = times
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def heal(self) -> None:
        """Change no more answers."""
        self._left = 0

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.target)
        versions: dict[int, int] = {}
        for work in (self._requests(reader, ours, versions), self._answers(theirs, writer, versions)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, versions: dict[int, int]
    ) -> None:
        async for frame in _frames(reader, writer):
            key, version, correlation_id = _HEAD.unpack_from(frame)
            if key == _PRODUCE:
                self.produced += 1
                versions[correlation_id] = version
            writer.write(len(frame).to_bytes(4, "big") + frame)

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, versions: dict[int, int]
    ) -> None:
        async for frame in _frames(reader, writer):
            version = versions.pop(int.from_bytes(frame[:4], "big"), None)
            if version is not None and self._left:
                self._left -= 1
                self.changed += 1
                frame = with_error(frame, version, self._code)
            writer.write(len(frame).to_bytes(4, "big") + frame)


async def _frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """Frames until the connection ends, which ends the other one."""
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            yield await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()
