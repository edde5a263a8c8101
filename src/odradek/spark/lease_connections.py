"""Conversations with a lease server: a task's, and that of the driver which ends a transaction. `leases` has the lines.

A process keeps its connection for the next task or micro-batch, as it does those to brokers: to connect and to be
accepted by the server's process takes as long as to write a few rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from odradek.ports.tls_contexts import client_context, tls_settings
from odradek.spark.leases import LINE_BYTES, Address, Following, LeaseError, pem_settings

KEPT_S: Final = 30.0
"""For so long a connection is kept without use: after a while firewalls forget one, and inform neither side."""


class ConnectionClosed(LeaseError):
    """The server has ended the conversation without a word."""


class _Connection:
    __slots__ = ("_reader", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def open(address: Address) -> _Connection:
        context: ssl.SSLContext | None = None
        if address.authority:
            context = client_context(tls_settings(pem_settings(ssl_truststore_certificates=address.authority)))
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=LINE_BYTES, ssl=context)
        return _Connection(reader, writer)

    def send(self, *messages: dict[str, Any]) -> None:
        self._writer.write(b"".join(json.dumps(each).encode() + b"\n" for each in messages))

    async def answer(self) -> dict[str, Any]:
        """Raises LeaseError."""
        line = await self._reader.readline()
        if not line:
            raise ConnectionClosed("the lease server beside the driver has closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LeaseError(answer["error"])
        return answer

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send the first message of a conversation, and close the connection if it gets no answer.

        Raises LeaseError, OSError.
        """
        try:
            self.send(message)
            return await self.answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._writer.close()


class Connections:
    """Those of one event loop: one is kept for each server while none needs it."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[Address, tuple[_Connection, float]] = {}

    async def join(self, address: Address, task: int) -> LeaseClient:
        """The conversation of a task. Raises LeaseError, OSError."""
        connection, _ = await self._ask(address, {"join": address.token, "task": task})
        return LeaseClient(connection, partial(self._keep, address))

    async def complete(self, address: Address) -> dict[str, int]:
        """Close a transaction's leases: the records written by partition. Raises LeaseError, OSError."""
        connection, answer = await self._ask(address, {"complete": address.token})
        self._keep(address, connection)
        written: dict[str, int] = answer["written"]
        return written

    def committed(self, address: Address, following: Following) -> None:
        """Let the server know what the transaction that was completed last has left.

        Where that does not arrive in time, the next transaction asks the brokers.
        """
        connection = self._take(address)
        if connection is not None:
            connection.send({"committed": address.token, **following._asdict()})
            self._keep(address, connection)

    async def drop(self, address: Address) -> None:
        """Give up a transaction: its tasks can no longer write. Raises LeaseError, OSError."""
        connection, _ = await self._ask(address, {"drop": address.token})
        self._keep(address, connection)

    def close(self) -> None:
        """Close what is kept."""
        for connection, _ in self._kept.values():
            connection.close()
        self._kept.clear()

    async def _ask(self, address: Address, first: dict[str, Any]) -> tuple[_Connection, dict[str, Any]]:
        """The answer to the first message of a conversation, and the connection that has it."""
        kept = self._take(address)
        if kept is not None:
            # It may have ended meanwhile. Said twice, a first message changes nothing, or is rejected.
            with contextlib.suppress(ConnectionClosed, OSError):
                return kept, await kept.ask(first)
        opened = await _Connection.open(address)
        return opened, await opened.ask(first)

    def _take(self, address: Address) -> _Connection | None:
        connection, since = self._kept.pop(address._replace(token=""), (None, 0.0))
        if connection is not None and time.monotonic() - since > KEPT_S:
            connection.close()
            return None
        return connection

    def _keep(self, address: Address, connection: _Connection) -> None:
        place = address._replace(token="")
        if place in self._kept:
            connection.close()
        else:
            self._kept[place] = connection, time.monotonic()


class LeaseClient:
    """A task's conversation with the server. One `acquire` at a time."""

    __slots__ = ("_connection", "_has_left", "_keep", "_released")

    def __init__(self, connection: _Connection, keep: Callable[[_Connection], None]) -> None:
        """`keep` takes the connection when the task has left."""
        self._connection = connection
        self._keep = keep
        self._released: list[dict[str, Any]] = []
        self._has_left = False

    async def acquire(self, wanted: list[str]) -> list[tuple[str, int]]:
        """(lease, next sequence) of all that are free, or of the first that becomes free. Raises LeaseError."""
        self._send({"acquire": wanted})
        answer = await self._connection.answer()
        return [(name, following) for name, following in answer["leases"]]

    def release(self, name: str, records: int) -> None:
        """End a lease after this number of records. What is ended in one turn of the loop goes out together."""
        if not self._released:
            asyncio.get_running_loop().call_soon(self._flush)
        self._released.append({"release": name, "records": records})

    async def leave(self) -> None:
        """Returns when the server knows of all that was handed back; nothing more can be written. Raises LeaseError."""
        self._send({"leave": True})
        await self._connection.answer()
        self._has_left = True

    def close(self) -> None:
        """End the conversation. A lease that was not ended fails the batch."""
        if self._has_left:
            self._keep(self._connection)
        else:
            self._flush()
            self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._connection.send(*self._released, message)
        self._released.clear()

    def _flush(self) -> None:
        if self._released:
            self._connection.send(*self._released)
            self._released.clear()
