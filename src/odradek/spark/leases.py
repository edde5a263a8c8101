"""Whose turn it is to write to a partition: how the tasks of one transaction share one producer id.

A transaction has one producer id, and the broker takes its batches per partition only in unbroken sequence. So a task
that has rows for a partition first takes the partition's lease, which carries the next sequence number, and hands it
back when its rows are acknowledged. This is a small server beside the driver; no row passes through.

It also knows who has written: a task that is run again after an attempt of it has taken a lease, or a task that goes
away with a lease in hand, makes the write fail, which the transaction then undoes. Before the driver commits, it closes
the leases and receives the counts of records written under them.

Lines of JSON: {"join": token, "task": 3} -> {}; {"acquire": ["t-0", "t-1"]} -> {"leases": [["t-1", 17]]}, all of them
that are free, or the first that becomes free; {"release": "t-1", "records": 23} has no answer; {"leave": true} -> {},
when the server has read all of that: then the next task may join over the same connection.
{"complete": token} -> {"written": {"t-1": 40}}; {"committed": token, ...}, with the fields of `Following`, has no
answer; {"drop": token} -> {}.
An answer {"error": "..."} ends the conversation. The first line of a peer has a token and is short; a peer that sends
no such line in time is cut off. From the process that started the server, on standard input, which no other process
can read: where to listen, then {"open": token, "owner": "...", "follows": true} -> the `Following` that the owner's
last transaction left, or null. Its earlier transactions are void then.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

LINE_BYTES: Final = 64 * 1024 * 1024
"""A line names all partitions that a task has rows for, or that were written to."""


class LeaseError(RuntimeError):
    """The micro-batch cannot be finished; run again from the start, it can."""


class ListeningPlace(NamedTuple):
    """Where a lease server listens."""

    host: str
    """The address by which executors reach the driver."""
    port: int = 0
    """The first of the ports that are tried; 0 for any free one."""
    certificate: str = ""
    """A PEM file with the private key and its certificates; empty without TLS."""


def pem_settings(**given: str) -> Any:
    """The text of each `ssl.` setting: PEM files, defaults of Kafka otherwise."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.client.auth": "none",
        "ssl.protocol": "TLSv1.3",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "ssl.endpoint.identification.algorithm": "https",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    return lambda name: settings.get(name, "")


class Following(NamedTuple):
    """With what an owner's next transaction begins, where a commit has left it."""

    producer_id: int
    epoch: int
    """One that no task has written under."""
    batch_id: int
    """The last committed batch."""
    query_id: str


class Turn(Protocol):
    """What a task waits with for a lease; an `asyncio.Future[tuple[str, int]]` is one."""

    def done(self) -> bool:
        """Whether the task no longer waits."""
        ...

    def set_result(self, lease: tuple[str, int], /) -> None:
        """Give the task a lease and its next sequence."""
        ...

    def set_exception(self, error: LeaseError, /) -> None:
        """End the waiting without a lease."""
        ...


class _Waiter:
    """One wait of a task; it stands in the queue of each lease that the task wants."""

    __slots__ = ("holder", "task", "turn")

    def __init__(self, holder: object, task: int, turn: Turn) -> None:
        self.holder = holder
        self.task = task
        self.turn = turn


class _Slot:
    __slots__ = ("holder", "records", "waiters")

    def __init__(self) -> None:
        self.holder: object | None = None
        self.records = 0
        self.waiters: deque[_Waiter] = deque()

    @property
    def following(self) -> int:
        """The next sequence number of the partition."""
        return self.records & 0x7FFFFFFF


class Batch:
    """The leases of one transaction. Pure: whoever waits for a lease brings a turn, which a release completes.

    A release wakes the one task that has waited longest for this lease, and no other.
    """

    __slots__ = ("_is_complete", "_slots", "_tasks", "_waiting", "_wrote", "failure")

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._tasks: dict[int, object] = {}
        self._wrote: set[int] = set()
        self._waiting: dict[object, _Waiter] = {}
        self._is_complete = False
        self.failure: str | None = None

    def join(self, holder: object, task: int) -> None:
        """Begin an attempt of a task; earlier ones may no longer write. Raises LeaseError when one has written."""
        earlier = self._tasks.setdefault(task, holder)
        if earlier is not holder:
            if task in self._wrote:
                self.fail(
                    f"task {task} was started again after it had written rows; it failed, its executor was lost, or "
                    "spark.speculation is on, which does not go together with exactly once"
                )
            self._tasks[task] = holder
            self._end_waiting(earlier, _superseded(task))
        self.check()

    def acquire(self, holder: object, task: int, wanted: list[str]) -> list[tuple[str, int]]:
        """The free ones of the wanted leases and their next sequences; none while all are taken. Raises LeaseError."""
        self.check()
        if self._tasks.get(task) is not holder:
            raise _superseded(task)
        granted = []
        for name in wanted:
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = _Slot()
            if slot.holder is None:
                slot.holder = holder
                granted.append((name, slot.following))
        if granted:
            self._wrote.add(task)
        return granted

    def wait(self, holder: object, task: int, wanted: list[str], turn: Turn) -> None:
        """Complete the turn with the first of the wanted leases that is released. Call it when `acquire` gave none."""
        waiter = _Waiter(holder, task, turn)
        self._waiting[holder] = waiter
        for name in wanted:
            self._slots[name].waiters.append(waiter)

    def release(self, holder: object, name: str, records: int) -> None:
        """End a lease after this number of records; the batch fails if the task does not have it."""
        slot = self._slots.get(name)
        if slot is None or slot.holder is not holder or records < 0:
            self.fail(f"the lease of {name} was handed back by a task that does not have it")
            return
        slot.holder = None
        slot.records += records
        while slot.waiters:
            waiter = slot.waiters.popleft()
            # It may have got another lease meanwhile, and wait for others now, or be gone.
            if self._waiting.get(waiter.holder) is waiter and not waiter.turn.done():
                del self._waiting[waiter.holder]
                slot.holder = waiter.holder
                self._wrote.add(waiter.task)
                waiter.turn.set_result((name, slot.following))
                return

    def leave(self, holder: object) -> None:
        """A task is gone; with leases in hand it may have written anything."""
        self._waiting.pop(holder, None)
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
        """End the batch: later calls of its tasks raise LeaseError with the reason, and those that wait receive it."""
        self.failure = self.failure or reason
        for holder in list(self._waiting):
            self._end_waiting(holder, self._failed())

    def check(self) -> None:
        """Raise LeaseError if the batch has failed."""
        if self.failure is not None:
            raise self._failed()
        if self._is_complete:
            raise LeaseError("the transaction is being committed, nothing more can be written in it")

    def _failed(self) -> LeaseError:
        return LeaseError(f"the write has to be run again: {self.failure}")

    def _end_waiting(self, holder: object, error: LeaseError) -> None:
        waiter = self._waiting.pop(holder, None)
        if waiter is not None and not waiter.turn.done():
            waiter.turn.set_exception(error)

    def _held(self, holder: object) -> list[str]:
        return [name for name, slot in self._slots.items() if slot.holder is holder]


def _superseded(task: int) -> LeaseError:
    return LeaseError(f"another attempt of task {task} has begun, this one must not write")


# --- the driver's side ---


class Address(NamedTuple):
    """Where the lease server of a driver listens, and the secret that its tasks send."""

    host: str
    port: int
    token: str
    authority: str = ""
    """The authority of the server's certificate, as PEM text; empty without TLS."""

    def __repr__(self) -> str:
        """Without the token: it may be printed in a traceback."""
        return f"Address({self.host!r}, {self.port})"


class LeaseServer:
    """The server process as its owner sees it."""

    __slots__ = ("_host", "_lock", "_port", "_process", "pid")

    def __init__(self, place: ListeningPlace | str, watched_pid: int) -> None:
        """Listens on an address of this machine; ends when the watched process does. It starts meanwhile."""
        if isinstance(place, str):
            place = ListeningPlace(place)
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "odradek.spark.lease_server", str(watched_pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(place._asdict()) + "\n")
        self._process.stdin.flush()
        self._host = place.host
        self._port = 0
        self.pid = os.getpid()

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def process_id(self) -> int:
        """The process that serves."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the server thread runs."""
        return self._process.poll() is None

    def open_batch(self, owner: str, authority: str = "", *, follows: bool = False) -> tuple[Address, Following | None]:
        """Begin a transaction's leases, and say what the owner's last commit has left for it, if that is recent.

        The leases of the owner's earlier transactions are void. `follows`: it is one of many, and the next is to know
        what this one leaves. `authority` is the PEM file with the authority of the server's certificate, which tasks
        then trust. Another query may name another one. Raises LeaseError, OSError.
        """
        token = secrets.token_hex(16)
        assert self._process.stdin is not None
        with self._lock:
            if not self._port:
                line = self._output.readline()
                if not line.strip().isdecimal():
                    raise LeaseError(f"the lease server did not start on {self._host}: {line.strip() or 'it ended'}")
                self._port = int(line)
            self._process.stdin.write(json.dumps({"open": token, "owner": owner, "follows": follows}) + "\n")
            self._process.stdin.flush()
            answer = self._output.readline()
            if not answer:
                raise LeaseError("the lease server is gone")
        left = json.loads(answer)
        address = Address(self._host, self._port, token, Path(authority).read_text() if authority else "")
        return address, None if left is None else Following(*left)

    def close(self) -> None:
        """Stop listening and close the connections of tasks."""
        self._process.terminate()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
