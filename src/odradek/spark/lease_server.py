"""The lease server beside a driver: a process that serves tasks their turns, as `leases` describes it.

It runs as `python -m odradek.spark.lease_server PID` and ends with the process of that id. Where it listens, and the
tokens that it accepts, come on its standard input: no other process can read them, as it could arguments.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import os
import ssl
import sys
import time
from typing import Any, Final

from odradek.ports.tls_contexts import TlsSettingError, server_context, tls_settings
from odradek.spark.leases import LINE_BYTES, Batch, Following, LeaseError, ListeningPlace, pem_settings

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
_FOLLOWING_S: Final = 60.0
"""For so long it is known what a commit has left: brokers forget the ids of producers that write nothing."""


class _Owner:
    """What begins transactions under one transactional id: the last of them."""

    __slots__ = ("_following", "_known_at", "follows", "token")

    def __init__(self, token: str, follows: bool) -> None:
        self.token = token
        self.follows = follows
        self._following: Following | None = None
        self._known_at = 0.0

    @property
    def following(self) -> Following | None:
        """What its commit has left, if that is recent."""
        return self._following if time.monotonic() - self._known_at < _FOLLOWING_S else None

    def committed(self, following: Following) -> None:
        self._following = following
        self._known_at = time.monotonic()


class _Server:
    def __init__(self, watched_pid: int) -> None:
        self._watched_pid = watched_pid
        # The driver's own children die with it, even if its exit status has not been read yet.
        self._ends_with_owner = os.getppid() == watched_pid
        self._batches: dict[str, Batch] = {}
        self._owners: dict[str, _Owner] = {}
        self._owner_is_there = True
        self._tasks = 0
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
                return await asyncio.get_running_loop().create_server(
                    self.converse,
                    place.host,
                    port,
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
        idle = not self._tasks and time.monotonic() - self._active_at > _LINGER_S
        return self._owner_is_there or not idle

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._active_at = time.monotonic()
            message = json.loads(line)
            following = None
            if (last := self._owners.get(message["owner"])) is not None:
                self.drop(last.token, "a later transaction of the same query has begun")
                following = last.following
            self._owners[message["owner"]] = _Owner(message["open"], message["follows"])
            self._batches[message["open"]] = Batch()
            print(json.dumps(following), flush=True)
        self._owner_is_there = False

    def converse(self) -> _Conversation:
        """The protocol of a new connection."""
        return _Conversation(self)

    def find(self, token: str) -> Batch:
        """The transaction of a token. Raises LeaseError."""
        for known, batch in self._batches.items():
            if _is_same(known, token):
                self._active_at = time.monotonic()
                return batch
        raise LeaseError("this transaction is no longer being written")

    def complete(self, token: str) -> dict[str, int]:
        """Close a transaction's leases: the records by lease. Raises LeaseError."""
        written = self.find(token).complete()
        del self._batches[token]
        self._owners = {name: each for name, each in self._owners.items() if each.follows or each.token != token}
        return written

    def committed(self, token: str, following: Following) -> None:
        """Remember what a completed transaction has left, unless its owner has begun another one since."""
        for each in self._owners.values():
            if _is_same(each.token, token) and each.token not in self._batches:
                each.committed(following)

    def drop(self, token: str, why: str) -> None:
        """Fail a transaction, if there is one of this token."""
        self._owners = {name: each for name, each in self._owners.items() if each.token != token}
        batch = self._batches.pop(token, None)
        if batch is not None:
            batch.fail(why)

    def admit(self) -> bool:
        """Count a peer that has not shown a token yet; False where there are too many."""
        self._unknown += 1
        return self._unknown <= _UNKNOWN_PEERS

    def recognise(self) -> None:
        """A peer has sent its first line, or is gone before it has."""
        self._unknown -= 1

    def begin_task(self) -> None:
        """A task has joined."""
        self._tasks += 1

    def end_task(self) -> None:
        """A task has left, or its connection is closed."""
        self._tasks -= 1
        self._active_at = time.monotonic()


def _is_same(known: str, token: str) -> bool:
    """Whether a token is this one: a look-up would say by its time how much of it is right."""
    return hmac.compare_digest(known.encode(), token.encode("utf-8", "surrogatepass"))


class _Conversation(asyncio.Protocol):
    """A peer's connection. Each line is answered where it arrives: no task, no stream between socket and leases."""

    __slots__ = (
        "_acquiring", "_batch", "_buffer", "_deadline", "_holder", "_searched", "_server", "_task", "_transport",
    )  # fmt: skip

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._searched = 0
        self._batch = Batch()
        self._holder: object = None
        """Stands for the attempt of a task that has joined: the next one over this connection is another."""
        self._task = -1
        self._acquiring = False
        self._deadline: asyncio.TimerHandle | None = None
        """Until the first line is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the line with the token."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(FIRST_LINE_S, self._fail, "no token in time")
        if not self._server.admit():
            self._fail("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the transaction if the peer held a lease."""
        self._know()
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Answer the complete lines, each no longer than it may be at that time."""
        self._buffer += data
        while not self._transport.is_closing():
            most = _FIRST_LINE_BYTES if self._deadline is not None else LINE_BYTES
            end = self._buffer.find(b"\n", self._searched)
            if end > most or (end < 0 and len(self._buffer) > most):
                self._fail("the line is too long")
                return
            if end < 0:
                self._searched = len(self._buffer)
                return
            line = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._searched = 0
            self._know()
            try:
                self._handle(_message(line))
            except LeaseError as error:
                self._fail(str(error))

    # --- the turn that this connection waits with ---

    def done(self) -> bool:
        """Whether no answer is wanted: none was asked for, or the peer is gone."""
        return not self._acquiring or self._transport.is_closing()

    def set_result(self, lease: tuple[str, int], /) -> None:
        """Answer with a lease and its next sequence."""
        self._acquiring = False
        self._answer({"leases": [lease]})

    def set_exception(self, error: LeaseError, /) -> None:
        """Answer that no lease will come, and end."""
        self._acquiring = False
        self._fail(str(error))

    # --- inside ---

    def _handle(self, message: dict[str, Any]) -> None:
        server, batch = self._server, self._batch
        if "acquire" in message and self._task >= 0:
            if self._acquiring:
                raise LeaseError("a task asks once at a time")
            granted = batch.acquire(self._holder, self._task, message["acquire"])
            if granted:
                self._answer({"leases": granted})
            else:
                self._acquiring = True
                batch.wait(self._holder, self._task, message["acquire"], self)
        elif "release" in message and self._task >= 0:
            batch.release(self._holder, message["release"], message["records"])
        elif "leave" in message and self._task >= 0:
            self._leave()
            batch.check()
            self._answer({})
        elif "join" in message:
            self._leave()
            self._join(server.find(message["join"]), message["task"])
            self._answer({})
        elif "complete" in message:
            self._answer({"written": server.complete(message["complete"])})
        elif "drop" in message:
            server.drop(message["drop"], "the write was given up")
            self._answer({})
        elif "committed" in message:
            server.committed(message["committed"], Following(*(message[field] for field in Following._fields)))
        else:
            raise LeaseError("a task has to join first")

    def _join(self, batch: Batch, task: int) -> None:
        if task < 0:
            raise LeaseError("tasks have numbers from 0 on")
        self._batch, self._task, self._holder = batch, task, object()
        self._server.begin_task()
        batch.join(self._holder, task)

    def _leave(self) -> None:
        """End the attempt that has joined, if there is one."""
        if self._task >= 0:
            self._batch.leave(self._holder)
            self._task, self._acquiring = -1, False
            self._server.end_task()

    def _know(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._server.recognise()

    def _answer(self, content: dict[str, Any]) -> None:
        self._transport.write(json.dumps(content).encode() + b"\n")

    def _fail(self, reason: str) -> None:
        if not self._transport.is_closing():
            self._answer({"error": reason})
            self._transport.close()


_FIELDS: Final[dict[str, dict[str, type]]] = {
    "join": {"join": str, "task": int},
    "complete": {"complete": str},
    "committed": {"committed": str, "producer_id": int, "epoch": int, "batch_id": int, "query_id": str},
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


if __name__ == "__main__":
    asyncio.run(_Server(int(sys.argv[1])).serve())
