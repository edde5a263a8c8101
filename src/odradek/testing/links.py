"""A connection between clients and a broker that a test can cut, delay and slow down.

A link is a TCP proxy in the test's process with an address of its own, which the broker advertises to the clients that
come by it. It works with every client, in any process and language.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

_HOST: Final = "127.0.0.1"
_READ_BYTES: Final = 65_536


class Link:
    """One proxied way to a broker; made by `Broker(links=[...])`, found by `broker.link(name)`."""

    __slots__ = (
        "_bytes_per_second", "_connections", "_delay_s", "_flows", "_is_silent", "_server", "_target_port", "port",
    )  # fmt: skip

    def __init__(self) -> None:
        self.port = 0
        """The link's own port, on 127.0.0.1."""
        self._delay_s = 0.0
        self._bytes_per_second = 0
        self._target_port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_silent = False

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for the clients of this link."""
        return f"{_HOST}:{self.port}"

    async def open(self) -> None:
        """Listen; connections wait for a broker."""
        self._server = await asyncio.start_server(self._accepted, _HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def lead_to(self, port: int) -> None:
        """The broker's port from now on."""
        self._target_port = port

    async def close(self) -> None:
        """End the proxy and its connections."""
        self._flows.set()
        self._break()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def cut(self, *, silently: bool = False) -> None:
        """Break all connections and refuse new ones; or, silently, keep them and carry nothing."""
        self._flows.clear()
        self._is_silent = silently
        if not silently:
            self._break()

    def heal(self) -> None:
        """Carry data again: also what clients sent while the link was silent. No delay, no limit."""
        self.slow_down()
        self._is_silent = False
        self._flows.set()

    def slow_down(self, *, delay_s: float = 0.0, bytes_per_second: int = 0) -> None:
        """Data arrive `delay_s` seconds late; a connection carries so many bytes a second each way, 0: no limit."""
        self._delay_s, self._bytes_per_second = delay_s, bytes_per_second

    @property
    def is_cut(self) -> bool:
        """Whether nothing passes."""
        return not self._flows.is_set()

    def _break(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            if self.is_cut and not self._is_silent:
                return
            await self._flows.wait()
            back, onward = await asyncio.open_connection(_HOST, self._target_port)
            self._connections.add(onward)
            await asyncio.gather(self._carry(reader, onward), self._carry(back, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # An end is gone: so is the connection.
        finally:
            for each in (writer, onward):
                if each is not None:
                    self._connections.discard(each)
                    each.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await self._flows.wait()
            if self._bytes_per_second:
                await asyncio.sleep(len(data) / self._bytes_per_second)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
