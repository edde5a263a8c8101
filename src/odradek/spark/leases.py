"""Whose turn it is to write to a partition: how the tasks of one micro-batch share one producer id.

A transaction has one producer id, and the broker takes its batches per partition only in unbroken sequence. So a task
that has rows for a partition first takes the partition's lease, which tells the sequence to go on with, and hands it
back with the next one when its rows are acknowledged. This is a small server beside the driver; no row passes through.

It also knows who has written: a task that is run again after an attempt of it has taken a lease, or a task that goes
away with a lease in hand, makes the batch fail, which the transaction then undoes.

Lines of JSON: {"join": token, "task": 3, "attempt": "..."} -> {}; {"acquire": ["t-0", "t-1"]} -> {"lease": "t-1",
"next": 17}; {"release": "t-1", "next": 40} has no answer. An answer {"error": "..."} ends the conversation. From the
one who started it, on standard input: {"open": token}, which makes all earlier batches void.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections import deque
from typing import IO, Any, Final, NamedTuple

_LINGER_S: Final = 900.0
_WATCH_S: Final = 1.0


class LeaseError(RuntimeError):
    """The micro-batch cannot be finished; run again from the start, it can."""


# --- the server ---


class _Slot:
    __slots__ = ("holder", "next")

    def __init__(self) -> None:
        self.holder: object | None = None
        self.next = 0


class Batch:
    """The leases of one transaction. Pure: `waiting` are the turns of those who could not be served yet."""

    __slots__ = ("_attempts", "_slots", "_wrote", "failure", "waiting")

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._attempts: dict[int, str] = {}
        self._wrote: set[int] = set()
        self.failure: str | None = None
        self.waiting: deque[asyncio.Future[None]] = deque()

    def join(self, task: int, attempt: str) -> None:
        """Raises LeaseError when an earlier attempt of the task has written."""
        if task in self._wrote and self._attempts[task] != attempt:
            self.fail(f"task {task} was started again after it had written rows")
        self._attempts[task] = attempt
        self.check()

    def acquire(self, holder: object, task: int, wanted: list[str]) -> tuple[str, int] | None:
        """A free one of the wanted leases and its next sequence; None while all are taken."""
        self.check()
        for name in wanted:
            slot = self._slots.setdefault(name, _Slot())
            if slot.holder is None:
                slot.holder = holder
                self._wrote.add(task)
                return name, slot.next
        return None

    def release(self, holder: object, name: str, following: int) -> None:
        slot = self._slots.get(name)
        if slot is None or slot.holder is not holder or following < slot.next:
            self.fail(f"the lease of {name} was handed back by a task that does not have it")
            return
        slot.holder = None
        slot.next = following

    def leave(self, holder: object) -> None:
        """A task is gone; with leases in hand it may have written anything."""
        lost = [name for name, slot in self._slots.items() if slot.holder is holder]
        if lost:
            self.fail(f"a task was lost while it wrote to {', '.join(lost)}")

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason

    def check(self) -> None:
        if self.failure is not None:
            raise LeaseError(f"the micro-batch has to be run again: {self.failure}")


class _Server:
    def __init__(self, watched_pid: int) -> None:
        self._watched_pid = watched_pid
        self._token = ""
        self._batch = Batch()
        self._owner_is_there = True
        self._connections = 0
        self._active_at = time.monotonic()

    async def serve(self, host: str) -> None:
        server = await asyncio.start_server(self._converse, host, 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        listening = asyncio.create_task(self._listen(reader))
        while self._wanted():  # noqa: ASYNC110 - the end of a process that is not ours sets no event
            await asyncio.sleep(_WATCH_S)
        listening.cancel()
        server.close()

    def _wanted(self) -> bool:
        """Until Spark is gone; or, when only the process that started this is, until no batch can be open any more."""
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
            self._batch.fail("a later micro-batch has begun")
            self._serve_waiting(self._batch)
            self._token, self._batch = json.loads(line)["open"], Batch()
            print("open", flush=True)
        self._owner_is_there = False

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        holder = object()
        batch, task = self._batch, -1
        # A task hands leases back while it waits for another: what it says is heard all the time.
        acquiring: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "join" in message:
                    if message["join"] != self._token:
                        raise LeaseError("this is not the micro-batch that is being written")
                    batch, task = self._batch, message["task"]
                    batch.join(task, message["attempt"])
                    _answer(writer, {})
                elif task < 0:
                    raise LeaseError("a task has to join first")
                elif "acquire" in message:
                    acquiring = asyncio.create_task(self._acquire(batch, holder, task, message["acquire"], writer))
                else:
                    batch.release(holder, message["release"], message["next"])
                    self._serve_waiting(batch)
        except LeaseError as error:
            _answer(writer, {"error": str(error)})
        except ConnectionError:
            pass
        finally:
            if acquiring is not None:
                acquiring.cancel()
            batch.leave(holder)
            self._serve_waiting(batch)
            self._connections -= 1
            self._active_at = time.monotonic()
            writer.close()
            with contextlib.suppress(ConnectionError):
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


def _answer(writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
    writer.write(json.dumps(content).encode() + b"\n")


# --- the driver's side ---


class Address(NamedTuple):
    host: str
    port: int
    token: str


class LeaseServer:
    """The server process as its owner sees it."""

    __slots__ = ("_host", "_port", "_process", "pid")

    def __init__(self, host: str, watched_pid: int) -> None:
        """Listens on an address of this machine; ends when the watched process does."""
        command = [sys.executable, "-m", "odradek.spark.leases", host, str(watched_pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._host = host
        self.pid = os.getpid()
        line = self._output.readline()
        if not line.strip().isdecimal():
            raise LeaseError(f"the lease server did not start on {host}")
        self._port = int(line)

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def open_batch(self) -> Address:
        """Begin a transaction's leases; those of the one before are void."""
        token = secrets.token_hex(16)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"open": token}) + "\n")
        self._process.stdin.flush()
        if self._output.readline().strip() != "open":
            raise LeaseError("the lease server is gone")
        return Address(self._host, self._port, token)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


# --- a task's side ---


class LeaseClient:
    """A task's conversation with the server. One `acquire` at a time."""

    __slots__ = ("_reader", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def join(cls, address: Address, task: int) -> LeaseClient:
        """Raises LeaseError, OSError."""
        client = cls(*await asyncio.open_connection(address.host, address.port))
        try:
            await client._ask({"join": address.token, "task": task, "attempt": secrets.token_hex(8)})
        except BaseException:
            client.close()
            raise
        return client

    async def acquire(self, wanted: list[str]) -> tuple[str, int]:
        """(lease, next sequence) of one that is or becomes free. Raises LeaseError."""
        answer = await self._ask({"acquire": wanted})
        return answer["lease"], answer["next"]

    def release(self, name: str, following: int) -> None:
        self._send({"release": name, "next": following})

    def close(self) -> None:
        self._writer.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._send(message)
        line = await self._reader.readline()
        if not line:
            raise LeaseError("the lease server beside the driver has closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LeaseError(answer["error"])
        return answer


if __name__ == "__main__":
    asyncio.run(_Server(int(sys.argv[2])).serve(sys.argv[1]))
