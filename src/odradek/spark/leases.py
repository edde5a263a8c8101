"""Whose turn it is to write to a partition: how the tasks of one transaction share one producer id.

A transaction has one producer id, and the broker takes its batches per partition only in unbroken sequence. So a task
that has rows for a partition first takes the partition's lease, which carries the next sequence number, and hands it
back when its rows are acknowledged. This is a small server beside the driver; no row passes through.

It also knows who has written: a task that is run again after an attempt of it has taken a lease, or a task that goes
away with a lease in hand, makes the write fail, which the transaction then undoes. Before the driver commits, it closes
the leases and receives the counts of records written under them.

Lines of JSON: {"join": token, "task": 3} -> {}; {"acquire": ["t-0", "t-1"]} -> {"lease": "t-1", "next": 17};
{"release": "t-1", "records": 23} has no answer; {"leave": true} -> {}, when all of that was heard;
{"complete": token} -> {"written": {"t-1": 40}}; {"drop": token} -> {}.
An answer {"error": "..."} ends the conversation. From the one who started it, on standard input:
{"open": token, "owner": "..."}, which makes the owner's earlier transactions void.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, Any, Final, NamedTuple

_LINGER_S: Final = 900.0
_LINE_BYTES: Final = 64 * 1024 * 1024
"""A line names all partitions that a task has rows for, or that were written to."""
_WATCH_S: Final = 1.0


class LeaseError(RuntimeError):
    """The micro-batch cannot be finished; run again from the start, it can."""


# --- the server ---


class _Slot:
    __slots__ = ("holder", "records")

    def __init__(self) -> None:
        self.holder: object | None = None
        self.records = 0


class Batch:
    """The leases of one transaction. Pure: `waiting` are the turns of those who could not be served yet."""

    __slots__ = ("_is_complete", "_slots", "_tasks", "_wrote", "failure", "waiting")

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._tasks: dict[int, object] = {}
        self._wrote: set[int] = set()
        self._is_complete = False
        self.failure: str | None = None
        self.waiting: deque[asyncio.Future[None]] = deque()

    def join(self, holder: object, task: int) -> None:
        """Begin an attempt of a task; earlier ones may no longer write. Raises LeaseError when one has written."""
        if self._tasks.setdefault(task, holder) is not holder:
            if task in self._wrote:
                self.fail(
                    f"task {task} was started again after it had written rows; it failed, its executor was lost, or "
                    "spark.speculation is on, which does not go together with exactly once"
                )
            self._tasks[task] = holder
        self.check()

    def acquire(self, holder: object, task: int, wanted: list[str]) -> tuple[str, int] | None:
        """A free one of the wanted leases and its next sequence; None while all are taken."""
        self.check()
        if self._tasks.get(task) is not holder:
            raise LeaseError(f"another attempt of task {task} has begun, this one must not write")
        for name in wanted:
            slot = self._slots.setdefault(name, _Slot())
            if slot.holder is None:
                slot.holder = holder
                self._wrote.add(task)
                return name, slot.records & 0x7FFFFFFF
        return None

    def release(self, holder: object, name: str, records: int) -> None:
        """End a lease after this number of records; the batch fails if the task does not have it."""
        slot = self._slots.get(name)
        if slot is None or slot.holder is not holder or records < 0:
            self.fail(f"the lease of {name} was handed back by a task that does not have it")
            return
        slot.holder = None
        slot.records += records

    def leave(self, holder: object) -> None:
        """A task is gone; with leases in hand it may have written anything."""
        lost = self._held(holder)
        if lost:
            self.fail(f"a task was lost while it wrote to {', '.join(lost)}")

    def complete(self) -> dict[str, int]:
        """Close the batch: the number of records written under each lease. Raises LeaseError."""
        held = [name for name, slot in self._slots.items() if slot.holder is not None]
        if held:
            self.fail(f"a task still writes to {', '.join(held)}")
        self.check()
        self._is_complete = True
        return {name: slot.records for name, slot in self._slots.items()}

    def fail(self, reason: str) -> None:
        """End the batch: later calls of its tasks raise LeaseError with the reason."""
        self.failure = self.failure or reason

    def check(self) -> None:
        """Raise LeaseError if the batch has failed."""
        if self.failure is not None:
            raise LeaseError(f"the write has to be run again: {self.failure}")
        if self._is_complete:
            raise LeaseError("the transaction is being committed, nothing more can be written in it")

    def _held(self, holder: object) -> list[str]:
        return [name for name, slot in self._slots.items() if slot.holder is holder]


class _Server:
    def __init__(self, watched_pid: int) -> None:
        self._watched_pid = watched_pid
        # The driver's own children die with it, even if its exit status has not been read yet.
        self._ends_with_owner = os.getppid() == watched_pid
        self._batches: dict[str, Batch] = {}
        self._owned: dict[str, str] = {}
        self._owner_is_there = True
        self._connections = 0
        self._active_at = time.monotonic()

    async def serve(self, host: str) -> None:
        server = await asyncio.start_server(self._converse, host, 0, limit=_LINE_BYTES)
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
        batch = self._batches.get(token)
        if batch is None:
            raise LeaseError("this transaction is no longer being written")
        return batch

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        holder = object()
        batch, task = Batch(), -1
        # A task hands leases back while it waits for another: what it says is heard all the time.
        acquiring: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                message = json.loads(line)
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
    """Where the lease server of a driver listens, and the secret that its tasks send."""

    host: str
    port: int
    token: str


class LeaseServer:
    """The server process as its owner sees it."""

    __slots__ = ("_host", "_lock", "_port", "_process", "pid")

    def __init__(self, host: str, watched_pid: int) -> None:
        """Listens on an address of this machine; ends when the watched process does. It starts meanwhile."""
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "odradek.spark.leases", host, str(watched_pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._host = host
        self._port = 0
        self.pid = os.getpid()

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def alive(self) -> bool:
        """Whether the server thread runs."""
        return self._process.poll() is None

    def open_batch(self, owner: str) -> Address:
        """Begin a transaction's leases; those of the owner's earlier ones are void. Raises LeaseError, OSError."""
        token = secrets.token_hex(16)
        assert self._process.stdin is not None
        with self._lock:
            if not self._port:
                line = self._output.readline()
                if not line.strip().isdecimal():
                    raise LeaseError(f"the lease server did not start on {self._host}")
                self._port = int(line)
            self._process.stdin.write(json.dumps({"open": token, "owner": owner}) + "\n")
            self._process.stdin.flush()
            if self._output.readline().strip() != "open":
                raise LeaseError("the lease server is gone")
        return Address(self._host, self._port, token)

    def close(self) -> None:
        """Stop listening and close the connections of tasks."""
        self._process.terminate()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


async def complete(address: Address) -> dict[str, int]:
    """Close a transaction's leases: the records written by partition. Raises LeaseError, OSError."""
    client = await _connect(address)
    try:
        written: dict[str, int] = (await client.ask({"complete": address.token}))["written"]
        return written
    finally:
        client.close()


async def drop(address: Address) -> None:
    """Give up a transaction: its tasks can no longer write. Raises LeaseError, OSError."""
    client = await _connect(address)
    try:
        await client.ask({"drop": address.token})
    finally:
        client.close()


# --- a task's side ---


class LeaseClient:
    """A task's conversation with the server. One `acquire` at a time."""

    __slots__ = ("_reader", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def join(address: Address, task: int) -> LeaseClient:
        """Raises LeaseError, OSError."""
        client = await _connect(address)
        try:
            await client.ask({"join": address.token, "task": task})
        except BaseException:
            client.close()
            raise
        return client

    async def acquire(self, wanted: list[str]) -> tuple[str, int]:
        """(lease, next sequence) of one that is or becomes free. Raises LeaseError."""
        answer = await self.ask({"acquire": wanted})
        return answer["lease"], answer["next"]

    def release(self, name: str, records: int) -> None:
        """End a lease after this number of records."""
        self._send({"release": name, "records": records})

    async def leave(self) -> None:
        """Returns when the server knows of all that was handed back. Raises LeaseError."""
        await self.ask({"leave": True})

    def close(self) -> None:
        """Close the connection. A lease that was not ended fails the batch."""
        self._writer.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and wait for the answer. Raises LeaseError."""
        self._send(message)
        line = await self._reader.readline()
        if not line:
            raise LeaseError("the lease server beside the driver has closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LeaseError(answer["error"])
        return answer


async def _connect(address: Address) -> LeaseClient:
    return LeaseClient(*await asyncio.open_connection(address.host, address.port, limit=_LINE_BYTES))


if __name__ == "__main__":
    asyncio.run(_Server(int(sys.argv[2])).serve(sys.argv[1]))
