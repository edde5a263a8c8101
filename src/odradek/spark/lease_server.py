"""The lease server beside a driver: a process that serves tasks their turns, as `leases` describes it.

It runs as `python -m odradek.spark.lease_server PID` and ends with the process of that id. Where it listens, and the
tokens that it accepts, come on its standard input: no other process can read them, as it could arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import os
import ssl
import sys
import time
from typing import Any, Final

from odradek.ports.tls_contexts import TlsSettingError, server_context, tls_settings
from odradek.spark.leases import LINE_BYTES, Batch, LeaseError, ListeningPlace, pem_settings

_LINGER_S: Final = 900.0
_FIRST_LINE_BYTES: Final = 4096
"""Of a peer that has not shown a token yet."""
FIRST_LINE_S: Final = 10.0
"""For a peer to show a token, the TLS handshake included or not."""
_UNKNOWN_PEERS: Final = 256
"""Connections without a token at a time; further ones are closed."""
_CHUNK_BYTES: Final = 64 * 1024
_PORTS: Final = 16
"""Ports that are tried from a fixed one on, as Spark does (`spark.port.maxRetries`)."""
_WATCH_S: Final = 1.0


class _Lines:
    """Lines of a peer, each no longer than it may be at that time."""

    __slots__ = ("_buffer", "_reader")

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()

    async def next(self, most_bytes: int) -> bytes:
        """The next line; empty at the end. Raises LeaseError for one that is too long, ConnectionError."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            if len(self._buffer) > most_bytes:
                raise LeaseError("the line is too long")
            searched = len(self._buffer)
            chunk = await self._reader.read(_CHUNK_BYTES)
            if not chunk:
                return b""
            self._buffer += chunk
        if end > most_bytes:
            raise LeaseError("the line is too long")
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line


class _Server:
    def __init__(self, watched_pid: int) -> None:
        self._watched_pid = watched_pid
        # The driver's own children die with it, even if its exit status has not been read yet.
        self._ends_with_owner = os.getppid() == watched_pid
        self._batches: dict[str, Batch] = {}
        self._owned: dict[str, str] = {}
        self._owner_is_there = True
        self._connections = 0
        self._unknown = 0
        self._active_at = time.monotonic()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            server = await self._listen_at(ListeningPlace(**json.loads(await reader.readline())))
        except (OSError, TlsSettingError) as error:
            print(str(error).replace("\n", " "), flush=True)
            return
        print(server.sockets[0].getsockname()[1], flush=True)
        listening = asyncio.create_task(self._listen(reader))
        while self._wanted():  # noqa: ASYNC110 - the end of a process that is not ours sets no event
            await asyncio.sleep(_WATCH_S)
        listening.cancel()
        server.close()

    async def _listen_at(self, place: ListeningPlace) -> asyncio.Server:
        """Listen on the first free port. Raises OSError, TlsSettingError."""
        context: ssl.SSLContext | None = None
        if place.certificate:
            context = server_context(tls_settings(pem_settings(ssl_keystore_location=place.certificate)))
        ports = range(place.port, min(place.port + _PORTS, 65536)) if place.port else (0,)
        for port in ports:
            try:
                return await asyncio.start_server(
                    self._converse,
                    place.host,
                    port,
                    limit=_CHUNK_BYTES,
                    ssl=context,
                    ssl_handshake_timeout=FIRST_LINE_S if context is not None else None,
                )
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ports[-1]:
                    raise
        raise AssertionError("the last port returns or raises")

    def _wanted(self) -> bool:
        """Wait until Spark is gone; or, when only the starting process is, until no batch can be open."""
        if self._ends_with_owner and not self._owner_is_there:
            return False
        try:
            os.kill(self._watched_pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        idle = not self._connections and time.monotonic() - self._active_at > _LINGER_S
        return self._owner_is_there or not idle

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._active_at = time.monotonic()
            message = json.loads(line)
            self._drop(self._owned.get(message["owner"], ""), "a later transaction of the same query has begun")
            self._owned[message["owner"]] = message["open"]
            self._batches[message["open"]] = Batch()
            print("open", flush=True)
        self._owner_is_there = False

    def _drop(self, token: str, why: str) -> None:
        batch = self._forget(token)
        if batch is not None:
            batch.fail(why)
            self._serve_waiting(batch)

    def _complete(self, token: str) -> dict[str, int]:
        written = self._find(token).complete()
        self._forget(token)
        return written

    def _forget(self, token: str) -> Batch | None:
        self._owned = {owner: held for owner, held in self._owned.items() if held != token}
        return self._batches.pop(token, None)

    def _find(self, token: str) -> Batch:
        # Compared one by one: a look-up would say by its time how much of a token is right.
        for known, batch in self._batches.items():
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "surrogatepass")):
                return batch
        raise LeaseError("this transaction is no longer being written")

    async def _first_line(self, lines: _Lines) -> bytes:
        """The line with the token. Raises LeaseError, ConnectionError."""
        if self._unknown >= _UNKNOWN_PEERS:
            raise LeaseError("too many connections")
        self._unknown += 1
        try:
            async with asyncio.timeout(FIRST_LINE_S):
                return await lines.next(_FIRST_LINE_BYTES)
        except TimeoutError:
            raise LeaseError("no token in time") from None
        finally:
            self._unknown -= 1

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        holder = object()
        batch, task = Batch(), -1
        # A task hands leases back while it waits for another: its messages are read all the time.
        acquiring: asyncio.Task[None] | None = None
        lines = _Lines(reader)
        try:
            line = await self._first_line(lines)
            while line:
                message = _message(line)
                if "join" in message:
                    batch, task = self._find(message["join"]), message["task"]
                    batch.join(holder, task)
                    _answer(writer, {})
                elif "complete" in message:
                    _answer(writer, {"written": self._complete(message["complete"])})
                elif "drop" in message:
                    self._drop(message["drop"], "the write was given up")
                    _answer(writer, {})
                elif task < 0:
                    raise LeaseError("a task has to join first")
                elif "leave" in message:
                    batch.check()
                    _answer(writer, {})
                elif "acquire" in message:
                    acquiring = asyncio.create_task(self._acquire(batch, holder, task, message["acquire"], writer))
                else:
                    batch.release(holder, message["release"], message["records"])
                    self._serve_waiting(batch)
                line = await lines.next(LINE_BYTES)
        except LeaseError as error:
            _answer(writer, {"error": str(error)})
        except OSError:
            pass
        finally:
            if acquiring is not None:
                acquiring.cancel()
            batch.leave(holder)
            self._serve_waiting(batch)
            self._connections -= 1
            self._active_at = time.monotonic()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _acquire(
        self, batch: Batch, holder: object, task: int, wanted: list[str], writer: asyncio.StreamWriter
    ) -> None:
        try:
            while (got := batch.acquire(holder, task, wanted)) is None:
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                batch.waiting.append(turn)
                await turn
        except LeaseError as error:
            _answer(writer, {"error": str(error)})
        else:
            _answer(writer, {"lease": got[0], "next": got[1]})

    def _serve_waiting(self, batch: Batch) -> None:
        """Something was released or has failed: everyone who waits looks again, in order."""
        while batch.waiting:
            turn = batch.waiting.popleft()
            if not turn.done():
                turn.set_result(None)


_FIELDS: Final[dict[str, dict[str, type]]] = {
    "join": {"join": str, "task": int},
    "complete": {"complete": str},
    "drop": {"drop": str},
    "leave": {},
    "acquire": {"acquire": list},
    "release": {"release": str, "records": int},
}
"""The fields of each message, by the one that names it."""


def _message(line: bytes) -> dict[str, Any]:
    """What a peer says. Raises LeaseError for anything else than one of the messages."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        for name, fields in _FIELDS.items():
            if name not in message or not all(type(message.get(field)) is kind for field, kind in fields.items()):
                continue
            if all(type(each) is str for each in message.get("acquire", ())):
                return message
    raise LeaseError("the line is no message of a task")


def _answer(writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
    writer.write(json.dumps(content).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(_Server(int(sys.argv[1])).serve())
